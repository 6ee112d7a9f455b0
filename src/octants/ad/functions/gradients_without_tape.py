"""Propagates adjoints through the only launch of a function without a tape.

A tape is for launches that overwrite what the reverse of others needs. If a function is one kernel,
whose reverse needs nothing that the kernel overwrites, and all its arrays are arguments that share
no memory, then its gradient is one launch of the reverse kernel. The kernel itself runs before it
only if the caller needs its results, if it may print messages, or if its reverse reads what it
writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octants import driver, options
from octants.data.ndarray import Ndarray
from octants.diagnostics.exceptions import OctantsError
from octants.ir.core import Companion
from octants.launch.checks.race_checks import gradient_check
from octants.launch.gradients.derivative_variants import ReverseStep, tape_plan
from octants.launch.gradients.lost_gradient_warnings import flow_of
from octants.launch.gradients.taped_memory import are_disjoint
from octants.launch.kernel import Kernel
from octants.launch.specialisation import Specialisation
from octants.launch.warm.alias_free_launches import positions_of
from octants.runtime.capture import captures
from octants.types.specialisation_signature import ArgumentSource

PRIMAL, ADJOINT = Companion.PRIMAL, Companion.ADJOINT


def reverse_launch(
    kernel: Callable[..., Any], arguments: Sequence[Any], *, needs_results: bool
) -> bool:
    """Add the adjoints of the arrays that a kernel writes to those of the arrays that it reads.

    Args:
        kernel: what a function calls.
        arguments: what it calls it with.
        needs_results: whether arrays must hold what the kernel writes.

    Returns:
        False if nothing was done, since that takes a tape.
    """
    if type(kernel) is not Kernel or kernel.is_method or driver.state.recorder is not None:
        return False
    if captures or options.current().in_debug_mode or not _are_disjoint(arguments):
        return False
    try:
        specialisation = kernel.specialisation(tuple(arguments))
        step = _step_of(specialisation)
    except OctantsError:  # which a tape explains, or avoids
        return False
    if step is None or step.backward is None:
        return False
    seed, number = driver.state.seed, next(driver.state.numbers)
    specialisation.number = number
    complete = specialisation.complete(tuple(arguments))
    if needs_results or _must_run(step):
        step.forward.launch(seed, number, 0, *complete)
    step.backward.launch(seed, number, 0, *complete)
    return True


def _are_disjoint(arguments: Sequence[Any]) -> bool:
    """Whether arguments are ndarrays and numbers, and no two of all arrays share memory."""
    extents: list[tuple[int, int]] = []
    for each in arguments:
        if isinstance(each, Ndarray):
            for companion in (PRIMAL, ADJOINT) if each.has_grad() else (PRIMAL,):
                start = each.address(companion)
                extents.append((start, start + each.nbytes))
        elif not isinstance(each, (int, float)):
            return False
    return are_disjoint(extents)


def _step_of(specialisation: Specialisation) -> ReverseStep | None:
    """How launches of a kernel are reversed without a tape; None if that takes one."""
    known = specialisation.fast_paths
    if "without tape" not in known:
        known["without tape"] = _find_step(specialisation)
    found: ReverseStep | None = known["without tape"]
    return found


def _find_step(specialisation: Specialisation) -> ReverseStep | None:
    for position in positions_of(specialisation):
        is_argument = isinstance(specialisation.sources[position], ArgumentSource)
        if not is_argument or specialisation.leaf(position).path:
            return None
    if specialisation.returned or flow_of(specialisation).may_end:
        return None
    plan = tape_plan(specialisation)
    if len(plan.steps) != 1 or plan.persistent.size:
        return None
    (step,) = plan.steps
    if step.fingerprint or step.log or not step.saves_nothing:
        return None
    return step if gradient_check(specialisation).program is None else None


def _must_run(step: ReverseStep) -> bool:
    """Whether a launch has effects that its reverse needs, or that the caller sees."""
    artifact = step.forward.code.artifact
    is_silent = artifact is not None and not artifact.messages
    return not is_silent or not set(step.needed).isdisjoint(step.written)
