"""The profiler: times of kernels, traces, and what memory is used for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import octants as qd
from octants import timeline
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.devices import on_cpu
from tests.golden_files import check_golden


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    yield
    qd.init(arch=qd.cpu, log_level="error")
    qd.reset()


def run_program(steps: int = 3) -> Any:
    x = qd.field(qd.f32, shape=8, needs_grad=True)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def total(count: qd.i32):
        for i in x:
            value = x[i]
            for _ in range(count):
                value = qd.sin(value)
            loss[None] += value

    with qd.ad.Tape(loss=loss):
        total(3)
    for _ in range(steps - 1):
        total(3)
    return x


def start(**options: Any) -> None:
    qd.init(log_level="error", kernel_profiler=True, offline_cache=False, **options)


def test_times_of_kernels_and_their_gradients(capsys: pytest.CaptureFixture[str]) -> None:
    start(arch=qd.cpu)
    run_program()
    forward = qd.profiler.query_kernel_profiler_info("total")
    assert forward.counter == 3
    assert 0 < forward.min <= forward.avg <= forward.max
    backward = qd.profiler.query_kernel_profiler_info("total_reverse")
    assert backward.counter == 1
    whole = forward.avg * 3 + backward.avg
    assert qd.profiler.get_kernel_profiler_total_time() == pytest.approx(whole / 1e3)
    qd.profiler.print_kernel_profiler_info()
    table = capsys.readouterr().out
    assert "compile total" in table
    assert "4 launches" in table
    qd.profiler.print_kernel_profiler_info("trace")
    assert capsys.readouterr().out.count("kernel total") == 4
    qd.profiler.clear_kernel_profiler_info()
    assert qd.profiler.query_kernel_profiler_info("total") == (0, 0, 0, 0)
    assert qd.profiler.get_kernel_profiler_total_time() == 0
    with pytest.raises(ValueError, match="count"):
        qd.profiler.print_kernel_profiler_info("all")


def test_events_time_launches_on_a_gpu(tmp_path: Path) -> None:
    with emulated_gpu(total=1 << 28):
        start(arch=qd.cuda)
        x = run_program()
        assert x.grad.to_numpy().shape == (8,)
        assert qd.profiler.query_kernel_profiler_info("total") == (3, 0.25, 0.25, 0.25)
        qd.profiler.save_trace(tmp_path / "trace.json")
        qd.reset()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kinds = {event["cat"] for event in events}
    assert kinds == {"kernel", "compile", "transfer"}
    copies = [event for event in events if event["name"] == "device to host"]
    assert 8 * 4 in [event["args"]["bytes"] for event in copies]


def test_nothing_is_recorded_without_it() -> None:
    start(arch=qd.cpu)
    qd.init(arch=qd.cpu, log_level="error")
    assert timeline.active() is None
    run_program()
    with pytest.warns(qd.OctantsWarning, match="OCT405") as caught:
        qd.profiler.print_kernel_profiler_info()
    check_golden("errors/OCT405_profiler_off", str(caught[0].message))
    with pytest.warns(qd.OctantsWarning, match="OCT405"):
        assert qd.profiler.get_kernel_profiler_total_time() == 0


def test_absent_metrics_name_what_has_them() -> None:
    with pytest.raises(AttributeError, match="Nsight Compute"):
        _ = qd.profiler.CuptiMetric


def test_a_report_of_memory(capsys: pytest.CaptureFixture[str]) -> None:
    qd.init(arch=qd.cpu, log_level="error")
    run_program()
    y = qd.ndarray(qd.f64, (4, 4), needs_grad=True)
    uses = {use.kind: use for use in qd.profiler.memory_report()}
    assert uses["ndarrays"] == ("ndarrays", 1, 128)
    assert uses["ndarrays, gradients"].nbytes == y.grad.nbytes == 128
    assert uses["fields, gradients"].nbytes == 9 * 4
    qd.profiler.print_memory_profiler_info()
    assert "total" in capsys.readouterr().out


def replayed(device_kernels: int) -> tuple[int, int]:
    """Capture a tape, replay it three times; the launches of the kernel and of its reverse."""
    x = qd.field(qd.f32, shape=8, needs_grad=True)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def square():
        for i in x:
            loss[None] += x[i] * x[i]

    x.fill(2.0)
    with qd.graph.capture() as step, qd.ad.Tape(loss=loss):
        square()
    assert not step.is_one_launch
    qd.profiler.clear_kernel_profiler_info()
    for _ in range(device_kernels):
        step()
    assert x.grad.to_numpy().tolist() == [4.0] * 8
    assert loss[None] == 32
    times = qd.profiler.query_kernel_profiler_info
    return times("square").counter, times("square_reverse").counter


def test_launches_within_replays_are_recorded() -> None:
    start(arch=qd.cpu)
    assert replayed(3) == (3, 3)


def test_launches_within_replays_are_recorded_on_a_gpu() -> None:
    with emulated_gpu(total=1 << 28):
        start(arch=qd.cuda)
        assert replayed(3) == (3, 3)
        qd.reset()


def report() -> dict[str, int]:
    return {use.kind: use.nbytes for use in qd.profiler.memory_report()}


def test_the_report_counts_what_pools_keep() -> None:
    """What is dropped is in the pool."""
    with emulated_gpu(total=1 << 28):
        qd.init(arch=qd.cuda, log_level="error")
        array: Any = qd.ndarray(qd.f32, 1 << 18)
        array.fill(1.0)
        assert array.to_numpy().sum() == 1 << 18
        before = report()
        assert before["ndarrays"] == 1 << 20
        assert before["staging buffers"] > 0
        assert 0 <= before["other allocations"] < 1 << 24
        del array
        after = report()
        assert "ndarrays" not in after
        assert after["free in the pool"] >= before["free in the pool"] + (1 << 20)
        qd.reset()


@on_cpu
def test_a_cpu_has_no_pool() -> None:
    qd.init(arch=qd.cpu, log_level="error")
    assert not {"free in the pool", "other allocations"} & set(report())
