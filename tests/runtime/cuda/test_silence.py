"""LLVM says nothing on the terminal about code that it cannot make as quick as it is asked to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import octants as qd
from tests.runtime.cuda.fake_cuda import Call
from tests.runtime.cuda.whole import Gpu, gpu

__all__ = ["gpu"]


class Idle(dict[str, Callable[[Call], None]]):
    """Kernels of any name, which do nothing."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Callable[[Call], None]:
        return lambda call: None


@pytest.mark.parametrize("steps", [1, 5, 16, 33, 100, 1000])
def test_gradients_of_loops(gpu: Gpu, steps: int, capfd: pytest.CaptureFixture[str]) -> None:
    gpu.fake.kernels = Idle()
    gpu.init()
    x = qd.field(qd.f32, 8, needs_grad=True)
    n = qd.field(qd.i32, 8)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def sines():
        for i in x:
            v = x[i]
            for _ in range(steps):
                v = qd.sin(v) * 0.95 + 0.01
            loss[None] += v

    @qd.kernel
    def products():
        for i in x:
            v, w = x[i], 1.0
            for _ in range(n[i]):
                w *= v
                for _ in range(steps):
                    v = v * w + qd.exp(-v)
            loss[None] += v

    for kernel in (sines, products):
        kernel()
        kernel.grad()
    assert capfd.readouterr().err == ""
