"""Control flow, addresses and draws of compiled code, against the interpreter."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from octants import interpreter
from octants.ir.core import Array, Companion, Module, Space
from octants.types import scalars
from octants.types.layouts import Layout, Term
from octants.types.scalars import f32, f64, i32, i64, u1
from tests.codegen.compiled import (
    PRIMAL,
    Compiled,
    argument,
    for_,
    if_,
    ndarray,
    parallel,
    run,
    serial,
    temporary,
    while_,
)


def agree(module: Module, data: dict[Any, np.ndarray[Any, Any]], **options: Any) -> None:
    """Compiled code leaves the same bits in all arrays as the interpreter."""
    wanted = {name: array.copy() for name, array in data.items()}
    interpreter.run(module, wanted, **options)
    run(module, data, **options)
    for name, array in data.items():
        np.testing.assert_array_equal(array, wanted[name], err_msg=str(name))


def test_nested_loops_with_carried_values() -> None:
    n, out = argument("n", i32), ndarray("out", f32)

    def body(build: Any, i: Any) -> None:
        zero, count = build.index(0), build.load(n, [])

        def outer(build: Any, j: Any, carried: Any) -> Any:
            def inner(build: Any, k: Any, more: Any) -> Any:
                x, swap = more
                y = build.binary("add", build.binary("mul", x, build.constant(0.75, f32)), swap)
                return [build.binary("add", y, build.cast(k, f32)), x]

            first, second = for_(build, zero, j, carried, inner)  # runs not at all for j = 0
            return [second, first]

        inits = [build.cast(i, f32), build.constant(1.5, f32)]
        results = for_(build, zero, build.binary("add", count, i), inits, outer)
        build.store(out, [i], build.binary("sub", results[0], results[1]))

    task = parallel("t", lambda build: (build.index(0), build.shape(out, 0)), body)
    for count in (-3, 0, 1, 5):
        data = {"n": np.array(count, np.int32), "out": np.zeros(7, np.float32)}
        agree(Module("loops", [n, out], tasks=[task]), data)


def test_while_and_branches_that_depend_on_data() -> None:
    x, steps = ndarray("x", i64), ndarray("steps", i32)

    def body(build: Any, i: Any) -> None:
        one, two = build.constant(1, i64), build.constant(2, i64)

        def collatz(build: Any, carried: Any) -> Any:
            value, count = carried
            odd = build.compare("ne", build.binary("mod", value, two), build.constant(0, i64))
            three = build.constant(3, i64)
            (value,) = if_(
                build,
                odd,
                lambda b: [b.binary("add", b.binary("mul", value, three), one)],
                lambda b: [b.binary("floordiv", value, two)],
            )
            return [value, build.binary("add", count, build.index(1))]

        results = while_(
            build,
            [build.load(x, [i]), build.index(0)],
            lambda b, carried: b.compare("gt", carried[0], one),
            collatz,
        )
        build.store(steps, [i], results[1])

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    data = {"x": np.arange(-2, 40), "steps": np.zeros(42, np.int32)}
    agree(Module("collatz", [x, steps], tasks=[task]), data)
    assert data["steps"][27 + 2] == 111


def test_tasks_hand_values_to_each_other() -> None:
    x, s, result = ndarray("x", f64), temporary("s", f64), temporary("r", i32)
    result.space = Space.RETURN

    def total(build: Any, i: Any) -> None:
        build.atomic("add", s, [], build.load(x, [i]))

    def double(build: Any, i: Any) -> None:
        build.store(x, [i], build.load(s, []))

    def last(build: Any) -> None:
        build.store(result, [], build.cast(build.load(s, []), i32))

    def domain(build: Any) -> Any:
        return build.index(1), build.cast(build.load(s, []), i32)

    whole = parallel("a", lambda build: (build.index(0), build.shape(x, 0)), total)
    part = parallel("b", domain, double)
    module = Module("tasks", [x, s, result], tasks=[whole, part, serial("c", last)])
    data = {"x": np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10]) / 10}
    made = run(module, data)
    np.testing.assert_allclose(data["x"], [0.1, 5.5, 5.5, 5.5, 5.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert made["r"] == 5


def test_row_major_arrays_and_arguments_of_every_shape() -> None:
    a = ndarray("a", f32, 3, (2, 3), (PRIMAL, Companion.ADJOINT))
    vector = argument("v", f64, (2, 2))

    def body(build: Any, i: Any) -> None:
        for j, k, r, c in itertools.product(range(3), range(2), range(2), range(3)):
            index = [i, *map(build.index, (j, k, r, c))]
            component = build.load(vector, [build.index(r), build.binary("mod", i, build.index(2))])
            value = build.binary("add", build.load(a, index), build.cast(component, f32))
            build.store(a, index, value, Companion.ADJOINT)

    task = parallel("t", lambda build: (build.index(0), build.shape(a, 0)), body)
    rng = np.random.default_rng(0)
    data = {
        "a": rng.normal(size=(4, 3, 2, 2, 3)).astype(np.float32),
        ("a", Companion.ADJOINT): np.zeros((4, 3, 2, 2, 3), np.float32),
        "v": rng.normal(size=(2, 2)),
    }
    agree(Module("shapes", [a, vector], tasks=[task]), data)
    assert np.count_nonzero(data["a", Companion.ADJOINT]) == 144


def test_a_large_array_is_addressed_with_64_bits() -> None:
    a = ndarray("a", scalars.u8, 2)

    def body(build: Any) -> None:
        last = build.index(2**17 - 1)
        build.store(a, [last, build.index(2**15 + 5)], build.constant(7, scalars.u8))

    data = {"a": np.zeros((2**17, 2**15 + 6), np.uint8)}  # 4 GiB of which one page is touched
    run(Module("large", [a], tasks=[serial("t", body)]), data)
    assert data["a"][-1, -1] == 7


def test_blocked_layout_of_a_field() -> None:
    """8 x 6 in blocks of 4 x 2, an element of two components, another field in between."""
    terms = (Term(0, 4, 0, 288), Term(1, 2, 0, 96), Term(0, 1, 4, 24), Term(1, 1, 2, 12))
    layout = Layout((8, 6), terms, (4,))
    x = Array("x", f32, 2, Space.FIELD, (2,), {PRIMAL: layout})
    out = ndarray("out", f32, 3)

    def body(build: Any, i: Any) -> None:
        row = build.binary("floordiv", i, build.shape(x, 1))
        column = build.binary("mod", i, build.shape(x, 1))
        for component in range(2):
            value = build.load(x, [row, column, build.index(component)])
            build.store(out, [row, column, build.index(component)], value)
        build.store(x, [build.index(7), build.index(5), build.index(1)], build.constant(-1.0, f32))

    task = parallel("t", lambda build: (build.index(0), build.index(48)), body)
    memory = np.arange(600, dtype=np.float32)
    data = {"x": memory, "out": np.zeros((8, 6, 2), np.float32)}
    run(Module("field", [x, out], tasks=[task]), data)
    for i, j, k in itertools.product(range(8), range(6), range(2)):
        place = i // 4 * 288 + j // 2 * 96 + i % 4 * 24 + j % 2 * 12 + k * 4
        wanted = place / 4 if (i, j, k) != (7, 5, 1) else -1
        assert data["out"][i, j, k] == wanted or (i, j, k) == (7, 5, 1)
    assert memory[(288 + 2 * 96 + 3 * 24 + 12 + 4) // 4] == -1


def test_a_bool_in_memory_is_a_byte_and_any_nonzero_one_is_true() -> None:
    a, b = ndarray("a", u1), ndarray("b", u1)

    def body(build: Any, i: Any) -> None:
        build.store(b, [i], build.unary("not", build.load(a, [i])))

    task = parallel("t", lambda build: (build.index(0), build.shape(a, 0)), body)
    data = {"a": np.array([0, 1, 2, 255], np.uint8), "b": np.full(4, 9, np.uint8)}
    run(Module("bools", [a, b], tasks=[task]), data)
    assert data["b"].tolist() == [1, 0, 0, 0]


def test_draws_are_those_of_the_definition() -> None:
    arrays = [ndarray(f"out_{dtype}", dtype, 2) for dtype in scalars.ALL]

    def body(build: Any, i: Any) -> None:
        stream = build.random_stream(3, i)
        for array in arrays:
            for number, draw in enumerate((0, 1, -1)):
                value = build.random(array.dtype, stream, build.index(draw))
                build.store(
                    array, [build.binary("mod", i, build.index(5)), build.index(number)], value
                )

    def wide(build: Any, i: Any) -> None:
        row = build.binary("mod", i, build.constant(5, i64))
        stream = build.random_stream(9, i)
        for array in arrays:
            value = build.random(array.dtype, stream, build.index(4))
            build.store(array, [row, build.index(3)], value)

    low = parallel("t", lambda build: (build.index(5), build.index(10)), body)
    start = 7 * 2**33
    high = parallel("u", lambda build: (build.offset(start), build.offset(start + 5)), wide, i64)
    module = Module("draws", arrays, tasks=[low, high])
    seeds = [(0, 0), (123456789123456789, 2**40 + 3), (2**64 - 1, 1)]
    for seed, launch in seeds:
        data = {array.name: np.zeros((5, 4), array.dtype.numpy) for array in arrays}
        agree(module, data, seed=seed, launch=launch)
    assert 0 <= data["out_f32"].min() < data["out_f32"].max() < 1


def test_draws_are_uniform() -> None:
    out = ndarray("out", f32)

    def body(build: Any, i: Any) -> None:
        build.store(out, [i], build.random(f32, build.random_stream(0, i), build.index(0)))

    task = parallel("t", lambda build: (build.index(0), build.shape(out, 0)), body)
    data = {"out": np.zeros(100_000, np.float32)}
    run(Module("uniform", [out], tasks=[task]), data, seed=5)
    counts, _ = np.histogram(data["out"], 100, (0, 1))
    assert ((counts - 1000) ** 2 / 1000).sum() < 150  # chi squared, 99 degrees of freedom


# -- atomics ------------------------------------------------------------------------------------

ATOMICS = {
    dtype: ["add", "sub", "mul", "min", "max", "exchange"]
    + (["and", "or", "xor"] if not dtype.is_float else [])
    for dtype in scalars.ALL
    if dtype is not u1
} | {u1: ["and", "or", "xor", "exchange"]}


@pytest.mark.parametrize("dtype", scalars.ALL, ids=str)
def test_atomics_one_after_the_other(dtype: Any) -> None:
    """In serial code the interpreter's result, and the value before, are exact."""
    old, values = ndarray("old", dtype), ndarray("values", dtype)
    places = {fn: ndarray(fn, dtype) for fn in ATOMICS[dtype]}
    count = 5

    def body(build: Any) -> None:
        position = 0
        for array in places.values():
            for k in range(count):
                value = build.load(values, [build.index(k)])
                fn = array.name
                before = build.atomic(fn, array, [build.index(0)], value)
                build.store(old, [build.index(position)], before)
                position += 1
        place = places["exchange"]
        for k in range(count):
            last = 0 if k == 3 else (k - 1) % count  # from then on, something else is there
            new, expected = (build.load(values, [build.index(n)]) for n in (k, last))
            before = build.compare_exchange(place, [build.index(0)], expected, new)
            build.store(old, [build.index(position)], before)
            position += 1

    module = Module("atomics", [old, values, *places.values()], tasks=[serial("t", body)])
    numbers = np.array([3, 1, 1, 5, 0], dtype.numpy)
    if dtype.is_float:
        numbers[2], numbers[4] = -0.0, 0.0
    data = {name: np.ones(1, dtype.numpy) for name in places}
    data |= {"old": np.zeros(count * (len(places) + 1), dtype.numpy), "values": numbers}
    agree(module, data)


def test_atomics_of_many_threads_lose_nothing() -> None:
    n = 40_000
    numeric = [dtype for dtype in scalars.ALL if dtype.bits >= 32]
    sums = {dtype: ndarray(f"sum_{dtype}", dtype) for dtype in numeric}
    highs = {dtype: ndarray(f"high_{dtype}", dtype) for dtype in numeric}
    products = ndarray("product", scalars.u32)
    taken, flag = ndarray("taken", i32), ndarray("flag", u1)

    def body(build: Any, i: Any) -> None:
        zero = build.index(0)
        for dtype in numeric:
            build.atomic("add", sums[dtype], [zero], build.constant(1, dtype))
            build.atomic("max", highs[dtype], [zero], build.cast(i, dtype))
        build.atomic("mul", products, [zero], build.constant(3, scalars.u32))
        slot = build.atomic("add", sums[i32], [build.index(1)], build.index(1))
        build.atomic("add", taken, [slot], build.index(1))
        build.atomic("or", flag, [zero], build.compare("eq", i, build.index(n - 1)))

    arrays = [*sums.values(), *highs.values(), products, taken, flag]
    task = parallel("t", lambda build: (build.index(0), build.index(n)), body)
    data = {array.name: np.zeros(2, array.dtype.numpy) for array in arrays}
    data |= {"product": np.ones(1, np.uint32), "taken": np.zeros(n, np.int32)}
    run(Module("threads", arrays, tasks=[task]), data)
    assert {data[f"sum_{dtype}"][0] for dtype in numeric} == {n}
    assert {data[f"high_{dtype}"][0] for dtype in numeric} == {n - 1}
    assert data["product"][0] == pow(3, n, 2**32)
    assert (data["taken"] == 1).all()
    assert data["flag"][0]


def test_many_kernels_in_one_object() -> None:
    modules = []
    for number in range(20):
        out = ndarray("out", i32)

        def body(build: Any, i: Any, out: Any = out, number: int = number) -> None:
            build.store(out, [i], build.index(number))

        task = parallel("t", lambda build, out=out: (build.index(0), build.shape(out, 0)), body)
        modules.append(Module("same name", [out], tasks=[task]))
    for number, kernel in enumerate(Compiled.together(modules)):
        data = {"out": np.zeros(3, np.int32)}
        kernel.run(data)
        assert data["out"].tolist() == [number] * 3
