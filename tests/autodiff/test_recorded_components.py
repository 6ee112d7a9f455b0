"""What loops record that read and replace components of a long vector by run-time indices."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.autodiff.plan import recording_plan
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.seeds import each_once

LENGTH = 24


def in_place(x: Any, y: Any, steps: int) -> Any:
    """Each iteration replaces one component, read from two others."""

    @qd.kernel
    def kernel():
        for n in y:
            v = qd.Vector.zero(qd.f64, LENGTH)
            for k in range(LENGTH):
                v[k] = x[n, k]
            for t in range(steps):
                v[(3 * t + 1) % LENGTH] = qd.sin(v[t % LENGTH] + v[(5 * t) % LENGTH])
            y[n] = v.sum()

    return kernel


def after_the_store(x: Any, y: Any, steps: int) -> Any:
    """An iteration reads what it has stored, and the sum of it is needed by nothing else."""

    @qd.kernel
    def kernel():
        for n in y:
            v = qd.Vector.zero(qd.f64, LENGTH)
            for k in range(LENGTH):
                v[k] = x[n, k]
            total = 0.0
            for t in range(steps):
                v[(7 * t) % LENGTH] *= 1.5 - v[(t + 1) % LENGTH]
                total += v[(7 * t) % LENGTH] * v[(2 * t) % LENGTH]
            y[n] = total

    return kernel


def in_a_while(x: Any, y: Any, steps: int) -> Any:
    """The number of iterations is known only after the loop."""

    @qd.kernel
    def kernel():
        for n in y:
            v = qd.Vector.zero(qd.f64, LENGTH)
            for k in range(LENGTH):
                v[k] = x[n, k]
            t = 0
            while t < steps - n:
                v[(5 * t) % LENGTH] = qd.sin(v[(t + 2) % LENGTH])
                t += 1
            y[n] = v.sum()

    return kernel


def in_a_branch(x: Any, y: Any, steps: int) -> Any:
    """What a branch reads is recorded if the branch is taken, and zero if not."""

    @qd.kernel
    def kernel():
        for n in y:
            v = qd.Vector.zero(qd.f64, LENGTH)
            for k in range(LENGTH):
                v[k] = x[n, k]
            for t in range(steps):
                if v[t % LENGTH] > 0.3:
                    v[(3 * t + 1) % LENGTH] = qd.sin(v[(5 * t) % LENGTH])
            y[n] = v.sum()

    return kernel


def in_nested_branches(x: Any, y: Any, steps: int) -> Any:
    """Both branches read, and what is read after them was replaced in one of them."""

    @qd.kernel
    def kernel():
        for n in y:
            v = qd.Vector.zero(qd.f64, LENGTH)
            for k in range(LENGTH):
                v[k] = x[n, k]
            total = 0.0
            for t in range(steps):
                if t % 3 != n:
                    v[(3 * t + 1) % LENGTH] *= v[(5 * t) % LENGTH]
                    if v[t % LENGTH] > 0.1:
                        total += v[(2 * t) % LENGTH] ** 2
                else:
                    v[(7 * t) % LENGTH] = qd.cos(v[t % LENGTH])
                total += qd.sin(v[(3 * t + 1) % LENGTH])
            y[n] = total

    return kernel


def in_an_inner_loop(x: Any, y: Any, steps: int) -> Any:
    """An inner loop reads, so that the loop around it has to record the vector."""

    @qd.kernel
    def kernel():
        for n in y:
            v = qd.Vector.zero(qd.f64, LENGTH)
            for k in range(LENGTH):
                v[k] = x[n, k]
            for t in range(steps):
                total = 0.0
                for j in range(3):
                    total += v[(t + j) % LENGTH] ** 2
                v[(3 * t + 1) % LENGTH] = qd.sin(total)
            y[n] = v.sum()

    return kernel


PROGRAMS: dict[Callable[..., Any], int] = {
    in_place: 2,
    after_the_store: 5,
    in_a_while: 1,
    in_a_branch: 2,
    in_nested_branches: 7,
    in_an_inner_loop: LENGTH + 3,
}
"""Programs, and the most numbers that an iteration records."""


@pytest.mark.parametrize(("program", "budget"), each_once(list(PROGRAMS), [0, 3000]))
def test_gradients(program: Any, budget: int) -> None:
    """With a budget, the loop is recorded in blocks."""
    more = {"ad_stack_budget_bytes": budget} if budget else {}
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error", **more)
    items, steps = 3, 60
    x = qd.field(qd.f64, (items, LENGTH), needs_grad=True)
    y = qd.field(qd.f64, items, needs_grad=True)
    start = np.random.default_rng(2).uniform(-0.9, 0.9, (items, LENGTH))
    kernel = program(x, y, steps)

    def value(values: Any) -> float:
        x.from_numpy(values)
        kernel()
        return float(y.to_numpy().sum())

    value(start)
    y.grad.fill(1.0)
    kernel.grad()
    found = x.grad.to_numpy()
    for n, k in ((0, 0), (1, 5), (2, LENGTH - 1), (0, 7)):
        step = np.zeros_like(start)
        step[n, k] = 1e-6
        slope = (value(start + step) - value(start - step)) / 2e-6
        assert found[n, k] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def _on_a_gpu(program: Any, steps: int) -> tuple[Any, str]:
    """The gradient of a program, and its records."""
    qd.init(arch=qd.cuda, default_fp=qd.f64, log_level="error")
    x = qd.field(qd.f64, (3, LENGTH), needs_grad=True)
    y = qd.field(qd.f64, 3, needs_grad=True)
    x.from_numpy(np.random.default_rng(2).uniform(-0.9, 0.9, (3, LENGTH)))
    y.grad.fill(1.0)
    kernel = program(x, y, steps)
    kernel.grad()
    text = kernel.inspect(mode="reverse").stages["reverse"]
    return x.grad.to_numpy(), "\n".join(re.findall(r"^record #r\d*.*$", text, re.MULTILINE))


def test_whole_records_are_shorter_than_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU keeps the records of a block in local memory unless its checkpoint is as long."""
    with emulated_gpu(total=1 << 28):
        found, records = _on_a_gpu(in_place, 90)
        assert "(" not in records
    monkeypatch.setattr(recording_plan, "_checkpoint_bytes", lambda _: 0)
    with emulated_gpu(total=1 << 28):
        wanted, records = _on_a_gpu(in_place, 90)
        assert "(16,)" in records
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_iteration_records_what_it_reads(program: Any) -> None:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    x = qd.field(qd.f64, (3, LENGTH), needs_grad=True)
    y = qd.field(qd.f64, 3, needs_grad=True)
    text = program(x, y, 60).inspect(mode="reverse").stages["reverse"]
    slots = [line.count("f64") for line in re.findall(r"^record #r\d*: .*$", text, re.MULTILINE)]
    assert sum(slots) <= PROGRAMS[program]
    assert any(slots)
