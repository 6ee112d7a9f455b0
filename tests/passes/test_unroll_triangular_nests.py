"""Nests whose inner loops depend on the counters around them: solved in registers, or by loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.ir import ops
from octants.ir.core import Module
from octants.ir.printer import to_text
from octants.passes.loops import unroll_triangular_nests as unrolling
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.ir.parser import parse

ITEMS = 5


def solved(arch: Any, size: int, steps: int, pivots: bool) -> list[Any]:
    """The solutions of systems of equations, and the gradients of their sums."""
    qd.init(arch=arch, offline_cache=False, log_level="error", default_fp=qd.f64, opt_level=0)
    a = qd.field(qd.f64, (ITEMS, size, size), needs_grad=True)
    b = qd.field(qd.f64, (ITEMS, size), needs_grad=True)
    x = qd.field(qd.f64, ITEMS, needs_grad=True)
    rows = qd.field(qd.i32, size)
    random = np.random.default_rng(0)
    a.from_numpy(random.normal(size=(ITEMS, size, size)) + 4 * np.eye(size))
    b.from_numpy(random.normal(size=(ITEMS, size)))
    rows.from_numpy(np.arange(size, dtype=np.int32))

    @qd.kernel
    def solve():
        for n in range(ITEMS):
            m = qd.Matrix.zero(qd.f64, size, size + 1)
            total = 0.0
            for _ in range(steps):
                for i in range(size):
                    for j in range(size):
                        m[i, j] = a[n, i, j]
                    m[i, size] = b[n, i] + total
                for p in range(size):
                    q = rows[p] if qd.static(pivots) else p
                    for i in range(p + 1, size):
                        factor = m[i, p] / m[q, p]
                        for j in range(p, size + 1):
                            m[i, j] -= factor * m[q, j]
                for k in range(size):
                    i = size - 1 - k
                    s = m[i, size]
                    for j in range(i + 1, size):
                        s -= m[i, j] * m[j, size]
                    m[i, size] = s / m[i, i]
                    total += m[i, size]
            x[n] = total

    x.grad.fill(1.0)
    solve()
    solve.grad()
    return [x.to_numpy(), a.grad.to_numpy(), b.grad.to_numpy()]


@pytest.mark.parametrize(
    ("size", "steps", "pivots", "unrolled"),
    [(5, 1, False, True), (6, 3, False, True), (5, 1, True, False), (10, 1, False, False)],
)
def test_eliminations(
    size: int, steps: int, pivots: bool, unrolled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loops stay where they take many operations, or an index is known to a launch only."""
    expected = solved(qd.cpu, size, steps, pivots)
    found, unroll = [], unrolling.unroll_triangular_nests

    def see(module: Module) -> None:
        before = _accesses(module)
        unroll(module)
        found.append(before > 0 == _accesses(module))

    monkeypatch.setattr(unrolling, "unroll_triangular_nests", see)
    with emulated_gpu():
        own = solved(qd.cuda, size, steps, pivots)
    assert any(found) == unrolled
    for one, other in zip(own, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_many_iterations_that_only_move_components() -> None:
    """Unrolled they are no operations, but it would take for ever to find that out."""
    module = parse("""\
kernel @k
array @x: f32, 1, ndarray, () [primal]
serial @k_1 {
  %0: i32 = constant<0>()
  %1: i32 = constant<1>()
  %2: i32 = constant<2000000000>()
  %3: f32 = load<@x, primal>(%0)
  %4: f32 = load<@x, primal>(%1)
  %5: f32, %6: f32 = for(%0, %2, %3, %4) { (%7: i32, %8: f32, %9: f32):
    %10: i32 = binary<add>(%7, %1)
    %11: f32, %12: f32 = for(%7, %10, %8, %9) { (%13: i32, %14: f32, %15: f32):
      %16: i32 = binary<and>(%13, %1)
      %17: f32 = extract(%16, %14, %15)
      %18: f32, %19: f32 = insert(%0, %17, %14, %15)
      yield(%18, %19)
    }
    yield(%11, %12)
  }
  store<@x, primal>(%5, %0)
}
""")
    before = to_text(module)
    unrolling.unroll_triangular_nests(module)
    assert to_text(module) == before


def _accesses(module: Module) -> int:
    """How many operations access vectors by an index."""
    return sum(isinstance(op, (ops.Extract, ops.Insert)) for op in module.walk())
