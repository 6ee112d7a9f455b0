"""The reverse and forward-mode variants of a specialised kernel, each compiled when first needed.

Under a tape a kernel whose tasks overwrite what the reverse run needs is launched task by task, so
that the tape can restore the memory that each task saw. What crosses its tasks then lives in
*outside* storage, which the tape keeps until the backward pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from octants import driver, pipeline
from octants.analysis.regions import Accessed
from octants.autodiff.errors import no_rule, overwritten
from octants.autodiff.reverse import Reversed
from octants.ir.core import Array, Companion, Module, Space
from octants.ir.ops import Atomic, CompareExchange, Load, Store
from octants.ir.rewriter import copy_module, split_tasks
from octants.launch.specialisation import Program, Specialisation, written_arrays
from octants.runtime.memory import HostAllocation
from octants.runtime.packing import Place

PRIMAL, ADJOINT, TANGENT = Companion.PRIMAL, Companion.ADJOINT, Companion.TANGENT


class OutsideLayout:
    """Offsets in storage that outlives a launch, for arrays by their position in the module."""

    def __init__(self, module: Module, spaces: Sequence[Space], companions: Sequence[Companion]):
        self.arrays = module.arrays
        self.offsets: dict[tuple[int, Companion], int] = {}
        self.size = 0
        for position, array in enumerate(module.arrays):
            if array.space not in spaces:
                continue
            for companion in companions:
                if companion is PRIMAL or array.dtype.is_float:
                    self.offsets[position, companion] = self.size
                    self.size += -(-_bytes(array) // 16) * 16

    def places(self, module: Module) -> dict[Place, int]:
        """The offsets by the arrays of a module that stands parallel to the layout's."""
        return {
            (module.arrays[position], companion): offset
            for (position, companion), offset in self.offsets.items()
            if module.arrays[position].has(companion)
        }


class Outside:
    """Zeroed storage of an `OutsideLayout` for one launch."""

    def __init__(self, layout: OutsideLayout) -> None:
        self.layout = layout
        self._memory = HostAllocation(layout.size)
        self.address = self._memory.address

    def numbers(self, position: int, companion: Companion = PRIMAL) -> np.ndarray[Any, Any]:
        """The numbers of the array at a position, in the storage itself."""
        start = self.layout.offsets[position, companion]
        array = self.layout.arrays[position]
        return self._memory.bytes[start : start + _bytes(array)].view(array.dtype.numpy)

    def clear(self) -> None:
        """Make all of it zero."""
        self._memory.bytes[:] = 0

    def seed(self) -> None:
        """Set the adjoints of all that the kernel returns to one."""
        for position, companion in self.layout.offsets:
            if companion is ADJOINT and self.layout.arrays[position].space is Space.RETURN:
                self.numbers(position, ADJOINT)[:] = 1

    def results(self, specialisation: Specialisation) -> tuple[Any, ...]:
        """The flat results of a kernel, which its steps have left here."""
        arrays = specialisation.module.arrays
        flat: list[Any] = []
        for array, _ in specialisation.returned:
            flat += self.numbers(arrays.index(array)).tolist()
        return tuple(flat)


def _bytes(array: Array) -> int:
    count = 1
    for extent in array.element_shape:
        count *= extent
    return count * array.dtype.size


@dataclass(frozen=True)
class Step:
    """A launch that a tape can reverse by itself: a kernel, or one task of it.

    `forward` runs it, `backward` propagates adjoints and reads the primal contents of `needed`
    (positions in the module's arrays) as they were in `state`: "before" or "after" the forward run;
    arrays that the forward run changes and the backward run does not are always read "after" it.
    `written` are the positions of the arrays that the forward run changes, `rewritten` those that
    the backward run changes: on memory from before, it runs the stores again. `regions` tells from
    the arguments which elements the forward run accesses; the backward run reads primal contents
    where the forward run did.
    """

    forward: Program
    backward: Program | None
    state: str
    needed: tuple[int, ...]
    written: tuple[int, ...]
    rewritten: tuple[int, ...]
    regions: Callable[..., Mapping[int, Accessed]]

    @functools.cached_property
    def needed_before(self) -> tuple[int, ...]:
        """The arrays whose contents from before the forward run are needed."""
        if self.state == "after":
            return ()
        changed = set(self.written) - set(self.rewritten)
        return tuple(position for position in self.needed if position not in changed)

    @functools.cached_property
    def needed_after(self) -> tuple[int, ...]:
        """The arrays whose contents from after the forward run are needed."""
        return tuple(position for position in self.needed if position not in self.needed_before)

    def accessed(self, arguments: Sequence[Any]) -> Mapping[int, Accessed]:
        """The elements that a launch with these arguments accesses, by position of the array."""
        try:
            return self.regions(*arguments)
        except Exception:  # wrong arguments; the launch itself says what is wrong
            return {}


@dataclass(frozen=True)
class TapePlan:
    """How a specialised kernel runs under a tape: its steps in order, and their storage."""

    steps: tuple[Step, ...]
    outside: OutsideLayout


def bare_reverse(specialisation: Specialisation) -> tuple[Program, Outside | None]:
    """The program of ``kernel.grad(...)``, which runs on memory as the kernel left it.

    The outside storage has ones for the adjoints of what the kernel returns.

    Raises `OctantsCompilationError` if the kernel overwrites what its reverse needs.
    """
    if "bare" not in specialisation.programs:
        module = specialisation.module
        result = _reverse(specialisation, module, saved=False, part=False)
        if result.hazards:
            raise overwritten(module.name, result.hazards)
        layout = OutsideLayout(module, (Space.RETURN,), (ADJOINT,))
        program = Program(specialisation, result.module, (), layout.places(result.module))
        specialisation.programs["bare"] = program, layout
    program, layout = specialisation.programs["bare"]
    if not layout.size:
        return program, None
    outside = Outside(layout)
    outside.seed()
    return program, outside


def tape_plan(specialisation: Specialisation) -> TapePlan:
    """The steps of a kernel under a tape.

    Raises `OctantsCompilationError` for what cannot be differentiated.
    """
    if "tape" not in specialisation.programs:
        specialisation.programs["tape"] = _whole(specialisation) or _parts(specialisation)
    plan: TapePlan = specialisation.programs["tape"]
    return plan


def _whole(specialisation: Specialisation) -> TapePlan | None:
    """The kernel as one step; None if only its tasks one by one can be reversed."""
    module = specialisation.module
    result = _best(specialisation, module, part=False)
    if result.hazards:
        return None
    layout = OutsideLayout(module, (Space.RETURN,), (ADJOINT,))
    step = _step(specialisation, specialisation.primal, module, result, layout)
    return TapePlan((step,), layout)


def _parts(specialisation: Specialisation) -> TapePlan:
    """The tasks of the kernel as steps."""
    module = specialisation.module
    spaces, companions = (Space.TEMPORARY, Space.RETURN), (PRIMAL, ADJOINT)
    layout = OutsideLayout(module, spaces, companions)
    steps = []
    for part in split_tasks(module):
        result = _best(specialisation, part, part=True)
        if result.hazards:
            raise overwritten(module.name, result.hazards)
        forward = Program(specialisation, part, (), layout.places(part))
        steps.append(_step(specialisation, forward, part, result, layout))
    return TapePlan(tuple(steps), layout)


def _best(specialisation: Specialisation, module: Module, *, part: bool) -> Reversed:
    """The reverse on the memory from after the run if it can be, else on that from before it."""
    after = _reverse(specialisation, module, saved=False, part=part)
    if not after.hazards or len(module.tasks) != 1:
        return after
    before = _reverse(specialisation, module, saved=True, part=part)
    return after if before.hazards else before


def _reverse(
    specialisation: Specialisation, module: Module, *, saved: bool, part: bool
) -> Reversed:
    _require_primal(module)
    stage = driver.stage_of(specialisation.options)
    return pipeline.differentiate_reverse(module, stage, saved=saved, part=part)


def _require_primal(module: Module) -> None:
    """An error for a kernel that reads or writes gradients or duals itself."""
    for op in module.walk():
        if not isinstance(op, (Load, Store, Atomic, CompareExchange)) or op.companion is PRIMAL:
            continue
        name = "grad" if op.companion is ADJOINT else "dual"
        what = f"a kernel that reads or writes `{op.array.name}.{name}`"
        raise no_rule(what, op.location, "call it outside, or decorate it with `@qd.ad.no_grad`")


def _step(
    specialisation: Specialisation,
    forward: Program,
    module: Module,
    result: Reversed,
    layout: OutsideLayout,
) -> Step:
    position = {array: number for number, array in enumerate(module.arrays)}
    kept = [a for a in _written_outside(module) if (position[a], PRIMAL) in layout.offsets]
    written = tuple(position[array] for array in [*written_arrays(module), *kept])
    regions = specialisation.make_regions(module)
    if not any(task.body.ops[:-1] for task in result.module.tasks):
        return Step(forward, None, result.state, (), written, (), regions)
    backward = Program(specialisation, result.module, (), layout.places(result.module))
    again = _written_outside(result.module) if kept else []
    rewritten = [
        result.module.arrays.index(array) for array in [*written_arrays(result.module), *again]
    ]
    rewritten = [number for number in rewritten if number in written]
    needed = dict.fromkeys([*(position[array] for array in result.needed), *rewritten])
    return Step(forward, backward, result.state, tuple(needed), written, tuple(rewritten), regions)


def _written_outside(module: Module) -> list[Array]:
    """The launch-temporary and returned arrays that a module writes."""
    spaces = (Space.TEMPORARY, Space.RETURN)
    return written_arrays(module, spaces)


def merge_aliases(specialisation: Specialisation, aliases: Sequence[int]) -> Specialisation:
    """The kernel with arrays that are the same memory as one array.

    ``aliases`` has, for each position of the module's arrays, that of the first array with the same
    memory. Derivatives are taken of this kernel, since they depend on who writes what.
    """
    if all(first == position for position, first in enumerate(aliases)):
        return specialisation
    key = ("merged", tuple(aliases))
    if key not in specialisation.programs:
        module = copy_module(specialisation.module)
        position = {array: number for number, array in enumerate(module.arrays)}
        for op in module.walk():
            if hasattr(op, "array"):
                op.array = module.arrays[aliases[position[op.array]]]
        specialisation.programs[key] = specialisation.with_module(module)
    merged: Specialisation = specialisation.programs[key]
    return merged


def tangent_program(specialisation: Specialisation) -> Program:
    """The kernel with its tangents, for forward mode."""
    if "tangent" not in specialisation.programs:
        _require_primal(specialisation.module)
        stage = driver.stage_of(specialisation.options)
        module = pipeline.differentiate_forward(specialisation.module, stage)
        results = [
            (module.arrays[specialisation.module.arrays.index(array)], PRIMAL)
            for array, _ in specialisation.returned
        ]
        specialisation.programs["tangent"] = Program(specialisation, module, results)
    program: Program = specialisation.programs["tangent"]
    return program
