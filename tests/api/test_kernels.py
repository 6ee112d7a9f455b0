"""Calls of kernels: arguments, returned values, methods, globals, generations."""

from __future__ import annotations

import dataclasses
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver, options
from octants.launch.kernel import Kernel
from octants.pipeline import FINISH, LOWER
from tests.devices import on_cpu

OFFSET = 1.0


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


@qd.kernel
def add(x: qd.types.ndarray(dtype=qd.f32, ndim=1), amount: qd.f32) -> qd.f32:
    for i in x:
        x[i] += amount
    return x[0]


# -- scalars --------------------------------------------------------------------------------------


EVERY_TYPE = (qd.i8, qd.u8, qd.i64, qd.u64, qd.f16, qd.f32, qd.f64, qd.u1)


@qd.kernel
def echo(
    a: qd.i8, b: qd.u8, c: qd.i64, d: qd.u64, e: qd.f16, f: qd.f32, g: qd.f64, h: qd.u1
) -> EVERY_TYPE:
    return a, b, c, d, e, f, g, h


def test_scalars_of_every_type_go_in_and_come_back() -> None:
    given = (-128, 255, -(2**63), 2**64 - 1, 0.5, 1.5, 1e300, True)
    assert echo(*given) == given
    numpy = (np.int8(-3), np.uint8(3), np.int64(4), np.uint64(5), *map(np.float64, (1, 2, 3)))
    assert echo(*numpy, np.bool_(False)) == (-3, 3, 4, 5, 1.0, 2.0, 3.0, False)
    assert echo(True, 0, 0, 0, 1, 2, 3, 1) == (1, 0, 0, 0, 1.0, 2.0, 3.0, True)


def test_floats_are_rounded_to_their_type_and_overflow_to_infinity() -> None:
    result = echo(0, 0, 0, 0, 1e9, 0.1, 0.1, False)
    assert result[4:7] == (np.inf, float(np.float32(0.1)), 0.1)
    assert echo(0, 0, 0, 0, 0, -1e60, 0, False)[5] == -np.inf


def test_int_and_float_stand_for_the_default_types() -> None:
    @qd.kernel
    def third(n: int) -> float:
        return n / 3

    assert third(1) == float(np.float32(1 / 3))
    qd.init(arch=qd.cpu, default_fp=qd.f64, default_ip=qd.i64, log_level="error")
    assert third(1) == 1 / 3
    assert third(2**40) == 2**40 / 3


def test_vectors_matrices_and_structs_by_value() -> None:
    body = qd.types.struct(mass=qd.f32, velocity=qd.types.vector(2, qd.f32))

    @qd.kernel
    def momentum(b: body, m: qd.types.matrix(2, 2, qd.f32)) -> qd.types.vector(2, qd.f32):
        return m @ b.velocity * b.mass

    result = momentum(body(2.0, [1, 3]), [[0, 1], [1, 0]])
    assert result.to_list() == [6.0, 2.0]
    assert momentum(body(1.0, [1, 3]), np.eye(2)).to_list() == [1.0, 3.0]


def test_defaults_and_names() -> None:
    @qd.kernel
    def line(x: qd.f32, slope: qd.f32 = 2.0, at_zero: qd.f32 = 0.0) -> qd.f32:
        return slope * x + at_zero

    assert line(3) == 6
    assert line(3, at_zero=1) == 7
    assert line(slope=1, x=5) == 5


# -- arrays ---------------------------------------------------------------------------------------


def test_arrays_of_every_kind_are_written_in_place() -> None:
    numpy = np.zeros(3, np.float32)
    own = qd.ndarray(qd.f32, 3)
    field = qd.field(qd.f32, 3)
    for array in (numpy, own, field):
        assert add(array, 2.0) == 2
        assert np.asarray(array).tolist() == [2, 2, 2]


def test_a_view_of_an_array_is_written_where_it_is() -> None:
    base = np.zeros((3, 4), np.float32)
    add(base[1], 1)
    assert base.sum(axis=1).tolist() == [0, 4, 0]


def test_empty_arrays() -> None:
    @qd.kernel
    def count(x: qd.types.ndarray(ndim=2)) -> qd.i32:
        n = 0
        for i, j in x:
            n += i + j + 1
        return n + 100 * x.shape[0]

    assert count(np.zeros((3, 0))) == 300


def test_one_specialisation_for_each_dtype_and_rank() -> None:
    @qd.kernel
    def total(x: qd.types.ndarray()) -> qd.f64:
        s = qd.f64(0)
        for I in qd.grouped(x):
            s += x[I]
        return s

    for shape in ((2,), (5,), (2, 2), (3, 3)):
        for dtype in (np.float32, np.int64):
            assert total(np.ones(shape, dtype)) == np.prod(shape)
    assert len(total._specialisations) == 4


def test_dataclasses_of_arrays_and_scalars() -> None:
    @dataclasses.dataclass
    class Particles:
        position: qd.types.NDArray[qd.f32, 1]
        step: qd.f32

    @qd.kernel
    def move(p: Particles, times: qd.template()):
        for i in range(p.position.shape[0]):
            for _ in qd.static(range(times)):
                p.position[i] += p.step

    x = np.zeros(2, np.float32)
    move(Particles(x, 0.5), 3)
    move(Particles(x, np.float32(1)), 1)
    assert x.tolist() == [2.5, 2.5]


def test_loops_over_arrays_beside_numbers_are_parallel() -> None:
    @dataclasses.dataclass
    class Inner:
        array: qd.types.NDArray[qd.f32, 1]
        factor: qd.f32

    @dataclasses.dataclass
    class Outer:
        inner: Inner
        array: qd.types.NDArray[qd.f32, 1]
        count: qd.i32

    @qd.kernel
    def change(b: Outer):
        for i in range(b.count):
            b.array[i] = b.inner.factor * i
            for _ in range(2):
                b.inner.array[i] += 0.5 * b.array[i]

    @qd.kernel
    def change_number(b: Outer) -> qd.i32:
        for i in range(3):
            b.count = 2 * b.count
            b.array[i] = b.count
        return b.count

    given = Outer(Inner(np.ones(3, np.float32), 0.5), np.zeros(3, np.float32), 3)
    change(given)
    assert given.inner.array.tolist() == [1, 1.5, 2]
    assert "parallel @" in change.inspect(given).stages["simplify"]
    assert change_number(given) == 24
    assert given.array.tolist() == [6, 12, 24] and given.count == 3


def test_dataclasses_in_dataclasses_with_fields_and_templates() -> None:
    @dataclasses.dataclass
    class Source:
        field: qd.template()
        array: qd.types.NDArray[qd.f32, 1]

    @dataclasses.dataclass
    class Job:
        source: Source
        target: qd.Tensor
        count: qd.i32

    @qd.kernel
    def run(job: Job):
        for i in range(job.count):
            job.target[i] = job.source.field[i] + job.source.array[i]

    field, target = qd.field(qd.f32, 3), qd.field(qd.f32, 3)
    field.fill(1)
    run(Job(Source(field, np.ones(3, np.float32)), target, 2))
    assert target.to_numpy().tolist() == [2, 2, 0]


def test_tensor_annotations_take_both_kinds() -> None:
    @qd.kernel
    def fill(x: qd.Tensor):
        for i in range(x.shape[0]):
            x[i] = i

    for backend in (qd.Backend.FIELD, qd.Backend.NDARRAY):
        x = qd.tensor(qd.i32, 3, backend=backend)
        fill(x)
        assert x.to_numpy().tolist() == [0, 1, 2]


# -- templates, methods, globals ------------------------------------------------------------------


def test_templates_are_told_apart_by_value_and_type() -> None:
    @qd.kernel
    def double(x: qd.template()) -> qd.f32:
        return x + x

    assert [double(1), double(1.5), double(True), double(2)] == [2, 3, 2, 4]
    assert double(1) == 2
    assert len(double._specialisations) == 4


def test_fields_as_templates() -> None:
    @qd.kernel
    def copy(source: qd.template(), target: qd.template()):
        for i in source:
            target[i] = source[i]

    a, b, c = (qd.field(qd.f32, 3) for _ in range(3))
    a.fill(1)
    copy(a, b)
    copy(b, c)
    assert c.to_numpy().tolist() == [1, 1, 1]


def test_methods_see_their_own_object() -> None:
    @qd.data_oriented
    class Box:
        def __init__(self, n: int) -> None:
            self.n = n
            self.x = qd.field(qd.f32, n)

        @qd.func
        def square(self, a):
            return a * a + self.n

        @qd.kernel
        def fill(self, value: qd.f32):
            for i in range(self.n):
                self.x[i] = self.square(value)

    small, large = Box(2), Box(3)
    small.fill(1)
    large.fill(2)
    assert small.x.to_numpy().tolist() == [3, 3]
    assert large.x.to_numpy().tolist() == [7, 7, 7]
    large.n = 1
    large.fill(0)
    assert large.x.to_numpy().tolist() == [1, 7, 7]


def test_the_object_may_have_any_name() -> None:
    @qd.data_oriented
    class Box:
        count = 3

        def __init__(this, factor: float) -> None:
            this.factor = factor
            this.x = qd.field(qd.f32, 2, needs_grad=True)
            this.total = qd.field(qd.f32, (), needs_grad=True)

        @qd.func
        def scaled(box, a):
            return a * box.factor

        @qd.kernel
        def add(this, weight: qd.f32):
            for i in this.x:
                this.total[None] += this.scaled(this.x[i]) * weight

        @classmethod
        @qd.kernel
        def times(kind, a: qd.i32) -> qd.i32:
            return a * kind.count

        @staticmethod
        @qd.kernel
        def next(a: qd.i32) -> qd.i32:
            return a + 1

    for factor in (2.0, 3.0):
        box = Box(factor)
        box.x.fill(1.0)
        with qd.ad.Tape(loss=box.total):
            box.add(2.0)
        assert box.total[None] == 4 * factor
        assert box.x.grad.to_numpy().tolist() == [2 * factor] * 2
        Box.add(box, 1.0)
        assert box.total[None] == 6 * factor
        assert (box.times(5), Box.times(6), box.next(7), Box.next(8)) == (15, 18, 8, 9)


def test_a_changed_global_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    @qd.kernel
    def get() -> qd.f32:
        return OFFSET

    results = []
    for value in (1.0, 5.0, 1.0, 5.0):
        monkeypatch.setitem(globals(), "OFFSET", value)
        results.append(get())
    assert results == [1, 5, 1, 5]
    assert sum(map(len, get._variants.values())) == 2


def test_a_changed_closure_is_seen() -> None:
    factor = 2

    @qd.kernel
    def scaled(x: qd.i32) -> qd.i32:
        return x * factor

    assert scaled(3) == 6
    factor = 4
    assert scaled(3) == 12


def test_a_value_that_keeps_changing_is_told() -> None:
    class Clock:
        time = 0.0

        @qd.kernel
        def now(self) -> qd.f32:
            return qd.static(self.time)

    clock = Clock()
    with pytest.warns(qd.OctantsWarning, match="kernel `now` has been compiled 16 times") as warned:
        for step in range(20):
            clock.time = float(step)
            assert clock.now() == step
    assert len(warned) == 1
    assert warned[0].filename == __file__


def test_a_changed_list_is_seen() -> None:
    weights = [1.0, 2.0]

    @qd.kernel
    def total() -> qd.f32:
        s = 0.0
        for k in qd.static(range(len(weights))):
            s += weights[k]
        return s

    @qd.kernel
    def given(values: qd.template()) -> qd.f32:
        s = 0.0
        for k in qd.static(range(len(values))):
            s += values[k]
        return s

    assert total() == given(weights) == 3
    weights.append(4.0)
    assert total() == given(weights) == 7


def test_changed_attributes_of_classes_are_seen() -> None:
    class Base:
        direction = qd.Vector([1.0, 2.0])

    class Constants(Base):
        count = 1

    held = Constants()

    @qd.kernel
    def read() -> (qd.i32, qd.f32, qd.f32):
        return Constants.count, Constants.direction[1], held.direction[1]

    assert tuple(read()) == (1, 2, 2)
    Constants.count = 5
    Base.direction[1] = 3.0
    assert tuple(read()) == (5, 3, 3)
    Base.direction = qd.Vector([1.0, 4.0])
    assert tuple(read()) == (5, 4, 4)
    Constants.direction = qd.Vector([1.0, 6.0])
    assert tuple(read()) == (5, 6, 6)


@pytest.mark.parametrize("count", [10, 10_000])
def test_an_array_of_numpy_that_is_changed_in_place_is_seen(count: int) -> None:
    table = np.arange(count, dtype=np.float32)

    @qd.kernel
    def last() -> qd.f32:
        return table[count - 1]

    assert last() == count - 1
    table[count - 1] = 0.5
    assert last() == 0.5
    table.flags.writeable = False
    table = table + 1
    assert last() == 1.5


def test_a_rebound_global_field_is_seen() -> None:
    x = qd.field(qd.f32, ())

    @qd.kernel
    def get() -> qd.f32:
        return x[None]

    x[None] = 1
    assert get() == 1
    x = qd.field(qd.f32, ())
    x[None] = 2
    assert get() == 2


# -- generations ----------------------------------------------------------------------------------


def test_kernels_survive_init_and_arrays_do_not() -> None:
    x = qd.ndarray(qd.f32, 2)
    add(x, 1)
    qd.init(arch=qd.cpu, log_level="error")
    with pytest.raises(qd.OctantsRuntimeError, match="OCT520"):
        add(x, 1)
    y = qd.ndarray(qd.f32, 2)
    assert add(y, 1) == 1


def test_arrays_are_freed_after_reset() -> None:
    field = qd.field(qd.f32, 3)

    @qd.kernel
    def fill(x: qd.template()):
        for i in x:
            x[i] = 1

    fill(field)
    alive = weakref.ref(field)
    del field
    qd.init(arch=qd.cpu, log_level="error")
    fill(qd.field(qd.f32, 2))
    gc.collect()
    assert alive() is None


def test_arrays_that_were_passed_are_not_kept() -> None:
    x = qd.ndarray(qd.f32, 3)
    add(x, 1)
    alive = weakref.ref(x)
    del x
    gc.collect()
    assert alive() is None


# -- many threads ---------------------------------------------------------------------------------


def test_threads_launch_one_kernel_at_once() -> None:
    arrays = [np.zeros(8, np.float32) for _ in range(8)]
    wrong: list[Any] = []

    def work(number: int) -> None:
        for step in range(200):
            if add(arrays[number], number) != number * (step + 1):
                wrong.append((number, step))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert [array.tolist() for array in arrays] == [[200.0 * k] * 8 for k in range(8)]


# -- what a kernel says of itself -----------------------------------------------------------------


@on_cpu
def test_inspect_shows_every_stage() -> None:
    shown = add.inspect(np.zeros(1, np.float32), 1.0)
    machine = driver.capabilities(options.current())
    lower, finish = ([p.name for p in phase if p.when(machine)] for phase in (LOWER, FINISH))
    again = [f"{name} 2" if name in lower else name for name in finish]
    assert list(shown.stages) == ["frontend", *lower, *again, "finish"]
    assert "parallel @add" in shown.stages["simplify"]
    assert "define" in shown.llvm_ir
    assert "define" in shown.llvm_ir_optimized
    assert ".text" in shown.assembly
    assert "==== assembly ====" in str(shown)
    reverse = add.inspect(qd.ndarray(qd.f32, 1, needs_grad=True), 1.0, mode="reverse")
    assert "reverse" in reverse.stages


@on_cpu
def test_options_print_and_dump_the_stages(tmp_path: Any, capsys: Any) -> None:
    qd.init(
        arch=qd.cpu,
        print_ir=True,
        print_kernel_asm=True,
        dump_ir=True,
        debug_dump_path=str(tmp_path),
        log_level="error",
    )
    add(np.zeros(1, np.float32), 1.0)
    printed = capsys.readouterr().out
    assert "==== add: simplify ====" in printed
    assert ".text" in printed
    assert (tmp_path / "add.frontend.ir").read_text().startswith("kernel @add")


def test_a_kernel_looks_like_its_function() -> None:
    @qd.kernel
    def documented() -> None:
        """What it does."""

    assert isinstance(documented, Kernel)
    assert documented.__name__ == "documented"  # type: ignore[attr-defined]
    assert documented.__doc__ == "What it does."
    assert repr(documented) == "<kernel documented()>"


def test_an_assertion_draws_the_same_random_numbers_in_both_modes() -> None:
    drawn = []
    for debug in (False, True):
        qd.init(arch=qd.cpu, debug=debug, random_seed=3)
        x = qd.field(qd.f32, shape=8)

        @qd.kernel
        def draw():
            for i in x:
                assert qd.random() >= 0.0
                x[i] = qd.random()

        draw()
        drawn.append(x.to_numpy())
    assert np.array_equal(*drawn)
    assert len(set(drawn[0].tolist())) == 8


def test_a_member_without_self_is_suggested() -> None:
    @qd.data_oriented
    class Grid:
        def __init__(self) -> None:
            self.width = 3

        @qd.func
        def double(self, i):
            return 2 * i

        @qd.kernel
        def call(self) -> qd.i32:
            return double(1)  # noqa: F821

        @qd.kernel
        def read(self) -> qd.i32:
            return width  # noqa: F821

    for kernel, name in ((Grid().call, "double"), (Grid().read, "width")):
        with pytest.raises(qd.OctantsNameError, match=f"(?s)OCT110.*write `self.{name}`"):
            kernel()
