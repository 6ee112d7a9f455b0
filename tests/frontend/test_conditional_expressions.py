"""``a if condition else b`` has the type of both branches, also if the condition is known early."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsError

FLAG = True
ABSENT: Any = None


@pytest.fixture(autouse=True)
def _device() -> None:
    qd.init(arch=qd.cpu)


def results(function: Any, count: int = 4) -> list[float]:
    """What a kernel stores in an array of f64."""
    found = np.zeros(count)
    function(found)
    return [float(each) for each in found]


@qd.func
def half() -> qd.f32:
    return 0.5


@qd.func
def factorial(n: qd.template()) -> Any:  # type: ignore[valid-type]
    return 1 if n == 0 else n * factorial(n - 1)


@qd.func
def fibonacci(n: qd.template()) -> Any:  # type: ignore[valid-type]
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def test_the_type_does_not_depend_on_when_the_condition_is_known() -> None:
    small, wide = qd.field(qd.i8, ()), qd.field(qd.u16, 4)
    small[None] = -72

    @qd.kernel
    def store(m: qd.i32) -> None:
        wide[0] = small[None] if m == 0 else qd.cast(m, qd.u8)
        wide[1] = small[None] if FLAG else qd.cast(m, qd.u8)
        wide[2] = qd.cast(m, qd.u8) if qd.tan(0.1) > 1.0 else small[None]
        wide[3] = small[None] if qd.static(FLAG) else qd.cast(m, qd.u8)

    store(0)
    assert list(wide.to_numpy()) == [184, 184, 184, 65464]


def test_an_integer_beside_a_float_becomes_one() -> None:
    @qd.kernel
    def store(out: qd.types.ndarray(qd.f64, 1), n: qd.i32) -> None:  # type: ignore[valid-type]
        x = n if FLAG else 0.5
        x += 0.25
        y = 1 if FLAG else half()
        y += 0.25
        z = 1 if qd.cast(1, qd.i32) < 2 else 0.5
        z += 0.25
        v = 0 if FLAG else qd.Vector([0.5, 0.25])
        v += 0.25  # type: ignore[assignment]
        out[0], out[1], out[2], out[3] = x, y, z, v[1]  # type: ignore[index]

    assert results(lambda out: store(out, 1)) == [1.25, 1.25, 1.25, 0.25]


def test_numbers_of_python_stay_known() -> None:
    @qd.kernel
    def store(out: qd.types.ndarray(qd.f64, 1)) -> None:  # type: ignore[valid-type]
        n = 2 if FLAG else 0.5
        pair = (1, 2) if FLAG else 0
        for i in qd.static(range(2 if FLAG else 3)):
            out[i] = n / 4 + pair[i]  # type: ignore[index]

    assert results(store) == [1.5, 2.5, 0.0, 0.0]


def test_the_other_branch_leaves_nothing_behind() -> None:
    builder = qd.FieldsBuilder()
    unused = qd.field(qd.f32)
    builder.dense(qd.i, 4).place(unused)
    tree = builder.finalize()

    @qd.kernel
    def store(out: qd.types.ndarray(qd.f64, 1)) -> None:  # type: ignore[valid-type]
        out[0] = 1.0 if FLAG else unused[0]
        out[1] = 2.0 if FLAG else ABSENT[7].missing
        out[2] = 3.0 if FLAG else qd.atomic_add(out[3], 1.0)

    assert results(store) == [1.0, 2.0, 3.0, 0.0]
    tree.destroy()
    assert results(store) == [1.0, 2.0, 3.0, 0.0]
    with pytest.raises(OctantsError, match="ABSENT"):

        @qd.kernel
        def refused(out: qd.types.ndarray(qd.f64, 1), n: qd.i32) -> None:  # type: ignore[valid-type]
            out[0] = 1.0 if n > 0 else ABSENT[7].missing

        results(lambda out: refused(out, 1))


def test_recursion_over_constants_ends() -> None:
    @qd.kernel
    def store(out: qd.types.ndarray(qd.f64, 1)) -> None:  # type: ignore[valid-type]
        out[0] = factorial(5)
        out[1] = fibonacci(9)

    assert results(store, 2) == [120.0, 34.0]


_DECIDED_EARLY = """
def kernel(a: qd.u32) -> qd.f64:
    x = {early}
    return x

def function() -> qd.f64:
    a = qd.u32(5)
    x = {early}
    return x
"""


@pytest.mark.parametrize(
    "early",
    [
        "(a and 3) * 65536 * 65536",
        "(a or 3) * 65536 * 65536",
        "(a - 5 and 3) * 65536 * 65536",
        "(a - 5 or 3) * 65536 * 65536",
        "(a and 2 and 3) * 65536 * 65536",
        "(a - 5 or a and 3) * 65536 * 65536",
        "(a and 2.5) + (a - 5 and 0.5)",
        "(a - 5 and 1.5) / 2 + 0.25",
        "(a == 5 < 6) * 65536 * 65536",
        "(a == 4 < 6) * 65536 * 65536",
        "(a == 5 and True) * 65536 * 65536",
        "(a == 5 or 2.5) / 2",
        "(a - 5 or qd.Vector([1, 2]))[1] * 65536 * 65536",
        "(a and qd.Vector([1, 2]))[1] * 65536 * 65536",
    ],
)
def test_operands_that_decide_early_have_the_types_that_they_have_at_run_time(
    early: str, tmp_path: Any
) -> None:
    path = tmp_path / "program.py"
    path.write_text(_DECIDED_EARLY.format(early=early))
    names: dict[str, Any] = {"qd": qd}
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert qd.kernel(names["function"])() == qd.kernel(names["kernel"])(5)
