"""What is annotated converts: returned values of functions, and variables."""

from __future__ import annotations

from typing import Any

import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsCompilationError, OctantsSyntaxError
from octants.frontend import build
from octants.types.scalars import f32, f64, i32, i64, u1, u64
from octants.types.specialisation_signature import ScalarType
from tests.frontend.frontend_programs import define, launch

IV = qd.types.vector(2, i32)
S = qd.types.struct(a=i32, b=qd.types.vector(2, f64))
NAMES = {"qd": qd, "IV": IV, "S": S, "i32": i32, "i64": i64, "u1": u1, "f32": f32, "f64": f64}

CASES = [
    ("i32", "return x", "f(x) / 2", 0.5),
    ("int", "return x", "f(x) / 2", 0.5),
    ("'i32'", "return x", "f(x) / 2", 0.5),
    ("float", "return 1", "f(x) / 2", 0.5),
    ("bool", "return x", "f(x) + 0", 1),
    ("f32", "return 0.1", "f(x) + 0.0", 0.10000000149011612),
    ("f64", "if x > 1.0:\n    return 1\nreturn 2.5", "f(x) / 2", 0.5),
    ("f64", "if x > 2.0:\n    return 1\nreturn 2.5", "f(x) / 2", 1.25),
    ("f64", "s = 0\nfor i in range(3):\n    if i > x:\n        return i\nreturn 7.5", "f(x)", 2.0),
    ("i32", "return qd.Vector([x, 2.5])", "f(x).sum() / 2", 1.5),
    ("IV", "return qd.Vector([x, 2.5])", "f(x).sum() / 2", 1.5),
    ("qd.types.vector(2)", "return qd.Vector([x, 2.5])", "f(x).sum()", 4.0),
    ("(i32, f64)", "return x, x", "f(x)[0] * 10 + f(x)[1]", 11.5),
    ("tuple[i32, IV]", "return x, qd.Vector([x, x])", "f(x)[0] * 10 + f(x)[1].sum()", 12),
    ("tuple[int, ...]", "return x, x", "f(x)[0] * 10 + f(x)[1]", 16.5),
    ("S", "return S(x, x)", "f(x).a + f(x).b[1]", 2.5),
    ("qd.template()", "return x", "f(x)", 1.5),
    ("None", "return x", "f(x)", 1.5),
    ("'no such name'", "return x", "f(x)", 1.5),
]


def value_of(annotation: str, body: str, result: str) -> Any:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    text = f"@func\ndef f(x) -> {annotation}:\n{lines}\ndef kernel(x):\n    return {result}\n"
    built = build(define(text, **NAMES), [ScalarType(f64)], default_int=i32, default_float=f64)
    return launch(built, 1.5)[0]


@pytest.mark.parametrize(("annotation", "body", "result", "wanted"), CASES)
def test_returned_values(annotation: str, body: str, result: str, wanted: float) -> None:
    assert value_of(annotation, body, result) == wanted


@pytest.mark.parametrize(
    ("annotation", "body", "message"),
    [
        ("IV", "return x", "the value of `f` is a vector.2, i32., and not an f64"),
        ("IV", "return qd.Vector([x, x, x])", "and not a vector of 3 f64"),
        ("S", "return x", "the value of `f` is a struct, and not an f64"),
        ("i32", "return S(1, 2)", "the value of `f` is declared as i32, and not the struct"),
        ("(i32, i32)", "return x", "`f` returns 2 values by its annotation, not 1"),
        ("i32", "pass", "`f` may end without returning a value"),
    ],
)
def test_what_does_not_fit(annotation: str, body: str, message: str) -> None:
    with pytest.raises(OctantsCompilationError, match=message) as caught:
        value_of(annotation, body, "f(x)")
    assert caught.value.diagnostic is not None
    assert caught.value.diagnostic.labels


# -- variables -------------------------------------------------------------------------------------


def returned(body: str) -> Any:
    text = "def kernel(x):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    built = build(define(text, **NAMES), [ScalarType(f64)], default_int=i32, default_float=f64)
    return launch(built, 2.7)[0]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("d: i32 = 2", "d: f32 = 2.7", "`d` is an i32 and cannot become an f32"),
        ("d = 2", "d: f64 = x", "`d` is an i32 and cannot become an f64"),
        ("d: f64 = 2", "d: float = 1", ""),
        ("d: i32 = 2", "if x > 1.0:\n    d: i64 = 3", "cannot become an i64"),
        ("d: IV = qd.Vector([1, 2])", "d: qd.types.vector(2, f64) = x * IV(1)", "vector of 2 f64"),
        ("d: S = S(1)", "d: S = S(2)", ""),
    ],
)
def test_a_second_declaration(first: str, second: str, message: str) -> None:
    """It is of the same type as the first one, or an error."""
    body = f"{first}\n{second}\nreturn x"
    if not message:
        assert returned(body) == 2.7
        return
    with pytest.raises(OctantsCompilationError, match=message):
        returned(body)


def test_declarations_in_unrolled_loops_and_of_python_types() -> None:
    assert returned("for k in qd.static(range(3)):\n    d: i32 = x + k\nreturn d") == 4
    assert returned("d: bool = x\nreturn d + 0") == 1


# -- structs and vectors ---------------------------------------------------------------------------


@pytest.mark.parametrize(("default", "unsigned"), [(qd.i32, qd.u32), (qd.i64, qd.u64)])
def test_unsigned_vectors_are_as_wide_as_int(default: Any, unsigned: Any) -> None:
    qd.init(arch=qd.cpu, default_ip=default, log_level="error")
    largest = 2**unsigned.bits - 1

    @qd.kernel
    def made() -> u64:
        v = qd.math.uvec3(qd.cast(largest, unsigned))
        return v[2]

    @qd.kernel
    def passed(v: qd.math.uvec2) -> u64:
        return v[1]

    assert made() == largest
    assert passed(qd.math.uvec2(largest)) == largest
    assert qd.math.uvec4.field(shape=1).dtype is unsigned
    assert qd.types.struct(a=qd.math.uvec2)(largest).a[1] == largest
    qd.reset()


def test_a_number_is_the_first_member_of_a_nested_struct() -> None:
    qd.init(arch=qd.cpu, log_level="error")
    line = qd.types.struct(direction=qd.math.vec3, length=float)
    kind = qd.types.struct(line=line, index=int, other=line)
    x = kind.field(shape=2)

    @qd.kernel
    def fill():
        x[0] = kind(3)

    fill()
    x[1] = kind(3)
    for each in (x[0], x[1], kind(3)):
        assert list(each.line.direction) == [3, 3, 3]
        assert (each.line.length, each.index, each.other.length) == (0, 0, 0)
    qd.reset()


def test_missing_return_is_a_syntax_error() -> None:
    with pytest.raises(OctantsSyntaxError):
        value_of("f64", "pass", "f(x)")


def test_a_kernel_without_a_result_may_return_none() -> None:
    qd.init(arch=qd.python)
    x = qd.field(qd.i32, ())

    @qd.kernel
    def count(n: qd.i32) -> None:
        if n > 2:
            return None  # noqa: RET501
        x[None] += 1
        return None  # noqa: RET501

    count(3)
    count(1)
    assert x[None] == 1


def test_vectors_and_matrices_of_one_component() -> None:
    qd.init(arch=qd.cpu, log_level="error")

    @qd.kernel
    def vector() -> qd.types.vector(1, qd.i32):
        return qd.Vector([5])

    @qd.kernel
    def matrix() -> qd.types.matrix(1, 1, qd.f32):
        return qd.Matrix([[2.0]])

    @qd.kernel
    def inferred():
        return qd.Vector([3.5])

    for _ in range(2):  # the second launch is a warm one
        assert isinstance(vector(), qd.Vector)
        assert vector().to_list() == [5]
        assert matrix().to_list() == [[2.0]]
        assert inferred().to_list() == [3.5]
