"""Facts about indices hold for integers that wrap, and for divisors that are zero or negative."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import interpreter
from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.analysis.memory.access_aliasing import ElementAliasing
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import Array, Block, Companion, Module, Space, Task, Value
from octants.simplify import simplify
from octants.types.scalars import DType, f32, i32, i64, integer_range

PRIMAL = Companion.PRIMAL
ENDS = (
    0,
    1,
    2,
    3,
    -1,
    -2,
    5,
    1 << 16,
    1 << 30,
    -(1 << 30),
    (1 << 31) - 1,
    (1 << 31) - 2,
    -(1 << 31),
)
FUNCTIONS = ("add", "sub", "mul", "floordiv", "mod", "min", "max", "shl", "shr", "and", "or", "xor")


class Wild:
    """A random task with integers near the ends of their types, and what happens in it.

    It updates, reads and stores to one array, in loops and branches. `legal` says whether all
    indices were in the bounds of the longest arrays that there can be.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        rank = self.random.choice((1, 1, 1, 2))
        self.x = Array("x", f32, rank, Space.NDARRAY, layouts={PRIMAL: None})
        self.n, self.m = (
            Array(name, i32, 0, Space.ARGUMENT, layouts={PRIMAL: None}) for name in "nm"
        )
        self.kind = self.random.choice((i32, i32, i32, i64))
        self.lower = self.random.choice((0, 0, 0, 0, 1, -2))
        self.count = self.random.randrange(1, 9)
        body = Block([Value(self.kind)])
        self.builder = b = Builder(body)
        sizes = [b.load(array, []) for array in (self.n, self.m)]
        self.known: dict[DType, list[Value]] = {i32: sizes, i64: []}
        self.known[self.kind] += [body.args[0]] * 3
        self.statements(2)
        b.yield_()
        domain = Builder()
        domain.yield_(
            [domain.constant(k, self.kind) for k in (self.lower, self.lower + self.count)]
        )
        self.task = Task("t", body, domain.block)
        self.module = Module("k", [self.x, self.n, self.m], tasks=[self.task])

    def statements(self, depth: int) -> None:
        pick = self.random.choice
        for _ in range(self.random.randrange(1, 3)):
            self.define()
            way = pick(("access", "access", "loop", "loop", "if")) if depth else "access"
            getattr(self, way)(depth)

    def define(self) -> None:
        for _ in range(self.random.randrange(3)):
            value = self.arithmetic()
            self.known[value.type].append(value)

    def access(self, _: int) -> None:
        b = self.builder
        indices = [self.index() for _ in range(self.x.rank)]
        way = self.random.choice(("atomic", "atomic", "load", "load", "store"))
        if way == "load":
            value = b.load(self.x, indices)
            b.store(self.x, [self.index() for _ in range(self.x.rank)], value)
        elif way == "store":
            b.store(self.x, indices, b.constant(1.0, f32))
        else:
            b.atomic("add", self.x, indices, b.constant(1.0, f32))

    def loop(self, depth: int) -> None:
        b, pick = self.builder, self.random.choice
        lower = pick([0, 0, 0, -1, (1 << 31) - 4, -(1 << 31)])
        upper = b.index(lower + self.random.randrange(1, 4))
        if lower == 0 and self.random.random() < 0.4:
            upper = self.known[i32][self.random.randrange(2)]
        body = Block([Value(i32)])
        known = {dtype: list(values) for dtype, values in self.known.items()}
        with b.into(body):
            self.known[i32] += [body.args[0]] * 2
            self.statements(depth - 1)
            b.yield_()
        self.known = known
        b.for_(b.index(lower), upper, [], body)

    def if_(self, depth: int) -> None:
        b = self.builder
        condition = b.compare(self.random.choice(("lt", "eq", "ne")), self.one(i32), self.one(i32))
        known = {dtype: list(values) for dtype, values in self.known.items()}
        then, orelse = Block(), Block()
        with b.into(then):
            self.statements(depth - 1)
            b.yield_()
        with b.into(orelse):
            b.yield_()
        self.known = known
        b.if_(condition, then, orelse)

    locals()["if"] = if_

    def one(self, dtype: DType) -> Value:
        if not self.known[dtype] or self.random.random() < 0.4:
            return self.builder.constant(self.random.choice(ENDS), dtype)
        return self.random.choice(self.known[dtype])

    def arithmetic(self) -> Value:
        b, pick = self.builder, self.random.choice
        dtype = pick((i32, i32, i32, i64))
        if self.random.random() < 0.25:
            other = i64 if dtype is i32 else i32
            return b.cast(self.one(other), dtype)
        fn = pick(("add", "add", "sub", "mul", "mul", *FUNCTIONS))
        return b.binary(fn, self.one(dtype), self.one(dtype))

    def index(self) -> Value:
        """A sum of products, as those are which analyses know."""
        b, pick = self.builder, self.random.choice
        dtype = pick((i32, i32, i32, i64))
        total = b.constant(pick((0, 0, 1, 7, *ENDS)), dtype)
        for _ in range(self.random.randrange(1, 4)):
            term = self.one(dtype)
            if self.random.random() < 0.6:
                factor = pick((1, 2, 3, 4, -1, *ENDS))
                other = b.constant(factor, dtype) if dtype is i64 else self.one(dtype)
                term = b.binary("mul", term, pick((other, b.constant(factor, dtype))))
            total = b.binary(pick(("add", "add", "sub")), total, term)
        return total

    def run(self, n: int, m: int) -> _Run | None:
        """What happens with these arguments; None if it takes long, or is not legal."""
        run = _Run(self, n, m)
        try:
            for item in range(self.lower, self.lower + self.count):
                run.now = item
                run.item(self.task.body, {self.task.body.args[0]: item})
        except _NotLegal:
            return None
        return run


class _NotLegal(Exception):
    """An index out of bounds, or a loop that is too long to be run."""


class _Run(interpreter.Interpreter):
    """Notes which work items access which elements by which operations, in order.

    `values` has the least and the greatest value of each integer.
    """

    def __init__(self, wild: Wild, n: int, m: int) -> None:
        sizes = {(wild.n, PRIMAL): n, (wild.m, PRIMAL): m}
        super().__init__({key: np.array(size, np.int32) for key, size in sizes.items()})
        self.now, self.left = 0, 4000
        self.events: list[tuple[int, Any, tuple[int, ...]]] = []
        self.values: dict[Value, tuple[int, int]] = {}

    def block(self, block: Block, environment: dict[Value, Any]) -> list[Any]:
        for op in block.ops:
            self.left -= 1
            if self.left < 0:
                raise _NotLegal
            if isinstance(op, ops.Access) and op.array.space is Space.NDARRAY:
                place = tuple(environment[index] for index in op.indices)
                if not all(0 <= index < (1 << 31) - 1 for index in place):
                    raise _NotLegal
                self.events.append((self.now, op, place))
                if isinstance(op, (ops.Load, ops.Atomic)):
                    environment[op.result] = 0.0
            else:
                interpreter.HANDLERS[type(op)](self, op, environment)
        for value in [*block.args, *(v for op in block.ops for v in op.results)]:
            found = environment.get(value)
            if value.type in (i32, i64) and found is not None:
                low, high = self.values.get(value, (found, found))
                self.values[value] = min(low, found), max(high, found)
        return [environment[value] for value in block.yielded]


def _runs(wild: Wild) -> Iterator[_Run]:
    for _ in range(6):
        sizes = [wild.random.choice((2, 3, 4, *ENDS)) for _ in range(2)]
        run = wild.run(*sizes)
        if run is not None:
            yield run


def _tasks(seeds: range) -> Iterator[Wild]:
    for seed in seeds:
        wild = Wild(seed)
        simplify(wild.module)
        if wild.module.tasks:
            (wild.task,) = wild.module.tasks
            yield wild


def test_owned_elements_are_touched_by_one_work_item() -> None:
    claims = 0
    for wild in _tasks(range(1000)):
        accesses: list[Any] = [op for op in wild.task.body.walk() if _is_access(op)]
        places = ElementAliasing(wild.task)
        owned = [op for op in accesses if places.is_owned([op])]
        all_owned = bool(accesses) and places.is_owned(accesses)
        if not owned:
            continue
        for run in _runs(wild):
            claims += 1
            touched: dict[Any, set[int]] = {}
            for item, op, place in run.events:
                if op in owned:
                    touched.setdefault((op, place), set()).add(item)
                if all_owned:
                    touched.setdefault(place, set()).add(item)
            assert all(len(items) == 1 for items in touched.values()), wild.module
    assert claims > 250


def test_reads_are_overwritten_only_where_that_was_foreseen() -> None:
    claims = 0
    for wild in _tasks(range(4000, 4800)):
        accesses: list[Any] = [op for op in wild.task.body.walk() if _is_access(op)]
        loads = [op for op in accesses if isinstance(op, ops.Load)]
        writes = [op for op in accesses if not isinstance(op, ops.Load)]
        places = ElementAliasing(wild.task)
        never = {
            (load, write)
            for load in loads
            for write in writes
            if not places.may_touch_later(load, write)
        }
        for run in _runs(wild) if never else ():
            claims += 1
            for number, (item, load, place) in enumerate(run.events):
                for later, write, written in run.events[number:]:
                    assert (load, write) not in never or written != place, (item, later)
                for other, write, written in run.events[:number]:
                    meets = other != item and written == place
                    assert (load, write) not in never or not meets, (item, other)
    assert claims > 60


def _is_access(op: Any) -> bool:
    return isinstance(op, ops.Access) and op.array.space is Space.NDARRAY


def test_values_are_in_their_ranges() -> None:
    narrow = 0
    for wild in _tasks(range(7000, 7400)):
        places = ElementAliasing(wild.task)
        for run in _runs(wild):
            for value, (low, high) in run.values.items():
                least, most = places.value_range(value)
                assert least <= low and high <= most, value
                narrow += (least, most) != integer_range(value.type)
    assert narrow > 500


@pytest.mark.parametrize("bits", [32, 64])
def test_expressions_wrap_as_their_types_do(bits: int) -> None:
    kind = i32 if bits == 32 else i64
    item = Value(kind)
    b = Builder(Block([item]))
    half = b.constant(1 << (bits - 1), kind)
    four = b.constant(4, kind)
    zero = b.binary("mul", b.binary("mul", item, half), four)
    again = b.binary("add", b.binary("add", b.binary("add", item, half), half), zero)
    domain = Builder()
    domain.yield_([domain.constant(0, kind), domain.constant(9, kind)])
    b.yield_()
    affine = AffineExpressions(Task("t", b.block, domain.block))
    assert (affine.expression(zero).terms, affine.expression(zero).constant) == ({}, 0)
    assert (affine.expression(again).terms, affine.expression(again).constant) == ({item: 1}, 0)


# -- programs --------------------------------------------------------------------------------------


@pytest.fixture(params=["always", "never"])
def runtime(request: pytest.FixtureRequest) -> Iterator[None]:
    qd.init(arch=qd.cpu, simd=request.param, default_fp=qd.f64, log_level="error")
    yield
    qd.reset()


@pytest.mark.usefixtures("runtime")
def test_a_stride_of_zero_modulo_two_to_the_32() -> None:
    x = qd.field(qd.f64, 4096)
    y = qd.field(qd.f64, 16)

    @qd.kernel
    def store():
        for i in range(1000):
            x[i * 65536 * 65536 + 3] = 2.0

    @qd.kernel
    def add(m: qd.i32):
        for i in range(50):
            for j in range(m):
                y[i * 1073741824 * 4 + j * 1073741824 * 4] += 1.0

    store()
    add(2)
    assert x[3] == 2.0
    assert (x.to_numpy() != 0).sum() == 1
    assert y[0] == 100.0


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("step", [1, 3, -1, -3])
def test_lanes_that_are_not_active_may_wrap(step: int) -> None:
    """The line of an index passes the end of its type in lanes beside those that are active."""
    x = qd.field(qd.f64, 64)
    y = qd.field(qd.f64, 64)
    x.from_numpy(np.arange(64.0))

    @qd.kernel
    def copy(far: qd.i32):
        for i in range(40):
            place = far + qd.static(step) * i
            if 0 <= place < 64:
                y[place] = x[place]
            if 0 <= place + 2147483647 < 64:
                y[place + 2147483647] += 1.0

    for far in (-5, 20, 62, 2147483647 - 5, -2147483648 + 5, -2147483648 + 62, 2147483647 - 100):
        y.fill(0.0)
        copy(far)
        want = np.zeros(64)
        for i in range(40):
            place = (far + step * i + 2**31) % 2**32 - 2**31
            if 0 <= place < 64:
                want[place] = place
            beyond = (place + 2**31 - 1 + 2**31) % 2**32 - 2**31
            if 0 <= beyond < 64:
                want[beyond] += 1.0
        np.testing.assert_array_equal(y.to_numpy(), want)


@pytest.mark.usefixtures("runtime")
def test_a_widened_number_that_wraps_is_no_line() -> None:
    x = qd.field(qd.f64, 64)

    @qd.kernel
    def fill(far: qd.i32):
        for i in range(16):
            x[(qd.i64(i + far) + 4294967296) % 4294967296 - 2147483640] = i

    fill(2147483640)
    np.testing.assert_array_equal(x.to_numpy()[:16], np.arange(16.0))


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("n", [0, 3, -3])
def test_remainders_by_zero_and_negative_numbers(n: int) -> None:
    count = 2000
    y = qd.field(qd.f64, 128, needs_grad=True)
    t = qd.field(qd.i32, count)
    numbers = np.random.default_rng(0).integers(0, 64, count).astype(np.int32)
    t.from_numpy(numbers)

    @qd.kernel
    def scatter(n: qd.i32):
        for i in range(count):
            y[(i % 4) * n + t[i] % n + 64] += 1.0

    scatter(n)
    want = np.zeros(128)
    remainder = numbers % n if n else numbers
    np.add.at(want, np.arange(count) % 4 * n + remainder + 64, 1.0)
    np.testing.assert_array_equal(y.to_numpy(), want)


@pytest.mark.usefixtures("runtime")
def test_rows_without_length() -> None:
    """What is divided by an extent of zero is in one row."""
    empty = qd.ndarray(qd.f64, (0,))
    y = qd.field(qd.f64, (40, 2))

    @qd.kernel
    def fill(a: qd.types.ndarray(qd.f64, 1)):
        for i in range(40):
            v = qd.sin(qd.f64(i)) * 0.0
            y[i % a.shape[0], i // a.shape[0]] = v + i
            y[i % -7 + 6, 1] = v + 1.0

    fill(empty)
    np.testing.assert_array_equal(y.to_numpy()[:, 0], np.arange(40.0))
    assert y.to_numpy()[:, 1].sum() == 7.0


def test_a_gradient_through_an_index_that_wraps() -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    x = qd.field(qd.f64, 8, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def run(c: qd.i32):
        for _ in range(1):
            v = x[c]
            x[c + 2147483647 + 2147483647 + 2] = 0.5
            loss[None] += v * v * v

    x.fill(0.8)
    with qd.ad.Tape(loss=loss):
        run(3)
    assert abs(x.grad[3] - 3 * 0.8**2) < 1e-12
    with pytest.raises(Exception, match="OCT301"):
        run.grad(3)
    qd.reset()
