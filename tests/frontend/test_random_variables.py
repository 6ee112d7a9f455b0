"""Random kernels whose top-level loops share variables: threads and lanes do what Python does."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

import octants as qd
from tests.frontend.frontend_programs import define
from tests.seeds import seeds

SIZE = 16
VARIABLES = ["a", "b", "c"]


class Generator:
    """Writes functions of an array `x` and a number `n`; `i` is the index of top-level loops."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.loops = 0

    def program(self) -> str:
        lines = ["def kernel(x: qd.types.ndarray(qd.i64, 1), n: qd.i64):"]
        lines += ["    a = 1", "    b = n + 2", "    c = 3"]
        lines += self.block(1, [*VARIABLES, "n"], self.random.randint(0, 2))
        for _ in range(self.random.choice([1, 1, 2])):
            lines.append(f"    for i in range({SIZE - 3}):")
            for name in self.random.sample(VARIABLES, self.random.randint(0, 3)):
                lines.append(f"        {name} = {self.expression(['i', 'n', 'x[i]'])}")
            names = [*VARIABLES, "i", "n", "x[i]"]
            lines += self.block(2, names, self.random.randint(1, 4), in_parallel=True)
            lines.append(f"        x[i] += {self.expression(VARIABLES)}")
            lines.append("    " + self.random.choice(["pass", "a = 2", "x[14] += b", "b = a + 1"]))
        return "\n".join([*lines, f"    x[15] = {self.expression(VARIABLES)}", ""])

    def expression(self, names: list[str]) -> str:
        left, right = self.random.choice(names), self.random.choice([*names, "1", "2"])
        pattern = self.random.choice(["({} + {}) % 19", "({} * {}) % 17", "({} - {}) % 13", "{}"])
        return pattern.format(left, right)

    def condition(self, names: list[str]) -> str:
        return f"({self.expression(names)}) % {self.random.choice([2, 3])} == 1"

    def block(
        self,
        depth: int,
        names: list[str],
        count: int,
        *,
        in_parallel: bool = False,
        in_loop: bool = False,
    ) -> list[str]:
        lines: list[str] = []
        for _ in range(count):
            lines += self.statement(depth, names, in_parallel=in_parallel, in_loop=in_loop)
        return lines

    def statement(
        self, depth: int, names: list[str], *, in_parallel: bool, in_loop: bool
    ) -> list[str]:
        indent, pick = "    " * depth, self.random.randrange(10)
        name, value = self.random.choice(VARIABLES), self.expression(names)
        where = {"in_parallel": in_parallel, "in_loop": in_loop}
        if pick == 0 and depth < 5:
            lines = [
                f"{indent}if {self.condition(names)}:",
                *self.block(depth + 1, names, 2, **where),
            ]
            if self.random.random() < 0.5:
                lines += [f"{indent}else:", *self.block(depth + 1, names, 1, **where)]
            return lines
        if pick == 1 and depth < 5:
            self.loops += 1
            index, bound = f"j{self.loops}", self.random.choice(["2", "a % 3", "n"])
            inner = self.block(
                depth + 1, [*names, index], 2, in_parallel=in_parallel, in_loop=depth > 1
            )
            return [f"{indent}for {index} in range({bound}):", *inner]
        if pick == 2 and (in_loop or in_parallel):
            leave = self.random.choice(["break", "continue"]) if in_loop else "continue"
            return [f"{indent}if {self.condition(names)}:", f"{indent}    {leave}"]
        if pick == 3 and in_parallel:
            return [f"{indent}x[i] {self.random.choice(['=', '+='])} {value}"]
        if pick == 4:
            return [f"{indent}a, b = {value}, {self.expression(names)}"]
        return [f"{indent}{name} {'+=' if pick == 5 else '='} {value}"]


# Block 14 has a loop whose iterations leave a variable to the next loop.
@pytest.mark.parametrize("block", seeds(2, 20, first=14))
def test_random_variables(block: int) -> None:
    qd.init(arch=qd.cpu, default_ip=qd.i64, offline_cache=False, log_level="error")
    for seed in range(block * 20, block * 20 + 20):
        text = Generator(seed).program()
        function = define(text, qd=qd)
        kernel = qd.kernel(function)
        for n in (0, 1, 5):
            found, expected = np.arange(SIZE), np.arange(SIZE)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of variables that nothing reads
                kernel(found, n)
            function(expected, n)
            assert found.tolist() == expected.tolist(), f"seed {seed}\n{text}"
