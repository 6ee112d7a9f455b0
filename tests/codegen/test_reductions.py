"""Atomics that are collected in a register: when they are, and what comes out."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from octants.codegen.llvm import cpu
from octants.ir.core import Array, Module, Space
from octants.types import scalars
from octants.types.scalars import f16, f32, f64, i32, i64, u1
from tests.codegen.compiled import (
    PRIMAL,
    TARGET,
    Compiled,
    for_,
    if_,
    ndarray,
    parallel,
    run,
    temporary,
)

N = 30_000


def of(count: int) -> Any:
    return lambda build: (build.index(0), build.index(count))


def updates_in_loop(module: Module) -> bool:
    """Whether the atomic instruction is part of the loop over the items."""
    text = cpu.llvm_text(module, TARGET)
    task = text[text.index("define internal void @octants_") :]
    update = re.search("atomicrmw|cmpxchg", task)
    assert update
    return update.start() < task.index("\nreturn:")


@pytest.mark.parametrize("fn", ["add", "sub", "min", "max"])
@pytest.mark.parametrize("dtype", [t for t in scalars.ALL if t not in (f16, u1)], ids=str)
def test_what_is_collected(dtype: Any, fn: str) -> None:
    place, second = temporary("place", dtype), ndarray("second", f32)

    def body(build: Any, i: Any) -> None:
        value = build.cast(build.binary("and", i, build.index(63)), dtype)
        build.atomic(fn, place, [], value)
        build.atomic("max", second, [build.index(1)], build.cast(i, f32))

    module = Module("reduce", [place, second], tasks=[parallel("t", of(N), body)])
    assert not updates_in_loop(module)
    data = {"place": np.array(100, dtype.numpy), "second": np.zeros(2, np.float32)}
    run(module, data)
    values = np.arange(N) & 63
    wanted = {
        "add": 100 + values.sum(),
        "sub": 100 - values.sum(),
        "min": min(100, values.min()),
        "max": max(100, values.max()),
    }[fn]
    assert data["place"] == scalars.convert(int(wanted), dtype)
    assert data["second"].tolist() == [0, N - 1]


def test_nothing_is_touched_if_no_item_updates() -> None:
    x, nowhere = ndarray("x", i32), ndarray("nowhere", f64)

    def body(build: Any, i: Any) -> None:
        big = build.compare("gt", build.load(x, [i]), build.index(5))

        def update(build: Any) -> Any:
            build.atomic("add", nowhere, [build.index(1_000_000)], build.constant(1.0, f64))
            return []

        if_(build, big, update, lambda _: [])

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    run(
        Module("never", [x, nowhere], tasks=[task]),
        {"x": np.zeros(N, np.int32), "nowhere": np.zeros(0)},
    )


def test_zeros_and_nan_as_if_one_by_one() -> None:
    x = ndarray("x", f64)
    places = {fn: temporary(fn, f64) for fn in ("add", "min", "max")}

    def body(build: Any, i: Any) -> None:
        for fn, place in places.items():
            build.atomic(fn, place, [], build.load(x, [i]))

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    kernel = Compiled(Module("special", [x, *places.values()], tasks=[task]))
    for start, value in ((-0.0, -0.0), (math.nan, math.nan), (2.0, math.nan), (math.nan, 3.0)):
        data = {fn: np.array(start) for fn in places} | {"x": np.full(5, value)}
        kernel.run(data)
        known = [x for x in (start, value) if not math.isnan(x)]
        for fn in ("min", "max"):
            assert data[fn] == known[0] if known else math.isnan(data[fn])
    data = {fn: np.array(-0.0) for fn in places} | {"x": np.full(5, -0.0)}
    kernel.run(data)
    assert np.signbit(data["add"])


def module_with(body: Any, *arrays: Array) -> Module:
    return Module("k", list(arrays), tasks=[parallel("t", of(N), body)])


def test_where_the_register_would_be_seen_through() -> None:
    """The value before is used, the place is read, the element varies, or arguments may overlap."""
    s, x, y = temporary("s", i64), ndarray("x", i64), ndarray("y", i64)
    one: Any = lambda build: build.constant(1, i64)  # noqa: E731

    def uses_the_value_before(build: Any, i: Any) -> None:
        build.store(x, [i], build.atomic("add", s, [], one(build)))

    def reads_the_place(build: Any, i: Any) -> None:
        build.atomic("add", s, [], one(build))
        build.store(x, [i], build.load(s, []))

    def another_element(build: Any, i: Any) -> None:
        build.atomic("add", x, [i], one(build))

    def two_functions(build: Any, i: Any) -> None:
        build.atomic("add", s, [], one(build))
        build.atomic("max", s, [], one(build))

    def two_arguments(build: Any, i: Any) -> None:
        build.atomic("add", x, [build.index(0)], one(build))
        build.load(y, [i])

    def two_arguments_in_a_loop(build: Any, i: Any) -> None:
        def step(build: Any, *_: Any) -> Any:
            build.atomic("add", x, [build.index(0)], build.load(y, [i]))
            return []

        for_(build, build.index(0), build.index(2), [], step)

    for body in (uses_the_value_before, reads_the_place, another_element, two_functions):
        assert updates_in_loop(module_with(body, s, x))
    for body in (two_arguments, two_arguments_in_a_loop):
        module = module_with(body, x, y)
        assert updates_in_loop(module)
        module.noalias = True
        assert not updates_in_loop(module)
    module = module_with(two_arguments, x, y)
    data = np.ones(N, np.int64)
    run(module, {"x": data, "y": data})  # one array in both places


def test_a_read_before_the_update_sees_what_it_may() -> None:
    """Arguments that overlap: the order of work items is free."""
    x, y = ndarray("x", i64), ndarray("y", i64)

    def body(build: Any, i: Any) -> None:
        build.atomic("add", x, [build.index(0)], build.load(y, [i]))

    assert not updates_in_loop(module_with(body, x, y))


def test_one_place_for_all_by_an_argument() -> None:
    """Indices of constants, arguments and extents; other places of the array may be updated too."""
    n = Array("n", i32, 0, Space.ARGUMENT, (), {PRIMAL: None})
    x, y = ndarray("x", f32), ndarray("y", f32)

    def body(build: Any, i: Any) -> None:
        last = build.binary("sub", build.shape(x, 0), build.load(n, []))
        build.atomic("add", x, [last], build.load(y, [i]))
        build.atomic("sub", x, [last], build.constant(2.0, f32))
        build.atomic("add", x, [build.binary("and", i, build.index(3))], build.constant(1.0, f32))

    module = module_with(body, n, x, y)
    text = cpu.llvm_text(module, TARGET)
    task = text[text.index("define internal void @octants_") :]
    places = [found.start() for found in re.finditer("atomicrmw", task)]
    assert [place < task.index("\nreturn:") for place in places] == [True, False]
    data = {"n": np.array(2, np.int32), "x": np.zeros(9, np.float32), "y": np.ones(N, np.float32)}
    run(module, data)
    assert data["x"].tolist() == [N / 4] * 4 + [0.0] * 3 + [-N, 0.0]


def test_one_place_for_all_by_what_is_in_memory() -> None:
    """As long as the task does not write it, as far as is known."""
    k, x, y = temporary("k", i32), ndarray("x", f32), ndarray("y", f32)

    def body(build: Any, i: Any) -> None:
        place = build.binary("add", build.load(k, []), build.index(1))
        build.atomic("add", x, [place], build.load(y, [i]))

    def changes(build: Any, i: Any) -> None:
        body(build, i)
        build.atomic("max", k, [], i)

    module = module_with(body, k, x, y)
    assert not updates_in_loop(module)
    data = {"k": np.array(2, np.int32), "x": np.zeros(5, np.float32), "y": np.ones(N, np.float32)}
    run(module, data)
    assert data["x"].tolist() == [0, 0, 0, N, 0]
    assert updates_in_loop(module_with(changes, k, x, y))


def test_halves_are_collected_in_single_precision() -> None:
    s, y = temporary("s", f16), ndarray("y", f16)

    def body(build: Any, i: Any) -> None:
        build.atomic("add", s, [], build.load(y, [i]))

    module = module_with(body, s, y)
    assert not updates_in_loop(module)
    data = {"s": np.array(0, np.float16), "y": np.full(N, 0.5, np.float16)}
    run(module, data)
    assert abs(data["s"] - N / 2) < 0.01 * N / 2  # one by one it would stop at 1024


def test_fields_of_one_type_are_apart() -> None:
    from octants.types.layouts import Layout, Term

    loss = Array("loss", f32, 0, Space.FIELD, (), {PRIMAL: Layout((), ())})
    x = Array("x", f32, 1, Space.FIELD, (), {PRIMAL: Layout((N,), (Term(0, 1, 0, 4),))})

    def body(build: Any, i: Any) -> None:
        build.atomic("add", loss, [], build.load(x, [i]))

    module = module_with(body, loss, x)
    assert not updates_in_loop(module)
    data = {"loss": np.zeros((), np.float32), "x": np.ones(N, np.float32)}
    run(module, data)
    assert data["loss"] == N
