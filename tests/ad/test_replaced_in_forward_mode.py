"""Forward mode refuses functions whose gradient is another function."""

from __future__ import annotations

import pytest

import octants as qd
from tests.golden_files import check_golden


def test_a_custom_gradient_has_no_tangents() -> None:
    """Neither the derivative of the launches is right for sure, nor none."""
    qd.init(arch=qd.cpu, log_level="error")
    x = qd.field(qd.f64, 2, needs_grad=True, needs_dual=True)
    loss = qd.field(qd.f64, (), needs_grad=True, needs_dual=True)

    @qd.kernel
    def square() -> None:
        for i in x:
            loss[None] += x[i] ** 2

    @qd.ad.grad_replaced
    def energy() -> None:
        square()

    @qd.ad.grad_for(energy)
    def energy_grad() -> None:
        x.grad.fill(100.0)

    x.fill(3.0)
    with qd.ad.Tape(loss=loss):
        energy()
    assert x.grad.to_numpy().tolist() == [100, 100]
    with qd.ad.FwdMode(loss=loss, param=x, seed=[1.0, 0.0]):
        with pytest.raises(qd.OctantsRuntimeError, match="OCT366") as caught:
            energy()
        energy.function()
    check_golden("errors/OCT366_no_duals_of_custom", str(caught.value))
    assert loss.dual[None] == 6
    with qd.ad.FwdMode(loss=loss, param=x, seed=[1.0, 0.0]):
        qd.ad.no_grad(energy)()
    assert loss.dual[None] == 0
