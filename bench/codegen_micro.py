"""What code generation and launches cost: `python bench/codegen_micro.py`.

Prints the time of a launch that does nothing, of a parallel region on helpers that are awake and on
parked ones, of loading code, and of compiling, for each operation of a kernel.
"""

from __future__ import annotations

import ctypes
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from octants.artifact import parameters_of
from octants.codegen.llvm import cpu, llvmlite_driver
from octants.ir.builder import Builder
from octants.ir.core import Array, Block, Companion, Module, Space, Task, Value
from octants.runtime.cpu import CpuDevice
from octants.types.scalars import f32, i32

PRIMAL = Companion.PRIMAL
TARGET = cpu.host_target()


def array(name: str) -> Array:
    return Array(name, f32, 1, Space.NDARRAY, (), {PRIMAL: None})


def kernel(count: int, fill: Callable[[Builder, Value, Array], None]) -> Module:
    """A parallel loop over ``count`` items."""
    x = array("x")
    domain = Builder()
    domain.yield_([domain.index(0), domain.index(count)])
    body = Builder(Block([Value(i32, "i")]))
    fill(body, body.block.args[0], x)
    body.yield_()
    return Module("k", [x], tasks=[Task("t", body.block, domain.block)])


def nothing(_: Builder, __: Value, ___: Array) -> None:
    """The body of an empty kernel."""


def add_one(build: Builder, i: Value, x: Array) -> None:
    build.store(x, [i], build.binary("add", build.load(x, [i]), build.constant(1.0, f32)))


def long_body(operations: int) -> Callable[[Builder, Value, Array], None]:
    """Random arithmetic on a window of recent values, as a scalarised formula is."""

    def fill(build: Builder, i: Value, x: Array) -> None:
        draw = random.Random(0)
        values = [build.load(x, [i]), build.constant(0.7, f32)]
        for _ in range(operations):
            fn = draw.choice(("add", "sub", "mul", "mul", "min"))
            values.append(build.binary(fn, draw.choice(values[-8:]), draw.choice(values[-8:])))
        build.store(x, [i], values[-1])

    return fill


def block_of(module: Module, x: np.ndarray[Any, Any]) -> Any:
    slots = parameters_of(module).slots
    block = (ctypes.c_uint64 * len(slots))()
    for position, slot in enumerate(slots):
        if slot.kind == "pointer":
            block[position] = x.ctypes.data
    return block


def seconds(action: Callable[[], object], times: int, rounds: int = 5) -> float:
    """The best round's time of one action."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(times):
            action()
        best = min(best, (time.perf_counter() - start) / times)
    return best


def launches(device: CpuDevice) -> None:
    x = np.zeros(1 << 20, np.float32)

    def report(what: str, module: Module, pause: float = 0.0) -> float:
        loaded = device.load(cpu.compile_module(module, TARGET))
        block = block_of(module, x)
        address = ctypes.addressof(block)
        if not pause:
            best = seconds(lambda: loaded.launch(address), 2000)
        else:
            times = []
            for _ in range(50):
                time.sleep(pause)
                start = time.perf_counter()
                loaded.launch(address)
                times.append(time.perf_counter() - start)
            best = statistics.median(times)
        print(f"{what:<52}{best * 1e6:10.2f} us")
        return best

    print(f"{device.threads} threads")
    report("launch of a kernel without tasks", Module("empty", []))
    report("launch of an empty loop, run inline", kernel(100, nothing))
    report("launch of 100 items that add 1, run inline", kernel(100, add_one))
    report("launch of 20,000 items that add 1, helpers awake", kernel(20_000, add_one))
    report("the same 1 ms later, helpers parked", kernel(20_000, add_one), pause=0.001)
    report("100 items 1 ms later, for comparison", kernel(100, add_one), pause=0.001)
    report("launch of 1,000,000 items that add 1", kernel(1_000_000, add_one))


def compilation(device: CpuDevice) -> None:
    print(f"\n{'operations':>12}{'text':>12}{'LLVM passes':>14}{'object':>12}{'load':>10}  (ms)")
    for operations in (10, 100, 1000, 10_000):
        module = kernel(1000, long_body(operations))
        start = time.perf_counter()
        text = cpu.llvm_text(module, TARGET)
        written = time.perf_counter()
        optimised, machine = llvmlite_driver.optimised(text, TARGET, 2)
        passed = time.perf_counter()
        machine.emit_object(optimised)
        emitted = time.perf_counter()
        artifact = cpu.compile_module(module, TARGET)
        loading = time.perf_counter()
        device.load(artifact)
        loaded = time.perf_counter()
        times = (written - start, passed - written, emitted - passed, loaded - loading)
        print(f"{operations:>12}" + "".join(f"{t * 1e3:12.2f}" for t in times))


def main() -> None:
    device = CpuDevice()
    launches(device)
    compilation(device)
    device.close()


if __name__ == "__main__":
    main()
