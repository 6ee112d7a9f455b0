"""Loops that are run when they are reversed, and not before: the same bits as without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from octants.autodiff.emit import loop_recording
from octants.autodiff.emit.reverse_task import Emitted
from octants.autodiff.plan import recording_plan
from octants.autodiff.plan.recording_plan import RecordingPlan
from octants.autodiff.plan.stored_nests import LoopUses
from octants.ir import ops
from octants.ir.core import Block, Value
from octants.types.scalars import f64, i32
from tests.autodiff.reversing import differentiate
from tests.autodiff.strict_records import check_records
from tests.autodiff.test_checkpoints import LongLoops
from tests.seeds import counts

BUDGETS = (1, 60, 200, 3000)


class Tails(LongLoops):
    """Loops in loops and branches; what follows them is mostly linear, and needs no result."""

    def statements(self, floats: list[Value], ints: list[Value], depth: int, count: int) -> None:
        b = self.builder
        start = b.load(self.x, [self.row, b.index(1)])
        floats.append(self._loop(b.index(self.random.randrange(2, 6)), start, 3))

    def _loop(self, trips: Value, v: Value, depth: int) -> Value:
        b = self.builder
        body = Block([Value(i32), Value(f64)])
        with b.into(body):
            number, v_now = body.args
            v_now = b.unary("sin", b.binary("mul", v_now, b.constant(1.1, f64)))
            for _ in range(self.random.choice((1, 1, 1, 2)) if depth > 1 else 0):
                v_now = self._inner(number, v_now, depth - 1)
            last = self.random.choice(("mul", "mul", "mul", "add", "square"))
            other = v_now if last == "square" else b.constant(0.9, f64)
            b.yield_([b.binary("mul" if last == "square" else last, v_now, other)])
        return b.for_(b.index(0), trips, [v], body).result

    def _inner(self, number: Value, v: Value, depth: int) -> Value:
        b = self.builder
        trips = b.binary("add", number, b.index(self.random.randrange(3)))
        if self.random.random() < 0.6:
            return self._loop(trips, v, depth)
        then, orelse = Block(), Block([], [ops.Yield([v])])
        with b.into(then):
            b.yield_([self._loop(trips, v, depth)])
        return b.if_(b.compare("gt", v, b.constant(-0.2, f64)), then, orelse).result


def never(_: Block, __: LoopUses, ___: RecordingPlan) -> frozenset[Any]:
    """No loop is late."""
    return frozenset()


def traits(plans: list[RecordingPlan]) -> set[str]:
    """What there is among the late loops."""
    found = set()
    for plan in plans:
        found |= {"late"} if plan.late else set()
        found |= {"with frames" for op in plan.late if plan.nests.has_frames(op)}
        found |= {"stored" for op in plan.late if op in plan.nests.around}
    return found


@pytest.mark.parametrize("count", counts(2, 40))
@pytest.mark.parametrize("nests", ["auto", "replay", "store"])
def test_random_modules(nests: str, count: int, plans: list[RecordingPlan]) -> None:
    found: Counter[str] = Counter()
    for seed in range(count):
        for budget in BUDGETS:
            plans.clear()
            check_records(seed, budget, Tails(seed).simplified(), nests)
            found.update(traits(plans))
    assert found["late"] >= count
    assert nests == "replay" or {"with frames", "stored"} <= set(found)


def test_results_that_are_needed_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task whose late loops have results that are used is emitted again without."""
    original, again = recording_plan._late, Counter[bool]()
    known = Emitted.is_known.fget  # type: ignore[attr-defined]

    def all_late(body: Block, uses: LoopUses, planned: RecordingPlan) -> Any:
        return original(body, replace(uses, replayed=dict.fromkeys(uses.replayed, 0)), planned)

    def counted(self: Emitted) -> bool:
        again[known(self)] += 1
        return bool(known(self))

    monkeypatch.setattr(recording_plan, "_late", all_late)
    monkeypatch.setattr(Emitted, "is_known", property(counted))
    for seed in range(6):
        check_records(seed, 60, Tails(seed).simplified(), "auto")
    assert again[False]
    assert again[True]


def test_each_inner_loop_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nest(Tails):
        def _loop(self, trips: Value, v: Value, depth: int) -> Value:
            b = self.builder
            body = Block([Value(i32), Value(f64)])
            with b.into(body):
                now = b.unary("sin", body.args[1])
                b.yield_([self._loop(trips, now, depth - 1) if depth > 1 else now])
            return b.for_(b.index(0), trips, [v], body).result

    module = Nest(0).simplified()

    def loops() -> int:
        reversed_ = differentiate(module, whole_record_bytes=60, nests="replay")
        return sum(isinstance(op, ops.For) for op in reversed_.module.walk())

    late = loops()
    monkeypatch.setattr(recording_plan, "_late", never)
    assert loops() - late == 5  # two levels: a loop over blocks each, around two loops and one


# -- mistakes that must be noticed ----------------------------------------------------------------


def _runs_again_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    original = loop_recording.LoopInBlocks.facts_if_stored

    def forgotten(self: Any, count: Value, stack: Any) -> dict[str, Value]:
        zero = self._emitter.builder.constant(0, count.type)
        return original(self, count, stack) | {"done": zero}

    monkeypatch.setattr(loop_recording.LoopInBlocks, "facts_if_stored", forgotten)


def _records_over_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    original = loop_recording.LoopInBlocks._run_before

    def forgotten(self: Any, *args: Value) -> list[Value]:
        end = self._emitter.values[self._op, "end"]
        frames = original(self, *args)
        self._emitter.values.note(self._op, end=end)
        return frames

    monkeypatch.setattr(loop_recording.LoopInBlocks, "_run_before", forgotten)


def _begins_later(monkeypatch: pytest.MonkeyPatch) -> None:
    original = loop_recording.LoopInBlocks._postpone

    def moved(self: Any, *args: Any) -> None:
        original(self, *args)
        one = self._emitter.builder.constant(1, self._emitter.values[self._op, "done"].type)
        self._emitter.values.note(self._op, done=one)

    monkeypatch.setattr(loop_recording.LoopInBlocks, "_postpone", moved)


def _reserves_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_recording.LoopInBlocks, "furthest_end", lambda _, start, *__: start)


MISTAKES = (
    _runs_again_what_is_stored,
    _records_over_frames,
    _begins_later,
    _reserves_too_little,
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_mistakes_are_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        for seed in range(4):
            for budget in BUDGETS:
                check_records(seed, budget, Tails(seed).simplified(), "store")
