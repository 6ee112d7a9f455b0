"""What runs at the same time on a GPU, and what waits for what; on a fake that puts work off."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.runtime.cuda.fake_cuda import Call
from tests.runtime.cuda.whole import Gpu, gpu, numbers

__all__ = ["gpu"]


@qd.kernel
def double(a: qd.types.NDArray[qd.f32, 1]):
    for i in a:
        a[i] *= 2.0


@qd.kernel
def total(a: qd.types.NDArray[qd.f32, 1]) -> qd.f32:
    s = 0.0
    for i in a:
        s += a[i]
    return s


@qd.kernel
def store_total(a: qd.types.NDArray[qd.f32, 1], out: qd.types.NDArray[qd.f32, 1]):
    s = 0.0
    for i in a:
        s += a[i]
    out[0] = s


def run_double(call: Call) -> None:
    numbers(call, 4, int(call.slots[3]))[:] *= 2


def run_total(call: Call) -> None:
    """Slots: the sum in launch storage, the extent, the array, the returned value."""
    sums = numbers(call, 3, 1)
    sums += numbers(call, 5, int(call.slots[4])).sum()
    numbers(call, 6, 1)[:] = sums


def run_store_total(call: Call) -> None:
    """Slots: the extents and addresses of both arrays, the sum in launch storage."""
    sums = numbers(call, 7, 1)
    sums += numbers(call, 4, int(call.slots[3])).sum()
    numbers(call, 6, 1)[:] = sums


@pytest.fixture(autouse=True)
def kernels(gpu: Gpu) -> None:
    gpu.fake.kernels.update(
        double=run_double,
        total=run_total,
        store_total=run_store_total,
        octants_total_task_1=lambda call: None,
        octants_store_total_task_1=lambda call: None,
    )
    gpu.init()


def array(*values: float) -> Any:
    made = qd.ndarray(qd.f32, len(values))
    made.from_numpy(np.array(values, np.float32))
    return made


def streams_of_launches(gpu: Gpu) -> list[int]:
    found = [call.stream for call in gpu.fake.launches]
    gpu.fake.launches.clear()
    return found


def test_streams_do_not_wait_for_each_other(gpu: Gpu) -> None:
    a, b = array(1.0), array(2.0)
    one, two = qd.create_stream(), qd.create_stream()
    double(a, qd_stream=one)
    double(b, qd_stream=two)
    two.synchronize()
    assert streams_of_launches(gpu) == [two.handle]
    one.synchronize()
    assert streams_of_launches(gpu) == [one.handle]


def test_launches_with_storage_do_not_wait_for_each_other(gpu: Gpu) -> None:
    """The storage is cleared in the stream of the launch, and no other launch has it."""
    queues = [qd.create_stream() for _ in range(2)]
    given = [(array(1.0, 2.0), array(0.0)), (array(3.0, 4.0), array(0.0))]
    for stream, arrays in zip(queues, given, strict=True):
        store_total(*arrays, qd_stream=stream)  # which allocates
    qd.sync()
    gpu.fake.launches.clear()
    for _ in range(2):
        for stream, arrays in zip(queues, given, strict=True):
            store_total(*arrays, qd_stream=stream)
    for n in (1, 0):
        queues[n].synchronize()
        assert streams_of_launches(gpu) == [queues[n].handle] * 4
    assert [out[0] for _, out in given] == [3, 7]
    store_total(*given[0])
    assert given[0][1][0] == 3


def test_what_is_in_no_stream_waits_for_all(gpu: Gpu) -> None:
    a = array(1.0)
    double(a, qd_stream=qd.create_stream())
    double(a, qd_stream=qd.Stream(gpu.fake.add_foreign_stream()))
    double(a)
    double(a, qd_stream=qd.Stream(gpu.fake.add_foreign_stream()))
    assert a[0] == 16


def test_the_host_reads_after_a_stream_of_others(gpu: Gpu) -> None:
    a, foreign = array(3.0), qd.Stream(gpu.fake.add_foreign_stream())
    for _ in range(3):
        double(a, qd_stream=foreign)
        before = a[0]
        double(a, qd_stream=foreign)
        assert a.to_numpy()[0] == 2 * before
    assert total(a, qd_stream=foreign) == a[0]
    big = qd.ndarray(qd.f32, 1 << 15)  # read in pieces
    big.fill(1.0)
    double(big, qd_stream=foreign)
    assert (big.to_numpy() == 2).all()


def test_streams_of_others_do_not_wait_for_each_other(gpu: Gpu) -> None:
    a, b = array(1.0), array(2.0)
    one, two = (qd.Stream(gpu.fake.add_foreign_stream()) for _ in range(2))
    double(a, qd_stream=one)
    with gpu.device.context.active():
        gpu.device.context.wait_for_stream(0)
    gpu.fake.launches.clear()
    for given, stream in ((a, one), (b, two)):
        with gpu.device.using(stream._queue):
            gpu.device.streams.unordered.clear()  # nothing in no stream meanwhile
            double(given)
    two.synchronize()
    assert streams_of_launches(gpu) == [two.handle]
    one.synchronize()


def test_a_stream_of_others_may_end_after_its_use(gpu: Gpu) -> None:
    a, handle = array(1.0), gpu.fake.add_foreign_stream()
    stream = qd.Stream(handle)
    double(a, qd_stream=stream)
    stream.destroy()
    gpu.fake.end_foreign_stream(handle)
    assert a[0] == 2
    del a, stream
    gc.collect()
    qd.ndarray(qd.f32, 4)
    qd.sync()


def test_memory_dropped_while_a_stream_uses_it(gpu: Gpu) -> None:
    for stream in (qd.create_stream(), qd.Stream(gpu.fake.add_foreign_stream())):
        a = array(1.0, 2.0)
        address = a._opened.address
        double(a, qd_stream=stream)
        del a
        gc.collect()
        qd.ndarray(qd.f32, 2)  # frees what was dropped
        qd.sync()
        with pytest.raises(Exception, match="700"):
            gpu.fake.bytes_at(address, 8)
        gpu.fake.problems.clear()  # of having asked
    assert len(gpu.fake.launches) == 2


def test_each_stream_has_record_buffers_of_its_own(gpu: Gpu) -> None:
    streams = [gpu.device.create_stream() for _ in range(2)]
    buffers = {
        gpu.device.record_buffers_of(stream) for stream in (*streams, gpu.device.streams.default)
    }
    assert len(buffers) == 3


def test_streams_end_with_the_device(gpu: Gpu) -> None:
    kept, dropped = qd.create_stream(), qd.create_stream()
    double(array(1.0), qd_stream=kept)
    double(array(1.0), qd_stream=dropped)
    del dropped
    gpu.init()
    assert gpu.fake.calls["cuStreamDestroy"] == 2
    double(array(1.0))
    kept.destroy()


def test_events(gpu: Gpu) -> None:
    a, b = array(1.0), array(1.0)
    one, two = qd.create_stream(), qd.create_stream()
    event = qd.create_event()
    double(a, qd_stream=one)
    event.record(one)
    double(a, qd_stream=one)
    event.wait(two)
    double(b, qd_stream=two)
    two.synchronize()
    assert streams_of_launches(gpu) == [one.handle, two.handle]
    one.synchronize()
    assert streams_of_launches(gpu) == [one.handle]
    event.record()
    event.synchronize()
    event.destroy()
    with pytest.raises(qd.OctantsRuntimeError, match="OCT439"):
        event.wait()
    one.destroy()
    with pytest.raises(qd.OctantsRuntimeError, match="OCT439"):
        double(a, qd_stream=one)
    double(a)


def test_a_foreign_handle_of_the_default_stream(gpu: Gpu) -> None:
    a = array(1.0)
    for handle in (0, 1):
        double(a, qd_stream=qd.Stream(handle))
    assert a[0] == 4


@pytest.mark.parametrize("has_messages", [False, True])
def test_blocks_of_loops_run_at_the_same_time(gpu: Gpu, has_messages: bool) -> None:
    for number in range(4):
        gpu.fake.kernels[f"octants_blocks_task_{number}"] = lambda call: None
    x = [qd.field(qd.f32, 4) for _ in range(4)]
    for each in x:
        each.fill(1.0)

    @qd.kernel
    def blocks():
        for i in x[0]:
            x[0][i] = 2.0
        with qd.stream_parallel():
            for i in x[1]:
                x[1][i] = x[0][i]
        with qd.stream_parallel():
            for i in x[2]:
                x[2][i] = x[0][i]
                if qd.static(has_messages):
                    print(i)
        for i in x[3]:
            x[3][i] = x[1][i] + x[2][i]

    for stream in (None, qd.create_stream(), qd.Stream(gpu.fake.add_foreign_stream())):
        blocks(qd_stream=stream)
        qd.sync()
        own = 0 if stream is None else stream.handle
        launched = gpu.fake.launches[-4:]
        entries = [call.entry for call in launched]
        assert entries[0].endswith("0") and entries[3].endswith("3")
        streams = {call.entry[-1]: call.stream for call in launched}
        assert streams["0"] == streams["3"] == own
        assert len(set(streams.values())) == 3
        blocks(qd_stream=stream)
        gpu.fake.launches.clear()
        with gpu.device.context.active():
            gpu.device.context.wait_for_stream(streams["2"])
        assert [call.entry[-1] for call in gpu.fake.launches] == ["0", "2"]


def test_sections_run_at_the_same_time_and_regions_in_order(gpu: Gpu) -> None:
    for number in range(4):
        gpu.fake.kernels[f"octants_regions_task_{number}"] = lambda call: None
    x = [qd.field(qd.f32, 4) for _ in range(4)]

    @qd.kernel(graph=True)
    def regions():
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in x[0]:
                    x[0][i] = 2.0
            with qd.graph.parallel():
                for i in x[1]:
                    x[1][i] = 2.0
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in x[2]:
                    x[2][i] = 2.0
                for i in x[3]:
                    x[3][i] = 2.0

    regions()
    qd.sync()
    launched = {call.entry[-1]: call.stream for call in gpu.fake.launches}
    assert launched["2"] == 0
    assert len(set(launched.values())) == 4
    regions()
    gpu.fake.launches.clear()
    with gpu.device.context.active():
        gpu.device.context.wait_for_stream(launched["2"])
    assert sorted(call.entry[-1] for call in gpu.fake.launches) == ["0", "1", "2"]


def test_blocks_that_depend_on_each_other_run_in_order(gpu: Gpu) -> None:
    for number in range(2):
        gpu.fake.kernels[f"octants_blocks_task_{number}"] = lambda call: None
    x, y = qd.field(qd.f32, 4), qd.field(qd.f32, 4)

    @qd.kernel
    def blocks():
        with qd.stream_parallel():
            for i in x:
                x[i] = 2.0
        with qd.stream_parallel():
            for i in y:
                y[i] = x[i]

    blocks()
    qd.sync()
    assert [call.stream for call in gpu.fake.launches] == [0, 0]
