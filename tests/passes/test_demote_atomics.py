"""How adjoints are added up: each rung of the ladder, by what is emitted and by what comes out."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import interpreter
from octants.analysis.memory.access_aliasing import ElementAliasing
from octants.analysis.sums.privatisation import PrivatisedSums, find_sums
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_module
from octants.ir.core import Array, Block, Companion, Module, Space, Task, Value
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.launch.gradients.derivative_variants import bare_reverse, differentiable
from octants.launch.gradients.taped_memory import memories_of
from octants.passes.sums import ordered_reductions
from octants.passes.sums.demote_atomics import demote_atomics
from octants.passes.sums.fix_summation_order import fix_summation_order
from octants.passes.sums.sum_in_registers import sum_in_registers
from octants.pipeline import Stage, finish
from octants.simplify import simplify
from octants.target import Capabilities
from octants.types.scalars import f16, f32, i32
from tests.autodiff.random_ir import Generator, forward, inputs
from tests.devices import on_cpu
from tests.ir.parser import parse
from tests.seeds import counts

ADJOINT, PRIMAL = Companion.ADJOINT, Companion.PRIMAL
N, M = 12, 5


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    yield
    qd.reset()


class World:
    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.x, self.y = (qd.field(qd.f64, N * M, needs_grad=True) for _ in range(2))
        self.grid = qd.field(qd.f64, (N, M), needs_grad=True)
        self.w = qd.field(qd.f64, 4, needs_grad=True)
        self.loss = qd.field(qd.f64, (), needs_grad=True)
        self.index = qd.field(qd.i32, N)
        self.constant = qd.field(qd.f64, N)
        for array in (self.x, self.y, self.grid, self.w, self.constant):
            array.from_numpy(rng.uniform(0.5, 1.5, array.shape))
        self.index.from_numpy(rng.integers(0, N, N).astype(np.int32))

    # -- plain ----------------------------------------------------------------------------------

    @qd.kernel
    def own(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            self.loss[None] += self.x[i] ** 2

    @qd.kernel
    def own_backwards(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            self.loss[None] += self.x[2 * (n - 1 - i) + 1] ** 2 * self.x[2 * (n - 1 - i)]

    @qd.kernel
    def own_rows(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            for j in range(M):
                self.loss[None] += self.x[i * 5 + j] ** 3

    @qd.kernel
    def own_rows_by_an_argument(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            for j in range(m):
                self.loss[None] += self.x[i * m + j] ** 3

    @qd.kernel
    def own_cells(self, n: qd.i32, m: qd.i32):
        for i, j in qd.ndrange(n, m):
            self.loss[None] += self.x[i * m + j] ** 3

    @qd.kernel
    def own_cells_of_a_grid(self, n: qd.i32, m: qd.i32):
        for i, j in self.grid:
            self.loss[None] += self.grid[i, j] ** 3

    @qd.kernel
    def own_columns(self, n: qd.i32, m: qd.i32):
        for j in range(M):
            for i in range(n):
                self.loss[None] += self.grid[i, j] ** 3

    @qd.kernel
    def own_triangle(self, n: qd.i32, m: qd.i32):
        for i in range(M):
            for j in range(i):
                self.loss[None] += self.x[i * 4 + j] ** 3

    # -- atomic ---------------------------------------------------------------------------------

    @qd.kernel
    def neighbours(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            self.loss[None] += self.x[i] * self.x[i + 1]

    @qd.kernel
    def rows_that_overlap(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            for j in range(M + 1):
                if i * 5 + j < n * m:
                    self.loss[None] += self.x[i * 5 + j] ** 3

    @qd.kernel
    def rows_of_unknown_length(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            for j in range(self.index[i] % 4):
                self.loss[None] += self.x[i * m + j] ** 3

    @qd.kernel
    def indirect(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            self.loss[None] += self.x[self.index[i]] ** 3

    @qd.kernel
    def pairs(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            self.loss[None] += self.x[i // 2] ** 3

    @qd.kernel
    def bytes_that_wrap(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            self.loss[None] += self.x[qd.cast(qd.cast(i * 64, qd.u8), qd.i32) % 40] ** 2

    @qd.kernel
    def two_ways(self, n: qd.i32, m: qd.i32):
        for i in range(n):
            self.loss[None] += self.x[i] ** 3 * self.x[n - 1 - i]


PLAIN = [name for name in vars(World) if name.startswith("own")]
ATOMIC = [
    "neighbours",
    "rows_that_overlap",
    "rows_of_unknown_length",
    "indirect",
    "pairs",
    "bytes_that_wrap",
    "two_ways",
]


def emitted(kernel: Any, *arguments: Any) -> str:
    text: str = kernel.inspect(*arguments, mode="reverse").stages["finish"]
    return text


def check_gradient(w: World, kernel: Any, arrays: list[Any]) -> None:
    with qd.ad.Tape(loss=w.loss):
        kernel(N, M)
    for array in arrays:
        values, gradient = array.to_numpy(), array.grad.to_numpy()
        slope = np.zeros_like(values)
        for index in np.ndindex(values.shape):
            ends = []
            for sign in (1, -1):
                moved = values.copy()
                moved[index] += sign * 1e-6
                array.from_numpy(moved)
                w.loss[None] = 0
                kernel(N, M)
                ends.append(w.loss[None])
            slope[index] = (ends[0] - ends[1]) / 2e-6
        array.from_numpy(values)
        np.testing.assert_allclose(gradient, slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PLAIN)
def test_own_elements_get_plain_additions(name: str) -> None:
    w = World()
    text = emitted(getattr(w, name), N, M)
    assert "store<@x, adjoint>" in text or "store<@grid, adjoint>" in text
    assert not re.search(r"atomic<\w+, @(x|grid), adjoint>", text)
    check_gradient(w, getattr(w, name), [w.x, w.grid])


@pytest.mark.parametrize("name", ATOMIC)
def test_elements_that_may_be_shared_get_atomic_ones(name: str) -> None:
    w = World()
    text = emitted(getattr(w, name), N, M)
    assert "atomic<add, @x, adjoint>" in text
    assert "store<@x, adjoint>" not in text
    check_gradient(w, getattr(w, name), [w.x])


def test_nothing_is_added_to_what_has_no_gradient() -> None:
    w = World()

    @qd.kernel
    def weigh():
        for i in w.constant:
            w.loss[None] += w.constant[i] * w.x[i]

    assert "@constant, adjoint" not in emitted(weigh)


def test_serial_tasks_need_no_atomics() -> None:
    w = World()

    @qd.kernel
    def first():
        w.loss[None] += w.x[0] * w.x[1]

    assert "atomic" not in emitted(first)
    assert "atomic" not in first.inspect().stages["finish"]


# -- what the analysis claims, against all work items and iterations ------------------------------


class Accesses:
    """A random task that updates one array by a few random indices, and who touches what."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.x = Array(
            "x", f32, self.random.choice((1, 1, 2)), Space.NDARRAY, layouts={PRIMAL: None}
        )
        self.n = Array("n", i32, 0, Space.ARGUMENT, layouts={PRIMAL: None})
        self.items = self.random.randrange(2, 13)
        body = Block([Value(i32)])
        self.builder = b = Builder(body)
        size = b.load(self.n, [])
        self.known = [body.args[0], body.args[0], size]
        for divisor in self.random.sample([b.index(2), b.index(3), size], self.random.randrange(3)):
            for fn in ("floordiv", "mod"):
                self.known.append(b.binary(fn, body.args[0], divisor))
        self.loops(self.random.randrange(3))
        b.yield_()
        domain = Builder()
        domain.yield_([domain.index(0), domain.index(self.items)])
        self.task = Task("t", body, domain.block)
        self.module = Module("k", [self.x, self.n], tasks=[self.task])

    def loops(self, depth: int) -> None:
        b, pick = self.builder, self.random.choice
        if depth:
            body = Block([Value(i32)])
            upper = pick([b.index(self.random.randrange(1, 5)), self.known[2], pick(self.known)])
            with b.into(body):
                self.known.append(body.args[0])
                self.loops(depth - 1)
                b.yield_()
            b.for_(b.index(pick((0, 0, 1))), upper, [], body)
        else:
            for _ in range(self.random.choice((1, 1, 2))):
                indices = [self.index() for _ in range(self.x.rank)]
                b.atomic("add", self.x, indices, b.constant(1.0, f32))

    def index(self) -> Value:
        b, pick = self.builder, self.random.choice
        total = b.index(self.random.randrange(40))
        for _ in range(self.random.randrange(1, 4)):
            factor = pick([b.index(pick((1, 1, 2, 3, 4, 5, 6, 12, -1))), self.known[2]])
            total = b.binary(
                pick(("add", "add", "sub")), total, b.binary("mul", pick(self.known), factor)
            )
        return total

    def touched(self, n: int) -> dict[tuple[int, ...], set[int]]:
        """The work items that update each element."""
        found: dict[tuple[int, ...], set[int]] = {}
        watched = _Watched(self.module, self.x, self.n, n, found)
        for item in range(self.items):
            watched.now = item
            watched.item(self.task.body, {self.task.body.args[0]: item})
        return found


class _Watched(interpreter.Interpreter):
    """Notes the elements that are updated."""

    def __init__(
        self, module: Module, x: Array, n: Array, size: int, found: dict[tuple[int, ...], set[int]]
    ) -> None:
        super().__init__({(n, PRIMAL): np.array(size, np.int32)})
        self.now = 0
        self.x = x
        self.found = found

    def block(self, block: Block, environment: dict[Value, Any]) -> list[Any]:
        for op in block.ops:
            if isinstance(op, ops.Atomic):
                place = tuple(environment[index] for index in op.indices)
                self.found.setdefault(place, set()).add(self.now)
            else:
                interpreter.HANDLERS[type(op)](self, op, environment)
        return [environment[value] for value in block.yielded]


@pytest.mark.parametrize("count", counts(300, 1500))
def test_owned_elements_are_touched_by_one_work_item(count: int) -> None:
    claims = 0
    for seed in range(count):
        random_task = Accesses(seed)
        simplify(random_task.module)
        if not random_task.module.tasks:  # none of its loops runs
            continue
        (task,) = random_task.module.tasks
        random_task.task = task
        updates: list[Any] = [op for op in task.body.walk() if isinstance(op, ops.Atomic)]
        if not ElementAliasing(task).is_owned(updates):
            continue
        claims += 1
        for n in (1, 2, 3, 4, 7):
            touched = random_task.touched(n)
            assert all(len(items) == 1 for items in touched.values()), (seed, n)
    assert claims > count // 10


# -- arguments that are the same memory -----------------------------------------------------------


@qd.kernel
def add_product(
    a: qd.types.ndarray(ndim=1), b: qd.types.ndarray(ndim=1), out: qd.types.ndarray(ndim=1)
):
    for i in range(a.shape[0]):
        out[i] += a[i] * b[a.shape[0] - 1 - i]


def test_one_array_for_two_arguments() -> None:
    a, b, out = (qd.ndarray(qd.f64, 6, needs_grad=True) for _ in range(3))
    a.from_numpy(np.arange(1.0, 7.0))
    b.from_numpy(np.arange(2.0, 8.0))
    for pair, wanted in (((a, b), b.to_numpy()[::-1]), ((a, a), 2 * a.to_numpy()[::-1])):
        for array in (a, b):
            array.grad.fill(0.0)
        out.grad.fill(1.0)
        add_product.grad(*pair, out)
        assert a.grad.to_numpy().tolist() == wanted.tolist()
    assert "atomic" not in emitted(add_product, a, b, out)


def texts(kernel: Any, arguments: tuple[Any, ...]) -> tuple[bool, str]:
    """Whether no arrays of a launch alias, and its reverse kernel."""
    specialisation = kernel.specialise(arguments)
    merged = differentiable(specialisation, memories_of(specialisation, arguments))
    program = bare_reverse(merged).program
    return merged.noalias, to_text(program.module)


def test_merged_arguments_collide() -> None:
    a, out = (qd.ndarray(qd.f64, 6, needs_grad=True) for _ in range(2))
    noalias, text = texts(add_product, (a, a, out))
    assert noalias
    assert "atomic<add, @a, adjoint>" in text


def test_a_gradient_that_is_an_argument_too() -> None:
    a, out = (qd.ndarray(qd.f64, 6, needs_grad=True) for _ in range(2))
    b = qd.ndarray(qd.f64, 6, needs_grad=True)
    for other, wanted in ((b, True), (a.grad, False)):
        noalias, _ = texts(add_product, (a, other, out))
        assert noalias is wanted


def test_primal_updates_where_arguments_may_be_the_same() -> None:
    @qd.kernel
    def one(a: qd.types.ndarray(ndim=1), b: qd.types.ndarray(ndim=1)):
        for i in range(a.shape[0]):
            a[i] += b[i]

    @qd.kernel
    def both(a: qd.types.ndarray(ndim=1), b: qd.types.ndarray(ndim=1)):
        for i in range(a.shape[0]):
            a[i] += 1.0
            b[a.shape[0] - 1 - i] += 1.0

    a, b = (qd.ndarray(qd.f64, 6) for _ in range(2))
    assert "atomic" not in one.inspect(a, b).stages["finish"]
    assert "atomic" not in both.inspect(a, b).stages["finish"]  # most launches: none is shared
    aliased = both.specialise(both.bind_arrays((a, a), {})).primal_of_aliases
    assert to_text(aliased.module).count("atomic") == 2


# -- places that a loop does not change -----------------------------------------------------------


def test_a_place_outside_of_a_loop_is_summed_up_in_it() -> None:
    w = World()

    @qd.kernel
    def interact(n: qd.i32, m: qd.i32):
        for i in range(n):
            first, k = w.index[i], 0
            while k < 5:
                j = (i + k) % n
                if w.constant[j] > 0.7:
                    w.loss[None] += w.x[first] * w.x[j] * w.w[2]
                k += 1

    text = emitted(interact, N, M)
    loop = text[text.index("for(") :]
    inner = loop[: loop.index("\n  }\n")]
    assert inner.count("atomic<add, @x, adjoint>") == 1  # that of x[j]
    assert "@w, adjoint" not in inner
    check_gradient(w, interact, [w.x, w.w])


LOOP = """
kernel @k
array @x: {dtype}, 1, ndarray, () [primal]
array @y: {dtype}, 1, ndarray, () [primal]
parallel @k_0 {{
  %0: i32 = constant<0>()
  %1: i32 = constant<4>()
  yield(%0, %1)
}} {{ (%i: i32):
  %zero: i32 = constant<0>()
  %two: i32 = constant<2>()
  %half: i32 = binary<floordiv>(%i, %two)
  for(%zero, %i) {{ (%j: i32):
    %v: {dtype} = load<@y, primal>(%j)
    {step}
    yield()
  }}
  yield()
}}
"""

STEPS = {
    "an update": ("%a: {dtype} = atomic<add, @x, primal>(%v, %half)", True),
    "an update of what varies": ("%a: {dtype} = atomic<add, @x, primal>(%v, %j)", False),
    "with another that varies": (
        (
            "%a: {dtype} = atomic<add, @x, primal>(%v, %half)\n"
            "%b: {dtype} = atomic<sub, @x, primal>(%v, %j)"
        ),
        True,
    ),
    "with a look at the place": (
        (
            "%a: {dtype} = atomic<add, @x, primal>(%v, %half)\n"
            "%b: {dtype} = load<@x, primal>(%j)\nstore<@y, primal>(%b, %j)"
        ),
        False,
    ),
    "with its own value": (
        "%a: {dtype} = atomic<add, @x, primal>(%v, %half)\nstore<@y, primal>(%a, %j)",
        False,
    ),
    "a maximum": ("%a: {dtype} = atomic<max, @x, primal>(%v, %half)", False),
    "in an if": (
        (
            "%c: u1 = compare<lt>(%j, %two)\n"
            "if(%c) {{ %a: {dtype} = atomic<sub, @x, primal>(%v, %half)\nyield() }} {{ yield() }}"
        ),
        True,
    ),
}


@pytest.mark.parametrize("dtype", [f16, f32, i32], ids=str)
@pytest.mark.parametrize("name", STEPS)
def test_what_is_summed_up(name: str, dtype: Any) -> None:
    step, collects = STEPS[name]
    module = parse(LOOP.format(dtype=dtype, step=step.format(dtype=dtype)))
    verify(module)
    before = {n: np.arange(1, 6).astype(dtype.numpy) for n in "xy"}
    after = {n: v.copy() for n, v in before.items()}
    interpreter.run(module, before)
    sum_in_registers(module)
    verify(module)
    loop = next(op for op in module.walk() if isinstance(op, ops.For))
    assert bool(loop.inits) is collects
    interpreter.run(module, after)
    for n in "xy":
        assert before[n].tolist() == after[n].tolist()


def test_a_place_need_not_exist_if_nothing_is_added() -> None:
    step = "%a: f32 = atomic<add, @x, primal>(%v, %half)"
    module = parse(LOOP.format(dtype=f32, step=step).replace("floordiv", "shl"))
    sum_in_registers(module)
    data = {"x": np.zeros(5, np.float32), "y": np.ones(5, np.float32)}
    module.tasks[0].domain.ops[1].value = 1  # type: ignore[union-attr,attr-defined]
    data["x"] = np.zeros(0, np.float32)
    interpreter.run(module, data)


# -- one place for all work items -----------------------------------------------------------------


def parallel_updates(text: str) -> int:
    """How many atomic instructions the work items of the only task execute."""
    task = text[text.index("define internal void @octants_") :]
    loop = task[task.index("\nitem:") : task.index("\nreturn:")]
    return len(re.findall("atomicrmw|cmpxchg", loop))


@on_cpu
def test_a_parameter_costs_an_update_for_each_chunk() -> None:
    w = World()

    @qd.kernel
    def model(k: qd.i32):
        for i in range(N):
            w.loss[None] += w.x[i] * w.w[k + 1] + w.w[0] * w.w[0]

    inspection = model.inspect(1, mode="reverse")
    assert inspection.stages["finish"].count("atomic<add, @w, adjoint>") == 2
    assert parallel_updates(inspection.llvm_ir) == 0
    with qd.ad.Tape(loss=w.loss):
        model(1)
    x, weights = w.x.to_numpy()[:N], w.w.to_numpy()
    np.testing.assert_allclose(w.w.grad.to_numpy(), [2 * N * weights[0], 0, x.sum(), 0])


@on_cpu
def test_a_parameter_among_array_arguments() -> None:
    @qd.kernel
    def model(
        x: qd.types.ndarray(ndim=1), p: qd.types.ndarray(ndim=1), loss: qd.types.ndarray(ndim=1)
    ):
        for i in range(x.shape[0]):
            loss[0] += x[i] * p[0] + p[p.shape[0] - 1]

    x, p, loss = (qd.ndarray(qd.f64, n, needs_grad=True) for n in (100, 3, 1))
    inspection = model.inspect(x, p, loss, mode="reverse")
    assert inspection.stages["finish"].count("atomic<add, @p, adjoint>") == 2
    assert parallel_updates(inspection.llvm_ir) == 0
    assert parallel_updates(model.inspect(x, p, loss).llvm_ir) == 0
    x.fill(0.5)
    with qd.ad.Tape(loss=loss):
        model(x, p, loss)
    assert p.grad.to_numpy().tolist() == [50.0, 0.0, 100.0]


# -- the passes change nothing ---------------------------------------------------------------------

PASSES: list[tuple[str, Callable[[Module, bool], None]]] = [
    ("sum_in_registers", sum_in_registers),
    ("demote_atomics", demote_atomics),
    ("fix_summation_order", fix_summation_order),
    ("ordered_reductions", partial(fix_summation_order, many=True)),
]


@pytest.fixture
def few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter runs them one by one."""
    monkeypatch.setattr(ordered_reductions, "MOST", 16)
    monkeypatch.setattr(ordered_reductions, "LEAST", 2)
    monkeypatch.setattr(ordered_reductions, "_BRANCHES", 4)


@pytest.mark.parametrize("count", counts(20, 60))
@pytest.mark.usefixtures("few_threads")
def test_random_modules_do_the_same(count: int) -> None:
    changed: dict[str, int] = dict.fromkeys((name for name, _ in PASSES), 0)
    for seed in range(count):
        module = Generator(seed).module()
        simplify(module)
        wanted = forward(module, inputs(seed))
        original, module = module, copy_module(module)
        for name, run in PASSES:
            if name == "ordered_reductions":
                module = copy_module(original)
            text = to_text(module)
            run(module, True)
            verify(module)
            changed[name] += to_text(module) != text
            got = forward(module, inputs(seed))
            for array, value in wanted.items():
                np.testing.assert_allclose(got[array], value, rtol=1e-9, atol=1e-12)
    assert all(times > count // 6 for times in changed.values()), changed


@pytest.mark.parametrize("fills", [0, 1000])
def test_fixed_order_leaves_no_order_to_chance(fills: int) -> None:
    for seed in range(40):
        module = Generator(seed).module()
        simplify(module)
        stage = Stage(Capabilities(deterministic=True, fills=fills), verifies=True)
        module = finish(module, stage, noalias=True)
        for task in module.tasks:
            left = [op for op in task.body.walk() if isinstance(op, ops.Atomic)]
            kept = find_sums(task, True) if task.options.get("fixed_order") else PrivatisedSums()
            left = [op for op in left if (op.array, op.companion) not in kept]
            assert not (task.is_parallel and left), to_text(module)
