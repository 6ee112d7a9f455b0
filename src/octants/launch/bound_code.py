"""A compiled module, bound to the arguments of a kernel's launches."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from octants import driver
from octants.artifact import Artifact, ParameterLayout, layout_parameters
from octants.cached_property import cached_property
from octants.compile_profile import stage as timed
from octants.deferred_import import Deferred
from octants.driver import LaunchableCode
from octants.ir.core import Array, ArrayRef, Companion, Module, Space
from octants.lazy_dataclass import dataclass
from octants.options import Options
from octants.runtime.arguments.array_bindings import ArrayKind, Binding
from octants.runtime.arguments.frozen_structs import FrozenStruct
from octants.runtime.arguments.launch_function import make_launch
from octants.runtime.arguments.parameters import Leaf
from octants.runtime.device import Device
from octants.runtime.parameter_blocks.recovered_arguments import (
    LastLaunch,
    last_arguments,
    last_launch,
)
from octants.slow_compiles import compiling
from octants.timeline import COMPILE, span
from octants.types.specialisation_signature import ArraySource, TemporarySource

if TYPE_CHECKING:
    from octants import pipeline
    from octants.ir import ops, random_draws
    from octants.launch import profiled_launch
else:
    profiled_launch = Deferred("octants.launch.profiled_launch")
    pipeline, ops = Deferred("octants.pipeline"), Deferred("octants.ir.ops")
    random_draws = Deferred("octants.ir.random_draws")

PRIMAL = Companion.PRIMAL
IndexedRef = tuple[int, Companion]
"""The position of an array in a module, and one of its companions."""


@dataclass(frozen=True)
class Compiled:
    """The part of a compiled module that launches need; the cache stores it.

    `artifact` is None where the interpreter runs the module. `results` are read back after a
    launch. `persistent` has the offsets in the caller's storage of arrays that live there.
    `written` are the positions of the ndarrays whose primal contents the code may change,
    `accessed` what it touches. What is `disjoint` must share memory with nothing else that it
    touches; launches test that.
    """

    artifact: Artifact | None
    arrays: tuple[Array, ...]
    results: tuple[IndexedRef, ...]
    persistent: tuple[tuple[IndexedRef, int], ...]
    written: tuple[int, ...]
    accessed: tuple[IndexedRef, ...]
    disjoint: tuple[IndexedRef, ...] = ()


class Owner(Protocol):
    """The kernel that the code belongs to: its arguments, and the sources of its arrays."""

    options: Options
    count: int
    leaves: dict[tuple[int, tuple[str, ...]], Leaf]
    kinds: dict[tuple[int, tuple[str, ...]], ArrayKind]
    structs: list[FrozenStruct]

    @property
    def sources(self) -> Sequence[ArraySource]:
        """The source of each array."""

    @property
    def primal_of_aliases(self) -> BoundKernelCode:
        """The kernel for launches whose arrays share memory."""


class BoundKernelCode:
    """A compiled module, with the function that launches it on the arguments of a kernel.

    With ``noalias`` no two of its arrays share memory in a launch. Launches test whether what is
    ``disjoint`` shares memory; where it does, they launch `Owner.primal_of_aliases` instead.
    `module` is None where the code comes from the cache.
    """

    module: Module | None = None

    def __init__(
        self,
        owner: Owner,
        module: Module,
        results: Sequence[int] = (),
        persistent: Mapping[ArrayRef, int] | None = None,
        *,
        noalias: bool = False,
        disjoint: Sequence[ArrayRef] = (),
    ) -> None:
        chosen = owner.options
        self.owner = owner
        compiling(module)
        self.module = module = pipeline.finish(
            module, driver.stage_of(chosen), noalias=noalias or bool(disjoint)
        )
        compiling(module)
        with driver.state.compiling, span(COMPILE, module.name):
            self.code: LaunchableCode = driver.compile_module(module, chosen)
        position = {array: number for number, array in enumerate(module.arrays)}

        def indexed_refs(refs: Iterable[ArrayRef]) -> tuple[IndexedRef, ...]:
            return tuple((position[array], companion) for array, companion in refs)

        persistent = persistent or {}
        self.compiled = Compiled(
            self.code.artifact,
            tuple(module.arrays),
            tuple((number, PRIMAL) for number in results),
            tuple(zip(indexed_refs(persistent), persistent.values(), strict=True)),
            tuple(position[array] for array in written_arrays(module, (Space.NDARRAY,))),
            indexed_refs(_accessed_refs(module)),
            indexed_refs(disjoint),
        )

    @property
    def the_module(self) -> Module:
        """The compiled module, for code that was compiled in this process."""
        assert self.module is not None
        return self.module

    def __reduce__(self) -> tuple[Any, ...]:
        making = self.code.making
        artifact = None if making is None else making.result()
        return bind, (self.owner, dataclasses.replace(self.compiled, artifact=artifact))

    @property
    def device(self) -> Device:
        """The device that it runs on."""
        return driver.device_of(self.owner.options)

    @cached_property
    def launch(self) -> Callable[..., tuple[Any, ...]]:
        """The launch function; see `runtime.arguments.launch_function`."""
        compiled, owner = self.compiled, self.owner
        arrays = compiled.arrays
        added = len(arrays) - len(owner.sources)

        def refs(indexed_refs: Iterable[IndexedRef]) -> list[ArrayRef]:
            return [ArrayRef(arrays[number], companion) for number, companion in indexed_refs]

        indexed_refs, offsets = (
            [indexed_ref for indexed_ref, _ in compiled.persistent],
            [k for _, k in compiled.persistent],
        )
        binding = Binding(
            self._layout,
            arrays,
            [*owner.sources, *[TemporarySource()] * added],
            owner.count,
            owner.leaves,
            owner.kinds,
            refs(compiled.results),
            dict(zip(refs(indexed_refs), offsets, strict=True)),
            [arrays[number] for number in compiled.written],
            set(refs(compiled.accessed)),
            owner.structs,
            refs(compiled.disjoint),
        )
        artifact = compiled.artifact
        kernel: Any = self.code.kernel
        with timed("launcher", "" if artifact is None else artifact.name):
            run = self.code.run
            name = artifact.name if artifact is not None else self.the_module.name
            run = profiled_launch.profiled(run, name, self.device)
            aliased = self._launch_of_aliases if compiled.disjoint else None
            launch = make_launch(binding, run, self.device, kernel, owner, aliased)
            return _counted(launch) if self.draws else launch

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        artifact = self.compiled.artifact
        return random_draws.has_draws(self.the_module) if artifact is None else artifact.draws

    def _launch_of_aliases(self) -> Callable[..., tuple[Any, ...]]:
        return self.owner.primal_of_aliases.launch

    @cached_property
    def _layout(self) -> ParameterLayout:
        return layout_parameters(list(self.compiled.arrays))

    def last_launch(self, number: int) -> LastLaunch | None:
        """The arguments of the launch with a number; None if its block was reused."""
        blocks = getattr(self.__dict__.get("launch"), "blocks", None)
        return None if blocks is None else last_launch(self._layout, blocks(), number)

    def last_arguments(self, number: int) -> bytes | None:
        """The bytes of the arguments of that launch; None if its block was reused."""
        blocks = getattr(self.__dict__.get("launch"), "blocks", None)
        return None if blocks is None else last_arguments(self._layout, blocks(), number)


def bind(owner: Owner, compiled: Compiled) -> BoundKernelCode:
    """Load code that was compiled before."""
    program = BoundKernelCode.__new__(BoundKernelCode)
    program.owner = owner
    program.compiled = compiled
    assert compiled.artifact is not None
    program.code = driver.load(compiled.artifact, owner.options)
    return program


def _counted(launch: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """A launch function that counts its launches among those that draw random numbers."""

    @functools.wraps(launch)
    def counted(*given: Any) -> tuple[Any, ...]:
        driver.state.draws.launches += 1
        return launch(*given)

    return counted


def written_arrays(
    module: Module, spaces: Collection[Space] = (Space.FIELD, Space.NDARRAY)
) -> list[Array]:
    """The arrays of some spaces whose primal contents a module may change."""
    found: dict[Array, None] = {}
    for op in module.walk():
        if isinstance(op, ops.Write) and op.companion is PRIMAL:
            found[op.array.whole] = None
    return [array for array in found if array.space in spaces]


def _accessed_refs(module: Module) -> dict[ArrayRef, None]:
    """The array references that a module reads or writes."""
    return {op.ref.whole: None for op in module.walk() if isinstance(op, ops.Access)}
