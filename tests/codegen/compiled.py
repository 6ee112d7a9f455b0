"""Compiles modules built by hand and runs them on numpy arrays, as the interpreter would."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from octants.artifact import Artifact, parameters_of
from octants.codegen.llvm import cpu
from octants.ir.builder import Builder
from octants.ir.core import Array, Block, Companion, Module, Space, Task, Value
from octants.ir.verifier import verify
from octants.options import make_options
from octants.runtime.cpu import CpuDevice
from octants.runtime.cpu import device as default_device
from octants.target import Target
from octants.types.scalars import DType, i32

PRIMAL = Companion.PRIMAL
TARGET = cpu.host_target()
SIMD = make_options({}).simd  # an environment variable can have all tests run in lanes


def ndarray(
    name: str,
    dtype: DType,
    rank: int = 1,
    element_shape: tuple[int, ...] = (),
    companions: Sequence[Companion] = (PRIMAL,),
) -> Array:
    layouts = dict.fromkeys(companions)
    return Array(name, dtype, rank, Space.NDARRAY, element_shape, layouts)


def argument(name: str, dtype: DType, element_shape: tuple[int, ...] = ()) -> Array:
    return Array(name, dtype, 0, Space.ARGUMENT, element_shape, {PRIMAL: None})


def temporary(name: str, dtype: DType) -> Array:
    return Array(name, dtype, 0, Space.TEMPORARY, (), {PRIMAL: None})


def parallel(
    name: str,
    domain: Callable[[Builder], tuple[Value, Value]],
    body: Callable[[Builder, Value], None],
    index_type: DType = i32,
) -> Task:
    """A parallel task whose blocks the two functions fill."""
    build = Builder()
    build.yield_(domain(build))
    index = Value(index_type, "i")
    inner = Builder(Block([index]))
    body(inner, index)
    inner.yield_()
    return Task(name, inner.block, build.block)


def serial(name: str, body: Callable[[Builder], None]) -> Task:
    build = Builder()
    body(build)
    build.yield_()
    return Task(name, build.block)


def for_(
    build: Builder,
    lower: Value,
    upper: Value,
    inits: Sequence[Value],
    body: Callable[[Builder, Value, list[Value]], Sequence[Value]],
) -> list[Value]:
    """A serial loop; ``body`` gives the carried values of the next iteration."""
    block = Block([Value(lower.type), *(Value(init.type) for init in inits)])
    with build.into(block):
        build.yield_(body(build, block.args[0], block.args[1:]))
    return build.for_(lower, upper, inits, block).results


def while_(
    build: Builder,
    inits: Sequence[Value],
    condition: Callable[[Builder, list[Value]], Value],
    body: Callable[[Builder, list[Value]], Sequence[Value]],
) -> list[Value]:
    test = Block([Value(init.type) for init in inits])
    with build.into(test):
        build.yield_([condition(build, test.args)])
    block = Block([Value(init.type) for init in inits])
    with build.into(block):
        build.yield_(body(build, block.args))
    return build.while_(inits, test, block).results


def if_(
    build: Builder,
    condition: Value,
    then: Callable[[Builder], Sequence[Value]],
    orelse: Callable[[Builder], Sequence[Value]] = lambda _: (),
) -> list[Value]:
    blocks = []
    for fill in (then, orelse):
        block = Block()
        with build.into(block):
            build.yield_(fill(build))
        blocks.append(block)
    return build.if_(condition, *blocks).results


class Compiled:
    """A kernel on a device; `run` takes arrays by name, or (name, `Companion`)."""

    def __init__(
        self,
        module: Module,
        device: CpuDevice | None = None,
        target: Target = TARGET,
        **options: Any,
    ) -> None:
        verify(module)
        self.module = module
        options.setdefault("simd", SIMD)
        self.load(cpu.compile_module(module, target, **options), device)

    @classmethod
    def together(cls, modules: Sequence[Module]) -> list[Compiled]:
        """Several kernels in one object."""
        kernels = []
        artifacts = cpu.compile_modules(modules, TARGET, simd=SIMD)
        for module, artifact in zip(modules, artifacts, strict=True):
            kernels.append(cls.__new__(cls))
            kernels[-1].module = module
            kernels[-1].load(artifact)
        return kernels

    def load(self, artifact: Artifact, device: CpuDevice | None = None) -> None:
        self.artifact = artifact
        self.kernel = (device or default_device()).load(artifact)

    def run(
        self, arrays: Mapping[Any, np.ndarray[Any, Any]], seed: int = 0, launch: int = 0
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Launch; temporaries and returned values that are not given are made, and given back."""
        block, made = self.block(arrays, seed, launch)
        self.kernel.launch(ctypes.addressof(block))
        return made

    def block(
        self, arrays: Mapping[Any, np.ndarray[Any, Any]], seed: int = 0, launch: int = 0
    ) -> tuple[Any, dict[str, np.ndarray[Any, Any]]]:
        """The parameter block of a launch, and the arrays that were made for it."""
        data = {(key, PRIMAL) if isinstance(key, str) else key: x for key, x in arrays.items()}
        made: dict[str, np.ndarray[Any, Any]] = {}
        slots = parameters_of(self.module).slots
        block = (ctypes.c_uint64 * len(slots))()
        block.data = data  # type: ignore[attr-defined]  # keeps the arrays alive
        for position, slot in enumerate(slots):
            if slot.kind == "system":
                block[position] = {"messages": 0, "seed": seed, "launch": launch}[slot.name]
                continue
            array = self.module.arrays[slot.array]
            if (array.name, slot.companion) not in data:
                fresh = np.zeros((0,) * array.rank + array.element_shape, array.dtype.numpy)
                data[array.name, slot.companion] = made[array.name] = fresh
            values = data[array.name, slot.companion]
            if slot.kind == "shape":
                block[position] = values.shape[slot.index]
            elif slot.kind == "pointer":
                block[position] = values.__array_interface__["data"][0]
            else:
                component = np.zeros(8 // array.dtype.size, array.dtype.numpy)
                component[0] = values.reshape(-1)[slot.index]
                block[position] = int(component.view(np.uint64)[0])
        return block, made


def run(module: Module, arrays: Mapping[Any, Any], **options: Any) -> dict[str, Any]:
    """Compile and launch once."""
    return Compiled(module).run(arrays, **options)
