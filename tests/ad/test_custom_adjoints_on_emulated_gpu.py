"""The same by the code for GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import octants as qd
from tests.ad.test_custom_adjoints import (
    test_a_recorded_loop_with_branches,
    test_several_results_and_arguments_of_several_sorts,
)
from tests.codegen.on_emulated_gpu import emulated_gpu

__all__ = (
    "test_a_recorded_loop_with_branches",
    "test_several_results_and_arguments_of_several_sorts",
)


@pytest.fixture(autouse=True)
def on_gpu() -> Iterator[None]:
    with emulated_gpu(total=1 << 28) as fake:
        qd.init(arch=qd.cuda, default_fp=qd.f64)
        yield
        assert not fake.problems
