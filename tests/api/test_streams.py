"""Streams and events on any arch: results are those of launches one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.golden_files import check_golden


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    yield
    qd.reset()


@qd.kernel
def add(a: qd.types.NDArray[qd.f64, 1], amount: float):
    for i in a:
        a[i] += amount


@qd.kernel
def total(a: qd.types.NDArray[qd.f64, 1]) -> qd.f64:
    s = 0.0
    for i in a:
        s += a[i]
    return s


@qd.kernel
def squares(a: qd.types.NDArray[qd.f64, 1], out: qd.types.NDArray[qd.f64, 1]):
    for i in a:
        out[i] = a[i] * a[i]


@qd.data_oriented
class Owner:
    def __init__(self) -> None:
        self.amount = 3.0

    @qd.kernel
    def add(self, a: qd.types.NDArray[qd.f64, 1]):
        for i in a:
            a[i] += self.amount


def array(*values: float, **options: Any) -> Any:
    made = qd.ndarray(qd.f64, len(values), **options)
    made.from_numpy(np.array(values))
    return made


def test_launches_in_streams() -> None:
    a, b = array(1.0, 2.0), array(3.0, 4.0)
    with qd.create_stream() as one, qd.create_stream() as two:
        for _ in range(3):
            add(a, 1.0, qd_stream=one)
            add(b, amount=2.0, qd_stream=two)
        add(a, 10.0)
        assert a.to_numpy().tolist() == [14, 15]
        one.synchronize()
        two.synchronize()
    assert b.to_numpy().tolist() == [9, 10]


def test_events_order_streams() -> None:
    a, out = array(1.0, 2.0), array(0.0, 0.0)
    one, two = qd.create_stream(), qd.create_stream()
    with qd.create_event() as event:
        add(a, 1.0, qd_stream=one)
        event.record(one)
        event.wait(qd_stream=two)
        squares(a, out, qd_stream=two)
        event.record(qd_stream=two)
        event.synchronize()
        event.wait()
    assert out.to_numpy().tolist() == [4, 9]
    one.destroy()
    one.destroy()


def test_results_of_a_launch_in_a_stream() -> None:
    a, stream = array(1.0, 2.0, 3.0), qd.create_stream()
    for _ in range(3):
        assert total(a, qd_stream=stream) == 6
        assert total(a) == 6


def test_methods_and_no_stream() -> None:
    a = array(1.0)
    Owner().add(a, qd_stream=qd.create_stream())
    add(a, 1.0, qd_stream=None)
    assert a[0] == 5


def test_gradients() -> None:
    stream = qd.create_stream()
    for way in (None, stream):
        a, out = array(1.0, 2.0, needs_grad=True), array(0.0, 0.0, needs_grad=True)
        squares(a, out, qd_stream=way)
        out.grad.fill(1.0)
        squares.grad(a, out, qd_stream=way)
        assert a.grad.to_numpy().tolist() == [2, 4]


def test_tapes() -> None:
    a, out = array(1.0, 2.0, needs_grad=True), array(0.0, 0.0, needs_grad=True)
    loss = qd.ndarray(qd.f64, (), needs_grad=True)

    @qd.kernel
    def to_loss(out: qd.types.NDArray[qd.f64, 1], loss: qd.types.NDArray[qd.f64, 0]):
        for i in out:
            loss[None] += out[i] * out[i]

    stream = qd.create_stream()
    with qd.ad.Tape(loss=loss):
        squares(a, out, qd_stream=stream)
        to_loss(out, loss, qd_stream=stream)
    assert a.grad.to_numpy().tolist() == [4, 32]


def test_a_failed_call_in_a_stream_leaves_none_behind() -> None:
    a, stream = array(1.0), qd.create_stream()
    with pytest.raises(qd.OctantsRuntimeTypeError):
        add(a, "much", qd_stream=stream)
    add(a, 1.0)
    assert a[0] == 2


WRONG: dict[str, Callable[[], Any]] = {
    "OCT417_handle": lambda: add(array(1.0), 1.0, qd_stream=12345),
    "OCT417_stream": lambda: qd.Stream("first"),  # type: ignore[arg-type]
    "OCT417_event": lambda: qd.create_event().record(0),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_error(name: str) -> None:
    with pytest.raises(qd.OctantsRuntimeTypeError) as caught:
        WRONG[name]()
    check_golden(f"errors/{name}", str(caught.value))


def test_what_was_made_before_init() -> None:
    stream, event, other = qd.create_stream(), qd.create_event(), qd.create_stream()
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    a = array(1.0)
    uses: dict[str, Callable[[], Any]] = {
        "stream": lambda: add(a, 1.0, qd_stream=stream),
        "event": event.synchronize,
    }
    for name, use in uses.items():
        with pytest.raises(qd.OctantsRuntimeError) as caught:
            use()
        check_golden(f"errors/OCT418_{name}", str(caught.value))
    for use in (stream.synchronize, lambda: stream.handle, lambda: event.record(other)):
        with pytest.raises(qd.OctantsRuntimeError, match="OCT418"):
            use()
    stream.destroy()
    event.destroy()
    qd.reset()
    with pytest.raises(qd.OctantsRuntimeError, match="OCT401"):
        qd.create_stream()


def test_what_was_destroyed() -> None:
    stream, event, other = qd.create_stream(), qd.create_event(), qd.create_stream()
    a = array(1.0)
    stream.destroy()
    event.destroy()
    stream.destroy()
    uses: list[Callable[[], Any]] = [
        lambda: add(a, 1.0, qd_stream=stream),
        lambda: other_event.record(stream),
        lambda: other_event.wait(stream),
        stream.synchronize,
        lambda: stream.handle,
        event.synchronize,
        lambda: event.record(other),
        lambda: event.wait(other),
    ]
    other_event = qd.create_event()
    for use in uses:
        with pytest.raises(qd.OctantsRuntimeError, match="OCT439: this (stream|event) was"):
            use()
    assert a[0] == 1.0
    with qd.create_stream() as left:
        add(a, 1.0, qd_stream=left)
    with pytest.raises(qd.OctantsRuntimeError) as caught:
        add(a, 1.0, qd_stream=left)
    check_golden("errors/OCT439_destroyed_stream", str(caught.value))
    assert a[0] == 2.0


# -- loops at the same time ------------------------------------------------------------------------


def test_blocks_of_loops() -> None:
    a, b, c = (qd.field(qd.f64, 4, needs_grad=True) for _ in range(3))

    @qd.kernel
    def fill():
        with qd.stream_parallel():
            for i in a:
                a[i] = 1.0 * i
        with qd.stream_parallel():
            for i in b:
                b[i] = 2.0 * i
            for i in b:
                b[i] += 1.0
        for i in c:
            c[i] = a[i] * b[i]

    @qd.kernel
    def in_order():  # whatever they say
        with qd.stream_parallel():
            for i in a:
                a[i] = 1.0
        with qd.stream_parallel():
            for i in a:
                b[i] = a[i] + 1.0

    for stream in (None, qd.create_stream()):
        for _ in range(5):
            fill(qd_stream=stream)
            assert c.to_numpy().tolist() == [0, 3, 10, 21]
            in_order(qd_stream=stream)
            assert b.to_numpy().tolist() == [2] * 4


def test_gradients_of_blocks_of_loops() -> None:
    x, y, z = (qd.field(qd.f64, 4, needs_grad=True) for _ in range(3))
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def both():
        with qd.stream_parallel():
            for i in x:
                y[i] = x[i] * x[i]
        with qd.stream_parallel():
            for i in x:
                z[i] = 3.0 * x[i]

    @qd.kernel
    def add():
        for i in x:
            loss[None] += y[i] + z[i]

    x.from_numpy(np.arange(4.0))
    for _ in range(5):
        with qd.ad.Tape(loss=loss):
            both()
            add()
        assert x.grad.to_numpy().tolist() == [3, 5, 7, 9]


def test_on_the_host_it_does_nothing() -> None:
    with qd.stream_parallel():
        pass
