"""Finds what has changed the operands of a bare gradient since the kernel was launched.

A bare ``kernel.grad()`` reads memory as it is. Launches are numbered; a kernel knows the number of
its last launch, whose parameter block has the arguments, and an array knows when the host wrote it
last. So a launch records nothing for this.

A finding is that the host, or another kernel, may have written elements that the reverse run reads.
A kernel that had run before, too, may have computed the same values again, as when steps are
repeated to be reversed. That is a warning; all else is an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from octants import driver
from octants.analysis.indices.index_ranges import Accessed, ArrayRegion, intersect
from octants.cached_property import cached_property
from octants.data.host_access_events import Clock
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsError, OctantsWarning
from octants.diagnostics.tape_errors import OperandChanged, OtherRandomNumbers
from octants.diagnostics.user_frames import levels_to_the_user
from octants.ir.core import Companion, Space
from octants.launch.gradients.derivative_variants import tape_plan
from octants.launch.gradients.taped_memory import (
    CALLERS_SPACES,
    TapedMemory,
    memory_at,
    region_of,
)
from octants.launch.specialisation import Specialisation
from octants.lazy_dataclass import dataclass
from octants.runtime.parameter_blocks.recovered_arguments import LastLaunch
from octants.types.specialisation_signature import ArgumentSource, FieldSource, NdarrayHandle

if TYPE_CHECKING:
    from octants.ir import ops
else:
    ops = Deferred("octants.ir.ops")


@dataclass(frozen=True, slots=True)
class Change:
    """A write to an operand of a kernel after its last launch."""

    array: str
    writer: str
    may_be_the_same: bool = False


class OperandCheck:
    """Checks the operands of the gradients of one kernel with the same arrays.

    Mostly nothing but the kernel itself has run since its launch, and it had the same arguments as
    at an earlier check that found nothing: then this one ends early.

    Args:
        specialisation: The kernel.
        needed: The positions of the arrays that its reverse run reads.
        draws: Whether that draws random numbers again.
    """

    def __init__(
        self, specialisation: Specialisation, needed: Sequence[int], *, draws: bool
    ) -> None:
        self._specialisation = specialisation
        self._needed = needed
        self._draws = draws
        self._passed: tuple[Any, ...] | None = None

    def check(self, arguments: tuple[Any, ...]) -> None:
        """Check that memory holds what the launch read that is about to be reversed.

        Raises:
            OctantsRuntimeError: the host, or a kernel that had not run before, has written there,
                or random numbers would be those of a later launch.
        """
        own = self._specialisation
        if not own.number:
            return
        if self._draws and not _Last(own).had(arguments):
            raise OtherRandomNumbers(own.signature.kernel).at()
        if not self._needed:
            return
        run = self._last_run(arguments) if _was_last(own) else None
        if run is not None and run == self._passed:
            return
        changes = list(_changes(own, arguments, self._needed))
        self._passed = None if changes else run
        _report(own, changes)

    def _last_run(self, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The arguments of the last launch and the integers of the gradient; None if unknown."""
        own = self._specialisation
        named = own.regions.named
        if own.has_only_fields and not named:
            return ()
        primal = own.__dict__.get("primal")
        block = None if primal is None else primal.last_arguments(own.number)
        if block is None:
            return None
        return block, *(arguments[k] for k in named if isinstance(arguments[k], (int, np.integer)))


Launched = Sequence[tuple[Specialisation, tuple[Any, ...]]]
"""Kernels that were launched, each with its arguments."""


def changed_operands(
    launched: Launched,
    since: int,
    before: int,
    is_own: Callable[[Any], bool],
    *,
    is_alone: bool,
) -> Iterator[tuple[str, Change]]:
    """The fields and ndarrays that launches read, and that were written before them.

    Those that one of these kernels writes, too, are left out: see `changed_state`.

    Args:
        launched: the launches, of a derivative.
        since: the last number of the launches of a value, which read the same arrays.
        before: the first number of the derivative.
        is_own: whether an argument of a launch is an array of the derivative itself.
        is_alone: whether it is the reverse of one launch.

    Yields:
        The name of a kernel that reads such an array, and the write.
    """
    read = [
        (own, given, memory_at(own, position, given), position)
        for own, given in launched
        for position in _only_read(own, is_alone=is_alone)
        if _is_operand(own, position, given, is_own)
    ]
    if not read:
        return
    owns = {own for own, _ in launched}
    later = [each for each in _launches_after(since) if each.specialisation not in owns]
    others = [each for each in later if not since < before <= each.specialisation.number]
    inner = [each for each in later if each not in others]  # without a gradient
    written = {
        memory_at(own, position, given).key
        for own, given in launched
        for position in own.written
        if _is_operand(own, position, given, is_own)
    }
    for own, given, memory, position in read:
        if memory.key in written or any(each.wrote(memory, None) for each in inner):
            continue
        by_host = _host_wrote(memory, None, since, before)
        writers = [other for other in others if other.wrote(memory, None)]
        if not by_host and not writers:
            continue
        region = _read_at(own.regions.of(given), position)
        if by_host and _host_wrote(memory, region, since, before):
            yield own.signature.kernel, Change(memory.name, "the host")
        for other in writers:
            if other.wrote(memory, region):
                yield own.signature.kernel, Change(memory.name, f"kernel `{other.name}`")


def changed_state(launched: Launched, before: int) -> Iterator[tuple[str, str, str]]:
    """The fields of which launches read what earlier calls have left, and that they change.

    They are the state of a function: a derivative, which launches the kernels again, reads what the
    value has left there. An update, such as ``+=``, reads in that sense what later launches read.

    Args:
        launched: the launches, of a derivative, in order.
        before: the first number of the derivative.

    Yields:
        The name of the kernel that reads, of the field, and of the kernel that writes.
    """
    states = {key for own, _ in launched for key, _ in _fields_at(own, own.written)}
    if not states:
        return
    stored = {key for own, _ in launched for key, _ in _fields_at(own, _accesses(own).stored)}
    read: list[tuple[Any, str, ArrayRegion]] = []
    written: list[tuple[Any, ArrayRegion]] = []
    updated: list[tuple[Any, str, ArrayRegion]] = []
    for own, given in launched:
        regions, name, accesses = own.regions.of(given), own.signature.kernel, _accesses(own)
        for key, position in _fields_at(own, accesses.read_first):
            region = _known_region(own, position, regions, "read")
            is_set = any(key == other and intersect(region, at) for other, at in written)
            if key in states and region is not _UNKNOWN and not is_set:
                read.append((key, name, region))
        for key, position in _fields_at(own, own.written):
            region = _known_region(own, position, regions, "written")
            written.append((key, None if region is _UNKNOWN else region))
            for other, reader, at in () if region is _UNKNOWN else read:
                if other == key and intersect(region, at):
                    yield reader, own.arrays[position].name, name
            memory = memory_at(own, position, given)
            if key not in stored and not _host_wrote(memory, None, before):
                updated.append((key, name, region))
        for key, position in _fields_at(own, accesses.loaded):
            region = _known_region(own, position, regions, "read")
            for other, writer, at in () if region is _UNKNOWN else updated:
                if other == key and at is not _UNKNOWN and intersect(region, at):
                    yield name, own.arrays[position].name, writer


_UNKNOWN: Any = ((),)


def _known_region(
    specialisation: Specialisation, position: int, regions: Mapping[int, Accessed], access: str
) -> ArrayRegion:
    """The elements of an array that a launch reads or writes; `_UNKNOWN` if it may be others."""
    found: ArrayRegion = getattr(regions[position], access) if position in regions else None
    return _UNKNOWN if found is None and specialisation.arrays[position].rank else found


def _fields_at(
    specialisation: Specialisation, positions: Iterable[int]
) -> Iterator[tuple[Any, int]]:
    """The fields among the arrays at some positions, by their keys."""
    sources, arrays = specialisation.sources, specialisation.arrays
    for k in positions:
        if isinstance(sources[k], FieldSource) and arrays[k].space in CALLERS_SPACES:
            yield memory_at(specialisation, k, ()).key, k


@dataclass(frozen=True, slots=True)
class _Accesses:
    """The positions of arrays that a kernel accesses in some way.

    Those that it reads before it writes any of their elements, that it stores to, and of which it
    uses elements, loaded or given by an update.
    """

    read_first: list[int]
    stored: list[int]
    loaded: list[int]


def _accesses(specialisation: Specialisation) -> _Accesses:
    def make() -> _Accesses:
        module = specialisation.module
        first: dict[Any, bool] = {}
        stored, loaded = set[Any](), set[Any]()
        used = {operand for op in module.walk() for operand in op.operands}
        for op in module.walk():
            if isinstance(op, ops.Access) and op.companion is Companion.PRIMAL:
                array = op.array.whole
                first.setdefault(array, isinstance(op, ops.Load))
                if isinstance(op, ops.Store):
                    stored.add(array)
                elif not used.isdisjoint(op.results):
                    loaded.add(array)
        read_first = {array for array, is_read in first.items() if is_read}
        found = read_first, stored, loaded
        return _Accesses(*([k for k, a in enumerate(module.arrays) if a in each] for each in found))

    return specialisation.derive(("accesses",), make)


def reads_fields(specialisation: Specialisation) -> bool:
    """Whether a kernel reads fields, or ndarrays that it names."""
    positions = *_only_read(specialisation, is_alone=False), *_accesses(specialisation).loaded
    return any(isinstance(specialisation.sources[k], FieldSource) for k in positions)


def _only_read(specialisation: Specialisation, *, is_alone: bool) -> Sequence[int]:
    """The positions of the arrays that a kernel only reads.

    If it is alone, and nothing is recorded for its reverse, of those that its reverse reads.
    """
    known, key = specialisation.fast_paths, ("only read", is_alone)
    if key not in known:
        arrays, written = specialisation.arrays, specialisation.written
        outer = {k for k, array in enumerate(arrays) if array.space in CALLERS_SPACES}
        found = outer.difference(written)
        if found and is_alone:
            steps = tape_plan(specialisation).steps
            if all(step.saves_nothing for step in steps):
                codes = [step.backward for step in steps if step.backward is not None]
                accessed = {ref for code in codes for ref in code.compiled.accessed}
                found = {k for k in found if (k, Companion.PRIMAL) in accessed}
        known[key] = sorted(found)
    positions: Sequence[int] = known[key]
    return positions


def _is_operand(
    specialisation: Specialisation,
    position: int,
    arguments: tuple[Any, ...],
    is_own: Callable[[Any], bool],
) -> bool:
    """Whether an array is a field, or an ndarray that is not of the derivative."""
    source = specialisation.sources[position]
    if not isinstance(source, ArgumentSource):
        return isinstance(source, FieldSource)
    value = specialisation.leaf(position).value(arguments)
    return isinstance(value, NdarrayHandle) and not is_own(value)


def _was_last(specialisation: Specialisation) -> bool:
    """Whether, since its last launch, no kernel was launched and the host wrote no array."""
    state, (numbers, left) = driver.state, Clock.now()
    if numbers is not state.first_numbers or left < 0:
        return False
    if driver.last_number(left) != specialisation.number:
        return False
    written, left = Clock.last_write
    return written is not numbers or driver.last_number(left) < specialisation.number


def _report(specialisation: Specialisation, changes: Sequence[Change]) -> None:
    """Raise the error, or give the warnings, that changes deserve."""
    kernel = specialisation.signature.kernel
    for change in changes:
        if not change.may_be_the_same:
            raise _error(change, kernel)
    warned: set[tuple[str, str]] = specialisation.fast_paths.setdefault("changes", set())
    for change in changes:
        if (change.array, change.writer) not in warned:
            warned.add((change.array, change.writer))
            warnings.warn(str(_error(change, kernel)), OctantsWarning, levels_to_the_user())


def _error(change: Change, kernel: str) -> OctantsError:
    return OperandChanged(change.array, kernel, change.writer).at()


def _changes(
    specialisation: Specialisation, arguments: tuple[Any, ...], needed: Sequence[int]
) -> Iterator[Change]:
    last, known = _Last(specialisation), _array_positions(specialisation)
    memories = {k: memory_at(specialisation, k, arguments) for k in known.others}
    has_same_arrays = all(last.is_at(k, memory) for k, memory in memories.items())
    is_same = has_same_arrays and last.has_integers_of(arguments)
    suspects = [] if is_same else [last]
    if has_same_arrays:  # else the time of the launch with these is unknown
        suspects += _later_launches(specialisation)
    for position in needed:
        if specialisation.arrays[position].space not in CALLERS_SPACES:
            continue
        memory = memory_at(specialisation, position, arguments)
        writers = [each for each in suspects if each.written_at(memory)]
        by_host = has_same_arrays and _host_wrote(memory, None, specialisation.number)
        if not writers and not by_host:
            continue
        at = known.fields.get(memory.key) or [
            k for k, other in memories.items() if other.key == memory.key
        ]
        read = _read_region(at, specialisation.regions.of(arguments))
        if by_host and _host_wrote(memory, read, specialisation.number):
            yield Change(memory.name, "the host")
        for each in writers:
            if not each.wrote(memory, read):
                continue
            if each is last:
                yield Change(memory.name, f"a later launch of `{last.name}`", may_be_the_same=True)
            else:
                again = each.specialisation.born < specialisation.number
                yield Change(memory.name, f"kernel `{each.name}`", may_be_the_same=again)


class _ArrayPositions(NamedTuple):
    """The positions of the fields that a kernel uses, and writes, by their keys; of `others`.

    `named` are the arguments on which the regions of a launch depend, with their sources.
    """

    fields: dict[Any, list[int]]
    written: dict[Any, list[int]]
    others: list[int]
    named: list[tuple[int, ArgumentSource]]


def _array_positions(specialisation: Specialisation) -> _ArrayPositions:
    """The positions of the arrays of a kernel whose memory launches share."""
    known: _ArrayPositions | None = specialisation.fast_paths.get("array positions")
    if known is None:
        known = _ArrayPositions({}, {}, [], [])
        named = specialisation.regions.named
        for k, (array, source) in enumerate(
            zip(specialisation.arrays, specialisation.sources, strict=True)
        ):
            if array.space is Space.FIELD and isinstance(source, FieldSource):
                field: Any = source.field
                known.fields.setdefault(field.identity, []).append(k)
                if k in specialisation.written:
                    known.written.setdefault(field.identity, []).append(k)
            elif array.space in CALLERS_SPACES:
                known.others.append(k)
            if isinstance(source, ArgumentSource) and source.position in named and not source.path:
                known.named.append((k, source))
        specialisation.fast_paths["array positions"] = known
    return known


def _read_at(regions: Mapping[int, Accessed], position: int) -> ArrayRegion:
    """The elements of the array at a position that a launch reads; None for any of them."""
    return regions[position].read if position in regions else None


def _read_region(positions: Sequence[int], regions: Mapping[int, Accessed]) -> ArrayRegion:
    """The elements that a launch reads of the array at some positions."""
    found: list[Any] = []
    for position in positions:
        region = _read_at(regions, position)
        if region is None:
            return None
        found.extend(region)
    return tuple(found)


def _later_launches(specialisation: Specialisation) -> list[_Last]:
    """The last launches of the kernels that were launched after a kernel's last launch.

    Empty where numbers do not tell, as steps that are repeated get their numbers again.
    """
    if driver.state.numbers is not driver.state.first_numbers:
        return []
    return [
        each
        for each in _launches_after(specialisation.number)
        if each.specialisation is not specialisation
    ]


def _launches_after(number: int) -> list[_Last]:
    """The last launches of kernels, of those after the launch with a number."""
    return [_Last(each) for each in driver.state.specialisations if each.number > number]


def _host_wrote(
    memory: TapedMemory, region: ArrayRegion, number: int, before: int | None = None
) -> bool:
    """Whether the host has written elements of a region after the launch with a number.

    Args:
        memory: the array.
        region: the elements.
        number: the number.
        before: the write was before this number, or repeated launches had other numbers; None: it
            was since launches had new numbers.
    """
    if memory.array.written is None:
        return False
    (numbers, left), index = memory.array.written
    if left < 0 or (before is None and numbers is not driver.state.numbers):
        return False
    last = driver.last_number(left)
    if last < number or (before is not None and number < before <= last):
        return False
    return intersect(region, region_of(memory.array, index))


class _Last:
    """The last launch of a kernel."""

    def __init__(self, specialisation: Specialisation) -> None:
        self.specialisation = specialisation
        self.name = specialisation.signature.kernel

    @cached_property
    def _given(self) -> LastLaunch | None:
        primal = self.specialisation.__dict__.get("primal")
        return None if primal is None else primal.last_launch(self.specialisation.number)

    def is_at(self, position: int, memory: TapedMemory) -> bool:
        """Whether the array at a position was this one."""
        own = self.specialisation
        source = own.sources[position]
        if isinstance(source, FieldSource):
            field: Any = source.field
            return bool(field.identity == memory.key)
        if memory.is_field:
            return False
        if self._given is not None:
            return self._given.address(position) == memory.array.extent[0]
        given = own.given_in_segments()
        return given is not None and memory_at(own, position, given).key == memory.key

    def had(self, arguments: tuple[Any, ...]) -> bool:
        """Whether it had the arguments of another launch, as far as is known."""
        own, given = self.specialisation, self._given
        if given is None or driver.state.numbers is not driver.state.first_numbers:
            return True
        for position, (array, source) in enumerate(zip(own.arrays, own.sources, strict=True)):
            if not isinstance(source, ArgumentSource):
                continue
            if array.space in CALLERS_SPACES:
                is_same = self.is_at(position, memory_at(own, position, arguments))
            elif array.space is Space.ARGUMENT:
                value = np.array(own.leaf(position).value(arguments)).astype(array.dtype.numpy)
                found = [given.scalar(position, array.dtype, k) for k in range(value.size)]
                is_same = value.tobytes() == np.array(found, array.dtype.numpy).tobytes()
            else:
                continue
            if not is_same:
                return False
        return True

    def written_at(self, memory: TapedMemory) -> Sequence[int]:
        """The positions at which it has an array among those that it writes."""
        own = self.specialisation
        known = _array_positions(own)
        return known.written.get(memory.key) or [
            k for k in known.others if k in own.written and self.is_at(k, memory)
        ]

    def wrote(self, memory: TapedMemory, region: ArrayRegion) -> bool:
        """Whether it may have written elements of a region, as far as is known."""
        at = self.written_at(memory)
        if not at:
            return False
        found = self.specialisation.regions.of(self._arguments)
        return any(
            intersect(region, found[position].written) for position in at if position in found
        )

    def has_integers_of(self, arguments: Sequence[Any]) -> bool:
        """Whether it had the same integers among the arguments that decide what is accessed."""
        return all(
            self._arguments[position] == arguments[position]
            for position in self.specialisation.regions.named
            if isinstance(arguments[position], int)
        )

    @cached_property
    def _arguments(self) -> list[Any]:
        """Its arguments, as far as regions depend on them; None for unknown ones."""
        own = self.specialisation
        found: list[Any] = [None] * own.count
        named = _array_positions(own).named
        if not named:
            return found
        if self._given is None:
            given = own.given_in_segments() or ()
            return [*given, *found[len(given) :]]
        for position, source in named:
            array = own.arrays[position]
            if array.space is Space.NDARRAY:
                shape = self._given.shape(position, array.rank)
                found[source.position] = SimpleNamespace(shape=shape)
            elif array.space is Space.ARGUMENT and not array.element_shape:
                found[source.position] = self._given.scalar(position, array.dtype)
        return found
