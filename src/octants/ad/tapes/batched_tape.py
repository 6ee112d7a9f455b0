"""A tape that propagates several adjoints through one recording, all in each reverse launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octants.ad.tapes.batched_gradients import BatchedGradients, OneByOne
from octants.ad.tapes.scalar_argument_gradients import ArgumentGradients
from octants.ad.tapes.tape import Tape
from octants.ad.tapes.tape_entries import HostEntry, LaunchEntry
from octants.deferred_import import Deferred
from octants.launch.gradients.derivative_variants import TapePlan
from octants.launch.specialisation import Specialisation

if TYPE_CHECKING:
    from octants.autodiff.variants import batched_adjoints
else:
    batched_adjoints = Deferred("octants.autodiff.variants.batched_adjoints")


class BatchedTape(Tape):
    """A tape whose gradients are `gradients`.

    Args:
        gradients: the gradients of arrays, which begin as the adjoints of the results.
        loss: a kernel whose returned value has adjoints.
        seed: the adjoints of what it returns.
        argument_gradients: as for `Tape`.

    Raises:
        OneByOne: at the end of the body: it did what has no reverse for several adjoints.
    """

    _repeats = False

    def __init__(
        self,
        gradients: BatchedGradients,
        loss: Any = None,
        *,
        seed: Any = None,
        argument_gradients: Any = False,
    ) -> None:
        super().__init__(loss, clear_gradients=False, seed=seed)
        self._requested = ArgumentGradients(argument_gradients, gradients.count)
        self._gradients = gradients
        self._adjoints = gradients.count
        self._problem = ""

    def _propagate(self) -> None:
        self._stop()
        for entry in self._entries:
            if not isinstance(entry, (LaunchEntry, HostEntry)):
                raise OneByOne(f"a {type(entry).__name__} propagates one adjoint")
            entry.gradients = self._gradients
        if self._problem:
            raise OneByOne(self._problem)
        super()._propagate()

    def _plan(self, specialisation: Specialisation) -> TapePlan:
        try:
            return super()._plan(specialisation)
        except batched_adjoints.CannotBatch as error:
            self._problem = str(error)
            self._adjoints = 1  # plans, and what is cached of them, are for one adjoint from here
            return super()._plan(specialisation)
