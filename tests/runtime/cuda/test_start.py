"""Programs whose first kernel is compiled while the GPU starts; on a fake one that waits for us."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.cache import configured_store
from octants.codegen.llvm.gpu import compilation
from octants.data.zeroed_device_memory import LateStorage
from octants.runtime.cuda import modules
from octants.runtime.cuda.modules import load_linker
from tests.runtime.cuda.fake_cuda import Call
from tests.runtime.cuda.whole import Gpu, gpu, numbers

__all__ = ["gpu"]


def run_twice(call: Call) -> None:
    numbers(call, 4, int(call.slots[3]))[:] *= 2


@pytest.fixture
def gate(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Lets the GPU start, which does not begin before."""
    opened, retain = threading.Event(), gpu.library.cuDevicePrimaryCtxRetain

    def wait(*arguments: Any) -> int:
        opened.wait(30)
        return retain(*arguments)

    monkeypatch.setattr(gpu.library, "cuDevicePrimaryCtxRetain", wait)
    gpu.fake.kernels["twice"] = run_twice
    qd.init(arch=qd.cuda, offline_cache=False, log_level="error")
    yield opened
    opened.set()


def test_what_is_written_while_it_starts(gpu: Gpu, gate: threading.Event) -> None:
    x, y = qd.field(qd.f32, 5), qd.Vector.field(2, qd.f64, (2, 3))
    values = np.arange(12.0).reshape(2, 3, 2)
    x.fill(2.0)
    x[3] = 7
    y.from_numpy(values)
    y[1, 2] = qd.Vector([0.5, 0.25])
    values[:] = 100  # has been copied
    x.fill(3.0)
    x[1] = np.float32(8.0)
    assert isinstance(x._opened.storage, LateStorage)
    assert gpu.fake.calls["cuMemAllocFromPoolAsync"] == 0
    gate.set()
    expected = np.arange(12.0).reshape(2, 3, 2)
    expected[1, 2] = 0.5, 0.25
    assert x.to_numpy().tolist() == [3, 8, 3, 3, 3]
    assert (y.to_numpy() == expected).all()
    x[0] = 1
    x.fill(5.0)
    assert x.to_numpy().tolist() == [5] * 5


def test_gradients_that_are_cleared_while_it_starts(gpu: Gpu, gate: threading.Event) -> None:
    x = qd.field(qd.f32, 5, needs_grad=True)
    x.grad.fill(2.0)
    qd.ad.clear_all_gradients()
    x.grad[2] = 1.0
    assert gpu.fake.calls["cuMemAllocFromPoolAsync"] == 0
    gate.set()
    assert x.grad.to_numpy().tolist() == [0, 0, 1, 0, 0]


def test_much_is_waited_for(gpu: Gpu, gate: threading.Event) -> None:
    x = qd.field(qd.f32, 1 << 19)
    threading.Timer(0.05, gate.set).start()
    x.from_numpy(np.arange(1 << 19, dtype=np.float32))
    assert gpu.fake.calls["cuMemAllocFromPoolAsync"] == 1
    assert (x.to_numpy() == np.arange(1 << 19)).all()


def test_a_copy_of_another_field(gpu: Gpu, gate: threading.Event) -> None:
    x, y = qd.field(qd.f32, 5), qd.field(qd.f32, 5)
    x.fill(2.0)
    threading.Timer(0.05, gate.set).start()
    y.copy_from(x)
    x.fill(3.0)
    assert y.to_numpy().tolist() == [2] * 5
    assert x.to_numpy().tolist() == [3] * 5


def test_errors_of_fields_are_told_at_once(gate: threading.Event) -> None:
    x = qd.field(qd.f32, 5)
    with pytest.raises(qd.OctantsError, match="OCT"):
        x[5] = 1.0
    with pytest.raises(qd.OctantsError, match="OCT"):
        x[0] = "one"
    with pytest.raises(qd.OctantsError, match="OCT"):
        x.from_numpy(np.zeros(4, np.float32))


def test_memory_that_is_refused_is_told_at_the_first_use(gpu: Gpu, gate: threading.Event) -> None:
    x = qd.field(qd.f32, 1 << 26)
    x.fill(1.0)
    gate.set()
    for _ in range(2):
        with pytest.raises(qd.OctantsMemoryError, match="the tree of 1 fields"):
            x.to_numpy()


def test_a_gpu_that_does_not_start(gpu: Gpu, gate: threading.Event) -> None:
    x = qd.field(qd.f32, 5)
    x.fill(1.0)
    gpu.fake.fail("cuDevicePrimaryCtxRetain", 2)
    gate.set()
    with pytest.raises(qd.OctantsError, match="cuDevicePrimaryCtxRetain"):
        x.to_numpy()
    assert x.to_numpy().tolist() == [1] * 5  # it has memory now


def test_threads_that_need_the_memory(gpu: Gpu, gate: threading.Event) -> None:
    x = qd.field(qd.f32, 5)
    x.fill(4.0)
    found: list[list[float]] = []
    threads = [
        threading.Thread(target=lambda: found.append(x.to_numpy().tolist())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join()
    assert found == [[4.0] * 5] * 4
    assert gpu.fake.calls["cuMemcpyHtoDAsync"] == 0


def test_a_graph_begins_with_what_was_put_off(gpu: Gpu, gate: threading.Event) -> None:
    x, y = qd.field(qd.f32, 3), qd.field(qd.f32, 3)
    x.fill(4.0)
    threading.Timer(0.05, gate.set).start()
    with qd.graph.capture() as graph:
        y.fill(2.0)
    x.fill(1.0)
    y.fill(1.0)
    graph.replay()
    assert x.to_numpy().tolist() == [1] * 3
    assert y.to_numpy().tolist() == [2] * 3


# -- kernels ------------------------------------------------------------------------------------


@pytest.fixture
def linker(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Lets the driver link; until then it waits."""
    opened, link = threading.Event(), modules.link

    def wait(*arguments: Any) -> bytes:
        opened.wait(30)
        return link(*arguments)

    monkeypatch.setattr(modules, "link", wait)
    monkeypatch.setattr(driver, "_artifacts", {})
    yield opened
    opened.set()


def test_a_gradient_is_compiled_while_the_driver_links(
    gpu: Gpu, linker: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_module, compiled = compilation.compile_module, list[str]()

    def note(module: Any, *more: Any, **named: Any) -> Any:
        compiled.append(module.name)
        if len(compiled) == 2:  # the gradient
            linker.set()
        return compile_module(module, *more, **named)

    monkeypatch.setattr(compilation, "compile_module", note)
    gpu.fake.kernels |= {f"octants_square{part}_task_0": no_work for part in ("", "_reverse")}
    gpu.init()
    x, loss = qd.field(qd.f32, 4, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def square():
        for i in x:
            loss[None] += x[i] * x[i]

    with qd.ad.Tape(loss=loss):
        square()
    qd.sync()
    assert compiled == ["square", "square_reverse"]
    assert [call.entry for call in gpu.fake.launches] == [
        "octants_square_task_0",
        "octants_square_reverse_task_0",
    ]


def no_work(_: Call) -> None:
    """A kernel that does nothing."""


def test_the_driver_loads_its_linker_while_the_first_kernel_is_compiled(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a cache may have the kernel, nothing is linked in advance."""
    monkeypatch.setattr(modules, "load_linker", load_linker)
    (tmp_path / "kernel").write_text("")
    gpu.init(offline_cache=True, offline_cache_file_path=str(tmp_path))
    assert gpu.library.find_shared_object("linker", 0) is None
    for _ in range(2):
        gpu.init()
        assert gpu.library.find_shared_object("linker", 0).result()
        assert gpu.fake.calls["cuLinkComplete"] == 1


def test_code_that_the_driver_refuses(
    gpu: Gpu, linker: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> bytes:
        raise qd.OctantsError("refused")

    monkeypatch.setattr(modules, "link", refuse)
    gpu.init()

    @qd.kernel
    def nothing(a: qd.types.NDArray[qd.f32, 1]):
        a[0] = 1.0

    a = qd.ndarray(qd.f32, 1)
    for _ in range(2):
        with pytest.raises(qd.OctantsError, match="refused"):
            nothing(a)


def test_what_is_linked_is_kept_when_it_is_there(
    gpu: Gpu, linker: threading.Event, tmp_path: Path
) -> None:
    gpu.fake.kernels |= {f"octants_square{part}_task_0": no_work for part in ("", "_reverse")}
    counts = []
    for _ in range(2):
        gpu.init(offline_cache=True, offline_cache_file_path=str(tmp_path))
        x, loss = qd.field(qd.f32, 4, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

        @qd.kernel
        def square():
            for i in x:
                loss[None] += x[i] * x[i]

        threading.Timer(0.05, linker.set).start()
        with qd.ad.Tape(loss=loss):
            square()
        qd.reset()
        configured_store.stop()
        with configured_store._later_lock:  # which a thread has that keeps something just now
            counts.append(len(list(tmp_path.iterdir())))
        driver._artifacts.clear()
    assert gpu.fake.calls["cuLinkComplete"] == 2  # nothing was compiled the second time
    assert counts[0] == counts[1]
