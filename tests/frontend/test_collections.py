"""Dicts in kernels, spread indices, ``...``, and ranges without indices or with 0-D arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd

SIZES = {"rows": 2, "columns": 3}


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


# -- dicts -----------------------------------------------------------------------------------------


def test_a_dict_holds_run_time_values_and_crosses_into_parallel_loops() -> None:
    total = qd.field(qd.i32, shape=())

    @qd.kernel
    def sums(n: qd.i32) -> qd.i32:
        first = {"a": n, "b": 2 * n}
        d = {**first, "c": 3 * n}
        if n > 4:
            d = {"a": n + 100, "b": n, "c": n}
        for i in range(3):  # parallel
            total[None] += d["a"] * i
        inner = 0
        for _ in qd.static(range(2)):
            inner += d["c"]
        return inner + len(d) + d.get("z", 7)

    assert sums(2) == 2 * 6 + 3 + 7
    assert total[None] == 2 * 3
    assert sums(5) == 2 * 5 + 3 + 7
    assert total[None] == 2 * 3 + 105 * 3


def test_dict_comprehensions_and_loops_over_dicts() -> None:
    @qd.kernel
    def chosen(n: qd.i32) -> qd.i32:
        d = {(i, j): i * n + j for i in range(3) for j in range(2) if i > 0}
        found = 0
        for key, value in qd.static(d.items()):
            found += value * 10 ** key[1]
        for key in qd.static(d.keys()):
            found += d[key]
        for value in qd.static(d.values()):
            found += value
        if (0, 0) in d:
            found = -1
        return found

    values = {(i, j): i * 5 + j for i in (1, 2) for j in range(2)}
    wanted = sum(v * 10 ** key[1] for key, v in values.items()) + 2 * sum(values.values())
    assert chosen(5) == wanted


def test_a_dict_passes_through_a_func_and_has_a_gradient() -> None:
    x = qd.field(qd.f64, shape=3, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)

    @qd.func
    def energy(parts: qd.template()):
        return parts["stretch"] ** 2 + 3.0 * parts["bend"]

    @qd.kernel
    def measure():
        for i in x:
            loss[None] += energy({"stretch": x[i], "bend": x[i] * x[0]})

    x.from_numpy(np.array([1.0, 2.0, 3.0]))
    with qd.ad.Tape(loss):
        measure()
    wanted = 2 * np.array([1.0, 2.0, 3.0]) + 3.0 * 1.0
    wanted[0] += 3.0 * 6.0
    np.testing.assert_allclose(x.grad.to_numpy(), wanted)


def test_a_dict_of_arrays() -> None:
    x, y = qd.field(qd.f32, 3), qd.field(qd.f32, 3)
    table = {"x": x, "y": y}

    @qd.kernel
    def fill():
        d = {"p": x, "q": y}
        for i in range(3):
            d["p"][i] = 1.0
            table["y"][i] = 2.0
        for each in qd.static(table.values()):
            for i in range(3):
                each[i] += 10.0

    fill()
    assert x.to_numpy().tolist() == [11.0] * 3
    assert y.to_numpy().tolist() == [12.0] * 3


def test_keys_of_dicts_are_known_and_hashable() -> None:
    @qd.kernel
    def varies(n: qd.i32) -> qd.i32:
        return {n: 1}[0]

    @qd.kernel
    def mutable() -> qd.i32:
        return {[1]: 1}[0]

    @qd.kernel
    def missing() -> qd.i32:
        return {"a": 1}["b"]

    with pytest.raises(qd.OctantsTypeError, match="a key of a dict must be known"):
        varies(1)
    with pytest.raises(qd.OctantsTypeError, match="unhashable"):
        mutable()
    with pytest.raises(qd.OctantsTypeError, match="OCT162.* has no key 'b'"):
        missing()


# -- indices ---------------------------------------------------------------------------------------


def test_spread_indices() -> None:
    x = qd.field(qd.i32, shape=(2, 3, 4))

    @qd.kernel
    def write():
        for I in qd.grouped(qd.ndrange(2, 3)):
            x[(*I, 1)] = 10 * I[0] + I[1]
            place = (I[0], I[1], 2)
            x[(*place,)] += 1

    write()
    found = x.to_numpy()
    assert found[:, :, 1].tolist() == [[0, 1, 2], [10, 11, 12]]
    assert found[:, :, 2].sum() == 6
    assert found[:, :, 0].sum() == found[:, :, 3].sum() == 0


def test_an_ellipsis_does_nothing() -> None:
    @qd.func
    def later(): ...

    @qd.kernel
    def nothing(n: qd.i32) -> qd.i32:
        for _ in range(n):
            ...
        if n > 1:
            ...
        later()
        return n

    assert nothing(3) == 3


# -- ranges ----------------------------------------------------------------------------------------


def test_a_range_without_indices_has_one_iteration() -> None:
    x = qd.field(qd.i32, shape=())

    @qd.kernel
    def once():
        for I in qd.grouped(qd.ndrange(*x.shape)):  # parallel
            x[I] += 1
        for _ in range(1):
            for I in qd.grouped(qd.ndrange()):  # serial
                x[I] += 10

    once()
    assert x[None] == 11
    assert list(qd.ndrange()) == [()]


@pytest.mark.parametrize("bound", [np.array(5), np.int64(5), np.array(5, np.uint8)])
def test_arrays_without_axes_are_bounds(bound: Any) -> None:
    count = qd.field(qd.i32, shape=())

    @qd.kernel
    def loops():
        for _ in range(bound):
            count[None] += 1
        for _i, _j in qd.ndrange((2, bound), bound):
            count[None] += 100

    loops()
    assert count[None] == 5 + 15 * 100


def test_a_float_array_is_no_bound() -> None:
    wrong = np.array(5.0)

    @qd.kernel
    def loops():
        for _ in range(wrong):
            pass

    with pytest.raises(qd.OctantsTypeError, match="the bounds of a loop are integers"):
        loops()


# -- items of dictionaries that are assigned -------------------------------------------------------


def test_items_of_a_dictionary_can_be_assigned() -> None:
    @qd.kernel
    def run(n: qd.i32) -> qd.types.vector(6, qd.f32):
        d = {"a": 1, "v": qd.Vector([1.0, 2.0]), "inner": {"x": 0.5}}
        d["a"] = 7
        for i in range(n):
            d["a"] += i
            d["v"][1] *= 2.0
            if i > 1:
                d["inner"]["x"] = d["inner"]["x"] + i
            else:
                d["v"].x = 9.0
        copied = d
        copied["a"] = -1
        squares = {k: k * k for k in range(4)}
        for k in qd.static(range(4)):
            squares[k] += k
        return qd.Vector(
            [d["a"], d["v"][0], d["v"][1], d["inner"]["x"], copied["a"], squares[3] + squares[1]]
        )

    assert run(4).to_list() == [13.0, 9.0, 32.0, 5.5, -1.0, 14.0]


def test_an_item_keeps_its_type() -> None:
    @qd.kernel
    def run(x: qd.f32) -> qd.f32:
        d = {"a": 1}
        d["a"] = x
        return d["a"]

    with pytest.warns(qd.OctantsWarning, match="OCT158: an f32 is assigned to an i32"):
        assert run(2.5) == 2.0


def test_gradients_through_items_that_are_assigned() -> None:
    x = qd.field(qd.f32, 3, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def run():
        for i in x:
            d = {"y": x[i], "n": 0}
            while d["n"] < i:
                d["y"] *= x[i]
                d["n"] += 1
            loss[None] += d["y"]

    x.fill(2.0)
    with qd.ad.Tape(loss):
        run()
    assert x.grad.to_numpy().tolist() == [1.0, 4.0, 12.0]


def test_items_that_cannot_be_assigned() -> None:
    @qd.kernel
    def new_key():
        d = {"a": 1}
        d["b"] = 2

    @qd.kernel
    def run_time_key(n: qd.i32):
        d = {0: 1, 1: 2}
        d[n] = 2

    with pytest.raises(qd.OctantsCompilationError, match="OCT162: `d` has no key 'b'"):
        new_key()
    with pytest.raises(qd.OctantsTypeError, match="OCT144"):
        run_time_key(0)


def test_hexadecimal_floats(capfd: pytest.CaptureFixture[str]) -> None:
    @qd.kernel
    def run(x: qd.f32, y: qd.f64):
        print(f"{x:a} {y:a}", f"{-y:a}", f"{1 / (x - x):a}")

    run(1.1, 1.5)
    qd.sync()
    assert capfd.readouterr().out == "0x1.19999ap+0 0x1.8p+0 -0x1.8p+0 inf\n"


# -- lists -----------------------------------------------------------------------------------------


def test_a_list_changes_while_the_kernel_is_compiled() -> None:
    def of(n: int) -> int:
        values = []
        for i in range(3):
            values.append(i * n)
        values.insert(0, 7)
        values.extend((n, 2))
        last = values.pop()
        values.reverse()
        second = values.pop(1)
        digits = 0
        for value in values:
            digits = digits * 10 + value
        values.clear()
        values.append(n)
        return digits * 1000 + last * 100 + second * 10 + len(values)

    @qd.kernel
    def run(n: qd.i32) -> qd.i32:
        values = []
        for i in qd.static(range(3)):
            values.append(i * n)
        values.insert(0, 7)
        values.extend((n, 2))
        last = values.pop()
        values.reverse()
        second = values.pop(1)
        digits = 0
        for value in values:
            digits = digits * 10 + value
        values.clear()
        values.append(n)
        return digits * 1000 + last * 100 + second * 10 + len(values)

    assert [run(2), run(3)] == [of(2), of(3)]


def test_lists_are_sorted_while_the_kernel_is_compiled() -> None:
    @qd.kernel
    def run(n: qd.i32) -> qd.i32:
        values = [3, 1, 2, 9]
        values.sort()
        values.remove(2)
        for value in values.copy():
            values.append(value * n)
        return values[0] + 10 * values[1] + 100 * values[3] + 1000 * len(values)

    assert run(4) == 1 + 30 + 400 + 6000

    @qd.kernel
    def sorts_sometimes(n: qd.i32) -> qd.i32:
        values = [3, 1, 2]
        if n > 2:
            values.sort()
        return values[0]

    @qd.kernel
    def sorts_numbers_of_run_time(n: qd.i32) -> qd.i32:
        values = [3, n]
        values.sort()
        return values[0]

    with pytest.raises(qd.OctantsTypeError, match="OCT146: `sort`"):
        sorts_sometimes(0)
    with pytest.raises(qd.OctantsTypeError, match="OCT151: `sort`"):
        sorts_numbers_of_run_time(0)


ITEMS = [1, 2]
HOLDER = {"items": ITEMS}


def test_lists_of_python_stay_as_they_are() -> None:
    """Programs would see two lists where Python has one."""

    @qd.func
    def grow(items: Any = ITEMS) -> Any:
        items.append(3)
        return len(items)

    @qd.func
    def grow_given(items: qd.template()) -> Any:
        items += [3]
        return len(items)

    @qd.kernel
    def by_default() -> qd.i32:
        return grow()

    @qd.kernel
    def by_argument() -> qd.i32:
        return grow_given(ITEMS)

    @qd.kernel
    def by_item(n: qd.i32) -> qd.i32:
        items = HOLDER["items"]
        items.append(n)
        return len(items)

    for run in (by_default, by_argument, lambda: by_item(3)):
        with pytest.raises(qd.OctantsTypeError, match="that Python made"):
            run()
    assert ITEMS == [1, 2]


def test_a_list_collects_values_of_a_parallel_loop_with_a_gradient() -> None:
    x = qd.field(qd.f32, 3, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def run() -> None:
        for i in x:
            terms = []
            for j in qd.static(range(3)):
                terms.append(x[j] * (j + 1))
            loss[None] += terms[0] * terms[1] + terms[2] * i

    x.from_numpy(np.array([1, 2, 3], np.float32))
    with qd.ad.Tape(loss):
        run()
    assert loss[None] == 39
    np.testing.assert_array_equal(x.grad.to_numpy(), [12, 6, 9])


def test_tuples_and_lists_are_assigned_at_another_length() -> None:
    @qd.kernel
    def run(n: qd.i32) -> qd.i32:
        pair = (n, 2)
        triple = pair
        triple += (3,)
        items = [1]
        for i in qd.static(range(3)):
            items = items + [n * i]  # noqa: RUF005
        return triple[2] + len(triple) * 10 + len(pair) * 100 + items[3] * 1000

    assert run(4) == 8233

    @qd.kernel
    def at_run_time(n: qd.i32) -> qd.i32:
        pair = (n, 2)
        if n > 2:
            pair += (3,)
        return len(pair)

    with pytest.raises(qd.OctantsTypeError, match="OCT130"):
        at_run_time(3)


# -- comparisons -----------------------------------------------------------------------------------

PAIRS = [(a, b) for a in (1, 2) for b in (1, 2, 3)]


@pytest.mark.parametrize("pair", PAIRS)
def test_tuples_compare_by_their_items(pair: tuple[int, int]) -> None:
    def compare(a: int, b: int) -> int:
        t, u = (a, 2), (2, b)
        flags = (t == u, t != u, t < u, t <= u, t > u, t >= u, (a, b) in ((1, 1), (2, 3)))
        more = ((a, (b, 1)) == (2, (3, 1)), (a,) == (a, b), (a,) < (a, b), [a, b] == [b, a])
        bits = 0
        for flag in flags + more:
            bits = 2 * bits + int(flag)
        return bits

    @qd.kernel
    def run(a: qd.i32, b: qd.i32) -> qd.i32:
        t, u = (a, 2), (2, b)
        flags = (t == u, t != u, t < u, t <= u, t > u, t >= u, (a, b) in ((1, 1), (2, 3)))
        more = ((a, (b, 1)) == (2, (3, 1)), (a,) == (a, b), (a,) < (a, b), [a, b] == [b, a])
        bits = 0
        for flag in flags + more:
            bits = 2 * bits + int(flag)
        return bits

    assert run(*pair) == compare(*pair)
