"""The thread that submits what would wait for long."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from octants.runtime.gpu import periodic_thread
from octants.runtime.gpu.periodic_thread import PeriodicThread


def is_soon(condition: Callable[[], bool]) -> bool:
    """Whether something comes true, at an unknown time."""
    for _ in range(10_000):
        if condition():
            return True
        time.sleep(1e-3)
    return False


def test_it_looks_for_work_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a caller that gives it work now and then need not wake it each time."""
    monkeypatch.setattr(periodic_thread, "_PAUSE", 1e-4)
    monkeypatch.setattr(periodic_thread, "_PAUSES", 5)
    work: list[float | None] = [None, None, 1e-4, None]
    calls = [0]

    def act() -> float | None:
        calls[0] += 1
        return work.pop(0) if work else None

    thread = PeriodicThread(act)
    for _ in range(3):
        thread.start()
        assert is_soon(lambda: not thread._wanted.is_set())
        assert not work
    assert is_soon(lambda: calls[0] == (4 + 4 + 1) + 2 * (5 + 1))  # with a last look each time
