"""What a tape says of its copies: which launch cost them, how many bytes, and why."""

from __future__ import annotations

import numpy as np
import pytest

import octants as qd
from octants.ad.overwrites.snapshot_report import describe


@pytest.fixture(autouse=True)
def start() -> None:
    qd.init(arch=qd.cpu, log_level="error", default_fp=qd.f64)


def test_a_tape_without_copies_says_so() -> None:
    x = qd.field(qd.f64, 4, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def square():
        for i in x:
            loss[None] += x[i] * x[i]

    with qd.ad.Tape(loss=loss) as tape:
        square()
        square()
        assert tape.explain().launches == 2
    explanation = tape.explain()
    assert (explanation.launches, explanation.nbytes, explanation.saved) == (2, 0, ())
    assert str(explanation) == "2 launches; 0 copies, 0 bytes"


def test_copies_are_told_by_array_writer_and_reader() -> None:
    x = qd.field(qd.f64, (6, 4), needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)
    given = np.ones(3)

    @qd.kernel
    def measure(t: qd.i32):
        for i in range(4):
            loss[None] += x[t, i] ** 2

    @qd.kernel
    def step(t: qd.i32):
        for i in range(4):
            x[t, i] = qd.sin(x[t, i])

    @qd.kernel
    def scale(factors: qd.types.ndarray(ndim=1)):
        for i in factors:
            loss[None] += factors[i] * x[0, i] ** 2

    x.fill(0.5)
    with qd.ad.Tape(loss=loss) as tape:
        measure(2)
        step(2)
        step(3)
        measure(5)
        x[5, 1] = 7.0
        scale(given)
    explanation = tape.explain()
    assert explanation.launches == 5
    assert explanation.nbytes == tape.snapshot_bytes
    found = {(s.array, s.writer, s.reader): s for s in explanation.saved}
    own = found["x", "step", "step"]
    assert (own.copies, own.nbytes, own.region) == (1, 32, (((3, 3), (0, 3)),))
    earlier = found["x", "step", "measure"]
    assert (earlier.copies, earlier.nbytes, earlier.region) == (1, 32, (((2, 2), (0, 3)),))
    assert own.why == "its own reverse run reads what it overwrites"
    host = found["x", "a host write", "measure"]
    assert (host.copies, host.nbytes, host.region) == (1, 8, (((5, 5), (1, 1)),))
    assert "`measure` reads it" in host.why
    untracked = found["factors", "", "scale"]
    assert (untracked.nbytes, untracked.region) == (24, None)
    assert "untracked" in untracked.why
    text = explanation.text()
    assert text.startswith("5 launches; ")
    assert "[5, 1]" in text
    assert "[3, :4]" in text
    assert len(text.splitlines()) == 2 + len(explanation.saved)


def test_a_reader_that_overwrites_is_not_counted_twice() -> None:
    x = qd.field(qd.f64, 4, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def measure():
        for i in x:
            loss[None] += x[i] ** 2

    @qd.kernel
    def zero():
        for i in x:
            x[i] = 0.0

    with qd.ad.Tape(loss=loss) as tape:
        measure()
        measure()
        zero()
    (saved,) = tape.explain().saved
    assert (saved.writer, saved.reader, saved.copies, saved.nbytes) == ("zero", "measure", 1, 32)


def test_what_atomics_returned_is_told() -> None:
    x = qd.field(qd.f64, 8, needs_grad=True)
    count = qd.field(qd.i32, ())
    y = qd.field(qd.f64, 8, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def compact():
        for i in x:
            y[qd.atomic_add(count[None], 1)] = x[i] * x[i]

    @qd.kernel
    def total():
        for i in y:
            loss[None] += y[i]

    with qd.ad.Tape(loss=loss) as tape:
        compact()
        total()
    explanation = tape.explain()
    assert explanation.nbytes == tape.snapshot_bytes
    assert any("atomics" in saved.why for saved in explanation.saved)


def test_regions_are_told_as_slices() -> None:
    assert describe(None) == "[...]"
    assert describe((((3, 3), (0, 8)), ((0, 2**31 - 1), (2, 4)))) == "[3, :9] [:, 2:5]"
