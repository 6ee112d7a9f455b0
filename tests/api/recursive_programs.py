"""Random functions that call each other: the same text is Python, and a part of a kernel."""

from __future__ import annotations

import random

VARIABLES = ["a", "b", "c", "x", "y"]


def program(rng: random.Random) -> str:
    """Functions ``f0(n, x, y)`` and perhaps others; `n` is less in each call inside."""
    return _Program(rng).text()


class _Program:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._lines: list[str] = []
        self._names = [f"f{k}" for k in range(rng.randint(1, 3))]
        self._loops = 0
        self._calls = 0

    def text(self) -> str:
        rng = self._rng
        for name in self._names:
            self._calls = 2 if len(self._names) > 1 else 3
            self._emit(0, "@real_func")
            self._emit(0, f"def {name}(n: i32, x: FP, y: FP) -> FP:")
            for line in ("a = x * 1.0", "b = y * 1.0", "c = x + y", "if n <= 0:"):
                self._emit(1, line)
            self._emit(2, f"return {rng.choice('xy')} * 0.5")
            self._block(1, 2, in_loop=False)
            self._emit(1, f"return {self._value()} + {self._call(rng.random() < 0.4)}")
        return "\n".join(self._lines) + "\n"

    def _emit(self, indent: int, line: str) -> None:
        self._lines.append("    " * indent + line)

    def _value(self, depth: int = 2) -> str:
        rng = self._rng
        if depth == 0 or rng.random() < 0.3:
            return rng.choice([*VARIABLES, f"{rng.uniform(-1, 1):.2f}"])
        a, b = self._value(depth - 1), self._value(depth - 1)
        return rng.choice([f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"sin({a})"])

    def _call(self, wanted: bool = True) -> str:
        if not wanted or self._calls == 0:
            return self._value(1)
        self._calls -= 1
        values = f"sin({self._value(1)}), sin({self._value(1)})"
        return f"{self._rng.choice(self._names)}(n - {self._rng.randint(1, 2)}, {values})"

    def _test(self) -> str:
        return f"{self._value(1)} > {self._value(1)}"

    def _block(self, indent: int, depth: int, in_loop: bool) -> None:
        for _ in range(self._rng.randint(1, 3)):
            self._statement(indent, depth, in_loop)

    def _statement(self, indent: int, depth: int, in_loop: bool) -> None:
        rng, target = self._rng, self._rng.choice("abc")
        kind = rng.random()
        if kind < 0.15:
            self._emit(indent, f"{target} = {self._value()}")
        elif kind < 0.4:
            self._emit(indent, f"{target} {rng.choice(['=', '+='])} {self._call()} * 0.7")
        elif kind < 0.5:
            self._emit(indent, f"c = {self._call()} if {self._test()} else {self._call()}")
        elif kind < 0.7 and depth:
            self._emit(indent, f"if {self._test()}:")
            self._block(indent + 1, depth - 1, in_loop)
            if rng.random() < 0.5:
                self._emit(indent, "else:")
                self._block(indent + 1, depth - 1, in_loop)
        elif kind < 0.8 and depth:
            self._loops += 1
            self._emit(indent, f"for i{self._loops} in range({rng.choice(['2', 'n', '1'])}):")
            self._block(indent + 1, depth - 1, in_loop=True)
        elif kind < 0.87 and depth:
            self._loops += 1
            counter = f"w{self._loops}"
            self._emit(indent, f"{counter} = 0")
            self._emit(indent, f"while {counter} < {rng.choice(['2', 'n'])}:")
            self._emit(indent + 1, f"{counter} += 1")
            self._block(indent + 1, depth - 1, in_loop=True)
        elif kind < 0.94 or not in_loop:
            self._emit(indent, f"if {self._test()}:")
            self._emit(indent + 1, f"return {self._value()} + {self._call(rng.random() < 0.3)}")
        else:
            self._emit(indent, f"if {self._test()}:")
            self._emit(indent + 1, rng.choice(["break", "continue"]))
