"""Checks launches for races that compilation cannot rule out; see `passes.checks.watch_races`.

The check runs before the launch. Where the addresses that work items access do not depend on what
the kernel itself writes, a kernel without effects records them. Otherwise the whole kernel runs,
and what it has written is restored.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from octants import driver, options
from octants.backends.table import backend_of
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsAssertionError, OctantsError, OctantsWarning
from octants.diagnostics.race_errors import NoRaceCheck, RaceAccess, describe_race
from octants.diagnostics.user_frames import levels_to_the_user
from octants.ir.core import Companion, Space
from octants.launch.bound_code import BoundKernelCode
from octants.launch.checks.atomic_logs import read_back, zeros_on
from octants.launch.gradients.taped_memory import memories_of
from octants.launch.specialisation import Specialisation
from octants.lazy_dataclass import dataclass
from octants.runtime.capture import uncaptured
from octants.runtime.device import Device

if TYPE_CHECKING:
    from octants.autodiff.facts import races as gradients
    from octants.passes.checks import watch_races as watching
else:
    gradients = Deferred("octants.autodiff.facts.races")
    watching = Deferred("octants.passes.checks.watch_races")

_MOST_KEYS = 64
NumpyArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class RaceCheck:
    """How to check launches of a kernel.

    `program` records accesses, with all effects of the kernel if it `has_effects`. It is None if
    compilation has ruled out all races, or if the device cannot record accesses; then `obstacle` is
    the error. With `updates_matter`, a read of an element that is updated is a race, too.
    `sections` and `sites` are those of `passes.checks.watch_races.Watched`.
    """

    program: BoundKernelCode | None = None
    obstacle: OctantsError | None = None
    has_effects: bool = False
    updates_matter: bool = True
    sections: tuple[int, ...] = ()
    sites: tuple[Any, ...] = ()

    def find(
        self, specialisation: Specialisation, seed: int, number: int, arguments: Sequence[Any]
    ) -> Race | None:
        """Find a race of a launch that is about to be made; None without one.

        A captured graph does not contain the check, which is about memory as it is now.
        """
        if self.program is None:
            return None
        with uncaptured():
            return self._find(self.program, specialisation, (seed, number, 0, *arguments))

    def _find(
        self, program: BoundKernelCode, specialisation: Specialisation, values: tuple[Any, ...]
    ) -> Race | None:
        arguments = values[3:]
        shapes = [_shape(specialisation, position, arguments) for position in self.sections]
        sizes = [math.prod(shape) for shape in shapes]
        starts = np.cumsum([1, *sizes])
        device = specialisation.device
        words = zeros_on(device, watching.WORDS * int(starts[-1]), np.int64)
        log = zeros_on(device, 1, np.int64), _upload(starts, device), words
        self._run(program, specialisation, (*values, *log))
        shadows = read_back(words).reshape(-1, watching.WORDS)
        for section, (start, size) in enumerate(zip(starts, sizes, strict=False)):
            found = _race_in(shadows[start : start + size], self.updates_matter)
            if found is not None:
                element, first, second = found
                where = tuple(int(k) for k in np.unravel_index(element, shapes[section] or (1,)))
                position = self.sections[section]
                rank = len(shapes[section])
                return Race(
                    specialisation.signature.kernel,
                    specialisation.arrays[position].name,
                    where[:rank],
                    (self._access(*first), self._access(*second)),
                )
        return None

    def _run(
        self, program: BoundKernelCode, specialisation: Specialisation, values: tuple[Any, ...]
    ) -> None:
        if not self.has_effects:
            program.launch(*values)
            return
        memories = memories_of(specialisation, values[3 : 3 + specialisation.count])
        saved = [(memories[k], memories[k].snapshot()) for k in specialisation.written]
        try:
            program.launch(*values)
        finally:
            for memory, snapshot in saved:
                memory.restore(snapshot)

    def _access(self, kind: int, number: int) -> RaceAccess:
        verb = {watching.STORED: "stored", watching.READ: "read"}.get(kind, "updated")
        location = self.sites[watching.site_of(number)].location
        return location, verb, int(watching.item_of(number))


@dataclass(frozen=True)
class Race:
    """Two work items that access the same element of an array in an unknown order."""

    kernel: str
    array: str
    element: tuple[int, ...]
    accesses: tuple[RaceAccess, RaceAccess]

    def forward_error(self) -> OctantsAssertionError:
        """The error for a launch whose results depend on the race."""
        return OctantsAssertionError(self._diagnostic("its value is left to chance"))

    def error(self) -> OctantsAssertionError:
        """The error for a launch that is differentiated."""
        return OctantsAssertionError(self._diagnostic("so there is no gradient"))

    def _diagnostic(self, consequence: str) -> Any:
        where = ", ".join(map(str, self.element)) or "None"
        title = (
            f"kernel `{self.kernel}`: work items race for `{self.array}[{where}]`, {consequence}"
        )
        return describe_race("OCT304", title, self.accesses)


def gradient_check(
    specialisation: Specialisation,
    *,
    effects: bool = True,
    companion: Companion = Companion.ADJOINT,
) -> RaceCheck:
    """The check for races that affect the derivative of a launch.

    Without ``effects``, launches are not checked if the check would have to write memory.
    """

    def make() -> RaceCheck:
        module = specialisation.module
        found = gradients.gradient_races(module, companion)
        return _check(specialisation, found, gradients.stamps(module, companion), effects)

    return specialisation.derive(("races", companion.value, effects), make)


def launch_check(specialisation: Specialisation, *, values: bool = False) -> RaceCheck:
    """The check for races that make the results of a launch undefined.

    Those of ``values`` are in arrays that have a derivative.
    """

    def make() -> RaceCheck:
        find = gradients.value_races if values else gradients.launch_races
        found = find(specialisation.module)
        return _check(specialisation, found, lambda _: None, True, updates_matter=False)

    return specialisation.derive(("races", "values" if values else "launch"), make)


def _check(
    specialisation: Specialisation,
    races: Sequence[Any],
    stamp: Any,
    effects: bool,
    updates_matter: bool = True,
) -> RaceCheck:
    accesses = dict.fromkeys(op for race in races for op in (race.one, race.other))
    if not accesses:
        return RaceCheck()
    chosen = specialisation.options
    backend = backend_of(chosen.arch)
    if not driver.capabilities(chosen).updates_64_bits:
        absent = NoRaceCheck(specialisation.signature.kernel, backend.target(chosen).cpu)
        return RaceCheck(obstacle=absent.at(races[0].one.location))
    module = specialisation.module
    watched = watching.watch_races(module, accesses, stamp, effects=False)
    has_effects = watched is None
    if watched is None:
        if not effects:
            return RaceCheck()
        watched = watching.watch_races(module, accesses, stamp, effects=True)
    assert watched is not None
    program = BoundKernelCode(specialisation.with_log, watched.module)
    return RaceCheck(program, None, has_effects, updates_matter, watched.sections, watched.sites)


def check_before_gradient(
    specialisation: Specialisation,
    number: int,
    arguments: Sequence[Any],
    *,
    always: bool,
    effects: bool = True,
    companion: Companion = Companion.ADJOINT,
) -> None:
    """Check a launch for races that affect its derivative, ``always`` or at times.

    Among launches with equal extents and integers, the first, the second, the fourth, the eighth,
    and so on are checked. If a kernel's arguments keep changing, launches after the first
    `_MOST_KEYS` count as equal.

    Raises:
        OctantsAssertionError: there is a race.
    """
    check = gradient_check(specialisation, effects=effects, companion=companion)
    if check.program is None:
        return
    checked: dict[Any, int] = specialisation.fast_paths.setdefault(("checked", companion), {})
    key = tuple(each if type(each) is int else getattr(each, "shape", None) for each in arguments)
    if key not in checked and len(checked) >= _MOST_KEYS:
        key = ()
    count = checked[key] = checked.get(key, 0) + 1
    if always or count & (count - 1) == 0:
        race = check.find(specialisation, driver.state.seed, number, arguments)
        if race is not None:
            raise race.error()


def check_before_tangents(
    specialisation: Specialisation, number: int, arguments: Sequence[Any], companion: Companion
) -> None:
    """Check a launch in forward mode like `check_before_gradient`, as `init` says.

    Raises:
        OctantsAssertionError: there is a race.
    """
    chosen = options.current()
    if chosen.on_overwrite != "trust":
        always = chosen.in_debug_mode
        check_before_gradient(specialisation, number, arguments, always=always, companion=companion)


def validate_launch(specialisation: Specialisation, number: int, arguments: Sequence[Any]) -> None:
    """Check a launch for races that make an element with a derivative undefined.

    These include stores of different numbers that no derivative goes through.

    Raises:
        OctantsAssertionError: there is a race.
        OctantsRuntimeError: the device cannot check for races.
    """
    forward = launch_check(specialisation, values=True)
    for check in (gradient_check(specialisation), forward):
        if check.obstacle is not None:
            raise check.obstacle
    race = forward.find(specialisation, driver.state.seed, number, arguments)
    if race is not None:
        raise race.forward_error()


def launch_with_race_check(specialisation: Specialisation) -> Callable[..., Any]:
    """The launch function of debug mode, which warns about the first race that it finds."""
    found: list[Race] = []

    def launch(seed: int, number: int, persistent: int, *arguments: Any) -> Any:
        if not found:
            race = launch_check(specialisation).find(specialisation, seed, number, arguments)
            if race is not None:
                found.append(race)
                warnings.warn(str(race.forward_error()), OctantsWarning, levels_to_the_user())
        return specialisation.primal.launch(seed, number, persistent, *arguments)

    return launch


def _shape(
    specialisation: Specialisation, position: int, arguments: Sequence[Any]
) -> tuple[int, ...]:
    """The extents of an array in a launch, with those of its elements."""
    array = specialisation.arrays[position]
    shape = array.fixed_shape
    if array.space is Space.NDARRAY and shape is None:
        shape = tuple(specialisation.leaf(position).value(arguments).shape)[: array.rank]
    assert shape is not None
    return (*shape, *array.element_shape)


def _upload(values: NumpyArray, device: Device) -> Any:
    """Copy numbers to memory that kernels on a device can read."""
    array = zeros_on(device, len(values), np.int64)
    if isinstance(array, np.ndarray):
        array[:] = values
    else:
        array.write(values)
    return array


Noted = tuple[int, int]
"""A kind of access, and the number that was recorded for one."""


def _race_in(shadows: NumpyArray, updates_matter: bool) -> tuple[int, Noted, Noted] | None:
    """The first element with a race, and what was recorded for both accesses."""
    stored, read, updated = (
        (shadows[:, kind], watching.GREATEST - shadows[:, kind + 1], kind)
        for kind in (watching.STORED, watching.READ, watching.UPDATED)
    )
    same = shadows[:, watching.VALUES] == watching.GREATEST - shadows[:, watching.VALUES + 1]
    pairs = [(stored, stored), (stored, read), (stored, updated)]
    for one, other in [*pairs, *[(updated, read)] * updates_matter]:
        present = (one[0] != 0) & (other[0] != 0)
        if one is other:
            present &= ~same
        for a, b in ((one[0], other[1]), (one[1], other[0])):
            met = np.flatnonzero(present & (watching.item_of(a) != watching.item_of(b)))
            if len(met):
                element = int(met[0])
                return element, (one[2], int(a[element])), (other[2], int(b[element]))
    return None
