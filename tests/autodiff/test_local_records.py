"""Records in local memory: bit by bit the gradients of those in record buffers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import octants as qd
from octants.abi import MAXIMUM_RECORD_BUFFER
from octants.interpreter import run
from octants.ir import ops
from octants.ir.core import CHECKPOINT, Companion, Module
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from tests.autodiff.random_ir import Data, forward, inputs
from tests.autodiff.reversing import differentiate
from tests.autodiff.strict_records import strict_records
from tests.autodiff.test_checkpoints import LongLoops
from tests.ir.parser import parse
from tests.seeds import counts

ADJOINT = Companion.ADJOINT


def _gradient(module: Module, seed: int, share: int, local: int) -> tuple[Data, set[str]] | None:
    """The adjoints, and of which kinds the records are; None where memory must be saved."""
    data, adjoints = inputs(seed), inputs(seed + 1)
    result = differentiate(module, whole_record_bytes=share, local_record_bytes=local)
    if result.hazards:
        return None
    verify(result.module)
    assert to_text(parse(to_text(result.module))) == to_text(result.module)
    state = data if result.state == "before" else forward(module, data)
    both = {name: value.copy() for name, value in state.items()}
    everything = {**both, **{(name, ADJOINT): value for name, value in adjoints.items()}}
    run(result.module, everything, share=share or MAXIMUM_RECORD_BUFFER)
    records = {op.record for op in result.module.walk() if isinstance(op, ops.RecordPush)}
    return adjoints, {"local" if record.local else record.name for record in records}


@pytest.mark.parametrize("count", counts(10, 30))
@pytest.mark.parametrize(("share", "local"), [(0, 256), (8, 16), (40, 40), (1, 8)])
def test_gradients_are_those_of_a_plentiful_tape(share: int, local: int, count: int) -> None:
    found: Counter[str] = Counter()
    for seed in range(count):
        module = LongLoops(seed).simplified()
        expected, nearby = (_gradient(module, seed, *how) for how in ((0, 0), (share, local)))
        if expected is None or nearby is None:
            continue
        for name, value in expected[0].items():
            assert np.array_equal(value, nearby[0][name], equal_nan=True), (seed, name)
        assert "r" not in nearby[1]
        found.update(nearby[1])
    assert found["local"] >= count // 4
    assert found[CHECKPOINT] >= count // 8 or local > 40


def test_checkpoints_are_where_room_was_made_for_them() -> None:
    pushes = 0
    for seed in range(12):
        module = LongLoops(seed).simplified()
        for share in (1, 30, 200):
            with strict_records() as records:
                _gradient(module, seed, share, 16)
            pushes += records.pushes.get(CHECKPOINT, 0)
    assert pushes > 60, pushes


@pytest.mark.parametrize(("trips", "length"), [(16, 16), (60, 60), (70, 16)])
def test_a_short_loop_around_others_needs_no_blocks(trips: int, length: int) -> None:
    """To run other loops again takes longer than four times as much local memory."""
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False, log_level="error", fast_math=False)
    x, y = (qd.field(qd.f64, 3, needs_grad=True) for _ in "xy")

    @qd.kernel
    def nest():
        for i in x:
            v, w = x[i], 1.0
            for j in range(trips):
                for _ in range(j):
                    v = qd.sin(v) * w
                w *= qd.cos(v)
            y[i] = v * w

    module = nest.specialise(()).module
    result = differentiate(module, local_record_bytes=256)
    records = {op.record for op in result.module.walk() if isinstance(op, ops.RecordPush)}
    around = [each.local for each in records if len(each.slots) == 2 and each.local]
    assert around == [length]
    values = np.random.default_rng(1).uniform(-1.0, 1.0, 3)
    x.from_numpy(values)
    y.grad.fill(1.0)
    nest.grad()
    wanted, zeros = x.grad.to_numpy(), np.zeros(3)
    names = {array.name: array for array in result.module.arrays}
    data: Data = {name: values.copy() for name in names}
    adjoints = {(name, ADJOINT): zeros + (name == "y") for name in names}
    run(result.module, {**data, **adjoints}, share=MAXIMUM_RECORD_BUFFER)
    np.testing.assert_allclose(adjoints["x", ADJOINT], wanted, rtol=1e-12)
