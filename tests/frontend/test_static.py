"""``static(x)`` is the object x wherever it stands: each form gives what it gives without it."""

from __future__ import annotations

import ast
import types
from typing import Any

import numpy as np
import pytest

from octants.diagnostics.exceptions import OctantsCompilationError
from octants.frontend import build
from octants.ir import ops
from octants.lang.directives import ndrange, static, template
from octants.lang.scalar_functions import cast, select
from octants.types.matrix_values import Matrix, Vector
from octants.types.scalars import f32, f64, i32, i64
from octants.types.specialisation_signature import NdarrayType, ScalarType
from tests.frontend.frontend_programs import compile_kernel, define, func, launch

N, F, T, V = 3, False, (4, 7), 2.5
NAMES: dict[str, Any] = {
    "N": N,
    "F": F,
    "T": T,
    "V": V,
    "O": None,
    "ROWS": ((1, 2), (3, 4)),
    "BOX": types.SimpleNamespace(size=5, deep=types.SimpleNamespace(on=False)),
    "VECTOR": Vector([1.5, 2.5]),
    "TABLE": {"a": 3},
    "Vector": Vector,
    "Matrix": Matrix,
    "cast": cast,
    "select": select,
    "ndrange": ndrange,
    "template": template,
    "i32": i32,
    "i64": i64,
    "f32": f32,
    "f64": f64,
    "static": static,
}

BINARY = ["+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "^"]
COMPARISONS = ["<", "<=", ">", ">=", "==", "!="]

EXPRESSIONS = [
    *(f"{op}static({x})" for op in ("not ", "-", "+") for x in ("N", "F", "N > 2")),
    "~static(N)",
    "-static(V)",
    "not static(T)",
    "not static(())",
    "not static(O)",
    *(f"static(N) {op} n" for op in BINARY),
    *(f"n {op} static(N)" for op in BINARY),
    *(f"static(N) {op} static(2)" for op in BINARY),
    *(f"static(N) {op} 2" for op in BINARY),
    *(f"static(N) {op} n" for op in COMPARISONS),
    *(f"n {op} static(N)" for op in COMPARISONS),
    *(f"static(N) {op} 3" for op in COMPARISONS),
    "static(F) == True",
    "static(F) != False",
    "static(N) in (3, 4)",
    "static(N) not in (3, 4)",
    "n in static(T)",
    "n not in static((2, 3))",
    "2 in static((2, 3))",
    "static('a') in static('abc')",
    "static(O) is None",
    "static(O) is not None",
    "static(O) == None",
    "static(N) == None",
    "1 < static(N) < 5",
    "static(1) < n < static(N)",
    "0 < n < static(N) < 9",
    "static(F) and n > 0",
    "static(F) or n > 0",
    "n > 0 and static(F)",
    "n > 9 or static(F)",
    "static(N) and n",
    "static(0) or n",
    "static(F) and static(N)",
    "static(N) if n > 1 else 9",
    "9 if n > 5 else static(N)",
    "5 if static(F) else 6",
    "5 if not static(F) else 6",
    "x[static(1)]",
    "x[n - static(1)]",
    "static(T)[1]",
    "static(T)[-1]",
    "static(ROWS)[static(1)][static(0)]",
    "static(VECTOR)[1]",
    "static(VECTOR)[n - 1]",
    "static(VECTOR).y",
    "(static(VECTOR) * 2.0).sum()",
    "static(VECTOR).sum()",
    "static(BOX).size",
    "not static(BOX).deep.on",
    "static(BOX.deep).on == False",
    "static(TABLE)['a'] + n",
    "static({'a': 1}['a']) + n",
    "max(static(N), n)",
    "min(n, static(N))",
    "max(static(N), static(4))",
    "abs(static(-N))",
    "int(static(V))",
    "float(static(N))",
    "bool(static(N))",
    "cast(static(F), i32)",
    "cast(static(V), i32)",
    "f64(static(N))",
    "i64(static(N)) * n",
    "select(static(F), 1, 2)",
    "select(n > 1, static(N), static(4))",
    "Vector([static(N), 2])[0]",
    "Vector([static(N), n])[1]",
    "Vector(static(T))[1]",
    "Matrix([[static(N), n], [1, 2]])[0, static(0)]",
    "Vector.zero(f64, static(N)).sum()",
    "Vector.zero(static(f64), static(N))[n]",
    "sum([k for k in static(T)])",
    "sum([static(k) for k in T if static(k > 4)])",
    "len(static(T))",
    "twice(static(N))",
    "twice(x=static(V))",
    "twice(*static((3,)))",
    "power(n, static(N))",
    "(lambda a: a + n)(static(N))",
    "static(static(N)) + n",
    "static(N, F)[0] + n",
    "[static(N), 5][0]",
    "(*static(T), n)[2]",
    "(m := static(N)) + n + m",
    "f'{static(N)}' == '3'",
]

STATEMENTS = [
    "y = not static(F)\nif y:\n    s = 1",
    "y = static(N)\ny += 1\ns = y",
    "s = n\ns += static(N)",
    "s = n\ns *= static(N) + 1",
    "y: f64 = static(N)\ny /= 2\ns = 0 * n\nreturn y",
    "a, b = static(T)\ns = a * 10 + b",
    "x[static(0)] = static(N)\ns = x[0]",
    "x[static(N) - 1] += static(V)\ns = x[2]",
    "while not static(F):\n    s += 1\n    if s > n:\n        break",
    "while s < static(N):\n    s += 1",
    "while static(F):\n    s += 1",
    "for i in range(static(N)):\n    s += i",
    "for i in range(static(1), n + static(4), static(2)):\n    s = s * 10 + i",
    "for i in range(n):\n    for j in range(i, static(N)):\n        s = s * 2 + j",
    "for i, j in ndrange(static(2), (static(1), static(N))):\n    s = s * 10 + i + j",
    "for i in static(T):\n    s = s * 10 + i",
    "for i, t in enumerate(static(T)):\n    s = s * 10 + i * t",
    "for a, b in zip(static(T), static(T), strict=True):\n    s = s * 10 + a + b",
    "for i in reversed(static(T)):\n    s = s * 10 + i",
    "for row in static(ROWS):\n    for k in static(row):\n        s = s * 10 + k",
    "for i in static(range(static(N))):\n    s = s * 10 + T[i % 2]",
    "if not static(F):\n    s = 1",
    "if static(F):\n    s = 1\nelif static(N) == 3:\n    s = 2\nelse:\n    s = 3",
    "if (not static(F)) and n > 1:\n    s = 1",
    "if static(N == 3) or static(F):\n    s = 1",
    "if static(O) is None:\n    s = undefined if static(F) else 4",
    "assert static(N) == 3\ns = 1",
    "return static(N)",
    "return static(V) * n",
]


@func
def twice(x: Any) -> Any:
    return x * 2


@func
def power(x: Any, n: template()) -> Any:
    return 1 if not static(n) else x * power(x, static(n) - 1)


def program(body: str) -> types.FunctionType:
    """A kernel with this body that returns s."""
    text = "def kernel(x, n):\n    s = 0\n" + "".join(
        f"    {line}\n" for line in [*body.splitlines(), "return s"]
    )
    return define(text, twice=twice, power=power, **NAMES)


def built_value(function: types.FunctionType) -> Any:
    """What the kernel returns."""
    kinds = [NdarrayType(f64, 1), ScalarType(i32)]
    built = build(function, kinds, default_int=i32, default_float=f64)
    return launch(built, np.array([1.0, 2.0, 3.5]), 2)[0]


def agree_with_python(function: types.FunctionType) -> None:
    wanted = function(np.array([1.0, 2.0, 3.5]), 2)
    assert built_value(function) == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions(text: str) -> None:
    agree_with_python(program(f"return {text}"))


@pytest.mark.parametrize("text", STATEMENTS)
def test_statements(text: str) -> None:
    agree_with_python(program(text))


class _Without(ast.NodeTransformer):
    """Replaces each ``static(x)`` of one argument by x."""

    def visit_Call(self, node: ast.Call) -> ast.expr:  # noqa: N802 - named by ast
        self.generic_visit(node)
        is_static = isinstance(node.func, ast.Name) and node.func.id == "static"
        return node.args[0] if is_static and len(node.args) == 1 else node


WRONG = ["static(N)()", "static(N).nothing", "static(N)[0]", "x[static(V)]"]


@pytest.mark.parametrize("text", WRONG)
def test_errors_do_not_name_a_wrapper(text: str) -> None:
    """The error is the one that the object itself gives."""
    plain = ast.unparse(_Without().visit(ast.parse(text, mode="eval")))
    problems = []
    for each in (text, plain):
        with pytest.raises(OctantsCompilationError) as caught:
            built_value(program(f"return {each}"))
        problems.append(str(caught.value).splitlines()[0])
    assert problems[0] == problems[1]


def loops_of(source: str) -> set[type]:
    kernel = define(source, **NAMES)
    built = compile_kernel(kernel, np.zeros(4))
    return {type(op) for op in built.module.walk()} & {ops.For, ops.ParallelFor, ops.While}


@pytest.mark.parametrize(
    ("test", "loop"),
    [
        ("static(N)", ops.ParallelFor),
        ("static(N > 2)", ops.ParallelFor),
        ("not static(F)", ops.For),
        ("static(N) and static(N)", ops.For),
        ("N", ops.For),
    ],
)
def test_loops_in_conditions(test: str, loop: type) -> None:
    """Only a call of ``static`` itself leaves the loops in its branch at the top level."""
    body = f"    if {test}:\n        for i in x:\n            x[i] = 1.0\n"
    assert loops_of(f"def kernel(x):\n{body}") == {loop}


@pytest.mark.parametrize(
    ("over", "is_unrolled"),
    [("static(range(3))", True), ("range(static(3))", False), ("static(T)", True)],
)
def test_what_is_unrolled(over: str, is_unrolled: bool) -> None:
    found = loops_of(f"def kernel(x):\n    for i in {over}:\n        x[i % 4] = 1.0\n")
    assert (not found) == is_unrolled
