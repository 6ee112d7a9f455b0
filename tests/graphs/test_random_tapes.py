"""Random tapes as graphs do what they do without."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.ad.test_random_tapes import NAMES, SIZE, make_arrays, random_step, total
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.seeds import seeds


@pytest.fixture(params=["arch of the tests", "emulated"])
def _arch(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if request.param == "emulated":
            stack.enter_context(emulated_gpu(total=1 << 28))
            monkeypatch.setattr(qd, "cpu", qd.cuda)
        yield


@pytest.mark.usefixtures("_arch")
@pytest.mark.parametrize("block", seeds(2, 10))
def test_random_tapes(block: int) -> None:
    qd.init(arch=qd.cpu)
    captured = 0
    for seed in range(8 * block, 8 * block + 8):
        captured += _check(random.Random(seed))
    assert captured >= 4


def _check(generator: random.Random) -> bool:
    """Whether a random tape can be captured; an error if its replays do something else."""
    steps = [
        random_step(generator, set(), set(), with_views=False)[0]  # which captures refuse
        for _ in range(generator.randrange(1, 7))
    ]
    arrays, loss = make_arrays(generator)
    starts, _ = make_arrays(generator)
    for x in arrays.values():
        if generator.random() < 0.2:
            with contextlib.suppress(qd.OctantsValueError):  # no other library reaches it
                x.to_dlpack()

    def differentiate() -> None:
        for name in NAMES:
            arrays[name].copy_from(starts[name])
        with qd.ad.Tape(loss=loss):
            for step in steps:
                step(arrays)
            total(arrays[NAMES[0]], loss)

    def results() -> list[Any]:
        gradients = [arrays[name].grad.to_numpy() for name in NAMES]
        return [*gradients, *(arrays[name].to_numpy() for name in NAMES), loss.to_numpy()]

    try:
        with qd.graph.capture() as graph:
            differentiate()
    except qd.OctantsRuntimeError as error:
        assert "`copy_from` cannot go back" in str(error)
        return False
    for _ in range(2):
        for name in NAMES:
            values = [generator.uniform(0.3, 1.2) for _ in range(SIZE)]
            starts[name].from_numpy(np.array(values))
        graph()
        found = results()
        differentiate()
        for one, other in zip(found, results(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)
    return True
