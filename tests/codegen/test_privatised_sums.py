"""Sums at varying places: which workers are made disjoint and how, by code and by results."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import interpreter
from octants.analysis.sums.privatisation import AlternatingChunks, PrivatisedSums, find_sums
from octants.backends.table import backend_of
from octants.codegen.llvm import cpu
from octants.codegen.llvm.lanes.vector_capabilities import lanes_of_target
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Array, Block, Companion, Module, Space, Task, Value
from octants.launch.gradients.explain_gradient_report import AdjointUpdate
from octants.simplify import simplify
from octants.types.scalars import f32, i32
from tests.codegen.compiled import TARGET
from tests.ir.parser import parse
from tests.seeds import counts, pairwise

PRIMAL = Companion.PRIMAL
N, M = 70, 90  # enough work items for several chunks


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    yield
    qd.reset()


def start(threads: int = 2, simd: bool = False, **chosen: Any) -> None:
    qd.init(
        arch=qd.cpu,
        default_fp=qd.f64,
        cpu_max_num_threads=threads,
        simd=simd,
        log_level="error",
        **chosen,
    )


class World:
    """Small whole numbers, so that sums are the same in any order."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.x = qd.field(qd.f64, N * M + 4, needs_grad=True)
        self.grid = qd.field(qd.f64, (N, M), needs_grad=True)
        self.cube = qd.field(qd.f64, (30, 8, 25), needs_grad=True)
        self.table = qd.field(qd.f64, 23, needs_grad=True)
        self.pairs = qd.Vector.field(2, qd.f64, 200, needs_grad=True)
        self.filter = qd.field(qd.f64, (3, 3), needs_grad=True)
        self.y = qd.field(qd.f64, N * M, needs_grad=True)
        self.index = qd.field(qd.i32, N * M)
        self.inputs = (self.x, self.grid, self.cube, self.table, self.pairs, self.filter)
        for array in self.inputs:
            shape = array.to_numpy().shape
            array.from_numpy(rng.integers(-3, 4, shape).astype(np.float64))
        self.index.from_numpy(rng.integers(0, 23, N * M).astype(np.int32))

    # -- in turns -------------------------------------------------------------------------------

    @qd.kernel
    def line(self, n: qd.i32, m: qd.i32):
        for i in range(1, n * m - 1):
            self.y[i] = self.x[i - 1] * self.x[i] - 2.0 * self.x[i + 1]

    @qd.kernel
    def pool(self, n: qd.i32, m: qd.i32):
        for i in range(n * m // 2):
            for k in range(4):
                self.y[i] += self.x[2 * i + k] * k

    @qd.kernel
    def five(self, n: qd.i32, m: qd.i32):
        for i, j in qd.ndrange((1, N - 1), (1, M - 1)):
            far = self.grid[i - 1, j] + self.grid[i + 1, j]
            near = self.grid[i, j - 1] + self.grid[i, j + 1]
            self.y[i * M + j] = (far + near - 4.0 * self.grid[i, j]) * self.grid[i, j]

    @qd.kernel
    def by_arguments(self, n: qd.i32, m: qd.i32):
        for i, j in qd.ndrange(n, m):
            if i > 0:
                self.y[i * m + j] += 3.0 * self.grid[i - 1, j]
            self.y[i * m + j] += self.grid[min(i + 1, n - 1), (j + 1) % m]

    @qd.kernel
    def clamped(self, n: qd.i32, m: qd.i32):
        for i, j in self.grid:
            up, down = max(i - 1, 0), min(i + 1, N - 1)
            self.y[i * M + j] = self.grid[up, j] * self.grid[down, M - 1 - j]

    @qd.kernel
    def around(self, n: qd.i32, m: qd.i32):
        for i, j in self.grid:
            above, below = self.grid[(i + N - 1) % N, j], self.grid[(i + 1) % N, (j - 1) % M]
            self.y[i * M + j] = above * below

    @qd.kernel
    def solid(self, n: qd.i32, m: qd.i32):
        for i, j, k in self.cube:
            if i > 0 and i < 29:
                self.y[(i * 8 + j) * 25 + k] = self.cube[i - 1, j, k] * self.cube[i + 1, 7 - j, k]

    @qd.kernel
    def convolve(self, n: qd.i32, m: qd.i32):
        for i, j in qd.ndrange(N - 2, M - 2):
            for a in range(3):
                for b in range(3):
                    self.y[i * M + j] += self.filter[a, b] * self.grid[i + a, j + b]

    # -- in parts -------------------------------------------------------------------------------

    @qd.kernel
    def look_up(self, n: qd.i32, m: qd.i32):
        for i in range(n * m):
            self.y[i] = self.table[self.index[i]] ** 2 * self.x[i]

    @qd.kernel
    def interact(self, n: qd.i32, m: qd.i32):
        for i in range(200):
            for j in range(200):
                if j != i:
                    d = self.pairs[j] - self.pairs[i]
                    self.y[i] += d[0] * d[1] + d[1]

    @qd.kernel
    def triangle(self, n: qd.i32, m: qd.i32):
        for i in range(200):
            for j in range(i):
                self.y[i] += self.pairs[j][0] * self.pairs[i][1]

    @qd.kernel
    def network(self, n: qd.i32, m: qd.i32):
        for i in range(n * m):
            for k in range(23):
                self.y[i] += self.table[k] * self.x[i]
            self.y[i] += self.table[n // 100]


TURNS = ("line", "pool", "five", "by_arguments", "clamped", "around", "solid", "convolve")
PARTS = ("look_up", "interact", "triangle", "network")


def gradients(world: World, name: str) -> list[Any]:
    kernel = getattr(world, name)
    kernel(N, M)
    for array in world.inputs:
        array.grad.fill(0.5)  # what is there already stays
    world.y.grad.from_numpy(np.arange(N * M) % 5 - 2.0)
    kernel.grad(N, M)
    return [array.grad.to_numpy() for array in world.inputs]


def without_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "find_sums", lambda *_: PrivatisedSums())


@pytest.fixture(scope="module")
def wanted() -> Callable[[str], list[Any]]:
    """The gradients by way of atomics."""
    known: dict[str, list[Any]] = {}

    def find(name: str) -> list[Any]:
        if name not in known:
            with pytest.MonkeyPatch.context() as patch:
                without_sums(patch)
                start()
                known[name] = gradients(World(), name)
        return known[name]

    return find


@pytest.mark.parametrize(
    ("name", "threads", "simd"), pairwise(TURNS + PARTS, [1, 2, 3, 8], [False, True])
)
def test_gradients_are_those_of_atomics(
    name: str, threads: int, simd: bool, wanted: Callable[[str], list[Any]]
) -> None:
    atomically = wanted(name)
    start(threads, simd)
    for one, other in zip(gradients(World(), name), atomically, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", TURNS + PARTS)
def test_gradients_are_those_of_atomics_in_debug_mode(
    name: str, wanted: Callable[[str], list[Any]]
) -> None:
    atomically = wanted(name)
    start(3, debug=True)
    for one, other in zip(gradients(World(), name), atomically, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", TURNS + PARTS)
def test_gradients_are_slopes(name: str) -> None:
    start()
    world = World()
    found = gradients(world, name)
    weights = np.arange(N * M) % 5 - 2.0
    rng = np.random.default_rng(1)
    for array, gradient in zip(world.inputs, found, strict=True):
        values, direction = array.to_numpy(), rng.uniform(-1, 1, array.to_numpy().shape)
        ends = []
        for sign in (1, -1):
            array.from_numpy(values + sign * 1e-3 * direction)
            world.y.fill(0.0)
            getattr(world, name)(N, M)
            ends.append(world.y.to_numpy() @ weights)
        array.from_numpy(values)
        slope = (ends[0] - ends[1]) / 2e-3
        np.testing.assert_allclose(
            ((gradient - 0.5) * direction).sum(), slope, rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("name", TURNS + PARTS)
def test_a_fixed_order_gives_the_same_bits(name: str) -> None:
    def bits(threads: int, simd: bool) -> list[bytes]:
        start(threads, simd, deterministic=True)
        world = World()
        rng = np.random.default_rng(2)
        for array in world.inputs:
            array.from_numpy(rng.uniform(-1, 1, array.to_numpy().shape))
        return [gradient.tobytes() for gradient in gradients(world, name)]

    for simd in (False, True):
        alone = bits(1, simd)
        assert all(bits(threads, simd) == alone for threads in (2, 3, 8))


# -- what is emitted ---------------------------------------------------------------------------


def task_of(text: str) -> str:
    """The function that runs the work items."""
    return text[text.index("define internal void @octants_") : text.index("define void @octants_")]


@pytest.mark.parametrize("name", TURNS + PARTS)
def test_what_is_emitted_and_explained(name: str) -> None:
    start()
    world = World()
    kernel = getattr(world, name)
    explanation = kernel.grad.explain(N, M)
    updates = {array.name: {update for update, _ in array.updates} for array in explanation.arrays}
    used = set().union(*updates.values())
    assert AdjointUpdate.ATOMIC not in used
    assert (AdjointUpdate.ALTERNATING if name in TURNS else AdjointUpdate.PRIVATISED) in used
    if name == "convolve":
        assert (updates["grid"], updates["filter"]) == (
            {AdjointUpdate.ALTERNATING},
            {AdjointUpdate.PRIVATISED},
        )
        assert "72 bytes" in explanation.text()
    code = kernel.inspect(N, M, mode="reverse").llvm_ir
    assert ("_combine_0(" in code) is (AdjointUpdate.PRIVATISED in used)
    for block in task_of(code).split("\ntogether")[0:1]:
        assert "atomicrmw" not in block
    assert code.count("atomicrmw") <= code.count("\ntogether") + 2


@pytest.mark.skipif(not lanes_of_target(TARGET), reason="it is about vectors")
def test_a_loop_adds_in_vectors_where_workers_are_separate() -> None:
    start(simd=False)
    weight = qd.field(qd.f32, (64, 64), needs_grad=True)
    x, y = (qd.field(qd.f32, (40, 64), needs_grad=True) for _ in range(2))

    @qd.kernel
    def layer():
        for i, j in y:
            s = 0.0
            for k in range(64):
                s += weight[j, k] * x[i, k]
            y[i, j] = s

    module = layer.inspect(mode="reverse").stages["finish"]
    text = cpu.optimised_llvm_text(parse(module), cpu.host_target(), fast_math=True)
    names = r"define internal void @\w+_task_0(_flushing)?\(.*?\n}"
    task = max((found[0] for found in re.finditer(names, text, re.DOTALL)), key=len)
    assert re.search(r"store <\d+ x float>", task)
    assert "atomicrmw" in task


@pytest.mark.parametrize("stride", [1, 5])
def test_forward_sums_have_parts(stride: int) -> None:
    start(3)
    world = World()
    count = qd.field(qd.i32, 23 * stride)

    @qd.kernel
    def histogram():
        for i in world.index:
            count[stride * world.index[i]] += 1

    assert "_combine_0(" in histogram.inspect().llvm_ir
    histogram()
    found = np.bincount(stride * world.index.to_numpy(), minlength=23 * stride)
    assert count.to_numpy().tolist() == found.tolist()


def test_who_looks_at_a_sum_has_no_parts() -> None:
    start()
    world = World()
    count = qd.field(qd.i32, 23)

    @qd.kernel
    def number():
        for i in world.index:
            world.y[i] = qd.atomic_add(count[world.index[i]], 1)

    @qd.kernel
    def watch():
        for i in world.index:
            count[world.index[i]] += 1
            world.y[i] = count[0]

    @qd.kernel
    def extreme():
        for i in world.index:
            count[world.index[i]] += 1
            qd.atomic_max(count[i % 3], 1)

    for kernel in (number, watch, extreme):
        text = kernel.inspect().llvm_ir
        assert "_combine_0(" not in text
        assert "atomicrmw" in text


def test_arguments_that_may_be_one_array_have_no_parts() -> None:
    @qd.kernel
    def scatter(a: qd.types.ndarray(ndim=1), b: qd.types.ndarray(ndim=1)):
        for i in range(b.shape[0]):
            a[i * 7919 % 11] += b[i]

    @qd.kernel
    def gather(a: qd.types.ndarray(ndim=1), b: qd.types.ndarray(ndim=1)):
        for i in range(b.shape[0]):
            b[i] = a[i * 7919 % 11]

    start(3)
    a, b = (qd.ndarray(qd.f64, 50_000, needs_grad=True) for _ in range(2))
    assert "_combine_0(" in scatter.inspect(a, b).llvm_ir  # most launches: none is shared
    specialisation = scatter.specialise(scatter.bind_arrays((a, a), {}))
    aliased = specialisation.primal_of_aliases.the_module
    text = backend_of(specialisation.options.arch).llvm_text(aliased, specialisation.options)
    assert "_combine_0(" not in text
    assert "_combine_0(" in gather.inspect(a, b, mode="reverse").llvm_ir
    b.grad.from_numpy(np.arange(50_000.0))
    gather.grad(a, b)
    squares = np.bincount(np.arange(50_000) * 7919 % 11, weights=np.arange(50_000.0), minlength=11)
    assert a.grad.to_numpy()[:11].tolist() == squares.tolist()
    # One array for both: the gradient of what is read goes to where that of what is written is.
    text = str(gather.grad.explain(a, a))
    assert "array of its own" not in text


def test_arguments_of_any_size() -> None:
    """Where parts are too large for what they save, the same code adds atomically."""

    @qd.kernel
    def gather(a: qd.types.ndarray(ndim=2), b: qd.types.ndarray(ndim=1)):
        for i in range(b.shape[0]):
            b[i] = a[i * i % a.shape[0], i % a.shape[1]]

    start(3)
    items = np.arange(20_000)
    for shape in ((1, 1), (3, 5), (400, 1000)):
        a, b = (qd.ndarray(qd.f64, size, needs_grad=True) for size in (shape, 20_000))
        b.grad.fill(1.0)
        gather.grad(a, b)
        places = items * items % shape[0] * shape[1] + items % shape[1]
        found = np.bincount(places, minlength=shape[0] * shape[1])
        np.testing.assert_array_equal(a.grad.to_numpy().ravel(), found)


def test_numbers_of_one_struct_have_no_parts() -> None:
    start(3)
    table, other = (qd.field(qd.f64, needs_grad=True) for _ in range(2))
    qd.root.dense(qd.i, 10).place(table, table.grad, other, other.grad)
    y = qd.field(qd.f64, 20_000, needs_grad=True)

    @qd.kernel
    def look_up():
        for i in y:
            y[i] = table[i * i % 10] + other[(i + 1) % 10]

    assert "_combine_0(" not in look_up.inspect(mode="reverse").llvm_ir
    y.grad.fill(1.0)
    look_up.grad()
    items = np.arange(20_000)
    found = np.bincount(items**2 % 10, minlength=10)
    assert table.grad.to_numpy().tolist() == found.tolist()


# -- what the analysis claims, against all work items and iterations ------------------------------


class Accesses:
    """A random task that adds to one array at a few random indices, near the work item's place."""

    def __init__(self, seed: int) -> None:
        self.random = pick = random.Random(seed)
        self.x = Array("x", f32, pick.choice((1, 2)), Space.NDARRAY, layouts={PRIMAL: None})
        self.n = Array("n", i32, 0, Space.ARGUMENT, layouts={PRIMAL: None})
        body = Block([Value(i32)])
        self.builder = b = Builder(body)
        self.size = b.load(self.n, [])
        self.lower = pick.choice((0, 0, 0, 2))
        self.rows = pick.choice((None, None, 6, 11))  # how many; None: as the argument says
        self.columns = pick.choice((1, 1, 2, 3))
        rows = self.size if self.rows is None else b.index(self.rows)
        item, columns = body.args[0], b.index(self.columns)
        row = b.binary("floordiv", item, columns)
        column = b.binary("mod", item, columns)
        if pick.random() < 0.2:
            row = b.binary("mul", row, b.index(2))
        inner = Block([Value(i32)])
        with b.into(inner):
            for _ in range(pick.choice((1, 2, 2, 3))):
                near = self.near(row, rows, inner.args[0])
                indices = [near] if self.x.rank == 1 else pick.sample([near, column], 2)
                b.atomic("add", self.x, indices, b.constant(1.0, f32))
            b.yield_()
        b.for_(b.index(0), b.index(pick.choice((1, 2, 3))), [], inner)
        b.yield_()
        domain = Builder()
        count = domain.load(self.n, []) if self.rows is None else domain.index(self.rows)
        upper = domain.binary("mul", count, domain.index(self.columns))
        domain.yield_([domain.index(self.lower), upper])
        self.task = Task("t", body, domain.block)
        self.module = Module("k", [self.x, self.n], tasks=[self.task])

    def near(self, row: Value, rows: Value, counter: Value) -> Value:
        b, pick = self.builder, self.random.choice
        moved = b.binary("add", row, b.index(pick((-2, -1, 0, 1, 2))))
        if pick((True, False)):
            moved = b.binary(pick(("add", "sub")), moved, counter)
        last = b.binary("sub", rows, b.index(1))
        kind = pick(("plain", "plain", "first", "last", "both", "around", "table"))
        if kind in ("first", "both"):
            moved = b.binary("max", moved, b.index(pick((0, 0, 1))))
        if kind in ("last", "both"):
            moved = b.binary("min", moved, last)
        if kind == "around":
            moved = b.binary("mod", moved, rows)
        if kind == "table" and pick((True, False, False)):
            moved = b.binary("mul", moved, moved)
        return moved

    def touched(self, n: int) -> list[set[tuple[int, ...]]]:
        """The elements that each work item updates."""
        watched = _Watched(self.module, self.n, n)
        count = (n if self.rows is None else self.rows) * self.columns
        for item in range(self.lower, count):
            watched.found.append(set())
            watched.item(self.task.body, {self.task.body.args[0]: item})
        return watched.found


class _Watched(interpreter.Interpreter):
    """Notes the elements that are updated."""

    def __init__(self, _: Module, n: Array, size: int) -> None:
        super().__init__({(n, PRIMAL): np.array(size, np.int32)})
        self.found: list[set[tuple[int, ...]]] = []

    def block(self, block: Block, environment: dict[Value, Any]) -> list[Any]:
        for op in block.ops:
            if isinstance(op, ops.Atomic):
                self.found[-1].add(tuple(environment[index] for index in op.indices))
            else:
                interpreter.HANDLERS[type(op)](self, op, environment)
        return [environment[value] for value in block.yielded]


def length_of(turns: AlternatingChunks) -> int:
    product = 1
    for op in turns.rematerialised:
        assert isinstance(op, ops.Constant)
        product *= op.value
    return turns.rows * product


def clashes(touched: list[set[tuple[int, ...]]], turns: AlternatingChunks) -> bool:
    """Whether chunks of the least length that are no neighbours touch one element."""
    length = length_of(turns)
    chunks = [touched[k : k + length] for k in range(0, len(touched), length)]
    sets = [set().union(*chunk) for chunk in chunks]
    if turns.wraps:  # as many whole chunks as make pairs; the rest is run by itself
        sets = sets[: len(touched) // length // 2 * 2]
    return any(one & other for k, one in enumerate(sets) for other in sets[k + 2 :: 2])


@pytest.mark.parametrize("count", counts(300, 1500))
def test_chunks_that_are_no_neighbours_touch_nothing_in_common(count: int) -> None:
    claims = wraps = 0
    for seed in range(count):
        random_task = Accesses(seed)
        simplify(random_task.module)
        (task,) = random_task.module.tasks
        random_task.task = task
        for turns in find_sums(task, True).alternating.values():
            claims += 1
            wraps += turns.wraps
            for n in (1, 2, 5, 12, 13):
                assert not clashes(random_task.touched(n), turns), (seed, n)
    assert claims > count // 5
    assert wraps > count // 50
