"""``while graph.do_while(counter)``: once, and again while the counter is not 0."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import octants as qd
from octants.types import ndarray


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


@qd.kernel(graph=True)
def count_down(counter: ndarray(qd.i32, ndim=0), a: ndarray):
    for i in range(4):
        a[i] += 1
    while qd.graph.do_while(counter):
        for i in range(4):
            a[i] += 10
        for _ in range(1):
            counter[None] -= 1
    for i in range(4):
        a[i] += 100


@pytest.mark.parametrize("count", [1, 2, 5])
def test_until_the_counter_is_zero(count: int) -> None:
    counter, a = qd.ndarray(qd.i32, shape=()), qd.ndarray(qd.i32, shape=(4,))
    counter[None] = count
    count_down(counter, a)
    assert a.to_numpy().tolist() == [101 + 10 * count] * 4
    assert counter[None] == 0


def test_the_body_runs_once_at_least_and_can_be_left() -> None:
    counter, a = qd.field(qd.i32, shape=()), qd.field(qd.i32, shape=(2,))

    @qd.kernel
    def once():
        while qd.graph.do_while(counter):
            a[0] += 1

    @qd.kernel
    def left():
        while qd.graph_do_while(counter=counter):
            a[1] += 1
            counter[None] = 1
            if a[1] == 3:
                break

    once()
    left()
    assert a.to_numpy().tolist() == [1, 3]


def test_a_counter_is_an_array_without_axes() -> None:
    @qd.kernel
    def wrong():
        while qd.graph.do_while(3):
            pass

    with pytest.raises(qd.OctantsError, match="OCT153"):
        wrong()


def test_it_is_called_by_its_own_name() -> None:
    again, counter = qd.graph.do_while, qd.field(qd.i32, shape=())

    @qd.kernel
    def wrong():
        while again(counter):
            pass

    with pytest.raises(qd.OctantsError, match="by its own name"):
        wrong()


def test_on_the_host_it_is_an_error() -> None:
    with pytest.raises(qd.OctantsError, match="do_while"):
        qd.graph.do_while(qd.field(qd.i32, shape=()))
