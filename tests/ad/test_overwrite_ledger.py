"""The ledger of contents, on memory that is a numpy array."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from octants.ad.overwrites.overwrite_ledger import OverwriteLedger
from octants.analysis.indices.index_ranges import LARGEST_INDEX
from octants.data.tape_array_protocol import StoredArray
from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.launch.gradients.taped_foreign_arrays import ForeignArray
from octants.launch.gradients.taped_memory import TapedMemory
from tests.seeds import seeds


class Watched(ForeignArray):
    """An array whose writes are all seen; counts its snapshots."""

    def __init__(self, elements: np.ndarray[Any, Any]) -> None:
        super().__init__(elements, elements)
        self.snapshots = 0

    def snapshot(self) -> np.ndarray[Any, Any]:
        self.snapshots += 1
        return super().snapshot()


def memory_of(array: StoredArray, *, is_foreign: bool = False) -> TapedMemory:
    return TapedMemory(array, "x", is_foreign=is_foreign)


def test_what_is_never_overwritten_is_never_copied() -> None:
    array = Watched(np.arange(3.0))
    ledger, memory = OverwriteLedger(), memory_of(array)
    contents = [ledger.need(memory) for _ in range(5)]
    ledger.restore(contents)
    ledger.finish()
    assert array.snapshots == 0


def test_a_write_that_nobody_minds_copies_nothing() -> None:
    array = Watched(np.arange(3.0))
    ledger, memory = OverwriteLedger(), memory_of(array)
    ledger.overwrite(memory)
    ledger.overwrite(memory)
    assert array.snapshots == 0


def test_one_copy_for_all_launches_between_two_writes() -> None:
    array = Watched(np.arange(3.0))
    ledger, memory = OverwriteLedger(), memory_of(array)
    first = [ledger.need(memory) for _ in range(4)]
    assert len(set(first)) == 1
    ledger.overwrite(memory)
    assert array.snapshots == 1


def test_contents_come_back_and_the_final_one_stays() -> None:
    x = np.zeros(2)
    ledger, memory = OverwriteLedger(), memory_of(Watched(x))
    contents = []
    for step in range(4):
        contents.append(ledger.need(memory))
        ledger.overwrite(memory)
        x[:] = step + 1
    for step in reversed(range(4)):
        ledger.restore([contents[step]])
        assert (x == step).all()
    ledger.finish()
    assert (x == 4).all()


def test_a_content_that_is_live_is_found_again_after_an_older_one() -> None:
    x = np.zeros(1)
    ledger, memory = OverwriteLedger(), memory_of(Watched(x))
    old = ledger.need(memory)
    ledger.overwrite(memory)
    x[:] = 1
    new = ledger.need(memory)
    for content, value in ((new, 1), (old, 0), (new, 1), (old, 0)):
        ledger.restore([content])
        assert x[0] == value
    ledger.finish()
    assert x[0] == 1


def test_a_view_and_its_base_share_their_contents() -> None:
    base = np.arange(6.0)
    ledger = OverwriteLedger()
    whole, part, apart = (memory_of(Watched(x)) for x in (base, base[2:4], base[4:]))
    needed = ledger.need(whole)
    kept = ledger.need(apart)
    ledger.overwrite(part)
    base[2:4] = -1
    needed_later = ledger.need(part)
    ledger.restore([needed])
    assert (base == np.arange(6)).all()
    ledger.restore([needed_later])
    assert (base[2:4] == -1).all()
    ledger.restore([kept])
    assert (base[4:] == [4, 5]).all()
    ledger.finish()
    assert base.tolist() == [0, 1, -1, -1, 4, 5]


def test_random_histories_of_overlapping_views() -> None:
    generator = random.Random(7)
    for _ in range(300):
        base = np.arange(8.0)
        views = [base[a : a + n] for a, n in ((0, 8), (0, 4), (2, 4), (5, 3), (5, 3))]
        memories = [memory_of(Watched(view)) for view in views]
        ledger = OverwriteLedger()
        history = []
        for step in range(generator.randrange(1, 10)):
            k = generator.randrange(len(views))
            if generator.random() < 0.5:
                history.append((ledger.need(memories[k]), k, views[k].copy()))
            else:
                ledger.overwrite(memories[k])
                views[k][...] = 100 + step
        final = base.copy()
        for content, k, values in reversed(history):
            ledger.restore([content])
            assert (views[k] == values).all()
            if generator.random() < 0.3:  # a reverse run that writes its memory
                ledger.note_change(memories[k])
                views[k][...] = -5
        ledger.finish()
        assert (base == final).all()


def random_region(chance: random.Random) -> Any:
    def interval(extent: int) -> tuple[int, int]:
        low = chance.randrange(extent)
        return low, chance.choice((low, low + 1, LARGEST_INDEX))

    return chance.choice((None, *[tuple((interval(6), interval(4)) for _ in range(2))] * 3))


def at(region: Any) -> list[tuple[slice, slice]]:
    if region is None:
        return [(slice(None), slice(None))]
    return [tuple(slice(low, high + 1) for low, high in box) for box in region]  # type: ignore[misc]


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_random_histories_of_parts(seed: int) -> None:
    """What is needed comes back, whatever parts of it were overwritten."""
    chance = random.Random(seed)
    for _ in range(20):
        x = np.arange(24.0).reshape(6, 4)
        ledger, memory = OverwriteLedger(), memory_of(Watched(x))
        history: list[Any] = []
        for step in range(chance.randrange(1, 16)):
            region = random_region(chance)
            if chance.random() < 0.5:
                values = [x[place].copy() for place in at(region)]
                history.append((ledger.need(memory, region), region, values))
            else:
                ledger.overwrite(memory, region, "k")
                for place in at(region):
                    x[place] = 100 + step
        final = x.copy()
        for content, region, values in reversed(history):
            ledger.restore([content])
            for place, value in zip(at(region), values, strict=True):
                assert (x[place] == value).all()
            if chance.random() < 0.4:  # a reverse run that writes its memory
                again = chance.choice((region, random_region(chance)))
                ledger.note_change(memory, again)
                for place in at(again):
                    x[place] = -5
        ledger.finish()
        assert (x == final).all()


def test_a_row_that_is_overwritten_is_all_that_is_copied() -> None:
    steps, width = 200, 5
    x = np.zeros((steps + 1, width))
    ledger, array = OverwriteLedger(), Watched(x)
    memory = memory_of(array)
    contents = []
    for step in range(steps):
        contents.append((ledger.need(memory, reader="r"), x.copy()))
        ledger.overwrite(memory, (((step + 1, step + 1), (0, LARGEST_INDEX)),), "w")
        x[step + 1] = step + 1
    assert ledger.saved_bytes == steps * width * 8
    assert array.snapshots == 0
    (entry,) = ledger.account.entries()
    assert (entry.writer, entry.reader, entry.copies) == ("w", "r", steps)
    for content, values in reversed(contents):
        ledger.restore([content])
        assert (x == values).all()
    ledger.finish()
    assert array.snapshots == 1
    assert (x[-1] == steps).all()


def test_an_array_of_numpy_that_is_changed_unseen_is_put_back() -> None:
    x = np.zeros(2)
    ledger, memory = OverwriteLedger(), memory_of(ForeignArray(x, x), is_foreign=True)
    contents = []
    for step in range(3):
        contents.append(ledger.need(memory))
        x[:] = step + 1
    for step in reversed(range(3)):
        ledger.restore([contents[step]])
        assert (x == step).all()
    ledger.finish()
    assert (x == 3).all()


def test_an_array_of_numpy_that_is_not_changed_is_copied_once() -> None:
    x = np.zeros(2)
    ledger = OverwriteLedger()
    contents = [ledger.need(memory_of(ForeignArray(x, x), is_foreign=True)) for _ in range(3)]
    assert len(set(contents)) == 1


def test_a_write_through_a_pointer_is_an_error() -> None:
    array = Watched(np.zeros(2))
    ledger, memory = OverwriteLedger(), memory_of(array)
    content = ledger.need(memory)
    array.mark_written()
    with pytest.raises(OctantsRuntimeError, match="OCT320"):
        ledger.restore([content])
    with pytest.raises(OctantsRuntimeError, match="OCT320"):
        ledger.overwrite(memory)


def fits(ledger: OverwriteLedger, *phases: Any) -> bool:
    try:
        ledger.check_budget("kernel `k`", phases)
    except OctantsRuntimeError:
        return False
    return True


@pytest.mark.parametrize("seed", range(20))
def test_whether_copies_fit_is_not_guessed(seed: int) -> None:
    """The quick answer, which counts whole arrays, is yes only where the long one is."""
    chance = random.Random(seed)
    memories = [memory_of(ForeignArray(a, a)) for a in (np.zeros(8), np.zeros((4, 2)))]
    ledger, answers = OverwriteLedger(budget=chance.choice((64, 200, 500))), set()

    def place() -> tuple[TapedMemory, Any]:
        row = chance.randrange(4)
        return chance.choice(memories), chance.choice((None, ((((row, row + 1)),),)))

    for _ in range(60):
        needs, writes = [place() for _ in range(2)], [place() for _ in range(2)]
        phases = [(needs, writes)]
        due = ledger._forecast(phases).due
        wanted = ledger.saved_bytes + sum(m.nbytes(r) for m, r in due) <= ledger._budget
        assert fits(ledger, *phases) == (wanted or not due)
        answers.add(ledger._fits_surely(phases))
        live = [content for each in ledger._live.values() for content in each]
        assert ledger._live_bytes == sum(content.memory.nbytes() for content in live)
        if wanted:
            for each in needs:
                ledger.need(*each)
            for each in writes:
                ledger.overwrite(*each)
    assert answers == {False, True} or ledger._budget == 64


def test_what_covers_an_array_is_all_of_it() -> None:
    array = np.zeros((4, 2))
    memory = memory_of(ForeignArray(array, array))
    assert memory.covers(None) and memory.covers((((0, 3), (0, 1)),))
    assert memory.covers((((1, 2), (0, 0)), ((-1, 9), (0, 1))))
    assert not memory.covers(()) and not memory.covers((((0, 3), (1, 1)), ((0, 3), (0, 0))))


def views_of(base: np.ndarray[Any, Any], rng: random.Random) -> list[np.ndarray[Any, Any]]:
    """Overlapping views of an array, of any lengths and steps."""
    views = []
    for _ in range(30):
        start, length = rng.randrange(len(base)), rng.choice([1, 3, 20, 150])
        views.append(base[start : start + length : rng.choice([1, 1, 2, 3])])
    return views


@pytest.mark.parametrize("seed", seeds(10, 100))
def test_a_write_ends_the_contents_of_all_arrays_that_share_its_memory(seed: int) -> None:
    rng = random.Random(seed)
    views = views_of(np.arange(300.0), rng)
    written = views.pop()
    ledger, contents = OverwriteLedger(), {}
    for view in views:
        memory = memory_of(Watched(view))
        contents[memory.key] = ledger.need(memory), np.shares_memory(view, written)
    ledger.overwrite(memory_of(Watched(written)))
    for content, is_shared in contents.values():
        assert content.live is not is_shared


def test_an_array_is_compared_with_those_at_its_addresses_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []
    overlaps = TapedMemory.overlaps
    monkeypatch.setattr(
        TapedMemory, "overlaps", lambda *pair: compared.append(pair) or overlaps(*pair)
    )
    ledger, base = OverwriteLedger(), np.zeros(100)
    for start in range(0, 100, 2):
        ledger.need(memory_of(Watched(base[start : start + 2])))
    assert len(compared) <= 100
