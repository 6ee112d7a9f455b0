"""``kernel.grad``: the reverse of a kernel, called with the kernel's arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol

from octants import driver, options
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.tape_errors import NothingHasGradient
from octants.diagnostics.tracebacks import of_users, shortens_tracebacks
from octants.internal_members import internal
from octants.launch.checks.race_checks import check_before_gradient, gradient_check
from octants.launch.dlpack_arguments import import_arguments
from octants.launch.gradients.derivative_variants import bare_reverse, differentiable
from octants.launch.gradients.lost_gradient_warnings import warn_of_reverse
from octants.launch.gradients.operand_changes import OperandCheck
from octants.launch.gradients.taped_memory import memories_of, memory_at
from octants.launch.persistent_storage import PersistentStorage, argument_gradients
from octants.launch.specialisation import Specialisation
from octants.launch.streams import launching_in
from octants.launch.warm.alias_free_launches import has_distinct_arrays
from octants.launch.warm.changing_numbers import with_constants
from octants.launch.warm.warm_gradient import LAUNCHED, Reversal, WarmGradients
from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.parameters import Leaf

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    from octants.launch.gradients import explain_gradient
    from octants.launch.gradients.explain_gradient_report import Explanation
else:
    explain_gradient = Deferred("octants.launch.gradients.explain_gradient")


if TYPE_CHECKING:
    P = ParamSpec("P", default=...)
else:
    from typing import ParamSpec

    P = ParamSpec("P")


class Differentiable(Protocol):
    """The interface of a kernel that its gradient uses."""

    name: str
    leaves: list[Leaf]
    generation: int
    warm_gradients: WarmGradients

    def bind(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments of a call in the order of the parameters."""

    def bind_arrays(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Bind arguments like `bind`, and import the arrays of other libraries."""

    def specialisation(self, arguments: tuple[Any, ...]) -> Specialisation:
        """The kernel compiled for arguments like these, mostly found by their key."""

    def specialise(self, arguments: tuple[Any, ...]) -> Specialisation:
        """The kernel compiled for arguments like these."""

    def check_gradient(
        self, specialisation: Specialisation, arguments: tuple[Any, ...], *, trusts: bool
    ) -> None:
        """Raise an error if ``grad`` cannot reverse the launches by the module of the kernel.

        Only kernels of several launches look at the module: what is cached has none yet.
        """

    def check_draws(self, specialisation: Specialisation) -> None:
        """Raise an error if the reverse cannot draw the random numbers of the launches again."""


class Gradient(Generic[P]):
    """``kernel.grad``: propagates the adjoints of what the kernel wrote to those of what it read.

    It runs on memory as it is now, which must be as the last launch with the same arguments left
    it. The adjoint of each returned float is one. `using` changes this.

    Example::

        loss[None] = 0.0
        step(x, loss)           # forward
        loss.grad[None] = 1.0
        step.grad(x, loss)      # adds d loss / d x to x.grad
    """

    __slots__ = ("_first", "_key", "_options", "kernel")

    @internal
    def __init__(
        self,
        kernel: Differentiable,
        first: tuple[Any, ...] = (),
        chosen: GradientOptions | None = None,
    ) -> None:
        self.kernel = kernel
        self._first = first
        self._options = chosen or _DEFAULTS
        self._key = self._options.argument_gradients, self._options.on_overwrite

    def using(self, **chosen: Any) -> Gradient:
        """The same gradient with options, to be called with the kernel's arguments.

        Args:
            argument_gradients: Whether a call returns a dictionary with the gradients of the float
                arguments that are passed by value, by their names: numbers, vectors, matrices.
            seed: The adjoint of the returned value, or a sequence with one for each: a number, or
                numbers in the shape of a vector or matrix.
            on_overwrite: "trust" allows a kernel that overwrites what its reverse needs, and runs
                on what memory holds. The gradient is right if that is what the kernel read. Indices
                that it reads from memory must be valid. "error" refuses such a kernel. None: as set
                in `init`.
        """
        return Gradient(self.kernel, self._first, dataclasses.replace(self._options, **chosen))

    if TYPE_CHECKING:

        def __call__(self, *arguments: P.args, **named: P.kwargs) -> dict[str, Any] | None:
            """Run the reverse."""

    else:

        def __call__(
            self, *arguments: Any, qd_stream: Any = None, **named: Any
        ) -> dict[str, Any] | None:
            try:
                if qd_stream is None:
                    return self._launch(arguments, named)
                with launching_in(qd_stream):
                    return self._launch(arguments, named)
            except OctantsError as error:
                __tracebackhide__ = True  # pytest passes over this frame
                raise error.with_traceback(of_users(error))  # noqa: B904

    def _launch(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any] | None:
        kernel, key = self.kernel, self._key
        arguments = kernel.bind((*self._first, *arguments), named)
        for known, gradient, _ in kernel.warm_gradients.known:
            if known == key:
                reversal = gradient(*arguments)
                if reversal is LAUNCHED:
                    return None
                if reversal is not None:
                    return self._run(reversal, arguments)
        return self._launch_first(arguments)

    def _launch_first(self, arguments: tuple[Any, ...]) -> dict[str, Any] | None:
        """Find the reverse for arguments, and launch it."""
        kernel = self.kernel
        arguments = import_arguments(kernel.leaves, arguments)
        try:
            reversal = self._reversal(arguments)
        except OctantsError as error:
            specialisation = kernel.specialisation(arguments)
            found, given = with_constants(specialisation, specialisation.complete(arguments), error)
            found.number = specialisation.number
            return self._launch(given[len(self._first) :], {})
        if not reversal.trusts:
            check = gradient_check(reversal.merged, effects=False)
            reversal = reversal._replace(may_race=check.program is not None)
        kernel.warm_gradients.add(self._key, kernel.generation, reversal, arguments)
        return self._run(reversal, arguments)

    def _reversal(self, arguments: tuple[Any, ...]) -> Reversal:
        """The reversal for arguments."""
        chosen = self._options
        specialisation = self.kernel.specialisation(arguments)
        if not specialisation.has_gradients and not chosen.argument_gradients:
            raise NothingHasGradient(self.kernel.name).at()
        self.kernel.check_gradient(specialisation, arguments, trusts=chosen.trusts)
        arguments = specialisation.complete(arguments)
        warn_of_reverse(specialisation)
        merged = specialisation
        if not has_distinct_arrays(specialisation, arguments):
            merged = differentiable(specialisation, memories_of(specialisation, arguments))
        reverse = bare_reverse(merged, arguments=chosen.argument_gradients, trusts=chosen.trusts)
        draws = reverse.program.draws
        if draws:
            self.kernel.check_draws(specialisation)
        operands = OperandCheck(specialisation, reverse.needed, draws=draws)
        return Reversal(specialisation, merged, reverse, operands, chosen.trusts)

    def _run(self, reversal: Reversal, arguments: tuple[Any, ...]) -> dict[str, Any] | None:
        """Launch the reverse."""
        specialisation, merged, reverse, operands, trusts, may_race = reversal
        arguments, number = specialisation.complete(arguments), specialisation.number
        if not trusts:
            operands.check(arguments)
            if may_race:
                always = options.current().in_debug_mode
                check_before_gradient(merged, number, arguments, always=always, effects=False)
        persistent, address = None, 0
        if reverse.persistent.size:
            persistent = PersistentStorage(reverse.persistent, merged.device)
            persistent.seed(merged, self._options.seed)
            address = persistent.address
        kept = []
        for position in reverse.rewritten:
            memory = memory_at(merged, position, arguments)
            kept.append((memory, memory.snapshot()))
        reverse.program.launch(driver.state.seed, number, address, *arguments)
        for memory, contents in kept:
            memory.restore(contents)
        if not self._options.argument_gradients:
            return None
        return argument_gradients(merged, persistent)

    @shortens_tracebacks
    def explain(self, *arguments: Any, **named: Any) -> Explanation:
        """Measure what the gradient of a launch with these arguments records, loop by loop.

        The kernel and its reverse run as under a tape; what the kernel prints is printed.
        Afterwards all arrays, gradients and random numbers are as they were. Printed, the result is
        a table; it has a `text`, an `html` page to `save`, and the numbers as data.

        Raises:
            OctantsCompilationError: the kernel cannot be differentiated.
        """
        arguments = self.kernel.bind_arrays((*self._first, *arguments), named)
        specialisation = self.kernel.specialise(arguments)
        return explain_gradient.explain(specialisation, specialisation.complete(arguments))

    def __repr__(self) -> str:
        return f"<gradient of {self.kernel!r}>"


@dataclass(frozen=True)
class GradientOptions:
    """The options of ``kernel.grad``; see `Gradient.using`."""

    argument_gradients: bool = False
    seed: Any = None
    on_overwrite: str | None = None

    def __post_init__(self) -> None:
        if self.on_overwrite not in (None, "error", "trust"):
            problem = f'is "error" or "trust", not {self.on_overwrite!r}'
            raise ValueError(f"on_overwrite of a gradient {problem}; only a tape can save")

    @property
    def trusts(self) -> bool:
        """Whether memory is taken to hold what the kernel read; `init` sets the default."""
        return (self.on_overwrite or options.current().on_overwrite) == "trust"


_DEFAULTS = GradientOptions()
