"""The reverse and forward-mode variants of a specialised kernel, each compiled on first use.

Under a tape, a kernel whose tasks overwrite what the reverse run needs is launched task by task, so
that the tape can restore the memory that each task read. The values that cross its tasks then live
in *persistent* storage, which the tape keeps until the backward pass. Gradients of arguments that
are passed by value are variants of their own: a gradient that does not return them costs nothing
extra.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from octants import driver
from octants.analysis.indices.index_ranges import Regions
from octants.cached_property import cached_property
from octants.deferred_import import Deferred
from octants.ir.core import Array, Companion, Module, Space
from octants.launch.bound_code import BoundKernelCode, written_arrays
from octants.launch.checks.atomic_logs import LogPlan, make_plan
from octants.launch.checks.read_fingerprint_check import ReadFingerprint, make_fingerprint
from octants.launch.gradients.taped_memory import (
    TapedMemory,
    aliases_of,
    have_separate_addresses,
    is_alias_free,
)
from octants.launch.persistent_storage import PersistentLayout
from octants.launch.specialisation import Specialisation
from octants.lazy_dataclass import dataclass
from octants.slow_compiles import compiling

if TYPE_CHECKING:
    from octants import pipeline
    from octants.autodiff import errors, reverse
    from octants.autodiff.facts import races
    from octants.autodiff.reverse import Reversed
    from octants.autodiff.variants import atomic_logs, batched_adjoints
    from octants.ir import cloning, ops
else:
    pipeline, ops = Deferred("octants.pipeline"), Deferred("octants.ir.ops")
    cloning = Deferred("octants.ir.cloning")
    errors, atomic_logs = (
        Deferred("octants.autodiff.errors"),
        Deferred("octants.autodiff.variants.atomic_logs"),
    )
    races, reverse = Deferred("octants.autodiff.facts.races"), Deferred("octants.autodiff.reverse")
    batched_adjoints = Deferred("octants.autodiff.variants.batched_adjoints")

PRIMAL, ADJOINT, TANGENT = Companion.PRIMAL, Companion.ADJOINT, Companion.TANGENT


@dataclass(frozen=True)
class ReverseStep:
    """A launch that a tape can reverse by itself: a kernel, or one task of it.

    `forward` runs it. `backward` propagates adjoints, and reads the primal contents of `needed`
    (positions in the module's arrays) as they were in `state`: "before" or "after" the forward run.
    Arrays that the forward run changes and the backward run does not are always read "after" it.

    `written` are the positions of the arrays that the forward run changes, `rewritten` of those
    that the backward run changes, because it runs stores again on memory from before the forward
    run. `regions` maps the arguments to the elements that the forward run writes and the backward
    run reads. `fingerprint` checks what was read, where the tape trusts memory. `log` records what
    atomics return, for both runs. If `is_ordered`, the results depend on the order of work items.
    Where `backward` propagates several adjoints, it takes those of the arrays at the positions
    `adjoints` as additional arguments.
    """

    forward: BoundKernelCode
    backward: BoundKernelCode | None
    state: str
    needed: tuple[int, ...]
    written: tuple[int, ...]
    rewritten: tuple[int, ...]
    regions: Regions
    fingerprint: ReadFingerprint | None = None
    log: LogPlan | None = None
    is_ordered: bool = False
    adjoints: tuple[int, ...] = ()

    @cached_property
    def needed_before(self) -> tuple[int, ...]:
        """The positions of the arrays whose contents from before the forward run are needed."""
        if self.state == "after":
            return ()
        changed = set(self.written) - set(self.rewritten)
        return tuple(position for position in self.needed if position not in changed)

    @cached_property
    def needed_after(self) -> tuple[int, ...]:
        """The positions of the arrays whose contents from after the forward run are needed."""
        return tuple(position for position in self.needed if position not in self.needed_before)

    @property
    def saves_nothing(self) -> bool:
        """Whether it overwrites nothing that it needs."""
        return not (set(self.needed_before) & set(self.written) or self.rewritten)


@dataclass(frozen=True)
class TapePlan:
    """The launches of a specialised kernel under a tape, in order, and their persistent storage."""

    steps: tuple[ReverseStep, ...]
    persistent: PersistentLayout

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
    """The reverse of a launch, on memory as the kernel left it.

    `needed` are the positions of the arrays whose primal contents it reads, `rewritten` of those
    that it stores again.
    """

    program: BoundKernelCode
    persistent: PersistentLayout
    needed: tuple[int, ...]
    rewritten: tuple[int, ...]


def bare_reverse(
    specialisation: Specialisation, *, arguments: bool = False, trusts: bool = False
) -> BareReverse:
    """Compile ``kernel.grad(...)``, which runs on memory as the kernel left it.

    The persistent storage holds the adjoints of what the kernel returns and, with ``arguments``, of
    its float arguments that are passed by value.

    Args:
        specialisation: The kernel.
        arguments: Whether to compute gradients of arguments that are passed by value.
        trusts: Whether memory is taken to hold what the kernel read, even if it overwrote that.

    Raises:
        OctantsCompilationError: work items race for what the derivative depends on, or the kernel
            overwrites what its reverse needs.
    """

    def make() -> BareReverse:
        module = specialisation.module
        races.refuse_races(module)
        result = _reverse(
            specialisation, module, before_launch=False, split=False, arguments=arguments
        )
        if result.hazards:
            result = _reverse_with_repeated_stores(specialisation, module, arguments) or result
        _refuse(module, result, trusts)
        layout = _persistent_adjoints(module, arguments)
        needed = tuple(module.arrays.index(array) for array in result.needed)
        position = {array: number for number, array in enumerate(result.module.arrays)}
        rewritten = tuple(position[array] for array in written_arrays(result.module))
        backward, _ = _backward(specialisation, result, layout)
        return BareReverse(backward, layout, needed, rewritten)

    return specialisation.derive(("bare", arguments, trusts), make)


def tape_plan(
    specialisation: Specialisation,
    *,
    arguments: bool = False,
    trusts: bool = False,
    validates: bool = False,
    adjoints: int = 1,
) -> TapePlan:
    """Compile the launches of a kernel under a tape.

    Args:
        specialisation: The kernel.
        arguments: Whether to compute gradients of arguments that are passed by value.
        trusts: Whether memory is taken to hold what the kernel read. Then there is one step, and
            the tape restores nothing for it.
        validates: Whether a trusting tape checks a fingerprint of what the launch read.
        adjoints: How many adjoints a reverse launch propagates.

    Raises:
        OctantsCompilationError: the kernel cannot be differentiated.
        CannotBatch: it has no reverse kernel for several adjoints (see
            `autodiff.variants.batched_adjoints`).
    """

    def make() -> TapePlan:
        races.refuse_races(specialisation.module)
        layout = _persistent_adjoints(specialisation.module, arguments, adjoints)
        plan = _plan_on_trust(specialisation, layout, arguments, validates) if trusts else None
        if plan is None:
            plan = _whole(specialisation, layout, arguments)
        return plan or _parts(specialisation, layout, arguments)

    key = "tape", arguments, trusts, trusts and validates
    return specialisation.derive(key if adjoints == 1 else (*key, adjoints), make)


def plan_with_modules(specialisation: Specialisation) -> TapePlan:
    """The launches of a kernel under a tape, with the modules that they were compiled from."""
    plan = tape_plan(specialisation)
    if any(program is not None and program.module is None for program in plan.programs):
        layout = _persistent_adjoints(specialisation.module, False)
        plan = _whole(specialisation, layout, False) or _parts(specialisation, layout, False)
    return plan


def _plan_on_trust(
    specialisation: Specialisation, layout: PersistentLayout, arguments: bool, validates: bool
) -> TapePlan:
    """The kernel as one step, reversed on whatever memory holds then."""
    module = specialisation.module
    result = _reverse(specialisation, module, before_launch=False, split=False, arguments=arguments)
    _refuse(module, result, trusts=True)
    step = _step(specialisation, specialisation.primal, module, result, layout)
    if not validates:
        return TapePlan((dataclasses.replace(step, needed=()),), layout)
    # Results of atomics have no fingerprint: their arrays are compared as a whole.
    left = dict.fromkeys(op.array for op in result.reads if isinstance(op, ops.Atomic))
    needed = tuple(module.arrays.index(array) for array in left)
    fingerprint = make_fingerprint(specialisation, result.reads)
    return TapePlan((dataclasses.replace(step, needed=needed, fingerprint=fingerprint),), layout)


def _whole(
    specialisation: Specialisation, layout: PersistentLayout, arguments: bool
) -> TapePlan | None:
    """The kernel as one step; None if it can only be reversed task by task."""
    module = specialisation.module
    result = _reverse_on_memory(specialisation, module, split=False, arguments=arguments)
    if result.hazards:
        return None
    step = _step(specialisation, specialisation.primal, module, result, layout)
    return TapePlan((step,), layout)


def _parts(specialisation: Specialisation, layout: PersistentLayout, arguments: bool) -> TapePlan:
    """The tasks of the kernel as steps."""
    module = specialisation.module
    layout.add(module, (Space.TEMPORARY, Space.RETURN), PRIMAL)
    layout.add(module, (Space.TEMPORARY,), ADJOINT)
    steps = []
    for part in cloning.split_tasks(module):
        step = _part(specialisation, part, layout, arguments)
        steps.append(step or _ordered_part(specialisation, part, layout, arguments))
    return TapePlan(tuple(steps), layout)


def _part(
    specialisation: Specialisation, part: Module, layout: PersistentLayout, arguments: bool
) -> ReverseStep | None:
    """A task as a step, with a log if its atomics need one; None if its work items must run in
    order.
    """
    result = _reverse_on_memory(specialisation, part, split=True, arguments=arguments)
    if not result.hazards or not part.tasks[0].is_parallel:
        _refuse(part, result)
        forward = _forward(specialisation, part, layout)
        return _step(specialisation, forward, part, result, layout)
    is_ordered = any(hazard.kind == "order" for hazard in result.hazards)
    logged = None if is_ordered else atomic_logs.log_results(part)
    if logged is None:
        return None
    result = _reverse_on_memory(specialisation, logged.reading, split=True, arguments=arguments)
    if result.hazards:
        return None
    clone = specialisation.with_log
    forward = _forward(clone, logged.forward, layout)
    step = _step(clone, forward, logged.reading, result, layout)
    known = range(len(part.arrays))
    return dataclasses.replace(
        step,
        needed=tuple(position for position in step.needed if position in known),
        regions=specialisation.make_regions(part),
        log=make_plan(clone, logged, layout),
        is_ordered=True,
    )


def _ordered_part(
    specialisation: Specialisation, part: Module, layout: PersistentLayout, arguments: bool
) -> ReverseStep:
    """A task as a step whose work items run one after the other."""
    part = pipeline.serialise(part, driver.stage_of(specialisation.options))
    result = _reverse_on_memory(specialisation, part, split=True, arguments=arguments)
    _refuse(part, result)
    forward = _forward(specialisation, part, layout)
    step = _step(specialisation, forward, part, result, layout)
    return dataclasses.replace(step, is_ordered=True)


def _forward(
    specialisation: Specialisation, part: Module, layout: PersistentLayout
) -> BoundKernelCode:
    """The forward launch of a part; like its reverse, for arrays that share no memory."""
    offsets = layout.array_offsets(part)
    return BoundKernelCode(specialisation, part, (), offsets, noalias=specialisation.noalias)


def _reverse_with_repeated_stores(
    specialisation: Specialisation, module: Module, arguments: bool
) -> Reversed | None:
    """The reverse in which tasks repeat the stores that initialise arrays; None if that is not
    enough.
    """
    result = _reverse(
        specialisation,
        module,
        before_launch=False,
        split=False,
        arguments=arguments,
        repeat_stores=True,
    )
    return None if result.hazards else result


def _persistent_adjoints(module: Module, arguments: bool, adjoints: int = 1) -> PersistentLayout:
    """A layout for the adjoints of what a kernel takes and returns by value."""
    layout = PersistentLayout(module.arrays, adjoints)
    layout.add(module, (Space.RETURN,), ADJOINT)
    if arguments:
        layout.add(module, (Space.ARGUMENT,), ADJOINT)
    return layout


def _refuse(module: Module, result: Reversed, trusts: bool = False) -> None:
    """Refuse a kernel that overwrites what its reverse needs."""
    hazards = [h for h in result.hazards if not (trusts and h.kind == "load")]
    if hazards:
        raise errors.overwritten(module.name, hazards)


def _reverse_on_memory(
    specialisation: Specialisation, module: Module, *, split: bool, arguments: bool
) -> Reversed:
    """The reverse on memory from after the run if possible, else on memory from before it."""

    def make(before_launch: bool) -> Reversed:
        return _reverse(
            specialisation, module, before_launch=before_launch, split=split, arguments=arguments
        )

    return reverse.in_best_state(module, make)


def _reverse(
    specialisation: Specialisation,
    module: Module,
    *,
    before_launch: bool,
    split: bool,
    arguments: bool,
    repeat_stores: bool = False,
) -> Reversed:
    _require_primal(module)
    compiling(module)
    stage = driver.stage_of(specialisation.options)
    return pipeline.differentiate_reverse(
        module,
        stage,
        before_launch=before_launch,
        split=split,
        repeat_stores=repeat_stores,
        argument_gradients=arguments,
        noalias=specialisation.noalias,
    )


def _require_primal(module: Module) -> None:
    """Refuse a kernel that reads or writes gradients or duals itself."""
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
    kept = [a for a in _written_temporaries(module) if (position[a], PRIMAL) in layout.offsets]
    written = tuple(position[array] for array in [*written_arrays(module), *kept])
    reads = result.reads if result.state == "after" else None  # else stores run again, and read
    regions = specialisation.make_regions(module, reads)
    if not any(task.body.ops[:-1] for task in result.module.tasks):
        return ReverseStep(forward, None, result.state, (), written, (), regions)
    backward, adjoints = _backward(specialisation, result, layout)
    again = _written_temporaries(result.module) if kept else []
    rewritten = [
        result.module.arrays.index(array) for array in [*written_arrays(result.module), *again]
    ]
    rewritten = [number for number in rewritten if number in written]
    needed = dict.fromkeys([*(position[array] for array in result.needed), *rewritten])
    return ReverseStep(
        forward,
        backward,
        result.state,
        tuple(needed),
        written,
        tuple(rewritten),
        regions,
        adjoints=adjoints,
    )


def _backward(
    specialisation: Specialisation, result: Reversed, layout: PersistentLayout
) -> tuple[BoundKernelCode, tuple[int, ...]]:
    """The reverse kernel, and the positions of the arrays whose adjoints it takes as arguments."""
    noalias = specialisation.noalias
    if layout.adjoints == 1:
        offsets = layout.array_offsets(result.module)
        code = BoundKernelCode(specialisation, result.module, (), offsets, noalias=noalias)
        return code, ()
    stage = driver.stage_of(specialisation.options)
    batched = pipeline.batch_adjoints(result.module, layout.adjoints, stage)
    owner = specialisation.with_adjoints(batched.outer)
    offsets = layout.array_offsets(batched.module, batched.inner)
    code = BoundKernelCode(owner, batched.module, (), offsets, noalias=noalias)
    return code, batched.outer


def _written_temporaries(module: Module) -> list[Array]:
    """The launch-temporary and returned arrays that a module writes."""
    spaces = (Space.TEMPORARY, Space.RETURN)
    return written_arrays(module, spaces)


def differentiable(
    specialisation: Specialisation, memories: Mapping[int, TapedMemory]
) -> Specialisation:
    """The kernel to differentiate for a launch on these memories: with aliased arrays merged.

    The result is remembered while the same arrays of Octants are passed, since a kernel may have
    hundreds.
    """
    arrays = [memory.array for memory in memories.values()]
    keys = tuple(getattr(array, "octants_number", None) for array in arrays)
    known = specialisation.fast_paths.get("differentiable")
    if known is not None and known[0] == keys:
        found: Specialisation = known[1]
        return found
    if have_separate_addresses(specialisation, memories):
        found = specialisation
    else:
        aliases = aliases_of(specialisation, memories)
        noalias = is_alias_free(specialisation, memories, aliases)
        found = merge_aliases(specialisation, aliases, noalias=noalias)
    if not any(memory.is_foreign for memory in memories.values()):
        specialisation.fast_paths["differentiable"] = keys, found
    return found


def merge_aliases(
    specialisation: Specialisation, aliases: Sequence[int], *, noalias: bool = True
) -> Specialisation:
    """The kernel in which arrays with the same memory are one array.

    Derivatives are taken of this kernel, since they depend on which accesses touch the same
    element.

    Args:
        specialisation: The kernel.
        aliases: For each position of the module's arrays, that of the first array with the same
            memory.
        noalias: Whether all other arrays, and their companions, share no memory.
    """
    if noalias and all(first == position for position, first in enumerate(aliases)):
        return specialisation
    key = ("merged", tuple(aliases), noalias)
    merged: Specialisation | None = specialisation.derived.get(key)
    if merged is None:
        merged = specialisation.with_module(key, lambda: _merged(specialisation.module, aliases))
        merged.noalias = noalias
        specialisation.derived[key] = merged
    return merged


def _merged(original: Module, aliases: Sequence[int]) -> Module:
    """A copy of a module in which aliased arrays are one."""
    module = cloning.copy_module(original)
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

    return specialisation.derive(("tangent",), make)


def with_tangents(
    specialisation: Specialisation, positions: tuple[int, ...], directions: int = 1
) -> Specialisation:
    """The kernel with the tangents of some of its arrays.

    Args:
        specialisation: the kernel.
        positions: the positions of the arrays, in order: fields, ndarrays, arguments that are
            passed by value, returned values.
        directions: how many directions a launch propagates.

    Returns:
        A clone whose launches are passed an ndarray more for each position, which has a first axis
        for the directions if there are several. What it returns are the values.

    Raises:
        OctantsCompilationError: an operation has no derivative rule.
    """
    key = ("tangents", directions, *positions)
    found: Specialisation | None = specialisation.derived.get(key)
    if found is None:

        def make() -> Module:
            original = specialisation.module
            active = [original.arrays[position] for position in positions]
            stage = driver.stage_of(specialisation.options)
            return pipeline.add_tangent_arrays(original, active, directions, stage)

        names = [f"tangent of {specialisation.arrays[k].name}" for k in positions]
        found = specialisation.derived[key] = specialisation.with_arrays(key, make, names)
    return found
