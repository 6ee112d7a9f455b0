"""The reverse and forward-mode variants of a specialised kernel, each compiled when first needed.

Under a tape a kernel whose tasks overwrite what the reverse run needs is launched task by task, so
that the tape can restore the memory that each task saw. What crosses its tasks then lives in
*outside* storage, which the tape keeps until the backward pass. Gradients of arguments are variants
of their own: whoever does not ask for them does not pay for them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from octants import driver
from octants.analysis.index_ranges import Accessed, Regions
from octants.deferred_import import Deferred
from octants.ir.core import Array, Companion, Module, Space
from octants.launch.atomic_logs import LogPlan, make_plan
from octants.launch.persistent_storage import PersistentLayout
from octants.launch.program import BoundKernelCode, written_arrays
from octants.launch.read_fingerprint import ReadFingerprint, make_fingerprint
from octants.launch.specialisation import Specialisation
from octants.launch.taped_memory import TapedMemory, aliases_of, are_apart
from octants.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from octants import pipeline
    from octants.autodiff import atomic_logs, errors, races, reverse
    from octants.autodiff.reverse import Reversed
    from octants.ir import ops, rewriter
else:
    pipeline, ops = Deferred("octants.pipeline"), Deferred("octants.ir.ops")
    rewriter = Deferred("octants.ir.rewriter")
    errors, atomic_logs = (
        Deferred("octants.autodiff.errors"),
        Deferred("octants.autodiff.atomic_logs"),
    )
    races, reverse = Deferred("octants.autodiff.races"), Deferred("octants.autodiff.reverse")

PRIMAL, ADJOINT, TANGENT = Companion.PRIMAL, Companion.ADJOINT, Companion.TANGENT


@dataclass(frozen=True)
class ReverseStep:
    """A launch that a tape can reverse by itself: a kernel, or one task of it.

    `forward` runs it, `backward` propagates adjoints and reads the primal contents of `needed`
    (positions in the module's arrays) as they were in `state`: "before" or "after" the forward run;
    arrays that the forward run changes and the backward run does not are always read "after" it.
    `written` are the positions of the arrays that the forward run changes, `rewritten` those that
    the backward run changes: on memory from before, it runs the stores again. `regions` tells from
    the arguments which elements the forward run writes, and which of those that it reads the
    backward run reads again. `witness` tells what was read, where nothing is restored for it.
    `log` is for what atomics return, which both runs need to have. What a step does that
    `is_ordered` depends on the order of work items.
    """

    forward: BoundKernelCode
    backward: BoundKernelCode | None
    state: str
    needed: tuple[int, ...]
    written: tuple[int, ...]
    rewritten: tuple[int, ...]
    regions: Regions
    witness: ReadFingerprint | None = None
    log: LogPlan | None = None
    is_ordered: bool = False

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

    steps: tuple[ReverseStep, ...]
    outside: PersistentLayout

    @property
    def programs(self) -> list[BoundKernelCode | None]:
        """The programs of the steps."""
        return [program for step in self.steps for program in (step.forward, step.backward)]

    @property
    def is_repeatable(self) -> bool:
        """Whether a second launch does the same as the first, to rounding."""
        return not any(step.is_ordered for step in self.steps)


@dataclass(frozen=True)
class BareReverse:
    """The reverse of a launch on memory as the kernel left it.

    `needed` are the positions of the arrays whose primal contents it reads, `rewritten` those that
    it stores once more.
    """

    program: BoundKernelCode
    outside: PersistentLayout
    needed: tuple[int, ...]
    rewritten: tuple[int, ...]


def bare_reverse(
    specialisation: Specialisation, *, arguments: bool = False, trusts: bool = False
) -> BareReverse:
    """The program of ``kernel.grad(...)``, which runs on memory as the kernel left it.

    In the outside storage are the adjoints of what the kernel returns and, with ``arguments``, of
    its float arguments that are passed by value.

    Raises `OctantsCompilationError` if work items race for what the derivative depends on, or if
    the kernel overwrites what its reverse needs; one that ``trusts`` takes what memory holds for
    it.
    """

    def make() -> BareReverse:
        module = specialisation.module
        races.refuse_races(module)
        result = _reverse(specialisation, module, saved=False, part=False, arguments=arguments)
        if result.hazards:
            result = _again(specialisation, module, arguments) or result
        _refuse(module, result, trusts)
        layout = _adjoints_outside(module, arguments)
        needed = tuple(module.arrays.index(array) for array in result.needed)
        position = {array: number for number, array in enumerate(result.module.arrays)}
        rewritten = tuple(position[array] for array in written_arrays(result.module))
        return BareReverse(_backward(specialisation, result, layout), layout, needed, rewritten)

    return specialisation.remember(("bare", arguments, trusts), make)


def tape_plan(
    specialisation: Specialisation,
    *,
    arguments: bool = False,
    trusts: bool = False,
    validates: bool = False,
) -> TapePlan:
    """The steps of a kernel under a tape, with gradients of its ``arguments`` if they are wanted.

    One that ``trusts`` has one step, for which nothing is restored; if it also ``validates``, with
    a witness of what the launch read.

    Raises `OctantsCompilationError` for what cannot be differentiated.
    """

    def make() -> TapePlan:
        races.refuse_races(specialisation.module)
        plan = _trusting(specialisation, arguments, validates) if trusts else None
        return plan or _whole(specialisation, arguments) or _parts(specialisation, arguments)

    return specialisation.remember(("tape", arguments, trusts, trusts and validates), make)


def plan_with_modules(specialisation: Specialisation) -> TapePlan:
    """The steps of a kernel under a tape, with the modules that they were compiled from."""
    plan = tape_plan(specialisation)
    if any(program is not None and program.module is None for program in plan.programs):
        plan = _whole(specialisation, False) or _parts(specialisation, False)
    return plan


def _trusting(specialisation: Specialisation, arguments: bool, validates: bool) -> TapePlan:
    """The kernel as one step, reversed on memory as it is then."""
    module = specialisation.module
    result = _reverse(specialisation, module, saved=False, part=False, arguments=arguments)
    _refuse(module, result, trusts=True)
    layout = _adjoints_outside(module, arguments)
    step = _step(specialisation, specialisation.primal, module, result, layout)
    if not validates:
        return TapePlan((dataclasses.replace(step, needed=()),), layout)
    # What atomics left is no load: it is looked at as a whole.
    left = dict.fromkeys(op.array for op in result.reads if isinstance(op, ops.Atomic))
    needed = tuple(module.arrays.index(array) for array in left)
    witness = make_fingerprint(specialisation, result.reads)
    return TapePlan((dataclasses.replace(step, needed=needed, witness=witness),), layout)


def _whole(specialisation: Specialisation, arguments: bool) -> TapePlan | None:
    """The kernel as one step; None if only its tasks one by one can be reversed."""
    module = specialisation.module
    result = _best(specialisation, module, part=False, arguments=arguments)
    if result.hazards:
        return None
    layout = _adjoints_outside(module, arguments)
    step = _step(specialisation, specialisation.primal, module, result, layout)
    return TapePlan((step,), layout)


def _parts(specialisation: Specialisation, arguments: bool) -> TapePlan:
    """The tasks of the kernel as steps."""
    module = specialisation.module
    layout = _adjoints_outside(module, arguments)
    layout.add(module, (Space.TEMPORARY, Space.RETURN), PRIMAL)
    layout.add(module, (Space.TEMPORARY,), ADJOINT)
    steps = []
    for part in rewriter.split_tasks(module):
        step = _part(specialisation, part, layout, arguments)
        steps.append(step or _ordered_part(specialisation, part, layout, arguments))
    return TapePlan(tuple(steps), layout)


def _part(
    specialisation: Specialisation, part: Module, layout: PersistentLayout, arguments: bool
) -> ReverseStep | None:
    """A task as a step, with a log if need be; None if it must run in order."""
    result = _best(specialisation, part, part=True, arguments=arguments)
    if not result.hazards or not part.tasks[0].is_parallel:
        _refuse(part, result)
        forward = BoundKernelCode(specialisation, part, (), layout.places(part))
        return _step(specialisation, forward, part, result, layout)
    is_ordered = any(hazard.kind == "order" for hazard in result.hazards)
    logged = None if is_ordered else atomic_logs.log_results(part)
    if logged is None:
        return None
    result = _best(specialisation, logged.reading, part=True, arguments=arguments)
    if result.hazards:
        return None
    twin = specialisation.with_log
    forward = BoundKernelCode(twin, logged.forward, (), layout.places(logged.forward))
    step = _step(twin, forward, logged.reading, result, layout)
    known = range(len(part.arrays))
    return dataclasses.replace(
        step,
        needed=tuple(position for position in step.needed if position in known),
        regions=specialisation.make_regions(part),
        log=make_plan(twin, logged, layout),
        is_ordered=True,
    )


def _ordered_part(
    specialisation: Specialisation, part: Module, layout: PersistentLayout, arguments: bool
) -> ReverseStep:
    """A task as a step whose work items run one after the other."""
    part = pipeline.serialise(part, driver.stage_of(specialisation.options))
    result = _best(specialisation, part, part=True, arguments=arguments)
    _refuse(part, result)
    forward = BoundKernelCode(specialisation, part, (), layout.places(part))
    step = _step(specialisation, forward, part, result, layout)
    return dataclasses.replace(step, is_ordered=True)


def _again(specialisation: Specialisation, module: Module, arguments: bool) -> Reversed | None:
    """The reverse in which tasks store again what they initialise; None if that does not do."""
    result = _reverse(
        specialisation, module, saved=False, part=False, arguments=arguments, again=True
    )
    return None if result.hazards else result


def _adjoints_outside(module: Module, arguments: bool) -> PersistentLayout:
    """Storage for the adjoints of what a kernel takes and returns by value."""
    layout = PersistentLayout(module.arrays)
    layout.add(module, (Space.RETURN,), ADJOINT)
    if arguments:
        layout.add(module, (Space.ARGUMENT,), ADJOINT)
    return layout


def _refuse(module: Module, result: Reversed, trusts: bool = False) -> None:
    """An error for a kernel that overwrites what its reverse needs."""
    hazards = [h for h in result.hazards if not (trusts and h.kind == "load")]
    if hazards:
        raise errors.overwritten(module.name, hazards)


def _best(
    specialisation: Specialisation, module: Module, *, part: bool, arguments: bool
) -> Reversed:
    """The reverse on the memory from after the run if it can be, else on that from before it."""

    def make(saved: bool) -> Reversed:
        return _reverse(specialisation, module, saved=saved, part=part, arguments=arguments)

    return reverse.in_best_state(module, make)


def _reverse(
    specialisation: Specialisation,
    module: Module,
    *,
    saved: bool,
    part: bool,
    arguments: bool,
    again: bool = False,
) -> Reversed:
    _require_primal(module)
    stage = driver.stage_of(specialisation.options)
    return pipeline.differentiate_reverse(
        module, stage, saved=saved, part=part, again=again, argument_gradients=arguments
    )


def _require_primal(module: Module) -> None:
    """An error for a kernel that reads or writes gradients or duals itself."""
    for op in module.walk():
        if not isinstance(op, ops.Access) or op.companion is PRIMAL:
            continue
        name = "grad" if op.companion is ADJOINT else "dual"
        what = f"a kernel that reads or writes `{op.array.name}.{name}`"
        raise errors.no_rule(
            what, op.location, "call it outside, or decorate it with `@qd.ad.no_grad`"
        )


def _step(
    specialisation: Specialisation,
    forward: BoundKernelCode,
    module: Module,
    result: Reversed,
    layout: PersistentLayout,
) -> ReverseStep:
    position = {array: number for number, array in enumerate(module.arrays)}
    kept = [a for a in _written_outside(module) if (position[a], PRIMAL) in layout.offsets]
    written = tuple(position[array] for array in [*written_arrays(module), *kept])
    reads = result.reads if result.state == "after" else None  # else stores run again, and read
    regions = specialisation.make_regions(module, reads)
    if not any(task.body.ops[:-1] for task in result.module.tasks):
        return ReverseStep(forward, None, result.state, (), written, (), regions)
    backward = _backward(specialisation, result, layout)
    again = _written_outside(result.module) if kept else []
    rewritten = [
        result.module.arrays.index(array) for array in [*written_arrays(result.module), *again]
    ]
    rewritten = [number for number in rewritten if number in written]
    needed = dict.fromkeys([*(position[array] for array in result.needed), *rewritten])
    return ReverseStep(
        forward, backward, result.state, tuple(needed), written, tuple(rewritten), regions
    )


def _backward(
    specialisation: Specialisation, result: Reversed, layout: PersistentLayout
) -> BoundKernelCode:
    places = layout.places(result.module)
    return BoundKernelCode(specialisation, result.module, (), places, apart=specialisation.apart)


def _written_outside(module: Module) -> list[Array]:
    """The launch-temporary and returned arrays that a module writes."""
    spaces = (Space.TEMPORARY, Space.RETURN)
    return written_arrays(module, spaces)


def differentiable(
    specialisation: Specialisation, memories: Mapping[int, TapedMemory]
) -> Specialisation:
    """The kernel that is differentiated for a launch on these memories.

    Arrays of Octants stay where they are, so that what was found for some holds while they are
    passed; kernels may have hundreds.
    """
    keys = tuple(memory.key for memory in memories.values())
    known = specialisation.ways.get("differentiable")
    if known is not None and known[0] == keys:
        found: Specialisation = known[1]
        return found
    aliases = aliases_of(specialisation, memories)
    apart = are_apart(specialisation, memories, aliases)
    found = merge_aliases(specialisation, aliases, apart=apart)
    if not any(memory.is_foreign for memory in memories.values()):
        specialisation.ways["differentiable"] = keys, found
    return found


def merge_aliases(
    specialisation: Specialisation, aliases: Sequence[int], *, apart: bool = True
) -> Specialisation:
    """The kernel with arrays that are the same memory as one array.

    ``aliases`` has, for each position of the module's arrays, that of the first array with the same
    memory; ``apart`` says that the others, and their companions, share none. Derivatives are taken
    of this kernel, since they depend on who writes what.
    """
    if apart and all(first == position for position, first in enumerate(aliases)):
        return specialisation
    key = ("merged", tuple(aliases), apart)
    merged: Specialisation | None = specialisation.programs.get(key)
    if merged is None:
        merged = specialisation.with_module(key, lambda: _merged(specialisation.module, aliases))
        merged.apart = apart
        specialisation.programs[key] = merged
    return merged


def _merged(original: Module, aliases: Sequence[int]) -> Module:
    """A copy of a module in which arrays that are the same are one."""
    module = rewriter.copy_module(original)
    position = {array: number for number, array in enumerate(module.arrays)}
    for op in module.walk():
        if hasattr(op, "array"):
            op.array = module.arrays[aliases[position[op.array]]]
    return module


def tangent_program(specialisation: Specialisation) -> BoundKernelCode:
    """The kernel with its tangents, for forward mode."""

    def make() -> BoundKernelCode:
        _require_primal(specialisation.module)
        races.refuse_races(specialisation.module, TANGENT)
        stage = driver.stage_of(specialisation.options)
        module = pipeline.differentiate_forward(specialisation.module, stage)
        return BoundKernelCode(specialisation, module, specialisation.returned)

    return specialisation.remember(("tangent",), make)
