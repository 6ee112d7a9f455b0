"""The same on a fake GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import octants as qd
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.library.test_algorithms import (
    test_chunks_that_grow as test_chunks_that_grow,
)
from tests.library.test_algorithms import (
    test_gradients_of_prefix_sums as test_gradients_of_prefix_sums,
)
from tests.library.test_algorithms import (
    test_nan_is_ignored as test_nan_is_ignored,
)
from tests.library.test_algorithms import (
    test_parallel_sort as test_parallel_sort,
)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(qd, "cpu", qd.cuda)
    with emulated_gpu(total=1 << 28) as fake:
        qd.init(arch=qd.cuda, log_level="error")
        yield
        assert not fake.problems
