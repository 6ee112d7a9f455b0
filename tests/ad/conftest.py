"""Each test has a runtime of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import octants as qd


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    yield
    qd.reset()
