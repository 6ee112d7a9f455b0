"""What the emulated warps find wrong: code without a barrier, or with one that lanes miss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen import sums_of_products
from octants.codegen.llvm.nvptx import NvptxCode
from octants.diagnostics.exceptions import OctantsError
from tests.codegen import on_emulated_gpu
from tests.codegen.on_emulated_gpu import OnSmallGpu, emulated_gpu
from tests.codegen.test_blocks import CASES
from tests.codegen.warps import Warps
from tests.simt.kernels import compile_kernel, lowered


class _FaultyCode(NvptxCode):
    """Leaves out a barrier; see `_Faulty`."""

    def barrier(self, scope: str) -> None:
        f, gpu = self._thread, self._thread.gpu
        assert isinstance(gpu, _Faulty)
        gpu.barriers += 1
        if gpu.barriers != gpu.wrong:
            super().barrier(scope)
        elif gpu.only_one:
            others, merge = f.fresh_label("others"), f.fresh_label("merge")
            is_other = f.apply("icmp ne", "i32", self.thread_in_block(), 5)
            f.branch_if(is_other, others, merge)
            f.start(others)
            super().barrier(scope)
            f.branch(merge)
            f.start(merge)


class _Faulty(Warps):
    """Drops the barrier of the number `wrong`; if `only_one`, for a single thread."""

    thread_code = _FaultyCode
    wrong, only_one = 0, False

    def __init__(self) -> None:
        super().__init__()
        self.barriers = 0


def _problem(name: str, gpu: type[Warps]) -> str:
    function, arguments = CASES[name]
    kernel = type("OnFaultyGpu", (OnSmallGpu,), {"gpu": gpu})(
        lowered(compile_kernel(function, *arguments))
    )
    arrays = {n: np.array(x) for n, x in zip(function.__annotations__, arguments, strict=True)}
    with pytest.raises(OctantsError, match="LAUNCH_FAILED"):
        kernel.run(arrays)
    (problem,) = kernel.fake.problems
    return str(problem)


@pytest.mark.parametrize(
    ("name", "barriers"),
    [("tree_sum", 6), ("transpose", 2), ("histogram", 2)],
)
def test_each_barrier_is_needed(name: str, barriers: int) -> None:
    """The second one of `transpose` keeps the next work items from what others still read."""
    for number in range(1, barriers + 1):
        gpu = type("Without", (_Faulty,), {"wrong": number})
        assert "race in shared memory" in _problem(name, gpu), number


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("tree_sum", "threads of a block are at two barriers"),
        ("votes", "lanes wait for others that do not come"),
    ],
)
def test_threads_that_miss_a_barrier(name: str, problem: str) -> None:
    gpu = type("Diverging", (_Faulty,), {"wrong": 1, "only_one": True})
    assert problem in _problem(name, gpu)


ITEMS = 107  # the last warp has lanes without work items


def _gradient(arch: Any) -> Any:
    """The gradient of weights that all work items add up, by sums of products."""
    qd.init(arch=arch, default_fp=qd.f32)
    x = qd.Vector.field(4, qd.f32, ITEMS)
    w = qd.field(qd.f32, (12, 4), needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def net():
        for i in x:
            total = 0.0
            for a in qd.static(range(12)):
                z = 0.0
                for b in qd.static(range(4)):
                    z += w[a, b] * x[i][b]
                total += qd.tanh(z)
            loss[None] += total * total

    rng = np.random.default_rng(3)
    x.from_numpy(rng.normal(size=(ITEMS, 4)).astype(np.float32))
    w.from_numpy(rng.normal(size=(12, 4)).astype(np.float32))
    with qd.ad.Tape(loss):
        net()
    return w.grad.to_numpy()


@pytest.mark.filterwarnings("ignore:not raised before")
def test_lanes_exchange_the_factors_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the barrier between their stores and loads in shared memory, they race."""
    summed, found = sums_of_products.summed, []

    def see(f: Any, products: Any) -> Any:
        found.append(products)
        return summed(f, products)

    monkeypatch.setattr(sums_of_products, "summed", see)
    with emulated_gpu() as fake:
        gradient = _gradient(qd.cuda)
    assert found
    assert not fake.problems
    np.testing.assert_allclose(gradient, _gradient(qd.cpu), rtol=1e-4, atol=1e-4)
    with emulated_gpu() as fake:
        gpu = type("Without", (_Faulty,), {"wrong": 2})  # behind one of the block
        monkeypatch.setattr(on_emulated_gpu, "Warps", gpu)
        with pytest.raises(OctantsError, match="LAUNCH_FAILED"):
            _gradient(qd.cuda)
        assert "race in shared memory" in fake.problems[0]
