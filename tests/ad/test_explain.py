"""What `kernel.grad.explain` says is what the gradient takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.launch.gradients.explain_gradient_report import (
    AdjointUpdate,
    Explanation,
    LoopRecords,
    Storing,
)
from tests.devices import on_cpu

pytestmark = on_cpu


@pytest.fixture(autouse=True)
def start() -> Iterator[None]:
    qd.init(arch=qd.cpu, default_fp=qd.f32)
    yield
    qd.reset()


def field(shape: Any, dtype: Any = qd.f32) -> Any:
    return qd.field(dtype, shape=shape, needs_grad=True)


def flat(explanation: Explanation) -> str:
    """The text in one line, without the margin of what is beside the source."""
    return " ".join(re.sub(r"^ +\| +# +", "", explanation.text(), flags=re.MULTILINE).split())


def recorded(explanation: Explanation) -> list[LoopRecords]:
    return [loop for loop in explanation.loops if loop.slots]


def test_a_loop_by_what_it_records() -> None:
    x, y = field(3), field(())

    @qd.kernel
    def decay(n: qd.i32):
        for i in x:
            v, total = x[i], 0.0
            for _ in range(n):
                v = qd.sin(v)
                total += v
            y[None] += total

    for trips in (0, 5, 40):
        (loop,) = recorded(decay.grad.explain(trips))
        (slot,) = loop.slots
        assert (slot.name, slot.dtype) in {("v", "f32"), ("cos(v)", "f32")}  # as the machine has it
        assert loop.bytes_per_iteration == 4
        assert loop.trips == 3 * trips
        assert loop.capacity == trips
        assert loop.runs == 2
        assert loop.source == "for _ in range(n):"
        assert any(fn == ("cos" if slot.name == "v" else "mul") for fn, _ in slot.uses)


def test_an_accumulation_records_nothing() -> None:
    x, y = field(4), field(())

    @qd.kernel
    def total():
        for _ in x:
            s = 0.0
            for k in range(4):
                s += qd.sin(x[k])
            y[None] += s

    (loop,) = total.grad.explain().loops
    assert loop.nbytes == 0 and not loop.slots
    assert "nothing" in loop.policy


@pytest.mark.parametrize("nests", ["replay", "store", "auto"])
def test_a_ragged_nest_takes_the_sum_over_its_depth(nests: str) -> None:
    qd.init(arch=qd.cpu, ad_stack_nests=nests)
    x, y, m = field(()), field(()), qd.field(qd.i32, shape=6)
    m.from_numpy(np.array([1, 7, 1, 1, 2, 1], np.int32))

    @qd.kernel
    def nest():
        qd.loop_config(serialize=True)
        for i in range(6):
            v = x[None]
            for _ in range(m[i]):
                v = qd.sin(v)
                for _ in range(2):
                    v = qd.cos(v)
            y[None] += v

    outer, inner = recorded(nest.grad.explain())
    assert (outer.trips, inner.trips) == (13, 26)
    assert (outer.depth, inner.depth) == (0, 1)
    assert (outer.policy, outer.storing) == ("each iteration", Storing.ALONE)
    if nests == "replay":
        assert (outer.capacity, inner.capacity) == (7, 2)
        assert (outer.runs, inner.runs) == (2, 3)
        assert (inner.stored, inner.storing) == (0, Storing.FORBIDDEN)
        assert "the options require it" in flat(nest.grad.explain())
    else:
        assert (outer.capacity, inner.capacity) == (7, 14)
        assert (outer.runs, inner.runs) == (2, 2)
        assert (inner.stored, inner.storing) == (26, Storing.WHOLE)
        assert inner.nbytes == 14 * 4
        assert "stored whole" in flat(nest.grad.explain())
        assert "stored whole" in nest.grad.explain().html()


def test_a_nest_is_stored_as_far_as_it_fits() -> None:
    """The share is a third of 2400 bytes: of the loops, of that around them, of what is stored."""
    options = {"cpu_max_num_threads": 1, "simd": False, "ad_stack_budget_bytes": 2400}
    qd.init(arch=qd.cpu, **options)
    x, y = field(1), field(())

    @qd.kernel
    def nest(n: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(30):
                for _ in range(n):
                    v = qd.sin(v)
            y[None] += v

    whole = [recorded(nest.grad.explain(n))[1] for n in (0, 1, 6)]
    assert [loop.storing for loop in whole] == [Storing.WHOLE] * 3
    assert [loop.capacity for loop in whole] == [0, 30, 180]
    (_, partly) = recorded(nest.grad.explain(20))
    assert (partly.storing, partly.stored) == (Storing.PARTLY, 200)
    assert partly.capacity == 220  # one more execution stands behind those that are stored
    assert partly.runs == 1 + 1 + 400 / 600
    assert partly.policy == Storing.PARTLY.value
    (_, large) = recorded(nest.grad.explain(201))
    assert (large.storing, large.stored) == (Storing.TOO_LARGE, 0)
    assert 3.9 < large.runs <= 4


def test_storing_that_saves_nothing() -> None:
    x, y = field(3), field(())

    @qd.kernel
    def rows():
        for i in x:
            total, scale = 0.0, x[i]
            for k in range(4):
                v = scale * k
                for _ in range(5):
                    v = qd.sin(v)
                total += v
                scale *= 0.9 + 0.1 * scale
            y[None] += total

    inner = recorded(rows.grad.explain())[-1]
    assert inner.storing is Storing.NOTHING_SAVED
    assert (inner.stored, inner.capacity, inner.runs) == (0, 5, 2)


def test_blocks_stay_within_the_budget() -> None:
    qd.init(arch=qd.cpu, ad_stack_budget_bytes=4000, cpu_max_num_threads=1)
    x, y = field(2), field(())

    @qd.kernel
    def long(n: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(n):
                v = qd.sin(v)
            y[None] += v

    (loop,) = recorded(long.grad.explain(100_000))
    assert loop.policy == "in blocks, from checkpoints"
    assert loop.nbytes <= 4000
    assert loop.trips == 200_000
    assert 2 < loop.runs <= 3
    (short,) = recorded(long.grad.explain(10))
    assert (short.capacity, short.checkpoints, short.runs) == (10, 0, 2)


def test_what_is_overwritten_in_a_loop_is_logged() -> None:
    x = field(5)

    @qd.kernel
    def square(limit: qd.f32):
        for i in x:
            for _ in range(3):
                if i < limit:
                    x[i] = x[i] * x[i]

    log, *_ = [loop for loop in square.grad.explain(5.0).loops if loop.is_log]
    assert log.capacity == 3
    assert log.bytes_per_iteration == 8


def test_what_is_read_once_before_it_is_overwritten_is_not_logged() -> None:
    x = field(5)

    @qd.kernel
    def square(limit: qd.f32):
        for i in x:
            x[i] = x[i] * x[i]
            if i < limit:
                x[i] = x[i] * x[i]

    assert not square.grad.explain(3.0).loops


def test_memory_gradients_and_random_numbers_are_as_before() -> None:
    x = field(4)
    x.fill(0.5)
    x.grad.fill(2.0)

    @qd.kernel
    def step(n: qd.i32):
        for i in x:
            for _ in range(n):
                x[i] = qd.sin(x[i]) * qd.random()

    @qd.kernel
    def draw() -> qd.f32:
        return qd.random()

    step.grad.explain(3)
    assert np.all(x.to_numpy() == 0.5)
    assert np.all(x.grad.to_numpy() == 2.0)
    number = draw()
    qd.init(arch=qd.cpu)
    assert draw() == number


def test_several_tasks_run_on_what_each_of_them_sees() -> None:
    x, n, y = field(4), qd.field(qd.i32, shape=()), field(())

    @qd.kernel
    def tasks():
        n[None] = 3
        for i in x:
            v = x[i]
            for _ in range(n[None]):
                v = qd.sin(v)
            y[None] += v
        n[None] = 1000

    (loop,) = recorded(tasks.grad.explain())
    assert (loop.trips, loop.capacity) == (12, 3)
    assert n[None] == 0


def test_updates_of_adjoints() -> None:
    x, y, w, constant = field(99), field(99), field(()), qd.field(qd.f32, shape=99)
    z, table, half = field(99), field(7), field(99, qd.f16)

    @qd.kernel
    def mixed():
        for i in range(98):
            y[i] = x[i] * w[None] * constant[i] + z[i] * z[i + 1]
            y[i] += table[i * i % 7] + half[i] * half[i + 1]

    updates = {
        array.name: {update for update, _ in array.updates} for array in mixed.grad.explain().arrays
    }
    assert updates["y"] == {AdjointUpdate.TAKEN}
    assert updates["x"] == {AdjointUpdate.PLAIN}
    assert updates["w"] == {AdjointUpdate.COLLECTED}
    assert updates["z"] == {AdjointUpdate.ALTERNATING}
    assert updates["table"] == {AdjointUpdate.PRIVATISED}
    assert updates["half"] == {AdjointUpdate.ATOMIC}
    assert updates["constant"] == set()
    text = flat(mixed.grad.explain())
    assert "there is none: the array is a constant" in text
    assert "if they are worth it, 28 bytes" in text


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_complete_in_itself(tmp_path: Path) -> None:
    x = field(4)

    @qd.kernel
    def grow(n: qd.i32):
        for i in x:
            v = x[i]
            while v < 1.0 and n > 0:
                v *= 1.5 + v
            x[i] = v

    x.fill(0.1)
    explanation = grow.grad.explain(1)
    explanation.save(tmp_path / "grow.html")
    text = (tmp_path / "grow.html").read_text(encoding="utf-8")
    page = _Page()
    page.feed(text)
    assert page.open == [] and page.links == []
    assert "while v &lt; 1.0 and n &gt; 0:" in text
    assert str(explanation) == explanation.text()


def test_the_text_has_what_a_loop_records_below_its_line() -> None:
    x = field(4)

    @qd.func
    def shrink(v, n):
        for _ in range(n):
            v = qd.sin(v)
        return v

    @qd.kernel
    def wave(n: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(n):
                v = qd.cos(v) + qd.sin(v) * qd.exp(-v) + qd.tan(0.1 * v) + qd.log(2.0 + v * v)
            x[i] = shrink(v, n)

    text = wave.grad.explain(3).text()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    loop = next(k for k, line in enumerate(lines) if line.endswith("|         for _ in range(n):"))
    assert "# records " in lines[loop + 1]
    assert "4 bytes an iteration" in flat(wave.grad.explain(3))
    own = next(k for k, line in enumerate(lines) if line.startswith("shrink, called in line "))
    assert "12 iterations of all work items" in " ".join(lines[own:])
    assert "x.grad: " in text


def test_functions_with_loops_stand_below_with_their_calls() -> None:
    x = field(4)

    @qd.func
    def shrink(v, n):
        for _ in range(n):
            v = qd.sin(v)
        return v

    @qd.func
    def double(v, n):
        return shrink(v, n) + shrink(0.5 * v, n)

    @qd.func
    def unrelated(v):
        return 2.0 * v

    @qd.kernel
    def wave():
        for i in x:
            x[i] = unrelated(shrink(x[i], 2) + double(x[i], 3))

    explanation = wave.grad.explain()
    text, first = explanation.text(), shrink.__code__.co_firstlineno
    assert f"shrink, called in line {first + 17}; line {first + 8} of double:" in text
    assert f"double, called in line {first + 17}:" in text
    assert "unrelated, called" not in text
    assert [f"inlined copy {k} of 3:" in text for k in (1, 2, 3)] == [True] * 3
    (at,) = [
        line
        for line in text.splitlines()
        if line.endswith("x[i] = unrelated(shrink(x[i], 2) + double(x[i], 3))")
    ]
    below = text.partition(at)[2]
    assert re.match(r"\n +\| +# shrink: below\n +\| +# double: below\n", below)
    assert text.count("def shrink(") == text.count("def double(") == 1
    assert "shrink, called in" in explanation.html()


def test_times_and_that_nothing_changes() -> None:
    x, y = field(64), field(())

    @qd.kernel
    def decay(n: qd.i32):
        for i in x:
            v = x[i]
            for _ in range(n):
                v = qd.sin(v)
            y[None] += v
            x[i] = 0.5 * v

    for array, value in ((x, 1.0), (y, 2.0), (x.grad, 3.0), (y.grad, 4.0)):
        array.fill(value)
    explanation = decay.grad.explain(100)
    assert 0 < explanation.forward_seconds < 10
    assert 0 < explanation.gradient_seconds < 10
    assert "a launch took" in explanation.text()
    assert "a launch took" in explanation.html()
    for array, value in ((x, 1.0), (y, 2.0), (x.grad, 3.0), (y.grad, 4.0)):
        assert (array.to_numpy() == value).all()


def test_kernels_that_print_are_not_timed(capfd: pytest.CaptureFixture[str]) -> None:
    x = field(1)

    @qd.kernel
    def speak():
        for i in x:
            x[i] = 2.0 * x[i]
            print("ran")

    explanation = speak.grad.explain()
    qd.sync()
    assert explanation.gradient_seconds == 0
    assert "a launch took" not in explanation.text()
    assert capfd.readouterr().out.count("ran") == 1


def test_operations_have_the_names_of_the_language() -> None:
    x = field(4)

    @qd.kernel
    def grow():
        for i in x:
            v = x[i]
            for _ in range(5):
                v = v * v + 0.5 * v
            x[i] = v

    text = grow.grad.explain().text()
    assert re.search(r"records v: f32 for (\*|\* and \+) in line", text), text
    assert "fma" not in text


def test_what_has_no_gradient_is_an_error() -> None:
    x = field(4)

    @qd.kernel
    def reads_gradients():
        for i in x:
            x[i] = x.grad[i]

    with pytest.raises(qd.OctantsCompilationError, match="OCT302"):
        reads_gradients.grad.explain()


def part_bytes_taken() -> int:
    """What arrays of workers' own have come to take in a launch, without their flags."""
    device: Any = driver.state.device
    found = [
        fields.part_capacity - (fields.part_count + 127) // 64 * 64
        for fields in (context.fields for context in device._all_contexts)
        if fields.part_capacity
    ]
    return max(found, default=0)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_total_counts_arrays_of_workers_own(threads: int, deterministic: bool) -> None:
    qd.init(arch=qd.cpu, cpu_max_num_threads=threads, deterministic=deterministic)
    table, weights, y = field(70), field((3, 5), qd.f64), field(60_000)

    @qd.kernel
    def look_up():
        for i in y:
            y[i] = table[i * i % 70] * weights[i % 3, i * i % 5]

    explanation = look_up.grad.explain()
    assert explanation.privatised_bytes == part_bytes_taken()
    part = -(-70 * 4 // 64) * 64 + -(-15 * 8 // 64) * 64
    assert explanation.privatised_bytes == part * (15 if deterministic else threads - 1)
    assert explanation.total_bytes == explanation.nbytes + explanation.privatised_bytes
    shown = f"{explanation.privatised_bytes} bytes in arrays of workers' own"
    assert (shown in flat(explanation)) is (explanation.privatised_bytes > 0)


def test_arrays_that_are_too_large_for_workers_are_not_counted() -> None:
    qd.init(arch=qd.cpu, cpu_max_num_threads=5)
    table, y = field(1 << 25), field(60_000)

    @qd.kernel
    def look_up():
        for i in y:
            y[i] = table[i * i % (1 << 25)]

    explanation = look_up.grad.explain()
    assert explanation.privatised_bytes == 0
    look_up.grad()
    assert part_bytes_taken() == 0
