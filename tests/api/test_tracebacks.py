"""The traceback of a user error has the user's frames, and one of ours: what was called."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsError

PACKAGE = str(Path(qd.__file__).parent)


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, debug=True)
    yield
    qd.init(arch=qd.cpu)


def frames(error: BaseException) -> tuple[list[str], list[str]]:
    """The functions of users and those of the package, outermost first."""
    users, ours = [], []
    for entry in traceback.extract_tb(error.__traceback__):
        (ours if entry.filename.startswith(PACKAGE) else users).append(entry.name)
    return users, ours


def failure(run: Callable[[], object]) -> OctantsError:
    with pytest.raises(OctantsError) as caught:
        run()
    return caught.value


@qd.kernel
def with_a_typo():
    for i in range(3):
        a = undefined_name + i  # noqa: F821


@qd.kernel
def out_of_bounds(x: qd.types.ndarray(qd.f32, ndim=1)):
    for i in range(5):
        x[i] = 1.0


class Owner:
    @qd.kernel
    def method(self):
        for i in range(3):
            a = undefined_name + i  # noqa: F821


@pytest.mark.parametrize(
    "run",
    [
        with_a_typo,
        lambda: with_a_typo(1),
        with_a_typo.grad,
        with_a_typo.inspect,
        with_a_typo.grad.explain,
        lambda: Owner().method(),
        lambda: (out_of_bounds(qd.ndarray(qd.f32, 4)), qd.sync()),
        lambda: qd.init(arch="no such arch"),
        lambda: qd.ad.Tape(loss=qd.ndarray(qd.f32, 4)),
    ],
    ids=["call", "arguments", "grad", "inspect", "explain", "method", "run", "init", "tape"],
)
def test_one_frame_of_ours(run: Callable[[], object]) -> None:
    users, ours = frames(failure(run))
    assert users[0] == "failure"
    assert len(ours) == 1


def test_frames_of_users_below_ours_stay() -> None:
    """A gradient of the user's own is called by the tape, and fails in a kernel."""
    loss = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.ad.grad_replaced
    def forward() -> None:
        pass

    @qd.ad.grad_for(forward)
    def backward_of_the_user() -> None:
        with_a_typo()

    def run() -> None:
        with qd.ad.Tape(loss):
            forward()

    users, ours = frames(failure(run))
    assert users == ["failure", "run", "backward_of_the_user"]
    assert len(ours) <= 2


def test_all_frames_where_they_are_asked_for() -> None:
    qd.init(arch=qd.cpu, print_full_traceback=True)
    _, ours = frames(failure(with_a_typo))
    assert len(ours) > 10


def test_other_errors_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of the compiler is found by its frames."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("octants.pipeline.lower", broken)

    @qd.kernel
    def fresh() -> None:
        for i in range(3):
            a = i

    with pytest.raises(RuntimeError) as caught:
        fresh()
    assert len(frames(caught.value)[1]) > 4


def test_host_access_to_arrays() -> None:
    x = qd.field(qd.f32, shape=3)
    v = qd.Vector.field(3, qd.f32, shape=3)
    calls: list[Callable[[], object]] = [
        lambda: x[7],
        lambda: x.__setitem__((1, 2), 3.0),
        lambda: v[1][5],
        lambda: v[1].__setitem__(5, 1.0),
        lambda: x.fill("text"),
        lambda: x.from_numpy(np.zeros(4)),
        lambda: x.copy_from(v),
    ]
    for call in calls:
        users, ours = frames(failure(call))
        assert users[-1] == "<lambda>" and len(ours) == 1, (users, ours)
