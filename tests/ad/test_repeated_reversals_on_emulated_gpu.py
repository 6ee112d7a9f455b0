"""The same on a fake GPU, where a reversal is a graph of the driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import octants as qd
from tests.ad import test_repeated_reversals as usual
from tests.ad.test_repeated_reversals import (
    MAKERS,
    WEIGHTS,
    Arrays,
    expect,
    make,
    replays,
    sum_of_squares,
)
from tests.codegen.on_emulated_gpu import AddressableCuda, emulated_gpu

__all__ = "make", "replays"

for _name in vars(usual):
    if _name.startswith("test_"):
        globals()[_name] = getattr(usual, _name)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[AddressableCuda]:
    monkeypatch.setattr(qd, "cpu", qd.cuda)
    with emulated_gpu(total=1 << 28) as fake:
        qd.init(arch=qd.cuda, default_fp=qd.f64, log_level="error")
        yield fake
        assert not fake.problems


def calls_of(fake: AddressableCuda, arrays: Arrays) -> dict[str, int]:
    """The driver's calls in a tape."""
    qd.sync()
    fake.calls.clear()
    with qd.ad.Tape(loss=arrays.loss):
        for _ in range(10):
            sum_of_squares(arrays)
    return {name: count for name, count in fake.calls.items() if not name.startswith("cuCtx")}


def test_a_replay_is_one_call_of_the_driver(fake: AddressableCuda, replays: list[int]) -> None:
    arrays = Arrays(MAKERS["fields"])
    arrays.x.from_numpy(WEIGHTS)
    for _ in range(20):  # the fills become a graph, too
        calls_of(fake, arrays)
    assert calls_of(fake, arrays) == {"cuGraphLaunch": 20 + 2}  # of forward launches, too
    expect(arrays.x.grad.to_numpy(), 20 * WEIGHTS * WEIGHTS)


def test_launches_in_streams(fake: AddressableCuda, replays: list[int]) -> None:
    arrays = Arrays(MAKERS["ndarrays"])
    with qd.create_stream() as one, qd.create_stream() as two:
        for number in range(6):

            def body(a: Arrays, number: int = number) -> None:
                usual.square(a.x, a.y, qd_stream=(one, two)[number % 2])
                usual.total(a.y, a.loss)

            expect(arrays.gradient(body), 2 * arrays.values * WEIGHTS)
    assert len(replays) == 4
