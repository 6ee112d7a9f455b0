"""Launches of kernels that need nothing but to be launched; on a fake GPU."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from octants.artifact import Dispatch
from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.runtime.cuda.device import CudaDevice
from octants.runtime.cuda.fast_launcher import _OWN_GRAPHS, SAME
from octants.runtime.cuda.graphs.driver_graph import MOST_GRAPHS
from octants.runtime.cuda.kernel import CudaKernel
from octants.runtime.cuda.library import INVALID_CONTEXT
from tests.runtime.cuda.fake_cuda import Call, FakeCuda
from tests.runtime.cuda.kernels import Block, artifact, read
from tests.runtime.cuda.test_device import add_one

MANY = SAME + 10


def adder(fake: FakeCuda, device: CudaDevice, **more: object) -> CudaKernel:
    """Adds 1 to as many items of an array as the second slot says, twice."""
    fake.kernels["add"] = add_one
    return device.load(artifact("add", [Dispatch("add", 0, "(0, slots[4])")] * 2, 2, **more))


def test_what_is_repeated_becomes_a_graph(fake: FakeCuda, device: CudaDevice) -> None:
    kernel, x = adder(fake, device), device.allocate(80)
    block = Block(x.address, 10)
    for _ in range(MANY):
        kernel.launch(block.address)
    assert 0 < fake.calls["cuGraphLaunch"] < MANY
    assert read(device, x.address, 10) == [2 * MANY] * 10
    fake.calls.clear()
    for _ in range(5):
        kernel.launch(block.address)
    assert fake.calls == {"cuGraphLaunch": 5, "cuCtxGetCurrent": 5}


def test_other_arguments_are_seen(fake: FakeCuda, device: CudaDevice) -> None:
    kernel, x, y = adder(fake, device), device.allocate(80), device.allocate(80)
    block = Block(x.address, 10)
    for _ in range(MANY):
        kernel.launch(block.address)
    block.slots[3], block.slots[4] = y.address, 3
    for _ in range(2):
        kernel.launch(block.address)
    assert read(device, y.address, 10) == [4] * 3 + [0] * 7
    block.slots[4] = 0
    for _ in range(MANY):
        kernel.launch(block.address)
    block.slots[3], block.slots[4] = x.address, 10
    kernel.launch(block.address)
    assert read(device, x.address, 10) == [2 * MANY + 2] * 10
    assert read(device, y.address, 10) == [4] * 3 + [0] * 7


def test_a_kernel_that_draws_is_told_its_number(fake: FakeCuda, device: CudaDevice) -> None:
    kernel = adder(fake, device, draws=True)
    block = Block(device.allocate(80).address, 10)
    for _ in range(MANY):
        kernel.launch(block.address)
    assert fake.calls["cuGraphLaunch"] == 0


def test_streams_do_without_graphs(fake: FakeCuda, device: CudaDevice) -> None:
    kernel, x, stream = adder(fake, device), device.allocate(80), device.create_stream()
    block = Block(x.address, 10)
    for _ in range(MANY):
        kernel.launch(block.address)
    fake.calls.clear()
    with device.using(stream):
        kernel.launch(block.address)
    assert fake.calls["cuGraphLaunch"] == 0
    kernel.launch(block.address)
    kernel.launch(block.address)
    assert read(device, x.address, 10) == [2 * (MANY + 3)] * 10


def test_a_thread_without_the_context(fake: FakeCuda, device: CudaDevice) -> None:
    kernel, x = adder(fake, device), device.allocate(80)
    block = Block(x.address, 10)
    for _ in range(MANY):
        kernel.launch(block.address)
    fake.fail("cuGraphLaunch", INVALID_CONTEXT)
    kernel.launch(block.address)
    assert read(device, x.address, 10) == [2 * MANY + 2] * 10
    fake.fail("cuGraphLaunch", 1)
    fake.fail("cuLaunchKernelEx", 1)
    with pytest.raises(OctantsRuntimeError, match="cuLaunchKernelEx failed"):
        kernel.launch(block.address)


def test_a_graph_that_is_refused(fake: FakeCuda, device: CudaDevice) -> None:
    kernel, x = adder(fake, device), device.allocate(80)
    block = Block(x.address, 10)
    fake.fail("cuGraphInstantiateWithFlags", 2)
    for _ in range(MANY):
        kernel.launch(block.address)
    assert fake.calls["cuGraphLaunch"] == 0
    assert read(device, x.address, 10) == [2 * MANY] * 10


def test_graphs_end_with_their_kernel(fake: FakeCuda, device: CudaDevice) -> None:
    kernel, block = adder(fake, device), Block(device.allocate(80).address, 10)
    for _ in range(MANY):
        kernel.launch(block.address)
    del kernel
    gc.collect()
    device.synchronize()
    assert fake.calls["cuGraphExecDestroy"] == fake.calls["cuGraphDestroy"] == 1
    assert fake.calls["cuModuleUnload"] == 1


def test_arguments_in_turns(fake: FakeCuda, device: CudaDevice) -> None:
    kernel, x, y = adder(fake, device), device.allocate(80), device.allocate(80)
    block = Block(x.address, 10)
    for turn in range(2 * MANY):
        block.slots[3] = y.address if turn % 2 else x.address
        kernel.launch(block.address)
    assert fake.calls["cuGraphCreate"] == 2
    assert fake.calls["cuGraphLaunch"] == 2 * (MANY - SAME)
    assert read(device, x.address, 10) == read(device, y.address, 10) == [2 * MANY] * 10


@pytest.mark.parametrize("parameters", ["block", "pointer"])
def test_many_dispatches_with_other_arguments_are_one_graph(
    fake: FakeCuda, device: CudaDevice, parameters: str
) -> None:
    """Its nodes are updated; where a dispatch has no work items, they are launched one by one."""

    def add(call: Call) -> None:
        if parameters == "pointer":
            call = replace(call, parameters=call.words(int(call.slots[0]), 5).tobytes())
        add_one(call)

    fake.kernels["add"] = add
    made = artifact(
        "add",
        [Dispatch("add", 0, "(0, slots[4])")] * 8,
        2,
        metadata=(("parameters", parameters),),
    )
    kernel, x = device.load(made), device.allocate(8 * MANY)
    block, calls = Block(x.address, 0), fake.calls
    for turn in range(MANY):
        block.slots[4] = turn
        kernel.launch(block.address)
    assert calls["cuGraphCreate"] == 1
    assert calls["cuGraphLaunch"] + calls["cuLaunchKernelEx"] // 8 == MANY - 1
    assert calls["cuGraphLaunch"] > MANY // 2
    assert read(device, x.address, MANY) == [8 * (MANY - 1 - k) for k in range(MANY)]


def test_arguments_that_never_come_again(fake: FakeCuda, device: CudaDevice) -> None:
    kernel, x, turns = adder(fake, device), device.allocate(8 * 3 * MANY), 3 * MANY
    block = Block(x.address, 0)
    for turn in range(turns):
        block.slots[4] = turn + 1
        kernel.launch(block.address)
    assert fake.calls["cuGraphCreate"] == 0
    assert read(device, x.address, turns) == [2 * (turns - k) for k in range(turns)]


def test_graphs_that_do_not_last_are_made_more_seldom(fake: FakeCuda, device: CudaDevice) -> None:
    kernel, x = adder(fake, device), device.allocate(80)
    block = Block(x.address, 10)
    for count in range(1, 11):
        block.slots[4] = count
        for _ in range(MANY):
            kernel.launch(block.address)
    assert fake.calls["cuGraphCreate"] == _OWN_GRAPHS
    assert device.replayed_graphs == 0
    assert list(read(device, x.address, 10)) == [2 * MANY * (10 - k) for k in range(10)]
    for _ in range(SAME):
        kernel.launch(block.address)
    assert fake.calls["cuGraphCreate"] == _OWN_GRAPHS + 1


def test_there_are_not_too_many_graphs(fake: FakeCuda, device: CudaDevice) -> None:
    kernel, x = adder(fake, device), device.allocate(80)
    block = Block(x.address, 10)
    device.replayed_graphs = MOST_GRAPHS
    for _ in range(MANY):
        kernel.launch(block.address)
    assert fake.calls["cuGraphCreate"] == 0
    device.replayed_graphs = 0


def test_the_number_of_graphs_is_kept(fake: FakeCuda, device: CudaDevice) -> None:
    kernel, x = adder(fake, device), device.allocate(80)
    blocks = [Block(x.address, 10) for _ in range(3)]
    for block in blocks:
        for _ in range(MANY):
            kernel.launch(block.address)
    assert device.replayed_graphs == 3
    del kernel
    gc.collect()
    assert device.replayed_graphs == 0
