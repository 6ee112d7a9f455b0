"""Kernels that the host runs in segments, and sections, on a fake GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import octants as qd
from tests.api import test_do_while, test_graph_checkpoints, test_parallel_sections
from tests.codegen.on_emulated_gpu import emulated_gpu

_MODULES = (test_do_while, test_graph_checkpoints, test_parallel_sections)
_BLOCKS = (  # which the fake does not run
    "test_loops_of_the_body_run_in_parallel_and_in_blocks",
    "test_what_cannot_be_cut_runs_in_order",
)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(qd, "cpu", qd.cuda)
    with emulated_gpu(total=1 << 28) as fake:
        qd.init(arch=qd.cuda, log_level="error")
        yield
        assert not fake.problems


for _module in _MODULES:
    for _name, _test in vars(_module).items():
        if _name.startswith("test_") and _name not in _BLOCKS:
            globals()[_name] = _test
