"""Blocks whose turns are written out: bit by bit the gradients of loops that are recorded whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from octants.abi import MAXIMUM_RECORD_BUFFER
from octants.autodiff.plan import recording_plan, records_in_registers
from octants.interpreter import Interpreter, run
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.core import (
    CHECKPOINT,
    REST,
    Array,
    Block,
    Companion,
    Module,
    Space,
    Task,
    Value,
)
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.simplify import simplify
from octants.types.scalars import f64, i32
from tests.autodiff.random_ir import Data, forward, inputs
from tests.autodiff.reversing import differentiate
from tests.autodiff.strict_records import strict_records
from tests.autodiff.test_checkpoints import LongLoops
from tests.ir.parser import parse
from tests.seeds import counts

PRIMAL, ADJOINT = Companion.PRIMAL, Companion.ADJOINT
TURNS, SINGLE = 4, 9


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four iterations, of whatever there is in them, and however few there are."""
    monkeypatch.setattr(recording_plan, "MAX_UNBLOCKED", 0)
    monkeypatch.setattr(records_in_registers, "MAX_ITERATIONS", TURNS)
    monkeypatch.setattr(records_in_registers, "MAX_WORK", 1 << 20)
    monkeypatch.setattr(records_in_registers, "MAX_WORK_IN_TASK", 1 << 20)
    monkeypatch.setattr(records_in_registers, "REGISTERS", 1 << 20)


def _kinds(module: Module) -> Counter[str]:
    """How many records of a module are unrolled, otherwise local, and of each other name."""
    records = {op.record for op in module.walk() if isinstance(op, ops.RecordPush)}
    return Counter(
        "unrolled" if r.unrolled else "local" if r.local and r.name != REST else r.name
        for r in records
    )


# -- a recurrence of so many steps -----------------------------------------------------------------


def recurrence(by_while: bool = False, known: int | None = None) -> Module:
    """v = sin(v) p + k / 8 for k in range(n, n + trips), from v = x to y, for each work item.

    Where the trips are ``known`` the range begins with -3.
    """
    both: dict[Companion, Any] = {PRIMAL: None, ADJOINT: None}
    x, p, y = (Array(name, f64, 1, Space.NDARRAY, layouts=dict(both)) for name in "xpy")
    n = Array("n", i32, 1, Space.NDARRAY, layouts={PRIMAL: None})
    row = Value(i32)
    builder = Builder(Block([row]))
    lower, trips = (builder.load(n, [builder.index(k)]) for k in range(2))
    factor = builder.load(p, [row])
    turn = Block([Value(i32), Value(f64)])
    with builder.into(turn):
        counter, v = turn.args
        product = builder.binary("mul", builder.unary("sin", v), factor)
        eighth = builder.binary("mul", builder.cast(counter, f64), builder.constant(0.125, f64))
        builder.yield_([builder.binary("add", product, eighth)])
    upper = builder.binary("add", lower, trips)
    if known is not None:
        lower, upper = builder.index(-3), builder.index(known - 3)
    start = builder.load(x, [row])
    if by_while:
        goes_on = Block([Value(i32), Value(f64)])
        with builder.into(goes_on):
            builder.yield_([builder.compare("lt", goes_on.args[0], upper)])
        last = turn.ops[-1]
        assert isinstance(last, ops.Yield)
        with builder.into(turn):
            following = builder.binary("add", turn.args[0], builder.index(1))
        turn.ops.remove(last)
        last.values = [following, *last.values]
        turn.ops.append(last)
        _, result = builder.while_([lower, start], goes_on, turn).results
    else:
        (result,) = builder.for_(lower, upper, [start], turn).results
    builder.store(y, [row], result)
    builder.yield_()
    domain = Builder()
    domain.yield_([domain.index(0), domain.shape(x, 0)])
    module = Module("k", [x, p, y, n], tasks=[Task("k", builder.block, domain.block)])
    simplify(module)
    return module


def _gradient_of(
    trips: int, share: int, local: int, by_while: bool = False, sure: int = 1, knows: bool = False
) -> tuple[np.ndarray[Any, Any], int]:
    """The adjoints of x and p, and the bytes of the record buffer."""
    module = recurrence(by_while, trips if knows else None)
    reversed_ = differentiate(module, whole_record_bytes=sure, local_record_bytes=local)
    assert not reversed_.hazards
    verify(reversed_.module)
    arrays: dict[Any, Any] = {
        "x": np.array([0.3, 1.7, -2.0]),
        "p": np.array([0.9, -0.7, 0.2]),
        "y": np.zeros(3),
        "n": np.array([-3, trips], np.int32),
        ("x", ADJOINT): np.zeros(3),
        ("p", ADJOINT): np.zeros(3),
        ("y", ADJOINT): np.array([1.0, 0.5, -2.0]),
    }
    launch: Interpreter = run(reversed_.module, arrays, share=share)
    return np.stack([arrays["x", ADJOINT], arrays["p", ADJOINT]]), launch.record_buffer_bytes


@pytest.mark.parametrize("share", [1, 24, MAXIMUM_RECORD_BUFFER])
@pytest.mark.parametrize("trips", [-2, 0, 1, 3, 4, 5, 8, 9, 31, 32, 70])
def test_any_number_of_iterations(trips: int, share: int) -> None:
    wanted, _ = _gradient_of(trips, MAXIMUM_RECORD_BUFFER, 0)
    with strict_records() as records:
        found, nbytes = _gradient_of(trips, share, 256)
    assert np.array_equal(found, wanted)
    blocks, rest = divmod(max(trips, 0), TURNS)
    assert records.pushes.get(REST, 0) == 3 * rest
    if share == MAXIMUM_RECORD_BUFFER:
        assert nbytes == 8 * max(0, blocks - 1)
        assert records.pushes.get(CHECKPOINT, 0) == 3 * max(0, blocks - 1)


@pytest.mark.parametrize("share", [1, 24, MAXIMUM_RECORD_BUFFER])
@pytest.mark.parametrize("knows", [False, True])
@pytest.mark.parametrize("trips", [-2, 0, 1, 4, 8, 9, 10, 31])
def test_few_iterations_have_no_blocks(
    trips: int, knows: bool, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, _ = _gradient_of(trips, MAXIMUM_RECORD_BUFFER, 0)
    monkeypatch.setattr(recording_plan, "MAX_UNBLOCKED", SINGLE)
    with strict_records() as records:
        found, nbytes = _gradient_of(trips, share, 256, knows=knows)
    assert np.array_equal(found, wanted)
    if trips <= SINGLE:
        assert nbytes == 0
    if TURNS < trips <= SINGLE:
        assert records.pushes == {REST: 3 * trips}
    if trips > SINGLE:
        assert records.pushes["r"] >= 3 * (trips - trips % TURNS)


@pytest.mark.parametrize("share", [1, 24, MAXIMUM_RECORD_BUFFER])
@pytest.mark.parametrize("trips", [-2, 0, 1, 3, 4, 5, 8, 9, 31, 32, 70])
def test_a_while_with_any_number_of_iterations(trips: int, share: int) -> None:
    wanted, _ = _gradient_of(trips, MAXIMUM_RECORD_BUFFER, 0)
    with strict_records() as records:
        found, nbytes = _gradient_of(trips, share, 256, by_while=True)
    assert np.array_equal(found, wanted)
    trips = max(trips, 0)
    assert records.pushes.get(REST, 0) == 3 * trips
    if share == MAXIMUM_RECORD_BUFFER:
        assert records.pushes.get("r", 0) == 3 * (trips - trips % TURNS)
        assert nbytes == 8 * max(0, -(-trips // TURNS) - 1)


@pytest.mark.parametrize("sure", [1, 7, 24, 100, 4096])
@pytest.mark.parametrize("trips", [-2, 0, 1, 3, 4, 5, 8, 9, 31, 32, 70])
def test_a_number_of_iterations_that_is_known(trips: int, sure: int) -> None:
    wanted, _ = _gradient_of(trips, MAXIMUM_RECORD_BUFFER, 0)
    with strict_records() as records:
        found, nbytes = _gradient_of(trips, sure, 256, sure=sure, knows=True)
    assert np.array_equal(found, wanted)
    blocks, rest = divmod(max(trips, 0), TURNS)
    if sure >= 8 * blocks > 0:
        assert records.pushes.get(CHECKPOINT, 0) == 3 * (blocks - 1)
        assert nbytes == 8 * (blocks - 1)


def test_checkpoints_that_surely_fit_are_looked_for_nowhere() -> None:
    def searches(sure: int) -> int:
        module = differentiate(
            recurrence(known=70), whole_record_bytes=sure, local_record_bytes=256
        ).module
        return sum(isinstance(op, ops.While) for op in module.walk())

    assert searches(8 * 17 - 1) > 0
    assert searches(8 * 17) == 0


def test_blocks_have_a_length_that_is_known() -> None:
    module = differentiate(recurrence(), whole_record_bytes=1, local_record_bytes=256).module
    assert _kinds(module) == {"unrolled": 1, REST: 1, CHECKPOINT: 1}
    constants = ops.constants_in(module)
    loops = [op for op in module.walk() if isinstance(op, ops.For)]
    inside = {
        type(op): (constants[loop.lower], constants[loop.upper])
        for loop in loops
        for op in loop.body.ops
        if isinstance(op, (ops.RecordPush, ops.RecordPop)) and op.record.unrolled
    }
    assert inside == {ops.RecordPush: (0, TURNS), ops.RecordPop: (0, TURNS)}


def test_work_that_is_written_out_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    few = 2 * TURNS - 1
    for limits in (
        {"MAX_WORK": 8},
        {"MAX_WORK_IN_TASK": 8},
        {"REGISTERS": few, "MAX_REGISTERS_OF_MULTIPLE": few},
    ):
        with monkeypatch.context() as patch:
            for name, most in limits.items():
                patch.setattr(records_in_registers, name, most)
            module = differentiate(
                recurrence(), whole_record_bytes=1, local_record_bytes=256
            ).module
            assert _kinds(module) == {"local": 1, REST: 1, CHECKPOINT: 1}
            patch.setattr(records_in_registers, "MAX_DUPLICATED_WORK", 8)
            module = differentiate(
                recurrence(), whole_record_bytes=1, local_record_bytes=256
            ).module
            assert _kinds(module) == {"local": 1, CHECKPOINT: 1}


@pytest.mark.parametrize("trips", [0, 15, 16, 17, 40])
def test_blocks_that_are_not_written_out(trips: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_in_registers, "MAX_WORK", 0)
    wanted, _ = _gradient_of(trips, MAXIMUM_RECORD_BUFFER, 0)
    with strict_records() as records:
        found, nbytes = _gradient_of(trips, MAXIMUM_RECORD_BUFFER, 256)
    assert np.array_equal(found, wanted)
    assert records.pushes.get("r", 0) == 3 * (trips - trips % 16)
    assert nbytes == 8 * max(0, trips // 16 - 1)


# -- random programs -------------------------------------------------------------------------------


class ManyLoops(LongLoops):
    """Loops that are seldom in another one."""

    def statements(self, floats: list[Value], ints: list[Value], depth: int, count: int) -> None:
        kinds = ["scalar", "scalar", "load", "store", "atomic", "step"]
        if depth == 3:
            kinds = ["scalar", "for", "for", "for", "while", "if"]
        elif depth == 2:
            kinds += ["if", "for"]
        for _ in range(min(count, 5)):
            getattr(self, self.random.choice(kinds))(floats, ints, depth)


def _gradient(
    module: Module, seed: int, share: int, local: int
) -> tuple[Data, Counter[str]] | None:
    data, adjoints = inputs(seed), inputs(seed + 1)
    result = differentiate(module, whole_record_bytes=share, local_record_bytes=local)
    if result.hazards:
        return None
    verify(result.module)
    assert to_text(parse(to_text(result.module))) == to_text(result.module)
    state = data if result.state == "before" else forward(module, data)
    both: dict[Any, Any] = {name: value.copy() for name, value in state.items()}
    both |= {(name, ADJOINT): value for name, value in adjoints.items()}
    run(result.module, both, share=share or MAXIMUM_RECORD_BUFFER)
    return adjoints, _kinds(result.module)


@pytest.mark.parametrize("count", counts(8, 24))
@pytest.mark.parametrize("share", [0, 1, 40])
def test_random_modules(share: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_plan, "MAX_UNBLOCKED", 6 if share == 1 else 0)
    if share:  # few of these loops need blocks otherwise
        for limit, value in (("AROUND_LOOPS", 1), ("WHOLE", 1), ("MAX_WHOLE", 0)):
            monkeypatch.setattr(recording_plan, limit, value)
    found: Counter[str] = Counter()
    for seed in range(count):
        module = ManyLoops(seed).simplified()
        expected = _gradient(module, seed, 0, 0)
        with strict_records() as records:
            nearby = _gradient(module, seed, share, 256)
        if expected is None or nearby is None:
            continue
        for name, value in expected[0].items():
            assert np.array_equal(value, nearby[0][name], equal_nan=True), (seed, name)
        found += nearby[1] + Counter({f"{name} pushed": 1 for name in records.pushes})
    assert found["unrolled"] >= count // 3
    assert found["local"] >= count // 12
    if share:
        assert found[f"{REST} pushed"] >= 3 * (count // 24)
        assert found[f"{CHECKPOINT} pushed"] >= count // 8
