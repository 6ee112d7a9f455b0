"""Ctrl-C at any step of a tape leaves no tape behind."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.data import host_access_events

WATCHED = (
    "ad/tapes/tape.py",
    "ad/tapes/block_ends.py",
    "ad/forward_mode.py",
    "diagnostics/tracebacks.py",
)
WATCHED += ("data/host_access_events.py",)


@contextmanager
def interrupted_at(step: int) -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at a step of watched functions, as Ctrl-C does; count the steps."""
    count = [0]

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if frame.f_code not in CODES and not frame.f_code.co_filename.endswith(WATCHED):
            return None
        frame.f_trace_opcodes = True
        if event in ("call", "opcode"):
            count[0] += 1
            if count[0] == step:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


@qd.kernel
def square(x: qd.Tensor, loss: qd.Tensor):
    for i in x:
        loss[None] += x[i] * x[i]


Run = Callable[[Any, Any], None]


def without_a_name(x: Any, loss: Any) -> None:
    with qd.ad.Tape(loss=loss):
        square(x, loss)


def with_a_name(x: Any, loss: Any) -> None:
    tape = kept.append(qd.ad.Tape(loss=loss)) or kept[-1]
    with tape:
        square(x, loss)


def in_forward_mode(x: Any, loss: Any) -> None:
    with qd.ad.FwdMode(loss=loss, param=x, seed=[1.0, 1.0, 1.0]):
        loss[None] = 0.0
        square(x, loss)
    assert loss.dual[None] == 12.0


kept: list[Any] = []
RUNS = without_a_name, with_a_name, in_forward_mode
CODES = [run.__code__ for run in RUNS]


@pytest.mark.parametrize("run", RUNS)
def test_a_tape_that_is_interrupted_anywhere(run: Run) -> None:
    x, loss = (qd.field(qd.f64, s, needs_grad=True, needs_dual=True) for s in (3, ()))
    x.from_numpy(np.array([1.0, 2.0, 3.0]))
    for _ in range(8):
        run(x, loss)
    step, ends, caught = 0, 0, []
    while ends < 3:
        step += 1
        with warnings.catch_warnings(), interrupted_at(step) as count:
            warnings.simplefilter("error")
            try:
                run(x, loss)
            except KeyboardInterrupt as error:
                caught.append(error)  # as a notebook keeps the last error
        ends += count[0] < step
        del caught[:-1]
        kept.clear()
        if driver.state.recorder is not None:
            gc.collect()
        assert driver.state.recorder is None, step
        assert not host_access_events.host_writes.observers, step
        assert not host_access_events.before_share.observers, step
        if step % 20 == 0:
            x.grad.fill(0.0)
            without_a_name(x, loss)
            assert x.grad.to_numpy().tolist() == [2.0, 4.0, 6.0]
    assert step > 200


def test_a_tape_that_was_abandoned_has_no_gradient() -> None:
    x, loss = (qd.field(qd.f64, shape, needs_grad=True) for shape in (3, ()))
    tape = qd.ad.Tape(loss=loss)
    end = tape.__exit__  # as a `with` statement takes it
    tape.__enter__()
    square(x, loss)
    del end
    assert driver.state.recorder is None
    square(x, loss)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT"):
        tape.grad()
    with pytest.raises(qd.OctantsRuntimeError, match="OCT"):
        tape.__exit__(None, None, None)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT"), tape:
        pass


def test_the_end_of_a_tape_may_be_looked_at() -> None:
    x, loss = (qd.field(qd.f64, shape, needs_grad=True) for shape in (3, ()))
    x.fill(1.0)
    tape = qd.ad.Tape(loss=loss)
    assert hasattr(tape, "__exit__")
    with tape:
        assert tape.__exit__ is not None
        square(x, loss)
    assert x.grad.to_numpy().tolist() == [2.0] * 3
    tape = qd.ad.Tape(loss=loss)
    tape.__enter__()
    square(x, loss)
    tape.__exit__(None, None, None)
    assert x.grad.to_numpy().tolist() == [2.0] * 3
