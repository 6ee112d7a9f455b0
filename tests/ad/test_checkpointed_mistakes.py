"""What a checkpointed loop refuses, and what it finds to be wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsError
from tests.ad.loops import Chain, decay, in_place
from tests.devices import DISCRETE
from tests.golden_files import check_golden


def changed(step: Callable[[Chain, list[int], int], None]) -> Callable[[], None]:
    """A program whose step has a variable of Python that it changes."""

    def program() -> None:
        c, count = Chain(), [0]
        c.reset()

        def run(i: int) -> None:
            step(c, count, i)
            count[0] += 1

        with qd.ad.Tape(loss=c.loss):
            qd.ad.checkpointed(run, 9, slots=2)

    return program


def other_kernels(c: Chain, count: list[int], i: int) -> None:
    c.square()
    for _ in range(3 if count[0] > 8 else 1):
        c.pay(i)


def no_kernels(c: Chain, count: list[int], i: int) -> None:
    if count[0] < 9:
        c.square()


def other_integers(c: Chain, count: list[int], i: int) -> None:
    c.pay(count[0])


def other_floats(c: Chain, count: list[int], i: int) -> None:
    c.leap(i, 0.05 * count[0])


def other_host_writes(c: Chain, count: list[int], i: int) -> None:
    c.pay(i)
    if count[0] > 8:
        c.x.fill(1.0)


def other_lengths(c: Chain, count: list[int], i: int) -> None:
    qd.ad.checkpointed(c.pay, 2 + count[0] // 9, slots=1)


def other_arrays(c: Chain, count: list[int], i: int) -> None:
    global BUFFER
    if count[0] == 0:
        BUFFER = np.zeros(3)
        c.buffer = qd.ndarray(qd.f64, 3)  # type: ignore[attr-defined]
    BUFFER += 1.0
    decay(c.buffer, BUFFER)  # type: ignore[attr-defined]


BUFFER = np.zeros(3)


def argument(**given: Any) -> Callable[[], None]:
    given = {"step": print, "n": 1, **given}
    return lambda: qd.ad.checkpointed(**given)


def caught_exception() -> None:
    c = Chain()
    c.reset()

    def step(i: int) -> None:
        c.pay(i)
        if i == 2:
            raise KeyError(i)

    with qd.ad.Tape(loss=c.loss):
        try:
            qd.ad.checkpointed(step, 5)
        except KeyError:
            pass


def gradient_of_the_host() -> None:
    c = Chain()
    with qd.ad.Tape(loss=c.loss):
        qd.ad.checkpointed(lambda i: c.x.grad.fill(0), 5)


def gradient_of_a_kernel() -> None:
    c = Chain()

    @qd.ad.no_grad
    @qd.kernel
    def clip():
        for k in c.x:
            c.x.grad[k] = 0.0

    with qd.ad.Tape(loss=c.loss):
        qd.ad.checkpointed(lambda i: clip(), 5)


def unseen_write() -> None:
    c = Chain()
    shared = c.x.to_numpy(copy=False)

    def step(i: int) -> None:
        shared[:] += 1.0
        c.x.mark_written()
        c.pay(i)

    with qd.ad.Tape(loss=c.loss):
        qd.ad.checkpointed(step, 5)


def kernel_as_loss() -> None:
    c = Chain()

    @qd.kernel
    def energy() -> qd.f64:
        total = 0.0
        for k in c.x:
            total += c.x[k] * c.x[k]
        return total

    with qd.ad.Tape(loss=energy):
        qd.ad.checkpointed(lambda _: energy(), 2)


def argument_gradients() -> None:
    c = Chain()
    with qd.ad.Tape(loss=c.loss, argument_gradients=c.leap):
        qd.ad.checkpointed(functools.partial(in_place, c), 5)


def too_large() -> None:
    qd.init(arch=qd.cpu, ad_snapshot_budget_bytes=500, log_level="error")
    c = Chain()
    with qd.ad.Tape(loss=c.loss):
        qd.ad.checkpointed(functools.partial(in_place, c), 20, slots=10)


MISTAKES: dict[str, Callable[[], Any]] = {
    "OCT330_slots": argument(slots=0),
    "OCT330_slots_float": argument(slots=2.5),
    "OCT330_n": argument(n=-1),
    "OCT330_n_text": argument(n="ten"),
    "OCT330_step": argument(step=7),
    "OCT330_returned": argument(step=lambda i: 0, n=None),
    "OCT331_kernels": changed(other_kernels),
    "OCT331_nothing": changed(no_kernels),
    "OCT331_integers": changed(other_integers),
    "OCT331_floats": changed(other_floats),
    "OCT331_host_write": changed(other_host_writes),
    "OCT331_nested": changed(other_lengths),
    "OCT331_arrays": changed(other_arrays),
    "OCT332_caught": caught_exception,
    "OCT333_host": gradient_of_the_host,
    "OCT333_kernel": gradient_of_a_kernel,
    "OCT320_in_a_step": unseen_write,
    "OCT312_in_a_loop": kernel_as_loss,
    "OCT334_budget": too_large,
    "OCT335_arguments": argument_gradients,
}
if DISCRETE:  # where only Octants can write
    del MISTAKES["OCT320_in_a_step"]


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    with pytest.raises(OctantsError) as caught:
        MISTAKES[name]()
    check_golden(f"errors/{name}", str(caught.value))
