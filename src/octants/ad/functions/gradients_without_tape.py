"""Propagates adjoints through the only launch of a function without a tape.

A tape is for launches that overwrite what the reverse of others needs. If a function is one kernel,
whose reverse needs nothing that the kernel overwrites, and all its arrays are arguments that share
no memory, or fields without a gradient that it only reads, then its gradient is one launch of the
reverse kernel. The kernel itself runs before it only if the caller needs its results, if it may
print messages, or if its reverse reads what it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from octants import driver, options
from octants.data.ndarray import Ndarray
from octants.diagnostics.exceptions import OctantsError
from octants.ir.core import Companion
from octants.launch.checks.race_checks import gradient_check
from octants.launch.gradients.derivative_variants import ReverseStep, tape_plan
from octants.launch.gradients.lost_gradient_warnings import flow_of
from octants.launch.kernel import BoundKernel, Kernel
from octants.launch.persistent_storage import (
    PersistentLayout,
    PersistentStorage,
    argument_gradients,
)
from octants.launch.specialisation import Specialisation
from octants.launch.warm.alias_free_launches import positions_of
from octants.runtime.arguments.overlap_test import are_disjoint
from octants.runtime.capture import captures
from octants.types.specialisation_signature import ArgumentSource

PRIMAL, ADJOINT = Companion.PRIMAL, Companion.ADJOINT


class ReversedLaunch(NamedTuple):
    """The number that a launch returned, and the memory with the gradients of numbers."""

    specialisation: Specialisation
    arguments: tuple[Any, ...]
    returned: Any
    persistent: PersistentStorage | None

    def gradients_of_numbers(self) -> dict[str, Any]:
        """The gradients of the numbers, vectors and matrices that the kernel takes, by name."""
        return argument_gradients(self.specialisation, self.persistent)


class ReverseWithoutTape:
    """A kernel for which a launch and its reverse take no tape.

    Args:
        specialisation: the kernel.
        step: its launch and its reverse.
        layout: the memory of the adjoints of what it returns and of numbers that it takes.
    """

    def __init__(
        self, specialisation: Specialisation, step: ReverseStep, layout: PersistentLayout
    ) -> None:
        self.specialisation = specialisation
        self.layout = layout
        self._step = step
        artifact = step.forward.code.artifact
        is_silent = artifact is not None and not artifact.messages
        reads_results = not set(step.needed).isdisjoint(step.written)
        self.must_run = not is_silent or reads_results
        """Whether a launch has effects that its reverse needs, or that the caller sees."""

    @property
    def draws(self) -> bool:
        """Whether random numbers are drawn."""
        codes = self._step.forward, self._step.backward
        return any(code is not None and code.draws for code in codes)

    def uses_values_of(self, parameter: int) -> bool:
        """Whether a launch accesses the elements of the array at a position of the parameters."""
        if self.must_run:
            return True
        backward, sources = self._step.backward, self.specialisation.sources
        assert backward is not None
        return any(
            companion is PRIMAL and sources[k] == ArgumentSource(parameter)
            for k, companion in backward.compiled.accessed
            if k < len(sources)
        )

    def launch(
        self, arguments: tuple[Any, ...], *, needs_results: bool, seed: Any
    ) -> ReversedLaunch:
        """Add the adjoints of what the kernel writes to those of what it reads.

        Args:
            arguments: those of the kernel.
            needs_results: whether arrays must hold what the kernel writes.
            seed: the adjoint of the number that the kernel returns; None: zero.
        """
        specialisation, step = self.specialisation, self._step
        first, number = driver.state.seed, next(driver.state.numbers)
        specialisation.number = number
        complete = specialisation.complete(arguments)
        persistent, address, returned = None, 0, None
        if self.layout.size:
            persistent = PersistentStorage(self.layout, specialisation.device)
            address = persistent.address
            if seed is not None:
                persistent.seed(specialisation, seed)
        if needs_results or self.must_run:
            results = step.forward.launch(first, number, address, *complete)
            returned = specialisation.wrap(results) if results else None
        assert step.backward is not None
        step.backward.launch(first, number, address, *complete)
        return ReversedLaunch(specialisation, arguments, returned, persistent)


def reverse_launch(
    kernel: Callable[..., Any],
    arguments: Sequence[Any],
    *,
    needs_results: bool,
    seed: Any = None,
    by_value: bool = False,
) -> ReversedLaunch | None:
    """Add the adjoints of what a kernel writes to those of what it reads.

    Args:
        kernel: what a function calls.
        arguments: what it calls it with.
        needs_results: whether the results of the kernel are used.
        seed: the adjoint of the number that the kernel returns; None: zero.
        by_value: whether to find the gradients of numbers.

    Returns:
        None if nothing was done, since that takes a tape.
    """
    alone = kernel_alone(kernel)
    if alone is None or not _are_disjoint(arguments):
        return None
    single, owner = alone
    arguments = (*owner, *arguments)
    try:
        specialisation = single.specialisation(arguments)
        found = reverse_of(specialisation, by_value=by_value)
    except OctantsError:  # which a tape explains, or avoids
        return None
    if found is None:
        return None
    return found.launch(arguments, needs_results=needs_results, seed=seed)


def kernel_alone(function: Callable[..., Any]) -> tuple[Kernel[..., Any], tuple[Any, ...]] | None:
    """The kernel that a function is, and the object if it is a method.

    None if the function is something else, or a tape, a capture or a check takes part in launches.
    """
    return None if is_observed() else kernel_of(function)


def kernel_of(function: Callable[..., Any]) -> tuple[Kernel[..., Any], tuple[Any, ...]] | None:
    """The kernel that a function is, and the object if it is a method; None if it is none."""
    if type(function) is Kernel and not function.is_method:
        return function, ()
    return (function.kernel, (function.owner,)) if type(function) is BoundKernel else None


def is_observed() -> bool:
    """Whether a tape, a capture or a check takes part in launches."""
    return bool(driver.state.recorder is not None or captures or options.current().in_debug_mode)


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


def reverse_of(specialisation: Specialisation, *, by_value: bool) -> ReverseWithoutTape | None:
    """How launches of a kernel are reversed without a tape; None if that takes one.

    Raises:
        OctantsError: the kernel has no derivative.
    """
    known, key = specialisation.fast_paths, ("without tape", by_value)
    if key not in known:
        known[key] = _find_reverse(specialisation, by_value)
    found: ReverseWithoutTape | None = known[key]
    return found


def _find_reverse(specialisation: Specialisation, by_value: bool) -> ReverseWithoutTape | None:
    for position in positions_of(specialisation):
        if isinstance(specialisation.sources[position], ArgumentSource):
            if specialisation.leaf(position).path:
                return None
        elif position in specialisation.written or specialisation.arrays[position].has(ADJOINT):
            return None
    if flow_of(specialisation).may_end:
        return None
    plan = tape_plan(specialisation, arguments=by_value)
    if len(plan.steps) != 1 or any(kind is PRIMAL for _, kind in plan.persistent.offsets):
        return None
    (step,) = plan.steps
    if step.backward is None or step.fingerprint or step.log or not step.saves_nothing:
        return None
    if gradient_check(specialisation).program is not None:
        return None
    return ReverseWithoutTape(specialisation, step, plan.persistent)
