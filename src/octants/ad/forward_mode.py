"""Forward mode: derivatives along a direction, computed together with the values."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from octants import driver
from octants.ad.clear_gradients import clear_gradients
from octants.ad.tapes.block_ends import EndOfBlock
from octants.ad.tapes.memory_overlaps import MemoryOverlaps
from octants.ad.tapes.untracked_writes import UntrackedWrites
from octants.data.array_base import Tensor
from octants.data.host_access_events import HostWrite, before_share, forget, host_writes
from octants.diagnostics.absent_names import method_error
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.tape_errors import NestedTape, NoDual, WrongSeed
from octants.diagnostics.tracebacks import shortens_tracebacks
from octants.internal_members import internal
from octants.ir.core import Companion
from octants.launch.checks.race_checks import check_before_tangents
from octants.launch.gradients.derivative_variants import merge_aliases, tangent_program
from octants.launch.gradients.lost_gradient_warnings import GradientEnds
from octants.launch.gradients.taped_memory import equals_of, memories_of, memory_of, memory_of_write
from octants.launch.specialisation import Specialisation
from octants.launch.warm.changing_numbers import with_constants
from octants.types.specialisation_signature import FieldHandle

if TYPE_CHECKING:
    from typing_extensions import Self

TANGENT = Companion.TANGENT


class FwdMode:
    """Compute ``loss.dual = d loss / d param * seed`` of the launches in its body: forward mode.

    At the end the duals of the parameters are cleared; the other duals remain. A host write in the
    body (`fill`, ``x[i] = v``, `from_numpy`, `from_torch`, `mark_written`) clears the duals of what
    it overwrites; `copy_from` copies them. A parameter that is written before the first launch that
    uses it keeps its direction.

    Example::

        x = qd.field(qd.f64, shape=2, needs_dual=True)
        y = qd.field(qd.f64, shape=2, needs_dual=True)

        @qd.kernel
        def square():
            for i in x:
                y[i] = x[i] ** 2

        with qd.ad.FwdMode(loss=y, param=x, seed=[1.0, 0.0]):
            square()
        print(y.dual.to_numpy())  # the derivatives by x[0]

    Args:
        loss: a field or an ndarray with a dual, or a list of them.
        param: the field or ndarray to differentiate by, or a list of them.
        seed: the direction, a number for each element of `param`, row-major; a list of such for
            several parameters. It may be left out for a `param` of one element.
        clear_gradients: clear all duals first.

    Raises:
        OctantsRuntimeError: for a loss or parameter without a dual, within a tape or another
            forward mode, and at the launch after an untracked write of torch through shared memory.
        OctantsValueError: for a `seed` that does not fit.
    """

    block: Any = None

    def __init__(
        self,
        loss: Any,
        param: Any,
        seed: Sequence[float] | None = None,
        clear_gradients: bool = True,
    ) -> None:
        self.losses = list(loss) if isinstance(loss, (list, tuple)) else [loss]
        several = isinstance(param, (list, tuple))
        self.parameters = list(param) if several else [param]
        self.seeds = _seeds(self.parameters, seed, several)
        for each in self.losses:
            _require_dual("loss", each)
        self.clear_gradients = clear_gradients
        self.paused = 0
        self.thread = threading.get_ident()
        self._touched: set[Any] = set()
        self._untracked = UntrackedWrites(TANGENT)
        self._ends = GradientEnds(TANGENT)
        self._overlaps = MemoryOverlaps(TANGENT)
        self._writers: dict[Any, str] = {}

    @shortens_tracebacks
    def __enter__(self) -> Self:
        if driver.state.recorder is not None:
            raise NestedTape().at()
        if self.clear_gradients:
            clear_gradients(TANGENT)
        for parameter, seed in zip(self.parameters, self.seeds, strict=True):
            parameter.companion_array(TANGENT).write(seed)
        driver.state.recorder = self
        host_writes.observe(self._before_write)
        before_share.observe(self._before_share)
        return self

    def _exit(self, kind: object, error: object, traceback: object) -> None:  # noqa: ARG002
        self._stop()
        self.block = None
        self.clear_seed()
        for loss in self.losses if kind is None else ():
            self._overlaps.see_loss(loss)

    if TYPE_CHECKING:

        def __exit__(self, kind: object, error: object, traceback: object) -> None: ...
    else:
        __exit__ = EndOfBlock(_exit)

    @property
    @internal
    def is_entered(self) -> bool:
        """Whether it is active; see `block_ends`."""
        return driver.state.recorder is self

    @internal
    def abandon(self, _: Any) -> None:
        """End it: the ``with`` statement was interrupted before it called `__exit__`."""
        self.block = None
        if self.is_entered:
            self._stop()

    def _stop(self) -> None:
        forget(self._before_write, self._before_share)
        if driver.state.recorder is self:
            driver.state.recorder = None

    def clear_seed(self) -> None:
        """Set the tangents of the parameters to zero, as the end of the body does."""
        for parameter in self.parameters:
            parameter.companion_array(TANGENT).clear()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise method_error("ad.FwdMode", name)

    @internal
    def launch(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        """Run a launch with its tangents; launches of other threads run without."""
        memories = memories_of(specialisation, arguments)
        if self.paused or threading.get_ident() != self.thread:
            changed = self._untracked.see(specialisation, memories, differentiates=False)
            results = specialisation.run(arguments)
            self._untracked.know_contents(changed)
            return results
        self._overlaps.see(specialisation, memories)
        exported = self._untracked.see(specialisation, memories)
        self._ends.observe(specialisation, memories)
        self._touched.update(memory.key for memory in memories.values())
        kernel = f"kernel `{specialisation.signature.kernel}`"
        self._writers.update((memories[k].key, kernel) for k in specialisation.written)
        aliases = equals_of(specialisation, memories)
        try:
            merged = merge_aliases(specialisation, aliases)
            program = tangent_program(merged)
        except OctantsError as error:
            return self.launch(*with_constants(specialisation, arguments, error))
        number = specialisation.number = next(driver.state.numbers)
        check_before_tangents(merged, number, arguments, TANGENT)
        results = program.launch(driver.state.seed, number, 0, *arguments)
        self._untracked.know_contents(exported)
        return specialisation.wrap(results) if results else None

    def _before_share(self, array: Any, becomes_untracked: bool) -> None:
        """Note that others are to see an array, and may write it, and pass it as another array."""
        key = array.identity
        is_used = key in self._touched
        if is_used and becomes_untracked and array.has_dual():
            self._untracked.know_contents([memory_of(array, array.describe())])
        self._overlaps.see_export(array, self._writers.get(key), is_used=is_used)

    def _before_write(self, write: HostWrite) -> None:
        """Set the tangent of what the host writes to that of its source, or to zero."""
        memory = memory_of_write(write)
        if memory is not None:
            self._untracked.see_host_write(memory, write)
            self._overlaps.see_host_write(write.array, write.region)
            if not write.region:
                self._ends.forget(memory)
        tangent, source = _tangent_of(write.array), write.source
        if tangent is None:
            return
        if source is not None:
            self._touched |= {write.array.identity, source.identity}
            given = _tangent_of(source)
            if given is not None:
                tangent.write(given.read().reshape(tangent.window().shape))
                return
        elif write.array in self.parameters and write.array.identity not in self._touched:
            return
        tangent.clear(write.region)


def _tangent_of(array: Any) -> Any:
    """The tangent of an array or of its gradient, if it has one in memory; None of a tangent."""
    return array.companion_array(TANGENT) if array.has_dual() else None


def _require_dual(what: str, array: Any) -> None:
    if not isinstance(array, Tensor):
        problem = f"cannot be a {type(array).__name__}"
        raise NoDual(what, problem, "give a field or an ndarray, or a list of them").at()
    if array.has_dual():
        return
    problem = f"cannot be the {array.describe()}"
    if not array.dtype.is_float or array.companion is not Companion.PRIMAL:
        raise NoDual(what, problem, "give a field or an ndarray of floats").at()
    advice = "make it with `needs_dual=True`"
    if isinstance(array, FieldHandle):
        advice += ", or call `qd.root.lazy_dual()` before its first use"
        if array.is_allocated:
            advice += " (this field has been used already)"
    raise NoDual(what, f"{problem} without a dual", advice).at()


def _seeds(parameters: list[Any], seed: Any, several: bool) -> list[np.ndarray[Any, Any]]:
    """The direction in each parameter, in the shape of the parameter."""
    for parameter in parameters:
        _require_dual("param", parameter)
    given = seed if several else [seed]
    if given is None:
        given = [None] * len(parameters)
    if len(given) != len(parameters):
        raise WrongSeed(
            f"{len(parameters)} parameters, but the length of `seed` is {len(given)}"
        ).at()
    return [_seed(parameter, each) for parameter, each in zip(parameters, given, strict=True)]


def _seed(parameter: Any, seed: Any) -> np.ndarray[Any, Any]:
    shape = (*parameter.shape, *parameter.element_shape)
    count = math.prod(shape)
    if seed is None:
        if count != 1:
            raise WrongSeed(f"`seed` is missing for a parameter of {count} elements").at()
        seed = [1.0]
    numbers = np.asarray(seed, dtype=parameter.dtype.numpy).reshape(-1)
    if numbers.size != count:
        raise WrongSeed(
            f"the size of a seed is {numbers.size}, but that of its parameter is {count}"
        ).at()
    return numbers.reshape(shape)
