"""Nothing looks for garbage while kernels are compiled, and something does afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

import octants as qd
from octants import driver
from octants.garbage_collection import Uncollected


@pytest.fixture(autouse=True)
def collects() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_one_inside_another() -> None:
    with Uncollected():
        with Uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_who_has_switched_it_off_keeps_it_so() -> None:
    gc.disable()
    with Uncollected():
        pass
    assert not gc.isenabled()


def test_an_error_inside() -> None:
    with pytest.raises(KeyError), Uncollected():
        raise KeyError
    assert gc.isenabled()


def test_a_kernel_and_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    qd.init(arch=qd.cpu, log_level="error", offline_cache=False)
    artifact, seen = driver._artifact, list[bool]()

    def note(*arguments: Any) -> Any:
        seen.append(gc.isenabled())
        return artifact(*arguments)

    monkeypatch.setattr(driver, "_artifact", note)
    x, y = (qd.field(qd.f32, 4, needs_grad=True) for _ in range(2))

    @qd.kernel
    def copy():
        for i in x:
            y[i] = x[i]

    copy()
    copy.grad()
    assert seen == [False, False]
    assert gc.isenabled()
