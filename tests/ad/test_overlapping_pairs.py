"""Which pairs of arrays are checked for overlaps: every overlapping pair, and few others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest

import octants as qd
from octants.launch.gradients.taped_memory import TapedMemory, _close_pairs, memory_of
from tests.devices import shares_memory


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


def overlapping(memories: dict[int, TapedMemory]) -> set[tuple[int, int]]:
    return {
        (one, other)
        for one, other in combinations(memories, 2)
        if memories[one].overlaps(memories[other])
    }


@shares_memory
def test_all_that_overlap_are_found() -> None:
    random = np.random.default_rng(0)
    buffer, other = np.zeros(60, np.float32), qd.ndarray(qd.f32, shape=(5,))
    block = qd.root.dense(qd.i, 4)
    fields = [qd.field(qd.f32) for _ in range(3)]
    block.place(*fields)
    arrays = [*fields, fields[1], other, other, buffer[10:10]]
    for _ in range(25):
        start, length, step = random.integers((0, 0, 1), (60, 30, 4))
        arrays.append(buffer[start : start + length : step])
    memories = {3 * n: memory_of(array, "x") for n, array in enumerate(arrays)}
    pairs = _close_pairs(memories)
    assert pairs == sorted(set(pairs))
    found = overlapping(memories)
    assert len(found) > 20
    assert found <= set(pairs)


def test_arrays_apart_make_no_pairs() -> None:
    block = qd.root.dense(qd.i, 4)
    fields = [qd.field(qd.f32) for _ in range(20)]
    block.place(*fields)
    arrays = [*fields, *(qd.ndarray(qd.f32, shape=(8,)) for _ in range(20))]
    pairs = _close_pairs({n: memory_of(array, "x") for n, array in enumerate(arrays)})
    assert len(pairs) < 20  # memory of two arrays may touch
