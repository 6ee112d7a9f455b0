"""Our mathematical functions and the C library's: `python bench/mathlib.py [names ...]`.

Prints, for f32 and f64, nanoseconds for a number in one thread: by the C library, by ours one by
one, and by ours in a loop that LLVM may vectorise; and the time to compile such a loop.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import time
from collections.abc import Iterator

import numpy as np

from octants.artifact import parameters_of
from octants.codegen.arithmetic import LibraryCall
from octants.codegen.llvm import cpu, operations
from octants.codegen.llvm.function_text import FunctionText
from octants.ir.builder import Builder
from octants.ir.core import Array, Block, Companion, Module, Space, Task, Value
from octants.mathlib.function_registry import BINARY, FUNCTIONS, UNARY
from octants.runtime.cpu import CpuDevice
from octants.runtime.cpu.native import linking
from octants.types.scalars import DType, f32, f64, i32

COUNT, REPEATS = 1 << 14, 9
RANGES = {
    "asin": (-1, 1), "acos": (-1, 1), "atanh": (-1, 1), "acosh": (1, 20), "log": (0.01, 20),
    "log2": (0.01, 20), "log10": (0.01, 20), "log1p": (-0.9, 20), "pow": (0.01, 20), "erf": (-3, 3),
}  # fmt: skip


def module(fn: str, dtype: DType) -> Module:
    """c[i] = fn(a[i]), or of a[i] and b[i]."""
    arrays = [Array(name, dtype, 1, Space.NDARRAY, (), {Companion.PRIMAL: None}) for name in "abc"]
    domain = Builder()
    domain.yield_([domain.index(0), domain.shape(arrays[0], 0)])
    build = Builder(Block([Value(i32, "i")]))
    place = [build.block.args[0]]
    x = build.load(arrays[0], place)
    if fn in UNARY:
        result = build.unary(fn, x)
    elif fn in BINARY:
        result = build.binary(fn, x, build.load(arrays[1], place))
    else:
        result = x
    build.store(arrays[2], place, result)
    build.yield_()
    return Module(fn, arrays, tasks=[Task("all", build.block, domain.block)])


@contextlib.contextmanager
def c_library() -> Iterator[None]:
    """Let code call the C library's function."""
    ours = operations.TABLE[LibraryCall]

    def call(f: FunctionText, op: LibraryCall) -> str:
        symbol = op.fn + ("f" if op.dtype is f32 else "")
        kind = {f32: "float", f64: "double"}[op.dtype]
        name = f.text.declare(f"@{symbol}", kind, ", ".join([kind] * len(op.operands)))
        return f.call(name, kind, [(kind, x) for x in op.operands])

    operations.TABLE[LibraryCall] = call
    try:
        yield
    finally:
        operations.TABLE[LibraryCall] = ours


def measure(device: CpuDevice, fn: str, dtype: DType, level: int) -> tuple[float, float]:
    """The seconds for a number, and the seconds to compile."""
    code = module(fn, dtype)
    begin = time.perf_counter()
    artifact = cpu.compile_module(code, cpu.host_target(), opt_level=level)
    compiling = time.perf_counter() - begin
    kernel = device.load(artifact)
    low, high = RANGES.get(fn, (-10, 10))
    rng = np.random.default_rng(0)
    data = [rng.uniform(low, high, COUNT).astype(dtype.numpy) for _ in "abc"]
    slots = parameters_of(code).slots
    block = (ctypes.c_uint64 * len(slots))()
    for position, slot in enumerate(slots):
        if slot.kind == "pointer":
            block[position] = data[slot.array].__array_interface__["data"][0]
        elif slot.kind == "shape":
            block[position] = COUNT
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        kernel.launch(ctypes.addressof(block))
        times.append(time.perf_counter() - begin)
    return min(times) / COUNT, compiling


def main(names: list[str]) -> None:
    linking._IMPLIED.extend(fn + end for fn in FUNCTIONS for end in ("", "f"))
    device = CpuDevice(max_threads=1)
    print(f"{cpu.host_target().cpu}, {COUNT} numbers in one thread; nanoseconds for a number")
    for dtype in (f32, f64):
        print(f"{dtype}: function | C library | ours, one by one | ratio | ours, LLVM's choice"
              " | compile C / one by one / LLVM's choice, ms")  # fmt: skip
        ratios = []
        empty = measure(device, "none", dtype, 2)[0]
        for fn in names or FUNCTIONS:
            with c_library():
                theirs, c_compile = measure(device, fn, dtype, 2)
            ours, compile_ours = measure(device, fn, dtype, 1)
            vector, compile_vector = measure(device, fn, dtype, 2)
            ratios.append((ours - empty) / (theirs - empty))
            print(f"{fn:6} | {theirs * 1e9:6.2f} | {ours * 1e9:6.2f} | {ratios[-1]:5.2f} |"
                  f" {vector * 1e9:6.2f} | {c_compile * 1e3:.0f} / {compile_ours * 1e3:.0f} /"
                  f" {compile_vector * 1e3:.0f}", flush=True)  # fmt: skip
        print(f"geometric mean of the ratios: {np.exp(np.mean(np.log(ratios))):.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
