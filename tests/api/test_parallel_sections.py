"""``with graph.parallel_context():`` - sections of a kernel that may run at the same time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import octants as qd
from octants.analysis.memory.concurrent_tasks import concurrent_groups
from octants.types import ndarray
from tests.ir.parser import parse


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


@qd.func
def add(x: qd.template(), y: qd.template()):
    for i in x:
        x[i] += y[i]


@qd.kernel(graph=True)
def sections(
    rounds: ndarray(qd.i32, 0),
    a: ndarray,
    b: ndarray,
    c: ndarray,
    has_second: qd.template(),
):
    while qd.graph.do_while(rounds):
        for i in c:
            c[i] = 1
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in a:
                    t = a[i]
                    a[i] = t + c[i]
                a[0] += 10
            if qd.static(has_second):
                with qd.graph.parallel():
                    add(b, c)
        with qd.graph_parallel_context():
            with qd.graph_parallel():
                for i in c:
                    c[i] += a[i] + b[i]
        rounds[None] -= 1


@pytest.mark.parametrize("has_second", [True, False])
def test_sections(has_second: bool) -> None:
    rounds = qd.ndarray(qd.i32, ())
    a, b, c = (qd.ndarray(qd.i32, 3) for _ in range(3))
    rounds[None] = 2
    sections(rounds, a, b, c, has_second)
    two = 2 * has_second
    assert a.to_numpy().tolist() == [22, 2, 2]
    assert b.to_numpy().tolist() == [two] * 3
    assert c.to_numpy().tolist() == [23 + two, 3 + two, 3 + two]


def test_gradients_through_sections() -> None:
    x, y, z = (qd.field(qd.f64, 4, needs_grad=True) for _ in range(3))
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def both():
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in x:
                    y[i] = x[i] * x[i]
            with qd.graph.parallel():
                for i in x:
                    z[i] = 3.0 * x[i]
        for i in x:
            loss[None] += y[i] * z[i]

    x.from_numpy(np.arange(4.0))
    for _ in range(3):
        with qd.ad.Tape(loss=loss):
            both()
        assert x.grad.to_numpy().tolist() == [0, 9, 36, 81]


def test_a_region_waits_for_the_one_before() -> None:
    a, b, c, d = (qd.field(qd.f32, 4) for _ in range(4))

    @qd.kernel
    def regions():
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in a:
                    a[i] = 1.0
            with qd.graph.parallel():
                for i in b:
                    b[i] = 1.0
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in c:
                    c[i] = 1.0
                for i in c:
                    c[i] += 1.0
            with qd.graph.parallel():
                for i in d:
                    d[i] = 1.0

    module = parse(regions.inspect().stages["finish"])
    assert concurrent_groups(module) == [1, 2, 0, 3, 4]


def test_a_section_that_reads_what_another_writes_runs_in_order() -> None:
    a, b = qd.field(qd.i32, 4), qd.field(qd.i32, 4)

    @qd.kernel
    def dependent():
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in a:
                    a[i] = i
            with qd.graph.parallel():
                for i in a:
                    b[3 - i] = a[i]

    dependent()
    assert b.to_numpy().tolist() == [3, 2, 1, 0]


def test_in_a_loop_sections_run_in_order() -> None:
    a = qd.field(qd.i32, 4)

    @qd.kernel
    def looped():
        for _ in range(3):
            with qd.graph.parallel_context():
                with qd.graph.parallel():
                    a[0] += 1
                with qd.graph.parallel():
                    a[1] += 2

    looped()
    assert a.to_numpy().tolist() == [3, 6, 0, 0]


def test_on_the_host_it_does_nothing() -> None:
    with qd.graph.parallel_context(), qd.graph.parallel():
        pass
