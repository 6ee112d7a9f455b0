"""Forward mode: derivatives along a direction, computed together with the values."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from octants import driver
from octants.ad.clearing import clear_gradients
from octants.data.events import HostWrite, forget_observer, observe_writes
from octants.diagnostics.tape_errors import NestedTape, NoDual, WrongSeed
from octants.ir.core import Companion
from octants.launch.gradient import merge_aliases, tangent_program
from octants.launch.memory import equals_of, memories_of
from octants.launch.specialisation import Specialisation

if TYPE_CHECKING:
    from typing_extensions import Self

TANGENT = Companion.TANGENT


class FwdMode:
    """Computes in its body ``loss.dual = d loss / d param * seed``, a Jacobian-vector product.

    `loss` is a field or an ndarray, or a list of them; `param` is one whose elements `seed` gives
    the direction in, row-major; for a `param` of one element it is 1 if left out. Several
    parameters are given as a list, with a list of seeds. All duals are cleared before, with
    `clear_gradients`; those of the parameters are at the end, the others stay to be read. A host
    write in the body clears the duals of what it overwrites.
    """

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
        self._thread = threading.get_ident()

    def __enter__(self) -> Self:
        if driver.state.recorder is not None:
            raise NestedTape().at(None)
        if self.clear_gradients:
            clear_gradients(TANGENT)
        for parameter, seed in zip(self.parameters, self.seeds, strict=True):
            parameter.companion_array(TANGENT).write(seed)
        driver.state.recorder = self
        observe_writes(self._before_write)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        driver.state.recorder = None
        forget_observer(self._before_write)
        for parameter in self.parameters:
            parameter.companion_array(TANGENT).clear()

    def launch(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        """Run a launch with its tangents; those of other threads without."""
        if self.paused or threading.get_ident() != self._thread:
            return specialisation.run(arguments)
        equals = equals_of(specialisation, memories_of(specialisation, arguments))
        program = tangent_program(merge_aliases(specialisation, equals))
        number = specialisation.number = next(driver.state.numbers)
        results = program.launch(driver.state.seed, number, 0, *arguments)
        return specialisation.wrap(results) if results else None

    def _before_write(self, write: HostWrite) -> None:
        array = write.array
        if array.companion is not Companion.PRIMAL or array in self.parameters:
            return
        if not array.has_dual():
            return
        dual = array.companion_array(TANGENT)
        source = write.source
        if source is not None and source.has_dual():
            dual.write(source.companion_array(TANGENT).read().reshape(dual.window().shape))
        else:
            dual.clear(write.region)


def _require_dual(what: str, array: Any) -> None:
    if not hasattr(array, "has_dual") or not array.has_dual():
        raise NoDual(what).at(None)


def _seeds(parameters: list[Any], seed: Any, several: bool) -> list[np.ndarray[Any, Any]]:
    """The direction in each parameter, in its shape."""
    for parameter in parameters:
        _require_dual("param", parameter)
    given = seed if several else [seed]
    if given is None:
        given = [None] * len(parameters)
    if len(given) != len(parameters):
        raise WrongSeed(f"{len(parameters)} parameters, but {len(given)} seeds").at(None)
    return [_seed(parameter, each) for parameter, each in zip(parameters, given, strict=True)]


def _seed(parameter: Any, seed: Any) -> np.ndarray[Any, Any]:
    shape = (*parameter.shape, *parameter.element_shape)
    count = math.prod(shape)
    if seed is None:
        if count != 1:
            raise WrongSeed(f"`seed` is missing for a parameter of {count} elements").at(None)
        seed = [1.0]
    numbers = np.asarray(seed, dtype=parameter.dtype.numpy).reshape(-1)
    if numbers.size != count:
        raise WrongSeed(f"a seed of {numbers.size} numbers for {count} elements").at(None)
    return numbers.reshape(shape)
