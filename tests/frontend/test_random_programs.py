"""Random control flow: what is built does what Python does."""

from __future__ import annotations

import random

import numpy as np
import pytest

from octants.lang.directives import static
from tests.frontend.frontend_programs import agree, define
from tests.seeds import seeds


class Generator:
    """Writes random functions of arrays `x` (f64) and numbers `n`, `m`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.loops = 0
        self.budget = 22
        self.function = False

    def program(self) -> str:
        text = ""
        for name in ("f", "g"):
            self.lines, self.budget, self.function = [], 12, True
            self.block(1, ["a", "b"], 0, None)
            self.add(1, f"return {self.expression(['a', 'b'])}")
            text += f"@func\ndef {name}(a, b):\n" + "\n".join(self.lines) + "\n\n"
        self.lines, self.budget, self.function = [], 22, False
        self.add(1, "a = x[0] + 0.5")
        self.add(1, "b = 1.5")
        self.block(1, ["a", "b"], 0, None, top=True)
        self.add(1, "x[1] = a + b")
        self.add(1, f"return {self.expression(['a', 'b'])} * 1.0")
        return text + "def kernel(x, n, m):\n" + "\n".join(self.lines) + "\n"

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def expression(self, names: list[str], depth: int = 0) -> str:
        pick = self.random.randrange(8 if depth < 2 else 3)
        if pick < 2:
            return self.random.choice(names)
        if pick == 2:
            return str(round(self.random.uniform(-2, 2), 2))
        left, right = self.expression(names, depth + 1), self.expression(names, depth + 1)
        if pick < 6:
            return f"({left} {self.random.choice('+-*')} {right})"
        if pick == 6 and not self.function:
            return f"{self.random.choice('fg')}({left} * 1.0, 1.0 * {right}) * 0.25"
        return f"({left} if {self.condition(names)} else {right})"

    def condition(self, names: list[str]) -> str:
        left, right = self.expression(names, 2), self.expression(names, 2)
        simple = f"{left} {self.random.choice(['<', '>', '<=', '>='])} {right}"
        pick = self.random.randrange(6)
        if pick == 0:
            return f"{simple} and {self.expression(names, 2)} < 1.0"
        if pick == 1:
            return f"not ({simple}) or {self.expression(names, 2)} > 0.5"
        if pick == 2:
            return f"-1.0 < {left} < {right}"
        return simple

    def block(
        self, depth: int, names: list[str], loops: int, kind: str | None, top: bool = False
    ) -> None:
        """Statements; `kind` is that of the loop around them."""
        mine = list(names)
        for _ in range(self.random.randint(1, 4)):
            self.budget -= 1
            if self.budget < 0:
                break
            self.statement(depth, mine, loops, kind, top)
        if not self.lines or self.lines[-1].endswith(":"):
            self.add(depth, "pass")

    def statement(
        self, depth: int, names: list[str], loops: int, kind: str | None, top: bool
    ) -> None:
        pick = self.random.randrange(14)
        target = self.random.choice([name for name in names if not name.startswith("i")])
        if pick < 3:
            self.add(depth, f"{target} = {self.expression(names)}")
        elif pick == 3:
            fresh = f"v{len(self.lines)}"
            self.add(depth, f"{fresh} = {self.expression(names)} * 1.0")
            names.append(fresh)
        elif pick == 4:
            self.add(depth, f"{target} {self.random.choice('+-*')}= {self.expression(names)}")
        elif pick == 5 and not self.function:
            self.add(depth, f"x[{self.random.randrange(4)}] += {self.expression(names)} * 0.5")
        elif pick == 6:
            self.add(depth, f"a, b = b, {self.expression(names)}")
        elif pick < 9:
            self.conditional(depth, names, loops, kind)
        elif pick < 12 and loops < 2:
            self.loop(depth, names, loops)
        elif pick == 12 and kind is not None:
            self.add(depth, f"if {self.condition(names)}:")
            leave = self.random.choice(["break", "continue"])
            self.add(depth + 1, leave)
        elif not top or self.random.random() < 0.3:
            self.add(depth, f"if {self.condition(names)}:")
            self.add(depth + 1, f"return {self.expression(names)} * 1.0")
        self.clamp(depth)

    def clamp(self, depth: int) -> None:
        self.add(depth, "a = min(max(a, -9.0), 9.0)")
        self.add(depth, "b = min(max(b, -9.0), 9.0)")

    def conditional(self, depth: int, names: list[str], loops: int, kind: str | None) -> None:
        self.add(depth, f"if {self.condition(names)}:")
        self.block(depth + 1, names, loops, kind)
        if self.random.random() < 0.4:
            self.add(depth, f"elif {self.condition(names)}:")
            self.block(depth + 1, names, loops, kind)
        if self.random.random() < 0.6:
            self.add(depth, "else:")
            self.block(depth + 1, names, loops, kind)

    def loop(self, depth: int, names: list[str], loops: int) -> None:
        self.loops += 1
        index = f"i{self.loops}"
        pick = self.random.randrange(5)
        bound = "4" if self.function else self.random.choice(["n", "m", "3"])
        if pick == 0:
            self.add(depth, f"{index} = 0")
            self.add(depth, f"while {index} < {bound}:")
            self.add(depth + 1, f"{index} += 1")
        elif pick == 1:
            self.add(depth, f"{index} = 0")
            self.add(depth, "while True:")
            self.add(depth + 1, f"{index} += 1")
            self.add(depth + 1, f"if {index} > {bound}:")
            self.add(depth + 2, "break")
        elif pick == 2:
            step = self.random.choice([-2, -1, 2, 3])
            low, high = (7, -1) if step < 0 else (-1, 6)
            self.add(depth, f"for {index} in range({low}, {high}, {step}):")
        elif pick == 3:
            self.add(depth, f"for {index} in static(range(3)):")
        else:
            self.add(depth, f"for {index} in range({bound}):")
        self.block(depth + 1, [*names, index], loops + 1, "loop")
        if pick in (0, 1):
            names.append(index)


def program(seed: int) -> str:
    return Generator(seed).program()


@pytest.mark.parametrize("block", seeds(2, 10))
def test_random_programs(block: int) -> None:
    for seed in range(block * 15, block * 15 + 15):
        check(seed)


def check(seed: int) -> None:
    text = program(seed)
    kernel = define(text, static=static)
    rng = np.random.default_rng(seed)
    for n, m in ((0, 1), (3, 2), (5, 0)):
        try:
            agree(kernel, rng.uniform(-2, 2, 4), n, m)
        except Exception:
            print(text)
            raise
