"""Results of inner loops that are recorded, where the backward sweep would run the loops again."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.backends.cuda import CudaBackend
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.seeds import each_once

H, ITEMS, STEPS = 12, 5, 4


def recurrence(w: Any, x: Any, y: Any, n: Any) -> Any:
    @qd.kernel
    def kernel():
        for m in y:
            h = qd.Vector.zero(qd.f64, H)
            for j in range(H):
                h[j] = x[m, j]
            for _ in range(STEPS + n[m]):
                o = qd.Vector.zero(qd.f64, H)
                for i in range(H):
                    s = 0.0
                    for j in range(H):
                        s += w[i, j] * h[j]
                    o[i] = qd.tanh(s)
                h = o
            y[m] = h.dot(h)

    return kernel


def gates(w: Any, x: Any, y: Any, n: Any) -> Any:
    """Several sums, a vector that is changed in place, and a branch around a loop."""

    @qd.kernel
    def kernel():
        for m in y:
            h = qd.Vector.zero(qd.f64, H)
            for j in range(H):
                h[j] = x[m, j]
            c = h
            for t in range(STEPS):
                for i in range(H):
                    keep, new = 0.5, 0.0
                    if (i + t) % 3 != n[m]:
                        for j in range(H):
                            keep += w[i, j] * h[j]
                            new += w[j, i] * h[j]
                    c[i] = c[i] / (1.0 + qd.exp(-keep)) + qd.sin(new) * c[(i + 1) % H]
                h = c
            y[m] = h.dot(h)

    return kernel


def layers(w: Any, x: Any, y: Any, n: Any) -> Any:
    """The first layer is not in a loop over steps; its trip counts are in an array."""

    @qd.kernel
    def kernel():
        for m in y:
            h = qd.Vector.zero(qd.f64, H)
            for i in range(H - n[m]):
                s = 0.0
                for j in range(H - n[i % ITEMS]):
                    s += w[i, j] * x[m, j]
                h[i] = qd.exp(-s)
            total = 0.0
            for i in range(H):
                s = 0.0
                for j in range(H):
                    s += w[j, i] * h[j]
                total += qd.sin(s)
            y[m] = total

    return kernel


def scalars(w: Any, x: Any, y: Any, n: Any) -> Any:
    """Loops without vectors, one of which ends by a condition."""

    @qd.kernel
    def kernel():
        for m in y:
            v = x[m, 0]
            for t in range(STEPS):
                s, k = 0.0, 0
                while k < 9 + n[m] and s < 2.5:
                    s += w[t, k] ** 2 * (1.5 + v)
                    k += 1
                v = qd.sin(s) * v
            y[m] = v

    return kernel


def rows(w: Any, x: Any, y: Any, n: Any) -> Any:
    """The rows of a step change one vector, of which the sweep needs only some sums."""

    @qd.kernel
    def kernel():
        for m in y:
            h = qd.Vector.zero(qd.f64, H)
            for j in range(H):
                h[j] = x[m, j]
            c = h
            for t in range(STEPS):
                o = qd.Vector.zero(qd.f64, H)
                for i in range(H):
                    keep, new, give = 0.5, 0.0, 1.0
                    for j in range(H - n[i % ITEMS]):
                        keep += w[i, j] * h[j]
                        new += w[j, i] * c[j]
                        give += w[j, t] * h[(i + j) % H]
                    c[i] = c[i] / (1.0 + qd.exp(-keep)) + qd.tanh(new)
                    o[i] = qd.sin(c[i]) * qd.sin(give)
                h = o
            y[m] = h.dot(c)

    return kernel


def sums_of_sums(w: Any, x: Any, y: Any, n: Any) -> Any:
    """The results of a loop and of the loop around it are both worth recording."""

    @qd.kernel
    def kernel():
        for m in y:
            v = x[m, n[m]]
            for t in range(STEPS):
                total = v
                for i in range(H):
                    s = 0.0
                    for j in range(i):
                        s += w[i, j] * qd.sin(v + x[m, j])
                    total += 0.3 * qd.sin(s) * s + w[t, i]
                v = 0.5 * v + qd.sin(total)
            y[m] = v

    return kernel


def steps_in_rounds(w: Any, x: Any, y: Any, n: Any) -> Any:
    """A nest of four loops in rounds and a branch; a step needs what its rows result in again."""

    @qd.kernel
    def kernel():
        for m in y:
            h = qd.Vector.zero(qd.f64, H)
            for j in range(H):
                h[j] = x[m, j]
            total = 0.0
            for r in range(1 + n[m]):
                if r != 1:
                    for t in range(3):
                        o = qd.Vector.zero(qd.f64, H)
                        for i in range(2, H):
                            s = 0.1
                            for j in range(H):
                                s += w[i, j] * h[j] * h[(i + t) % H]
                            o[i] = qd.sin(s)
                        for i in range(H):
                            h[i] = 0.3 * h[i] + o[i] * o[(i + 1) % H]
                total += h.dot(h)
            y[m] = total

    return kernel


PROGRAMS = [recurrence, gates, layers, scalars, rows, sums_of_sums, steps_in_rounds]


def made(program: Any, **options: Any) -> tuple[Any, ...]:
    qd.init(**{"arch": qd.cpu, **options}, default_fp=qd.f64, log_level="error")
    w = qd.field(qd.f64, (H, H), needs_grad=True)
    x = qd.field(qd.f64, (ITEMS, H), needs_grad=True)
    y = qd.field(qd.f64, ITEMS, needs_grad=True)
    n = qd.field(qd.i32, ITEMS)
    random = np.random.default_rng(5)
    w.from_numpy(random.uniform(-0.6, 0.6, (H, H)))
    x.from_numpy(random.uniform(-1, 1, (ITEMS, H)))
    n.from_numpy(np.arange(ITEMS, dtype=np.int32) % 3)
    return program(w, x, y, n), w, x, y


def gradients(program: Any, **options: Any) -> list[np.ndarray]:
    kernel, w, x, y = made(program, **options)
    kernel()
    y.grad.fill(1.0)
    kernel.grad()
    return [w.grad.to_numpy(), x.grad.to_numpy()]


@pytest.mark.parametrize(("program", "simd"), each_once(PROGRAMS, [True, False]))
def test_same_gradients(program: Any, simd: bool) -> None:
    """Whether results are stored, and where only some fit; the budget is for one execution."""
    expected = gradients(program, ad_stack_nests="replay", simd=False)
    for nests, more in (("auto", {}), ("store", {}), ("store", {"ad_stack_budget_bytes": 2000})):
        found = gradients(program, ad_stack_nests=nests, simd=simd, **more)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("program", PROGRAMS)
def test_differences(program: Any) -> None:
    found = gradients(program)
    kernel, w, x, y = made(program)
    for field, gradient in zip((w, x), found, strict=True):
        start = field.to_numpy()
        for place in ((0, 0), (3, 5), (2, 7)):
            ends = []
            for step in (1e-6, -1e-6):
                moved = start.copy()
                moved[place] += step
                field.from_numpy(moved)
                kernel()
                ends.append(y.to_numpy().sum())
            field.from_numpy(start)
            slope = (ends[0] - ends[1]) / 2e-6
            assert gradient[place] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_the_reverse_repeats_no_sum_that_is_stored() -> None:
    """What is recorded is the hyperbolic tangent, not the sum."""
    kernel, *_ = made(recurrence, ad_stack_nests="store")
    text = kernel.inspect(mode="reverse").stages["reverse"]
    (pop,) = re.findall(r"^ *(%\w+): f64 = record_pop", text, re.MULTILINE)
    merged = re.search(rf"(%\w+): f64 = if\(%\w+\) {{\n *yield\({pop}\)", text)
    assert merged is not None
    assert f"unary<tanh>({merged[1]})" not in text
    assert f"binary<mul>({merged[1]}, {merged[1]})" in text


@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_recorded_near_the_work_item(program: Any) -> None:
    """On a GPU, a loop of few iterations records them beside what it carries.

    If the loop around it is recorded, too, all its executions are: none runs again.
    """
    expected = gradients(program, ad_stack_nests="replay", simd=False)
    with emulated_gpu():
        found = gradients(program, arch=qd.cuda)
        text = made(program, arch=qd.cuda)[0].inspect(mode="reverse").stages["reverse"]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
    if program is rows:
        slots = [line.count("f64") for line in text.splitlines() if "record_pop" in line]
        assert slots == [H, H + 3]
        # Sums are computed where steps are recorded; derivatives by the vectors read it again.
        assert text.count("load<@w, primal>") == 6


def test_loops_of_few_operations_run_again() -> None:
    def few(w: Any, x: Any, y: Any, n: Any) -> Any:  # noqa: ARG001
        @qd.kernel
        def kernel():
            for m in y:
                v = x[m, 0]
                for t in range(STEPS):
                    s = 0.0
                    for j in range(3):
                        s += w[t, j] * v
                    v = qd.sin(s)
                y[m] = v

        return kernel

    kernel, *_ = made(few, ad_stack_nests="store")
    text = kernel.inspect(mode="reverse").stages["reverse"]
    assert "record_capacity" not in text


@pytest.mark.parametrize(("length", "repeats"), [(65, False), (100, True)])
def test_long_loops_are_recorded_with_the_loop_around_them(
    length: int, repeats: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the machine has less memory near a thread, those of 100 iterations run twice."""

    def states(w: Any, x: Any, y: Any, n: Any) -> Any:  # noqa: ARG001
        @qd.kernel
        def kernel():
            for m in y:
                h = qd.Vector.zero(qd.f32, length)
                c = qd.Vector.zero(qd.f32, length)
                for j in range(H):
                    h[j] = x[m, j]
                for _ in range(STEPS):
                    o = qd.Vector.zero(qd.f32, length)
                    for i in range(length):
                        keep, new = 0.5, 0.0
                        for j in range(length):
                            keep += w[i % H, j % H] * h[j]
                            new += w[j % H, i % H] * h[j]
                        c[i] = c[i] / (1.0 + qd.exp(-keep)) + qd.sin(new)
                        o[i] = c[i] * qd.tanh(keep)
                    h = o
                y[m] = h.dot(h)

        return kernel

    def runs(nested: int) -> int:
        """How many loads of rows there are."""
        monkeypatch.setattr(CudaBackend, "nested_records", nested)
        with emulated_gpu():
            kernel = made(states, arch=qd.cuda, offline_cache=False)[0]
            text = kernel.inspect(mode="reverse").stages["reverse"]
        return text.count("load<@w, primal>")

    assert runs(4) == 4
    assert runs(1) == (8 if repeats else 4)
