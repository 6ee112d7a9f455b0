"""Random kernels with shared arrays: their gradient is right, or refused by an error.

The text of a kernel is made at random from pieces that are well defined: between two barriers no
work item touches what another one writes. What reverse mode makes of it is compared with central
differences.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from octants.diagnostics.exceptions import OctantsCompilationError
from octants.ir.core import Companion
from octants.lang.directives import loop_config
from octants.lang.scalar_functions import cos, sin
from octants.lang.simt import block, subgroup
from octants.pipeline import Stage, finish
from octants.target import Blocks, Capabilities
from octants.types.scalars import f64, i32
from tests.autodiff.reversing import differentiate
from tests.codegen.compiled import Compiled
from tests.frontend.frontend_programs import define
from tests.seeds import counts
from tests.simt.kernels import compile_kernel, lowered
from tests.simt.test_derivatives import gradient, jacobian

NAMES = {
    "block": block,
    "subgroup": subgroup,
    "loop_config": loop_config,
    "sin": sin,
    "cos": cos,
    "f64": f64,
    "i32": i32,
}
COUNT = 11  # work items: a block of 8, and one of 3
HEAD = """\
def kernel(x: object, y: object):
    loop_config(block_dim=8)
    for i in x:
        p = block.SharedArray(8, f64)
        q = block.SharedArray((8, 2), f64)
        t, n = block.thread_idx(), block.size()
        a, b = x[i], 0.5
        p[t], q[t, 0], q[t, 1] = x[i], 0.25, 0.75
        block.sync()
"""


class Program:
    """The text of the kernel of a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.lines: list[str] = []
        for _ in range(self.chance.randint(2, 5)):
            self._step()
        self.text = HEAD + "\n".join(self.lines) + "\n        y[i] = a * b + sin(b)\n"

    def _add(self, depth: int, *lines: str) -> None:
        self.lines += ["    " * (2 + depth) + line for line in lines]

    def _float(self) -> str:
        kinds = ["a", "b", "x[i]", "sin(a)", "a * b", "cos(b) * x[i]", "(t + 1) * 0.25"]
        return self.chance.choice(kinds)

    def _read(self) -> str:
        """What other work items may have stored, behind a barrier."""
        where = self.chance.choice(["t", "(t + 1) % n", "n - 1 - t", "0", "(t * 2) % n"])
        return self.chance.choice([f"p[{where}]", f"q[{where}, 0]", f"q[{where}, t % 2]"])

    def _write(self, depth: int) -> None:
        """To elements of the work item's own."""
        kind = self.chance.randint(0, 4)
        if kind == 0:
            self._add(depth, f"p[t] = {self._float()}")
        elif kind == 1:
            self._add(depth, f"if t % {self.chance.choice([2, 3])} == 1:")
            self._add(depth + 1, f"p[t] = {self._float()}")
        elif kind == 2:
            self._add(depth, "for k in range(2):", f"    q[t, k] = {self._float()} * (k + 1)")
        elif kind == 3:
            self._add(depth, f"p[t] = p[t] * {self._float()}")
        else:
            self._add(depth, f"q[t, 1] = {self._float()}", f"q[t, 0] = {self._float()}")

    def _use(self, depth: int) -> None:
        target = self.chance.choice("ab")
        kind = self.chance.randint(0, 3)
        if kind == 0:
            self._add(depth, f"{target} = {self._read()} * 0.5 + {self._float()} * 0.25")
        elif kind == 1:
            self._add(depth, "for k in range(n):", f"    {target} += p[k] * q[k, t % 2] * 0.1")
        elif kind == 2:
            self._add(depth, "if t > 1:", f"    {target} = {self._read()} * {self._float()}")
        else:
            self._add(depth, f"{target} += {self._read()} * {self._read()}")

    def _update(self, depth: int) -> None:
        where = self.chance.choice(["0", "(t + 1) % n", "t % 2"])
        self._add(depth, f"p[{where}] += {self._float()} * 0.5")

    def _lanes(self) -> None:
        """Subgroups have 4 lanes here."""
        one, distance = self._float(), self.chance.choice([0, 1, 2, 3, 5])
        way = self.chance.choice(["shuffle_up", "shuffle_down", "shuffle", "broadcast"])
        sums = [f"block.{name}_add({one}, 8, f64)" for name in ("reduce", "inclusive", "exclusive")]
        sums += [f"subgroup.{name}_add_tiled({one}, 1)" for name in ("reduce", "inclusive")]
        sums += [f"subgroup.{way}({one}, {distance})", f"subgroup.exclusive_add({one})"]
        target = self.chance.choice("ab")
        self._add(0, f"{target} = {self.chance.choice(sums)} * 0.3 + {self._float()} * 0.25")

    def _step(self) -> None:
        kind = self.chance.randint(0, 5)
        if self.chance.random() < 0.3:
            self._lanes()
        elif kind <= 2:
            self._write(0)
            self._add(0, "block.sync()")
            self._use(0)
            self._add(0, "block.sync()")
        elif kind == 3:
            self._update(0)
            self._add(0, "block.sync()")
            self._use(0)
            self._add(0, "block.sync()")
        else:
            self._tiles()

    def _tiles(self) -> None:
        """A serial loop with barriers, with arrays of its own most of the time."""
        own = f"r{len(self.lines)}" if self.chance.random() < 0.8 else "p"
        if own != "p":
            self._add(0, f"{own} = block.SharedArray(8, f64)")
        where = self.chance.choice(["t", "n - 1 - t", "t", "(t + j) % n"])
        self._add(0, "for j in range(3):")
        if self.chance.random() < 0.5:
            self._add(1, "block.sync()")
        if self.chance.random() < 0.15:
            self._add(1, "if t != j:", f"    {own}[{where}] = {self._float()}")
        else:
            self._add(1, f"{own}[{where}] = {self._float()} + j * 0.1")
        self._add(1, "block.sync()")
        if self.chance.random() < 0.5:
            self._add(1, f"b += {own}[(t + j) % n] * x[i] * 0.5")
        else:
            self._add(1, "for k in range(n):", f"    b += {own}[k] * {own}[(k + t) % n] * 0.1")
        self._add(1, "block.sync()")


def check(seed: int, *, compiled: bool = False) -> str:
    """Compare; "right", or the first words of the refusal."""
    module_of = define(Program(seed).text, **NAMES)
    x = np.random.default_rng(seed).uniform(0.2, 0.9, COUNT)
    weights = np.random.default_rng(seed + 1).normal(size=COUNT)
    module = lowered(compile_kernel(module_of, x, x, blocks=Blocks(subgroup_size=4)))
    try:
        found = gradient(module, x, weights)
    except OctantsCompilationError as error:
        assert error.diagnostic is not None
        assert error.diagnostic.code == "OCT302"
        return "refused"
    wanted = weights @ jacobian(module, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * (1 + np.abs(wanted).max()))
    if compiled:
        stage = Stage(Capabilities(serialises_blocks=True), verifies=True)
        again: dict[Any, Any] = {"x": x, "y": np.zeros_like(x)}
        again["y", Companion.ADJOINT] = weights.copy()
        again["x", Companion.ADJOINT] = np.zeros_like(x)
        Compiled(finish(differentiate(module).module, stage)).run(again)
        np.testing.assert_allclose(again["x", Companion.ADJOINT], found, rtol=1e-9, atol=1e-9)
    return "right"


@pytest.mark.parametrize("count", counts(8, 24))
def test_gradients(count: int) -> None:
    outcomes = Counter(check(seed, compiled=seed % 4 == 0) for seed in range(count))
    assert outcomes["right"] >= count // 4


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_more_gradients(first: int) -> None:
    outcomes = Counter(check(seed, compiled=seed % 4 == 0) for seed in range(first, first + 100))
    assert outcomes["right"] >= 25
