"""What GPUs have in common, run by the CPU: grid-stride loops, bounds, record buffers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from octants.ir.core import Companion, Module
from octants.types import scalars
from octants.types.scalars import f32, f64, i32, i64
from tests.autodiff.random_ir import inputs
from tests.autodiff.reversing import differentiate
from tests.autodiff.test_checkpoints import LongLoops
from tests.codegen import (
    test_control_and_memory,
    test_records,
    test_reductions,
    test_scalar_operations,
)
from tests.codegen.compiled import argument, ndarray, parallel
from tests.codegen.threads import Threads
from tests.seeds import counts

ADJOINT = Companion.ADJOINT
MODULES = (test_control_and_memory, test_records, test_reductions, test_scalar_operations)


def _threads(module: Module, *_: Any, **__: Any) -> Threads:
    return Threads(module)


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests of other modules run on threads, when they are called from here."""
    for module in MODULES:
        monkeypatch.setattr(module, "Compiled", _threads)
    monkeypatch.setattr(test_control_and_memory, "run", lambda m, a, **o: Threads(m).run(a, **o))
    monkeypatch.setattr(test_reductions, "run", lambda m, a, **o: Threads(m).run(a, **o))


@pytest.mark.parametrize("dtype", scalars.ALL, ids=str)
def test_exact_functions(dtype: Any) -> None:
    target = test_scalar_operations.TARGET
    test_scalar_operations.test_exact_functions_give_the_defined_bits(dtype, target, 1)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_remainders_are_exact(dtype: Any) -> None:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 1 << dtype.bits, (2, 20_000), dtype=f"u{dtype.size}")
    a, b = bits.view(dtype.numpy)
    near = rng.normal(size=(2, 5_000)).astype(dtype.numpy)
    a, b = np.concatenate([a, near[0]]), np.concatenate([b, near[1]])
    x, y, z = (ndarray(name, dtype) for name in "xyz")

    def body(build: Any, i: Any) -> None:
        build.store(z, [i], build.binary("truncmod", build.load(x, [i]), build.load(y, [i])))

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    data = {"x": a, "y": b, "z": np.zeros_like(a)}
    Threads(Module("remainders", [x, y, z], tasks=[task])).run(data)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(data["z"], np.fmod(a, b))
    is_zero = data["z"] == 0
    assert np.array_equal(np.signbit(data["z"][is_zero]), np.signbit(a[is_zero]))


def test_control_and_memory_as_on_the_cpu() -> None:
    for name in (
        "test_nested_loops_with_carried_values",
        "test_while_and_branches_that_depend_on_data",
        "test_tasks_hand_values_to_each_other",
        "test_row_major_arrays_and_arguments_of_every_shape",
        "test_blocked_layout_of_a_field",
        "test_draws_are_those_of_the_definition",
    ):
        getattr(test_control_and_memory, name)()


def test_reductions_as_on_the_cpu() -> None:
    for dtype, fn in ((f32, "add"), (i32, "max"), (i64, "min")):
        test_reductions.test_what_is_collected(dtype, fn)
    test_reductions.test_nothing_is_touched_if_no_item_updates()
    test_reductions.test_one_place_for_all_by_an_argument()


# -- the work items -----------------------------------------------------------------------------


def _bounds(lower: Any, upper: Any, arrays: list[Any]) -> tuple[Threads, Any]:
    """A kernel that counts how often it runs each item from -50 on."""
    out = ndarray("out", i32)

    def body(build: Any, i: Any) -> None:
        place = build.binary("add", build.cast(i, i32), build.index(50))
        build.atomic("add", out, [place], build.index(1))

    task = parallel("t", lambda build: (lower(build), upper(build)), body)
    return Threads(Module("bounds", [*arrays, out], tasks=[task]), threads=7), out


@pytest.mark.parametrize(("low", "high"), [(0, 100), (-50, 3), (5, 5), (9, 2), (99, 100)])
def test_bounds_of_the_host_and_of_the_device(low: int, high: int) -> None:
    expected = np.zeros(200, np.int32)
    expected[50 + low : 50 + high] = 1
    first, last, n = argument("first", i32), argument("last", i32), ndarray("n", i32)
    by_argument, _ = _bounds(
        lambda build: build.load(first, []), lambda build: build.load(last, []), [first, last]
    )
    by_memory, _ = _bounds(
        lambda build: build.load(n, [build.index(0)]),
        lambda build: build.load(n, [build.index(1)]),
        [n],
    )
    given = {"first": np.array([low], np.int32), "last": np.array([high], np.int32)}
    for kernel, more in ((by_argument, given), (by_memory, {"n": np.array([low, high], np.int32)})):
        out = np.zeros(200, np.int32)
        kernel.run({**more, "out": out})
        assert out.tolist() == expected.tolist()
    assert [each.bounds for each in by_memory.artifact.dispatches] == ["", "device"]
    assert len(by_argument.artifact.dispatches) == 1


def test_bounds_wrap_and_compare_as_their_types_do() -> None:
    n = argument("n", i32)

    def upper(build: Any) -> Any:
        number = build.binary("mul", build.load(n, []), build.index(1 << 30))
        number = build.binary("add", number, build.binary("min", build.load(n, []), build.index(7)))
        is_small = build.compare("lt", number, build.index(100))
        return build.select(is_small, number, build.index(3))

    kernel, _ = _bounds(lambda build: build.index(0), upper, [n])
    for number, count in ((4, 4), (8, 7), (1, 3), (-4, 0)):
        out = np.zeros(200, np.int32)
        kernel.run({"n": np.array([number], np.int32), "out": out})
        assert out.sum() == count
    assert "(0, " in kernel.artifact.dispatches[0].bounds


# -- the record buffer --------------------------------------------------------------------------


@pytest.mark.parametrize("by_while", [False, True])
@pytest.mark.parametrize("threads", [1, 33, 100])
def test_what_is_pushed_comes_back(by_while: bool, threads: int) -> None:
    kernel = Threads(test_records.reversal(by_while), threads, 64)
    n = np.random.default_rng(3).integers(0, 40, 60).astype(np.int32)
    data = {"n": n, "out": np.zeros(60)}
    kernel.run(data)
    assert data["out"].tolist() == test_records.wanted(n)
    (runs,) = kernel.runs.values()
    assert runs >= 2
    kernel.run(data)
    assert kernel.runs.popitem()[1] == runs + 1, "now there is capacity"


@pytest.mark.parametrize("count", counts(8, 40))
@pytest.mark.parametrize("local", [0, 16])
def test_gradients_of_random_modules_with_tapes_that_refuse(local: int, count: int) -> None:
    found: Counter[str] = Counter()
    for seed in range(count):
        module = LongLoops(seed).simplified()
        result = differentiate(
            module, whole_record_bytes=(0, 40)[seed % 2], local_record_bytes=local
        )
        if result.hazards:
            continue
        state = {**inputs(seed), "t": np.zeros(())}
        if result.state == "after":
            Threads(module).run(state)
        both: dict[Any, Any] = {**state, ("t", ADJOINT): np.zeros(())}
        both |= {(name, ADJOINT): value for name, value in inputs(seed + 1).items()}
        wide = {key: value.copy() for key, value in both.items()}
        Threads(result.module, capacity=1 << 16).run(wide)
        kernel = Threads(result.module, capacity=16)
        try:
            kernel.run(both)
        except MemoryError:  # a task that stores in its first sweep cannot run again
            found["stores"] += 1
            continue
        found["again"] += max(kernel.runs.values(), default=1) > 1
        for key, expected in wide.items():
            np.testing.assert_allclose(both[key], expected, rtol=1e-9, atol=1e-12)
    assert found["again"] >= count // 13
