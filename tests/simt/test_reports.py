"""What work items that wait for each other print and check."""

from __future__ import annotations

import numpy as np
import pytest

import octants as qd


def prints_on_both_sides_of_a_barrier() -> None:
    @qd.kernel
    def both_sides():
        qd.loop_config(block_dim=4)
        for i in range(6):
            print("before", i)
            qd.simt.block.sync()
            print("after", i)

    both_sides()


def test_prints_are_in_the_order_of_work_items(capsys: pytest.CaptureFixture[str]) -> None:
    qd.init(arch=qd.cpu)
    prints_on_both_sides_of_a_barrier()
    qd.sync()
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{word} {i}" for i in range(6) for word in ("before", "after")]


def test_debug_mode_checks_before_and_prints_after_a_barrier() -> None:
    """The index is checked in one loop over the work items, the product reported in another."""
    qd.init(arch=qd.cpu, debug=True)
    x = qd.field(qd.f32, shape=100)

    @qd.kernel
    def prefix_sums():
        qd.loop_config(block_dim=32)
        for i in x:
            pad = qd.simt.block.SharedArray((32,), qd.f32)
            thread = i % 32
            pad[thread] = x[i]
            qd.simt.block.sync()
            offset = 1
            while offset < 32:
                value = pad[thread]
                if thread >= offset:
                    value += pad[thread - offset]
                qd.simt.block.sync()
                pad[thread] = value
                qd.simt.block.sync()
                offset *= 2
            x[i] = pad[thread]

    numbers = np.arange(100, dtype=np.float32)
    x.from_numpy(numbers)
    prefix_sums()
    wanted = [block.cumsum() for block in np.split(numbers, [32, 64, 96])]
    np.testing.assert_array_equal(x.to_numpy(), np.concatenate(wanted))
