"""Gradients of matrices that warps add up: in copies of each warp, or thread by thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen import block_shared_copies
from tests.codegen.on_emulated_gpu import emulated_gpu

LONG = 40
"""Components of a vector, which a matrix of more than the memory of a block multiplies."""


def gradients(length: int, items: int, least: int, arch: Any, **options: Any) -> list[Any]:
    """Those of a matrix and of vectors; work items below ``least`` multiply fewer rows."""
    qd.init(arch=arch, offline_cache=False, log_level="error", **options)
    w = qd.field(qd.f32, (2, length, length), needs_grad=True)
    x = qd.field(qd.f32, (items, length), needs_grad=True)
    y = qd.field(qd.f32, items, needs_grad=True)
    random = np.random.default_rng(1)
    for array in (w, x):
        array.from_numpy(random.normal(size=array.shape).astype(np.float32))

    @qd.kernel
    def kernel():
        for n in y:
            h = qd.Vector.zero(qd.f32, length)
            for j in range(length):
                h[j] = x[n, j]
            total = 0.0
            for i in range(qd.select(n < least, length // 2, length)):
                s, t = 0.0, 1.0
                for j in range(length):
                    s += w[0, i, j] * h[j]
                    t += w[1, i, j] * h[j]
                total += qd.tanh(s) * t
            y[n] = total

    y.grad.from_numpy(random.normal(size=items).astype(np.float32))
    kernel()
    kernel.grad()
    return [w.grad.to_numpy(), x.grad.to_numpy()]


@pytest.mark.parametrize(
    ("length", "items", "least", "copied"),
    [
        (16, 300, 0, True),
        (16, 33, 0, True),  # a warp with one work item
        (16, 200, 70, True),  # whose threads run loops of different lengths
        (LONG, 70, 37, False),
    ],
)
def test_sums_of_warps(
    length: int, items: int, least: int, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warps that are whole add them up; the threads of others add one product after the other."""
    expected = gradients(length, items, least, qd.cpu)
    found: list[int] = []
    choose = block_shared_copies.choose

    def chosen(*arguments: Any) -> Any:
        copies = choose(*arguments)
        found.extend(copy.subgroups for copy in copies)
        return copies

    monkeypatch.setattr(block_shared_copies, "choose", chosen)
    with emulated_gpu(multiprocessors=1, resident=128):
        own = gradients(length, items, least, qd.cuda)
    assert (4 in found) == copied
    for one, other in zip(own, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)
