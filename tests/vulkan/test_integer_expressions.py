"""Random small expressions of integers, as values and as indices: Vulkan against the CPU.

Drivers are compilers, and have got such expressions wrong (see docs/vulkan.md).
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.vulkan import compiled

KNOWN = {  # what a driver has got wrong
    "i32": ["i % 2", "(i % 2) % 5", "(i & 1) * 3"],
    "u32": ["number(i % 2) * number(3)"],
    "i64": [
        "number((y[i] << number(1)) < number(1))",
        "number(number(5) < (x[i] << number(1)))",
        "qd.min(qd.abs(number(i)) + number(-1), number(2))",
        "number(i % 2) * number(24)",
        "number((x[i] + x[i]) < number(5))",
        "(x[i] // number(3)) % number(2) * y[i]",
    ],
}
BRANCH = "number(qd.abs(qd.sin(qd.f32(i))) * 3.0)"  # without one, what is known has gone right
COUNT, ITEMS = 48, 8
HEAD = """\
@qd.kernel
def compute(x: qd.Tensor, y: qd.Tensor, rows: qd.Tensor, out: qd.Tensor):
    for i in range(8):
"""


@pytest.fixture(autouse=True)
def vulkan() -> Iterator[None]:
    compiled.device()
    yield
    qd.reset()


def expression(dice: random.Random, depth: int) -> str:
    if not depth:
        constant = f"number({dice.choice((0, 1, 2, 3, 5, 7))})"
        return dice.choice(("number(i)", "number(i)", "x[i]", "y[i]", constant))
    a, b = expression(dice, depth - 1), expression(dice, dice.randrange(depth))
    size, shift = dice.choice((1, 2, 2, 3, 4, 7, 8)), dice.randrange(4)
    forms = [f"({a} {op} {b})" for op in "+-*&|^"]
    forms += [f"({a} {op} number({size}))" for op in ("//", "%", "%")]
    forms += [f"({a} {op} number({shift}))" for op in ("<<", ">>")]
    forms += [f"qd.{name}({a}, {b})" for name in ("min", "max")]
    forms += [f"qd.cast(qd.cast({a}, qd.{name}), T)" for name in ("i64", "i32", "u8", "i16")]
    forms += [f"(~{a})", f"qd.abs({a})", f"number({a} < {b})", f"qd.select({a} < {b}, {b}, {a})"]
    return dice.choice(forms)


def row(text: str) -> str:
    """An index from 0 to 7."""
    return text if text in KNOWN["i32"] else f"qd.cast({text}, qd.i32) & 7"


def results(arch: Any, kind: str, seed: int, lines: list[str]) -> Any:
    """What each expression gives, a column for each work item."""
    qd.init(arch=arch, offline_cache=False, fast_math=False)
    dtype = getattr(qd, kind)
    low = 0 if kind == "u32" else -9
    numbers = np.random.default_rng(seed).integers(low, 20, (2, ITEMS))
    x, y, out = (
        qd.ndarray(dtype, ITEMS),
        qd.ndarray(dtype, ITEMS),
        qd.ndarray(dtype, (COUNT, ITEMS)),
    )
    rows = qd.Vector.ndarray(3, dtype, 8)
    x.from_numpy(numbers[0].astype(x.to_numpy().dtype))
    y.from_numpy(numbers[1].astype(x.to_numpy().dtype))
    rows.from_numpy(np.arange(100, 124).reshape(8, 3).astype(x.to_numpy().dtype))
    text = HEAD + "".join(f"        {line}\n" for line in lines)
    text = text.replace("number(", f"qd.{kind}(")
    file = f"expressions_{kind}_{seed}.py"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names: dict[str, Any] = {"qd": qd, "T": dtype}
    exec(compile(text, file, "exec"), names)
    names["compute"](x, y, rows, out)
    return out.to_numpy()


@pytest.mark.parametrize("as_index", [False, True], ids=["values", "indices"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KNOWN)
def test_expressions_give_what_they_give_on_the_cpu(kind: str, seed: int, as_index: bool) -> None:
    dice = random.Random(f"{kind} {seed}")
    chosen = [*KNOWN[kind], *(expression(dice, dice.choice((1, 2, 2, 3))) for _ in range(COUNT))]
    chosen = [*chosen[: COUNT - 1], BRANCH]
    if as_index:
        chosen = [f"rows[{row(text)}][1]" for text in chosen]
    lines = [f"out[{k}, i] = {text}" for k, text in enumerate(chosen)]
    wanted = results(qd.cpu, kind, seed, lines)
    found = results(qd.vulkan, kind, seed, lines)
    wrong = [line for k, line in enumerate(lines) if found[k].tolist() != wanted[k].tolist()]
    assert not wrong, "\n".join(wrong)
