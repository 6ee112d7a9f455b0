"""Tapes that grow, work items that are refused, memory that is refused, on a fake GPU."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from octants import abi
from octants.artifact import Artifact, Dispatch, RecordBufferSizeInputs
from octants.diagnostics.exceptions import InternalError, OctantsMemoryError
from octants.diagnostics.span import Span
from octants.runtime.cuda.device import CudaDevice
from octants.runtime.gpu import record_buffer_growth
from tests.runtime.cuda.fake_cuda import Call, FakeCuda
from tests.runtime.cuda.kernels import artifact, launch
from tests.seeds import seeds

Need = Callable[[int, int], int]


class Reversed:
    """A kernel that records: ``need`` gives the bytes of a work item at a share.

    Each thread fills its record buffer and finds it again at its end; `done` counts the items.
    """

    def __init__(self, need: Need) -> None:
        self.need = need
        self.done: Counter[int] = Counter()
        self.rounds: list[Call] = []
        self.bounds: tuple[int, int] | None = None

    def tell(self, call: Call) -> None:
        call.words(call.launch[abi.LAUNCH_BOUNDS // 8], 2)[:] = call.slots[3:5]

    def run(self, call: Call) -> None:
        self.rounds.append(call)
        words = [call.launch[k] for k in range(8)]
        lower, upper, bounds, buffers, capacity, share, refused, again = words
        if self.bounds is not None:
            lower, upper = (int(word) for word in call.words(bounds, 2))
        assert capacity % abi.RECORD_BUFFER_WORD == share % abi.RECORD_BUFFER_WORD == 0 < share
        # All record buffers are there, in whole groups of 32.
        call.words(buffers, -(-call.threads // 32) * 32 * capacity, "u1")
        head = call.words(refused, 2)
        bits = call.words(refused + abi.REFUSED_ITEMS, -(-(upper - lower) // 32), "u4")
        assert not head.any()
        assert again or not bits.any()
        assert again in (0, 1)
        for item in range(lower, upper):
            word, bit = divmod(item - lower, 32)
            if again:
                if not int(bits[word]) >> bit & 1:
                    continue
                bits[word] &= ~(1 << bit) & 0xFFFFFFFF
            need = self.need(item, share)
            if need > capacity:
                head[0] = max(int(head[0]), need)
                head[1] += 1
                bits[word] |= 1 << bit
            else:
                self.done[item] += 1


@pytest.fixture
def reverse(fake: FakeCuda) -> Callable[[Need], Reversed]:
    def make(need: Need) -> Reversed:
        made = Reversed(need)
        fake.kernels.update(run=made.run, tell=made.tell)
        return made

    return make


LOOP = (Span("program.py", 5, 8, 5, 26, "step"), "its record takes 4 bytes an iteration")


def make_artifact(
    bounds: str = "(slots[3], slots[4])",
    block: int = 0,
    name: str = "r",
    *,
    iterations: bool = False,
) -> Artifact:
    dispatches = [Dispatch("run", 0, bounds, block, records=True, records_iterations=iterations)]
    if bounds == "device":
        dispatches.insert(0, Dispatch("tell", 0))
    return artifact(name, dispatches, 2, records=(LOOP,))


def make_device(fake: FakeCuda, budget: int = 1 << 20, limit: int = 0) -> CudaDevice:
    return CudaDevice(record_budget=budget, record_buffer_limit=limit, library=fake.library())


def check_done(reverse: Reversed, lower: int, upper: int) -> None:
    assert reverse.done == Counter(range(lower, upper))
    reverse.done.clear()


def test_what_fits_is_run_once(fake: FakeCuda, reverse: Any) -> None:
    device, made = make_device(fake), reverse(lambda item, share: 64)
    kernel = device.load(make_artifact())
    for _ in range(3):
        launch(kernel, 7, 1007)
        check_done(made, 7, 1007)
    assert len(made.rounds) == 3


def test_few_work_items_are_spread_over_the_gpu(fake: FakeCuda, reverse: Any) -> None:
    device, made = make_device(fake), reverse(lambda item, share: 64)
    kernel, fixed = device.load(make_artifact()), device.load(make_artifact(block=128, name="q"))
    for each, upper in ((kernel, 100), (kernel, 1 << 16), (fixed, 100)):
        launch(each, 0, upper)
        check_done(made, 0, upper)
    assert [call.block for call in made.rounds] == [32, 128, 128]
    assert made.rounds[0].grid == 4


def test_what_is_refused_is_run_again(fake: FakeCuda, reverse: Any) -> None:
    device = make_device(fake)
    made = reverse(lambda item, share: 3001 if item % 3 == 0 else 16)
    kernel = device.load(make_artifact())
    launch(kernel, 5, 205)
    check_done(made, 5, 205)
    assert [call.launch[abi.LAUNCH_CAPACITY // 8] for call in made.rounds] == [512, 3004]
    assert made.rounds[0].launch[abi.LAUNCH_LOWER // 8] == 5
    made.rounds.clear()
    launch(kernel, 5, 205)  # it knows by now
    check_done(made, 5, 205)
    assert len(made.rounds) == 1


def test_a_need_that_grows_bit_by_bit_is_met_by_doubling(fake: FakeCuda, reverse: Any) -> None:
    device = make_device(fake, 1 << 24)
    made = reverse(lambda item, share: 0)
    kernel = device.load(make_artifact())

    def need(item: int, share: int) -> int:  # as a `while` loop asks: for one iteration more
        held = made.rounds[-1].launch[abi.LAUNCH_CAPACITY // 8]
        return held + 24 if held < 50_000 else 50_000

    made.need = need
    launch(kernel, 0, 200)
    check_done(made, 0, 200)
    assert len(made.rounds) <= 10
    held = [call.launch[abi.LAUNCH_CAPACITY // 8] for call in made.rounds]
    assert 50_000 <= held[-1] <= 100_000
    launch(kernel, 0, 200)
    assert len(made.rounds) == len(held) + 1


def test_bounds_of_the_device(fake: FakeCuda, reverse: Any) -> None:
    device = make_device(fake)
    made = reverse(lambda item, share: 2000 + 8 * (item % 5))
    made.bounds = (0, 0)
    kernel = device.load(make_artifact("device"))
    for bounds in ((-3, 100), (5, 5), (5, 4), (0, 1)):
        launch(kernel, *bounds)
        check_done(made, *bounds)


def test_one_thread(fake: FakeCuda, reverse: Any) -> None:
    device, made = make_device(fake), reverse(lambda item, share: 5000)
    launch(device.load(make_artifact("")), 0, 0)
    check_done(made, 0, 1)
    assert {call.threads for call in made.rounds} == {1}
    assert device.record_buffer_bytes >= 32 * 5000


@pytest.mark.parametrize("bounds", ["(slots[3], slots[4])", "device"])
def test_many_items_are_run_in_slices(
    fake: FakeCuda, reverse: Any, bounds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_buffer_growth, "MOST_ITEMS", 64)
    device, made = make_device(fake), reverse(lambda item, share: 600 if item > 100 else 100)
    made.bounds = (0, 0) if bounds == "device" else None
    launch(device.load(make_artifact(bounds)), 3, 203)
    check_done(made, 3, 203)
    assert len(made.rounds) == 4 + 1  # the second slice finds out


def test_the_budget_limits_the_threads(fake: FakeCuda, reverse: Any) -> None:
    budget = 1 << 20
    device, made = make_device(fake, budget), reverse(lambda item, share: 4096)
    kernel = device.load(make_artifact(block=32))
    for _ in range(2):
        launch(kernel, 0, 5000)
        check_done(made, 0, 5000)
    first, second, third = made.rounds
    assert first.threads == 4 * 512
    assert first.launch[abi.LAUNCH_SHARE // 8] == budget // first.threads
    assert second.threads * 4096 == third.threads * 4096 == budget


@pytest.mark.parametrize(
    ("iterations", "need", "threads"),
    [(True, 512, 4 * 11 * 32), (False, 512, 4 * 512), (True, 1024, 4 * 512)],
)
def test_records_of_iterations_stay_in_the_cache(
    fake: FakeCuda, reverse: Any, iterations: bool, need: int, threads: int
) -> None:
    """Fewer threads run at once if those of 256 on a multiprocessor fit 0.7 of it."""
    fake.cache = 1 << 20
    device, made = make_device(fake, 1 << 23), reverse(lambda item, share: need)
    kernel = device.load(make_artifact(block=32, iterations=iterations))
    for _ in range(3):
        launch(kernel, 0, 5000)
        check_done(made, 0, 5000)
    assert made.rounds[-1].threads == threads


def test_the_heap_doubles(fake: FakeCuda, reverse: Any) -> None:
    device, made = make_device(fake), reverse(lambda item, share: 0)
    kernel = device.load(make_artifact())
    asked = []
    for size in range(600, 2000, 20):
        made.need = lambda item, share: size
        launch(kernel, 0, 32)
        check_done(made, 0, 32)
        asked.append(device.record_buffer_bytes)
    assert len(set(asked)) <= 3
    assert asked[-1] >= 32 * 1980


def test_exactly_what_is_needed_where_double_is_refused(fake: FakeCuda, reverse: Any) -> None:
    fake.total = 1 << 22
    device, made = make_device(fake), reverse(lambda item, share: 0)
    array = device.allocate(5 << 18)
    kernel = device.load(make_artifact())
    for size in (1 << 16, 5 << 14):
        made.need = lambda item, share: size
        launch(kernel, 0, 32)
        check_done(made, 0, 32)
        assert device.record_buffer_bytes == 32 * size
    assert array.nbytes == 5 << 18


@pytest.mark.parametrize("refuses", ["device", "limit"])
def test_fewer_threads_where_memory_is_refused(fake: FakeCuda, reverse: Any, refuses: str) -> None:
    made = reverse(lambda item, share: 1 << 14)
    most = 1 << 21
    if refuses == "device":
        fake.total = most
    device = make_device(fake, 1 << 24, most if refuses == "limit" else 0)
    launch(device.load(make_artifact(block=64)), 0, 4096)
    check_done(made, 0, 4096)
    assert made.rounds[0].threads == 4 * 512
    assert 64 <= made.rounds[-1].threads <= 128


def test_a_smaller_share_where_one_block_is_too_much(fake: FakeCuda, reverse: Any) -> None:
    fake.total = 1 << 20
    made = reverse(lambda item, share: max(2000, 100 * share))
    device = make_device(fake, budget=1 << 22)
    launch(device.load(make_artifact()), 0, 128)
    check_done(made, 0, 128)
    shares = [call.launch[abi.LAUNCH_SHARE // 8] for call in made.rounds]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == (1 << 22) // 128 > shares[-1]
    assert made.rounds[-1].threads == 64


def test_refused_for_good(fake: FakeCuda, reverse: Any) -> None:
    fake.total = 1 << 20
    made = reverse(lambda item, share: 1 << 20 if item == 107 else 8)
    device = make_device(fake)
    kernel = device.load(make_artifact(name="step"))
    with pytest.raises(OctantsMemoryError) as caught:
        launch(kernel, 3, 203)
    text = str(caught.value)
    assert "kernel `step`" in text and "1048576 bytes" in text and "work item 107" in text
    assert "program.py:5" in text and "4 bytes an iteration" in text
    assert made.done == Counter(set(range(3, 203)) - {107})
    made.done.clear()
    made.need = lambda item, share: 8  # everything goes on as before
    launch(kernel, 3, 203)
    check_done(made, 3, 203)


def test_tapes_of_other_streams_are_given_up(fake: FakeCuda, reverse: Any) -> None:
    fake.total = 3 << 20
    made = reverse(lambda item, share: 1 << 16)
    device = make_device(fake)
    kernel = device.load(make_artifact())
    streams = [device.create_stream() for _ in range(3)]
    for stream in streams:
        with device.using(stream):
            launch(kernel, 0, 32)
        check_done(made, 0, 32)
    assert device.record_buffer_bytes == 32 << 16
    # And so they are for arrays.
    memory = device.allocate(2 << 20)
    assert device.record_buffer_bytes == 0
    assert memory.nbytes == 2 << 20


def known_artifact(by_item: bool = False, bounds: str = "(slots[3], slots[4])") -> Artifact:
    """One whose need depends on the last of three slots alone."""
    needs = RecordBufferSizeInputs((5,), by_item)
    return artifact("r", [Dispatch("run", 0, bounds, records=True, needs=needs)], 3)


def test_the_host_does_not_synchronise_where_it_knows(fake: FakeCuda, reverse: Any) -> None:
    device, made = make_device(fake), reverse(lambda item, share: 0)
    kernel = device.load(known_artifact())
    for need, reads in ((700, 2), (700, 0), (20, 1), (700, 0), (9000, 2), (20, 0), (9000, 0)):
        made.need = lambda item, share: need
        fake.calls.clear()
        launch(kernel, 0, 100, need)
        assert fake.calls["cuMemcpyDtoHAsync"] == reads
        device.synchronize()
        check_done(made, 0, 100)


def test_it_knows_for_other_bounds_unless_items_differ(fake: FakeCuda, reverse: Any) -> None:
    device, made = make_device(fake), reverse(lambda item, share: 64)
    for by_item, reads in ((False, [1, 0, 0]), (True, [1, 1, 0])):
        kernel = device.load(known_artifact(by_item))
        for bounds, expected in zip([(0, 100), (7, 99), (0, 100)], reads, strict=True):
            fake.calls.clear()
            launch(kernel, *bounds, 0)
            assert fake.calls["cuMemcpyDtoHAsync"] == expected
            device.synchronize()
            check_done(made, *bounds)


def test_what_is_known_has_the_same_share(fake: FakeCuda, reverse: Any) -> None:
    device, made = make_device(fake, 1 << 16), reverse(lambda item, share: share)
    kernel = device.load(known_artifact())
    for items in (32, 2000, 32, 2000):
        launch(kernel, 0, items, 0)
        device.synchronize()
        check_done(made, 0, items)


def test_what_is_known_and_refused_memory(fake: FakeCuda, reverse: Any) -> None:
    fake.total = 1 << 21
    made = reverse(lambda item, share: 1 << 12)
    device = make_device(fake, 1 << 24)
    kernel = device.load(known_artifact())
    launch(kernel, 0, 128, 0)
    check_done(made, 0, 128)
    device.free_record_buffers()
    memory = device.allocate((1 << 21) - (1 << 18) - 4096)  # two blocks of 32 threads are left
    launch(kernel, 0, 128, 0)
    device.synchronize()
    check_done(made, 0, 128)
    assert {call.threads for call in made.rounds[-1:]} == {64}
    del memory


def test_launches_that_are_not_checked_leave_nothing(fake: FakeCuda, reverse: Any) -> None:
    device, made = make_device(fake), reverse(lambda item, share: 0)
    known, other = device.load(known_artifact()), device.load(make_artifact())
    for need in (600, 40, 5000, 40, 600):
        made.need = lambda item, share: need
        launch(known, 0, 300, need)
        device.synchronize()
        check_done(made, 0, 300)
        launch(other, 3, 303)
        check_done(made, 3, 303)


def test_streams_have_tapes_of_their_own(fake: FakeCuda, reverse: Any) -> None:
    made = reverse(lambda item, share: 64)
    device = make_device(fake)
    kernel = device.load(make_artifact())
    streams = [device.streams.default, device.create_stream(), device.create_stream()]
    streams.append(device.streams.foreign(fake.add_foreign_stream()))
    for stream in streams:
        with device.using(stream):
            launch(kernel, 0, 100)
    assert made.done == Counter(dict.fromkeys(range(100), 4))
    assert len({call.launch[abi.LAUNCH_RECORD_BUFFERS // 8] for call in made.rounds}) == 4
    assert len({call.launch[abi.LAUNCH_FAILURES // 8] for call in made.rounds}) == 4


def test_threads_that_launch_in_one_stream_take_turns(fake: FakeCuda, reverse: Any) -> None:
    made = reverse(lambda item, share: random.Random(item).randrange(4, 5000))
    device = make_device(fake)
    kernel = device.load(make_artifact())
    errors: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for n in range(5):
                launch(kernel, 1000 * k, 1000 * k + 50 + n)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    expected = Counter[int]()
    for k in range(4):
        for n in range(5):
            expected.update(range(1000 * k, 1000 * k + 50 + n))
    assert made.done == expected


def test_code_that_refuses_what_it_has_is_found_out(fake: FakeCuda, reverse: Any) -> None:
    made = reverse(lambda item, share: 64)
    device = make_device(fake)
    kernel = device.load(make_artifact())

    def wrong(call: Call) -> None:
        call.words(call.launch[abi.LAUNCH_FAILURES // 8], 2)[:] = 8, 1

    fake.kernels["run"] = wrong
    with pytest.raises(InternalError, match="refused 8"):
        launch(kernel, 0, 10)
    fake.kernels["run"] = made.run
    launch(kernel, 0, 10)
    check_done(made, 0, 10)


def test_what_is_told_of_refused_items_is_cleared_only_when_needed(
    fake: FakeCuda, reverse: Any
) -> None:
    made = reverse(lambda item, share: 64)
    device = make_device(fake)
    kernel = device.load(make_artifact())
    launch(kernel, 0, 1000)
    fake.calls.clear()
    launch(kernel, 0, 1000)
    assert fake.calls["cuMemsetD8Async"] == 0
    assert fake.calls["cuLaunchKernelEx"] == fake.calls["cuMemcpyDtoHAsync"] == 1


@pytest.mark.parametrize("seed", seeds(12, 40))
def test_random_needs(fake: FakeCuda, reverse: Any, seed: int) -> None:
    rng = random.Random(seed)
    fake.total = rng.choice([1 << 20, 1 << 22, 1 << 26])
    least, rest = rng.choice([0, 10, 3000]), rng.choice([0, 100, 5000, 20000])
    factor = rng.choice([0.5, 1, 3])
    noise = [rng.randrange(rest + 1) for _ in range(997)]

    def need(item: int, share: int) -> int:
        return max(least, min(noise[item % 997], int(factor * share)))

    device, made = make_device(fake, rng.choice([1 << 12, 1 << 18, 1 << 22])), reverse(need)
    computed = rng.random() < 0.3
    made.bounds = (0, 0) if computed else None
    bounds = "device" if computed else "(slots[3], slots[4])"
    kernel = device.load(make_artifact(bounds, rng.choice([0, 32, 128])))
    for _ in range(4):
        lower = rng.randrange(-5, 5)
        upper = lower + rng.choice([0, 1, 31, 32, 33, 700, 3000])
        launch(kernel, lower, upper)
        check_done(made, lower, upper)
    device.close()
