"""Tapes that record the launches of an earlier tape again, and what else may happen on them."""

from __future__ import annotations

import functools
import gc
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.ad.overwrites import repeated_tapes
from octants.ad.overwrites.packed_copies import CopyArena
from octants.ad.tapes import tape as tapes
from octants.data import current_runtime
from tests.devices import on_cpu, shares_memory
from tests.seeds import pairwise, seeds

SIZE = 6


@qd.kernel
def turn(x: qd.Tensor, factor: qd.f64):
    for i in x:
        x[i] = qd.sin(x[i]) * factor


@qd.kernel
def multiply(x: qd.Tensor, y: qd.Tensor):
    for i in range(SIZE):
        x[i] = x[i] * y[i]


@qd.kernel
def add(x: qd.Tensor, y: qd.Tensor):
    for i in range(SIZE):
        x[i] += y[i]


@qd.kernel
def assign(x: qd.Tensor, y: qd.Tensor):
    for i in range(SIZE):
        x[i] = y[i]


@qd.kernel
def step(x: qd.Tensor, y: qd.Tensor):
    for i in range(SIZE):
        x[i] = x[i] * y[i]
    first = x[0]
    for i in range(SIZE):
        y[i] = y[i] + x[i] * first
    for i in range(SIZE):
        x[i] = qd.cos(y[i]) + x[i]


@qd.kernel
def move(x: qd.Tensor, t: qd.i32):
    for i in range(2):
        x[2 * t + i] = x[2 * t + i] * x[2 * t + i] + qd.sin(x[i])


@qd.kernel
def square(x: qd.Tensor, first: qd.i32, last: qd.i32):
    for i in range(first, last):
        x[i] = x[i] * x[i]


@qd.kernel
def at_most(x: qd.Tensor, most: qd.f64):
    for i in x:
        assert x[i] < most, "too large"
        x[i] = x[i] * x[i]


@qd.kernel
def step_at_most(x: qd.Tensor, y: qd.Tensor, most: qd.f64):
    for i in range(SIZE):
        x[i] = x[i] * y[i]
    for i in range(SIZE):
        y[i] = y[i] + x[i] * x[i]
    for i in range(SIZE):
        x[i] = qd.cos(y[i]) * x[i]
        assert x[i] < most, "too large"
        y[i] = y[i] * x[i]


@qd.kernel
def weigh(x: qd.Tensor, w: qd.types.ndarray()):
    for i in range(SIZE):
        x[i] = x[i] * x[i] * w[i] + w[(i + 1) % SIZE]


@qd.kernel
def weigh_part(x: qd.Tensor, w: qd.types.ndarray(), t: qd.i32):
    for i in range(2):
        x[2 * t + i] = x[2 * t + i] * w[2 * t + i]


@qd.kernel
def shrink(w: qd.types.ndarray()):
    for i in range(SIZE):
        w[i] = w[i] * 0.9


@qd.kernel
def total(x: qd.Tensor, loss: qd.Tensor):
    for i in x:
        loss[None] += x[i] * (i + 1)


@qd.kernel
def squares(x: qd.Tensor) -> qd.f64:
    for i in range(SIZE):
        x[i] = x[i] * x[i]
    found = 0.0
    for i in range(SIZE):
        found += x[i]
    return found


MAKERS: dict[str, Callable[[Any], Any]] = {
    "fields": lambda shape: qd.field(qd.f64, shape, needs_grad=True),
    "ndarrays": lambda shape: qd.ndarray(qd.f64, shape, needs_grad=True),
}


class Arrays:
    """Two arrays, an array of numpy and a loss, and gradients of programs on them."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.x, self.y, self.loss = make(SIZE), make(SIZE), make(())
        self.w = np.ones(SIZE)

    def gradient(self, body: Callable[[Arrays], Any], **given: Any) -> tuple[list[Any], qd.ad.Tape]:
        """The gradients of a program by both arrays, with what it leaves in them; and its tape."""
        self.x.from_numpy(np.linspace(0.4, 1.1, SIZE))
        self.y.from_numpy(np.linspace(1.2, 0.5, SIZE))
        self.w[:] = np.linspace(0.7, 1.3, SIZE)
        tape = qd.ad.Tape(loss=self.loss, **given)
        with tape:
            body(self)
            total(self.x, self.loss)
        every = self.x, self.y, self.x.grad, self.y.grad
        return [each.to_numpy().tolist() for each in every], tape


@pytest.fixture(params=MAKERS)
def arrays(request: pytest.FixtureRequest) -> Arrays:
    return Arrays(MAKERS[request.param])


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were launched like those of an earlier tape."""
    found: list[str] = []

    def record(name: str) -> None:
        launch = getattr(tapes.Tape, name)

        def recorded(self: Any, *given: Any) -> Any:
            result = launch(self, *given)
            found.append(given[-2].signature.kernel)
            return result

        monkeypatch.setattr(tapes.Tape, name, recorded)

    record("_launch_in_known_prefix")
    record("_follow")
    return found


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """What a tape without an earlier one gives."""

    def gradient(arrays: Arrays, body: Callable[[Arrays], Any]) -> list[Any]:
        with monkeypatch.context() as context:
            context.setattr(tapes.Tape, "_uses_fast_path", False)
            return arrays.gradient(body)[0]

    yield gradient


def program(arrays: Arrays) -> None:
    for t in range(3):
        turn(arrays.x, 0.9)
        step(arrays.x, arrays.y)
        move(arrays.x, t)
        multiply(arrays.y, arrays.x)


def test_the_same_launches_have_the_same_gradient(
    arrays: Arrays, followed: list[str], alone: Any
) -> None:
    expected = alone(arrays, program)
    assert not followed
    assert arrays.gradient(program)[0] == expected
    assert not followed
    for _ in range(3):
        assert arrays.gradient(program)[0] == expected
        assert len(followed) == 13
        followed.clear()


def test_initial_values_of_the_host_change_nothing_for_followed_tapes(
    arrays: Arrays, followed: list[str], alone: Any
) -> None:
    """They are written in the body, before the launches."""
    values = iter((0.3, 0.3, 0.8, 0.8, 0.5, 0.5))

    def begin(arrays: Arrays) -> None:
        arrays.x[2] = next(values)
        arrays.y.fill(0.6)
        program(arrays)

    assert alone(arrays, begin) == arrays.gradient(begin)[0]
    for _ in range(2):
        expected = alone(arrays, begin)
        followed.clear()
        assert arrays.gradient(begin)[0] == expected
        assert len(followed) == 13


def test_what_tapes_explain_is_the_same(arrays: Arrays) -> None:
    (_, first), (_, second) = arrays.gradient(program), arrays.gradient(program)
    assert first.snapshot_bytes == second.snapshot_bytes > 0
    assert str(first.explain()) == str(second.explain())
    assert str(second.explain()) == str(second.explain())


def test_the_copies_can_be_asked_for_while_a_tape_follows(arrays: Arrays) -> None:
    found: list[str] = []
    for _ in range(3):
        with qd.ad.Tape(loss=arrays.loss) as tape:
            program(arrays)
            found.append(str(tape.explain()))
            program(arrays)
            found.append(str(tape.explain()))
        found.append(str(tape.explain()))
    assert found[:3] == found[3:6] == found[6:]
    assert found[1] == found[2] != found[0]


class Interruption:
    """Numbers of launches, which lets another thread launch once while one is under way.

    Where it waits for the end of that launch, so does `join`.
    """

    def __init__(self, numbers: Iterator[int], launches: int, act: Callable[[], Any]) -> None:
        self.numbers, self.left = numbers, launches
        self._thread = threading.Thread(target=act)
        self.join = self._thread.join

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        number = next(self.numbers)
        self.left -= 1
        if self.left == 0:
            self._thread.start()
            self.join(0.05)
        return number


def _in_a_thread(arrays: Arrays) -> None:
    thread = threading.Thread(target=lambda: turn(arrays.y, 0.5))
    thread.start()
    thread.join()


@qd.ad.grad_replaced
def _replaced(arrays: Arrays) -> None:
    add(arrays.x, arrays.y)


@qd.ad.grad_for(_replaced)
def _replacement(arrays: Arrays) -> None:
    add.grad(arrays.x, arrays.y)


EVENTS: dict[str, Callable[[Arrays], Any]] = {
    "a launch": lambda arrays: multiply(arrays.x, arrays.y),
    "another number": lambda arrays: turn(arrays.x, 0.7),
    "a host write": lambda arrays: arrays.y.__setitem__(2, 0.3),
    "a fill": lambda arrays: arrays.x.fill(0.5),
    "a copy": lambda arrays: arrays.y.copy_from(arrays.x),
    "a read": lambda arrays: arrays.x.to_numpy(),
    "a thread": _in_a_thread,
    "no gradient": lambda arrays: qd.ad.no_grad(lambda: multiply(arrays.x, arrays.y))(),
    "replaced": _replaced,
}


@pytest.mark.parametrize(
    ("arrays", "event", "when"), pairwise(list(MAKERS), list(EVENTS), [0, 2]), indirect=["arrays"]
)
def test_something_else_happens(
    arrays: Arrays, followed: list[str], alone: Any, event: str, when: int
) -> None:
    """In the middle of a tape that follows an earlier one, which does the same at its end."""

    def other(arrays: Arrays) -> None:
        for t in range(3):
            turn(arrays.x, 0.9)
            if t == when:
                EVENTS[event](arrays)
            step(arrays.x, arrays.y)
            move(arrays.x, t)
            multiply(arrays.y, arrays.x)

    expected = alone(arrays, other)
    for _ in range(2):
        arrays.gradient(program)
    for _ in range(3):
        followed.clear()
        assert arrays.gradient(other)[0] == expected
        assert len(followed) >= 4 * when
        assert arrays.gradient(program)[0] == alone(arrays, program)


def test_what_a_launch_of_no_work_items_reads_is_not_needed(
    arrays: Arrays, followed: list[str], alone: Any
) -> None:
    def other(arrays: Arrays) -> None:
        square(arrays.y, 3, 3)
        assign(arrays.y, arrays.x)
        turn(arrays.x, 0.9)
        arrays.x.fill(0.5)

    expected = alone(arrays, other)
    for _ in range(3):
        assert arrays.gradient(other)[0] == expected
    assert "assign" in followed


@shares_memory
def test_an_array_is_exported_while_a_tape_follows(followed: list[str], alone: Any) -> None:
    def other(arrays: Arrays) -> None:
        program(arrays)
        arrays.x.to_dlpack()
        program(arrays)

    expected = alone(Arrays(MAKERS["ndarrays"]), other)
    arrays = Arrays(MAKERS["ndarrays"])
    for _ in range(2):
        arrays.gradient(program)
    assert arrays.gradient(other)[0] == expected
    assert len(followed) > 12
    followed.clear()
    assert arrays.gradient(program)[0] == alone(arrays, program)
    assert not followed


@on_cpu
def test_a_launch_fails_while_a_tape_follows(alone: Any, followed: list[str]) -> None:
    qd.init(arch=qd.cpu, debug=True, log_level="error", offline_cache=False)
    arrays = Arrays(MAKERS["fields"])

    def runs(arrays: Arrays) -> None:
        program(arrays)
        at_most(arrays.y, 1e9)
        program(arrays)

    def fails(arrays: Arrays) -> None:
        program(arrays)
        with pytest.raises(AssertionError, match="too large"):
            at_most(arrays.y, 0.0)
        program(arrays)

    for _ in range(2):
        arrays.gradient(runs)
    got = arrays.gradient(fails)[0]
    assert len(followed) > 24
    assert got == alone(arrays, fails)


@on_cpu
def test_a_later_task_of_a_launch_fails(alone: Any) -> None:
    """The tape reverses the tasks that have run, and restores what the failed one overwrote."""
    qd.init(arch=qd.cpu, debug=True, log_level="error", offline_cache=False)
    arrays = Arrays(MAKERS["fields"])

    def fails(arrays: Arrays) -> None:
        program(arrays)
        with pytest.raises(AssertionError, match="too large"):
            step_at_most(arrays.x, arrays.y, 0.0)
        program(arrays)

    def runs(arrays: Arrays) -> None:
        program(arrays)
        step_at_most(arrays.x, arrays.y, 1e9)
        program(arrays)

    expected = alone(arrays, fails)
    for _ in range(3):
        arrays.gradient(runs)
    for body in (fails, runs, fails):
        got = arrays.gradient(body)[0]
    assert got == expected


def test_tapes_with_copies_that_repeat_have_no_entries(
    arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    entry = tapes.LaunchEntry

    def make(*given: Any) -> Any:
        made.append(given[0])
        return entry(*given)

    def body(arrays: Arrays) -> None:
        for _ in range(3):
            turn(arrays.x, 0.9)
            multiply(arrays.y, arrays.x)
            add(arrays.x, arrays.y)

    monkeypatch.setattr(tapes, "LaunchEntry", make)
    for _ in range(8):
        before = len(made)
        _, tape = arrays.gradient(body)
        entries, saved = len(made) - before, tape.snapshot_bytes
    assert not entries
    assert saved == tape.explain().nbytes > 0


@on_cpu
def test_a_launch_fails_on_the_first_tape(alone: Any, followed: list[str]) -> None:
    """What later launches of that tape copied does not serve tapes without the failure."""
    qd.init(arch=qd.cpu, debug=True, log_level="error", offline_cache=False)
    arrays = Arrays(MAKERS["fields"])

    def runs(arrays: Arrays) -> None:
        turn(arrays.x, 0.9)
        multiply(arrays.y, arrays.x)
        assign(arrays.x, arrays.y)

    def fails(arrays: Arrays) -> None:
        turn(arrays.x, 0.9)
        multiply(arrays.y, arrays.x)
        with pytest.raises(AssertionError, match="too large"):
            at_most(arrays.x, 0.0)
        assign(arrays.x, arrays.y)

    expected = alone(arrays, runs)
    for body in (fails, fails, runs, runs):
        got = arrays.gradient(body)[0]
        followed.clear() if body is fails else None
    assert got == expected
    assert followed


@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_another_thread_launches_during_a_launch(
    earlier: int,
    arrays: Arrays,
    followed: list[str],
    alone: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It saves what the tape needs, which a later tape has to save by itself."""

    def body(arrays: Arrays) -> None:
        multiply(arrays.x, arrays.y)
        turn(arrays.x, 0.9)
        assign(arrays.y, arrays.x)

    def interrupted(arrays: Arrays) -> None:
        multiply(arrays.x, arrays.y)
        act = functools.partial(turn, arrays.y, 0.5)
        interruption = Interruption(driver.state.numbers, 1, act)
        with monkeypatch.context() as context:
            context.setattr(driver.state, "numbers", interruption)
            turn(arrays.x, 0.9)
        interruption.join()
        assign(arrays.y, arrays.x)

    expected = alone(arrays, body)
    expected_if_interrupted = alone(arrays, interrupted)
    for _ in range(earlier):
        arrays.gradient(body)
    assert arrays.gradient(interrupted)[0] == expected_if_interrupted
    followed.clear()
    for _ in range(3):
        assert arrays.gradient(body)[0] == expected
    assert followed


def test_another_thread_launches_during_the_last_launch_of_a_tape(
    arrays: Arrays, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last launch is not taken for the whole tape, though a tape of it alone is known."""

    def add_up(arrays: Arrays) -> None:
        add(arrays.x, arrays.y)

    def measure() -> list[Any]:
        arrays.x.from_numpy(np.linspace(0.4, 1.1, SIZE))
        with qd.ad.Tape(loss=arrays.loss):
            total(arrays.x, arrays.loss)
        return arrays.x.grad.to_numpy().tolist()  # type: ignore[no-any-return]

    expected = alone(arrays, add_up)
    for _ in range(6):
        wanted = measure()
        assert arrays.gradient(add_up)[0] == expected
    act = functools.partial(turn, make_other(arrays), 0.5)
    interruption = Interruption(driver.state.numbers, 2, act)
    with monkeypatch.context() as context:
        context.setattr(qd.ad.Tape, "_has_nothing_of", lambda *_: False)
        context.setattr(driver.state, "numbers", interruption)
        assert arrays.gradient(add_up)[0] == expected
        interruption.join()
    assert measure() == wanted


def make_other(arrays: Arrays) -> Any:
    """One more array like those."""
    return type(arrays)(MAKERS["ndarrays"]).x


def test_returned_values(arrays: Arrays, followed: list[str]) -> None:
    found = []
    for _ in range(3):
        arrays.x.from_numpy(np.linspace(0.4, 1.1, SIZE))
        with qd.ad.Tape(loss=squares):
            turn(arrays.x, 0.9)
            value = squares(arrays.x)
        found.append((value, arrays.x.grad.to_numpy().tolist()))
    assert found[0] == found[1] == found[2]
    assert followed == ["turn", "squares"] * 2


def test_the_budget_counts_followed_copies(arrays: Arrays, followed: list[str]) -> None:
    _, tape = arrays.gradient(program)
    needed = tape.snapshot_bytes
    limits = []
    for budget in (needed, needed - 1):
        limited = qd.ad.Tape(loss=arrays.loss)
        limited._ledger._budget = budget
        limits.append(limited)
    with limits[0]:
        program(arrays)
    assert len(followed) == 12
    with pytest.raises(qd.OctantsMemoryError, match="budget"), limits[1]:
        program(arrays)


def test_no_more_is_kept_than_the_limit(
    arrays: Arrays, followed: list[str], alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = alone(arrays, program)
    monkeypatch.setattr(repeated_tapes, "MOST_REVERSED", 0)
    for _ in range(3):
        assert arrays.gradient(program)[0] == expected
    assert len(followed) == 26
    monkeypatch.setattr(repeated_tapes, "MOST_PREFIXES", 13)

    def longer(arrays: Arrays) -> None:
        program(arrays)
        program(arrays)

    expected, followed[:] = alone(arrays, longer), []
    assert arrays.gradient(longer)[0] == expected
    assert len(followed) == 12
    followed.clear()
    for _ in range(2):
        assert arrays.gradient(longer)[0] == expected
    assert not followed


def test_tapes_of_new_arrays_are_forgotten(
    followed: list[str], alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest first; what they remember does not grow without bound."""
    monkeypatch.setattr(repeated_tapes, "MOST_REMEMBERED", 80)
    trees = repeated_tapes._Trees()
    monkeypatch.setattr(current_runtime.runtime(), "tapes", trees)
    arrays = [Arrays(MAKERS["ndarrays"]) for _ in range(5)]
    expected = alone(arrays[0], program)
    for each in arrays:
        assert each.gradient(program)[0] == expected
        assert trees._total == sum(trees._launches.values()) <= 80
    assert len(trees._launches) == 2
    for each, does_follow in ((arrays[4], True), (arrays[0], False), (arrays[0], True)):
        followed.clear()
        assert each.gradient(program)[0] == expected
        assert bool(followed) == does_follow


def test_arrays_are_not_kept_alive() -> None:
    for _ in range(2):
        other = Arrays(MAKERS["ndarrays"])
        other.gradient(program)
        other.gradient(program)
        ends = weakref.ref(other.x)
        del other
        gc.collect()
        assert ends() is None


def test_the_memory_of_copies_is_freed_by_reset() -> None:
    gc.collect()
    before = CopyArena._bytes_of_all
    arrays = Arrays(MAKERS["ndarrays"])
    for _ in range(3):
        arrays.gradient(program)
    assert CopyArena._bytes_of_all > before
    qd.reset()
    gc.collect()
    assert CopyArena._bytes_of_all == before


NUMPY_WEIGHTS = [0, 0, 0, 0, 0], [4, 4, 0, 0, 0], [4, 4, 2, 2, 0], [3, 3, 2, 2, 1]


@pytest.mark.parametrize("seed", seeds(12, 200))
def test_random_tapes_with_a_common_beginning(seed: int, arrays: Arrays, alone: Any) -> None:
    generator = random.Random(seed)
    launches: list[Callable[[Arrays], Any]] = [
        lambda a: turn(a.x, 0.9),
        lambda a: turn(a.y, 0.8),
        lambda a: multiply(a.x, a.y),
        lambda a: multiply(a.y, a.x),
        lambda a: step(a.x, a.y),
        lambda a: step(a.y, a.x),
        lambda a: move(a.x, 1),
        lambda a: move(a.y, 2),
        lambda a: a.y.__setitem__(1, 0.6),
        lambda a: multiply(a.x, a.x),
        lambda a: assign(a.x, a.y),
        lambda a: assign(a.y, a.x),
        lambda a: weigh(a.x, a.w),
        lambda a: weigh(a.y, a.w),
        lambda a: weigh_part(a.x, a.w, 1),
        lambda a: a.w.__imul__(1.1),
        lambda a: shrink(a.w),
    ]
    weights = [3, 3, 3, 3, 2, 2, 3, 3, 1, 1, 2, 2, *generator.choice(NUMPY_WEIGHTS)]
    start = generator.choices(launches, weights, k=5)
    for _ in range(4):
        length = generator.randrange(6)
        body = [*start[:length], *generator.choices(launches, weights, k=generator.randrange(4))]

        def run(arrays: Arrays, body: list[Callable[[Arrays], Any]] = body) -> None:
            for each in body:
                each(arrays)

        expected = alone(arrays, run)
        for _ in range(2):
            assert arrays.gradient(run)[0] == expected


@pytest.mark.parametrize("before", [0, 1, 2, 4])
@pytest.mark.parametrize("overwrites", [False, True])
def test_a_tree_that_the_body_destroys(before: int, overwrites: bool) -> None:
    """The tape must not write where the tree was: other arrays may have its memory."""
    builder = qd.FieldsBuilder()
    x = qd.field(qd.f64, needs_grad=True)
    builder.dense(qd.i, 40).place(x)
    tree = builder.finalize()
    y = qd.field(qd.f64, 40, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def copy():
        for i in x:
            x[i] = y[i] * 3.0

    @qd.kernel
    def change():
        for i in x:
            x[i] = qd.sin(x[i]) * x[i]

    @qd.kernel
    def total():
        for i in x:
            loss[None] += x[i] * x[i]

    def body() -> None:
        copy()
        if overwrites:
            change()
        total()

    for _ in range(before):
        with qd.ad.Tape(loss=loss):
            body()
    others = []
    with pytest.raises(qd.OctantsRuntimeError, match="OCT521"), qd.ad.Tape(loss=loss):
        body()
        tree.destroy()
        for _ in range(4):
            other = qd.ndarray(qd.f64, 40)
            other.fill(7.0)
            others.append(other)
    assert all((other.to_numpy() == 7.0).all() for other in others)
