"""Programs that are long or deeply nested compile, or say that they are too deep."""

from __future__ import annotations

import linecache
import re
import sys
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.diagnostics import recursion_limit
from tests.devices import beyond_llvmpipe
from tests.golden_files import check_golden

HEAD = """\
import octants as qd

@qd.kernel
def k(x: qd.types.ndarray(), y: qd.types.ndarray()):
    for i in range(x.shape[0]):
        v = x[i]
"""


def define(lines: list[str]) -> Any:
    """A kernel of these lines, which change v."""
    text = HEAD + "".join(f"        {line}\n" for line in lines) + "        y[i] = v\n"
    file = f"deep_{abs(hash(text))}.py"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names: dict[str, Any] = {}
    exec(compile(text, file, "exec"), names)
    return names["k"]


def gradient(lines: list[str], arch: Any = qd.cpu) -> tuple[float, float]:
    """The value at 0.5 and its derivative."""
    qd.init(arch=arch, offline_cache=False)
    x, y = (qd.ndarray(qd.f64, 1, needs_grad=True) for _ in range(2))
    x.fill(0.5)
    y.grad.fill(1)
    kernel = define(lines)
    kernel(x, y)
    kernel.grad(x, y)
    return y[0], x.grad[0]


def test_thousands_of_statements() -> None:
    value, slope = gradient(["v = v * 0.999 + 0.001"] * 3000)
    assert np.allclose([value, slope], [1 - 0.5 * 0.999**3000, 0.999**3000], rtol=1e-9)


def test_expression_of_hundreds_of_operands() -> None:
    assert gradient(["v = " + " + ".join(["v * 0.5"] * 500)]) == (125.0, 250.0)
    assert gradient(["v = " + "-" * 500 + "v"]) == (0.5, 1.0)


def alternatives(count: int) -> tuple[list[str], float]:
    """A chain of alternatives, and the factor of that which 0.5 takes."""
    limits = [0.9 - 0.401 * k / count for k in range(count + 1)]
    lines = ["if v > 0.95: v = v * 3.0"]
    lines += [f"elif v > {limit!r}: v = v * {k}.5" for k, limit in enumerate(limits)]
    return [*lines, "else: v = 0.0"], next(k for k, x in enumerate(limits) if 0.5 > x) + 0.5


@beyond_llvmpipe
def test_hundreds_of_alternatives() -> None:
    before = sys.getrecursionlimit()
    lines, factor = alternatives(400)
    qd.init(arch=qd.cpu, offline_cache=False)
    x, y = qd.ndarray(qd.f64, 1), qd.ndarray(qd.f64, 1)
    x.fill(0.5)
    define(lines)(x, y)
    assert y[0] == 0.5 * factor
    assert sys.getrecursionlimit() == before


def test_gradient_of_dozens_of_alternatives() -> None:
    lines, factor = alternatives(50)
    assert gradient(lines) == (0.5 * factor, factor)


@beyond_llvmpipe
@pytest.mark.parametrize("operator", ["and", "or"])
def test_hundreds_of_conditions(operator: str) -> None:
    parts = [f"v {'>' if operator == 'and' else '<'} 0.0{k}" for k in range(300)]
    expected = 1.0 if operator == "and" else 0.5
    parts = parts if operator == "and" else [f"v > 0.9{k}" for k in range(300)]
    value, _ = gradient([f"if {f' {operator} '.join(parts)}: v = v * 2.0"])
    assert value == expected


def test_what_is_too_deep_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recursion_limit, "LIMIT", 0)
    before = sys.getrecursionlimit()
    with pytest.raises(qd.OctantsCompilationError) as caught:
        gradient(["v = " + "-" * 900 + "v"])
    text = re.sub(r"[-^]{800,}", "...", re.sub(r"deep_\d+", "deep", str(caught.value)))
    check_golden("errors/OCT126_kernel", text)
    assert sys.getrecursionlimit() == before


def test_a_list_that_contains_itself_is_too_deep_where_it_is_read() -> None:
    qd.init(arch=qd.cpu)
    table: list[Any] = [1, 2]
    table.append(table)

    @qd.kernel
    def k() -> qd.i32:
        a = 1
        return table[0] + a

    with pytest.raises(qd.OctantsCompilationError, match=r"OCT126(.|\n)*return table") as caught:
        k()
    assert "contains itself" in str(caught.value)


def chain(count: int) -> Any:
    """A kernel that calls a function, which calls another one, and so on."""
    lines = ["import octants as qd", "@qd.func", "def f0(x): return x + 1"]
    for number in range(1, count):
        lines += ["@qd.func", f"def f{number}(x): return f{number - 1}(x) + 1"]
    lines += ["@qd.kernel", f"def k(x: qd.i32) -> qd.i32: return f{count - 1}(x)"]
    text, file = "\n".join(lines), f"chain_{count}.py"
    names: dict[str, Any] = {}
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), names)
    return names["k"]


def test_hundreds_of_functions_that_call_each_other() -> None:
    """They are not recursive, so the error of recursions would mislead."""
    qd.init(arch=qd.cpu, offline_cache=False)
    assert chain(300)(0) == 300
    with pytest.raises(qd.OctantsError, match="OCT126: kernel `k` nests too deeply"):
        chain(600)(0)
