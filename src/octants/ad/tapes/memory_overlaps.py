"""Refuses launches whose derivative would have to pass between arrays that share memory.

Arrays share memory if one was exported and imported again (`from_dlpack`), if both were imported
from overlapping memory, or if they are overlapping views of numpy or torch. Each of them has a
derivative of its own, or none:

    fill(a)    # writes the memory as `a`: its reverse takes the adjoint from `a.grad`
    use(b)     # reads it as `b`: its reverse adds to `b.grad`, where `fill` does not look

So a read of an array with a derivative is an error once its memory was written as another array.
Reads alone are right: each array gets the derivative that flows through it. An array of Octants
that was never exported shares its memory with none, and costs nothing here.
"""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from octants.data.array_base import Tensor
from octants.data.tape_array_protocol import StoredArray
from octants.deferred_import import Deferred
from octants.diagnostics.tape_errors import DerivativeInMemory, OverlapOnTape, PartialOverlap
from octants.ir.core import Companion, Module
from octants.launch.gradients.taped_foreign_arrays import ForeignArray
from octants.launch.gradients.taped_memory import TapedMemory, memory_of
from octants.launch.specialisation import Specialisation
from octants.runtime.memory.host import describe, shares_memory
from octants.types.specialisation_signature import FieldHandle

if TYPE_CHECKING:
    from octants.ir import ops
else:
    ops = Deferred("octants.ir.ops")

_HOST = "the host"


class _Span:
    """The addresses of an array, from `start` to `end`. Those of fields may be interleaved."""

    start, end = 0, 0
    field: Any = None
    """The identity of the array, if it is a field."""

    def __init__(self, array: Any) -> None:
        if array is not None:
            identity: Any = array.identity
            self.start, self.end = array.extent
            self.field = identity if isinstance(array, FieldHandle) else None

    def overlaps(self, other: _Span) -> bool:
        """Whether they may share memory: two fields do so only if they are the same."""
        if None not in (self.field, other.field) and self.field != other.field:
            return False
        return max(self.start, other.start) < min(self.end, other.end)


class _Alias:
    """An array whose memory others may share, with its derivative. It keeps no memory alive.

    `neighbours` share its memory, but not its derivative in the same way. `tied` share the memory
    of its derivative only. Its memory holds the derivatives of `holds`, and its derivative is in
    the memory of `held_by`. `writer` is the launch that has written it; `outdated` tells as which
    other array its memory was written since, and by whom. `is_needed` says that derivatives read
    its contents later.
    """

    def __init__(self, memory: TapedMemory, derivative: StoredArray | None) -> None:
        self.parameter = memory.name
        self.name = f"`{memory.name}` ({_describe(memory)})"
        self.key = _key_of(memory, derivative)
        self.span = _Span(memory.array)
        self.has_derivative = derivative is not None
        self.derivative_span = _Span(derivative)
        self.neighbours: list[_Alias] = []
        self.tied: list[_Alias] = []
        self.holds: list[_Alias] = []
        self.held_by: list[_Alias] = []
        self.writer: str | None = None
        self.outdated: tuple[str, str] | None = None
        self.is_used = self.is_needed = False
        self._elements = _description(memory.array)
        self._shift = self._shift_to(derivative)
        self._owner = _weak(getattr(memory.array, "owner", memory.array))

    @property
    def is_alive(self) -> bool:
        """Whether the array still exists; if not, its memory may be that of another one by now."""
        return self._owner() is not None

    def shares_memory(self, other: _Alias) -> bool:
        """Whether a write to one can change the other, if their addresses overlap."""
        if self.key[0] == other.key[0]:
            return True
        if self._elements is None or other._elements is None:
            return True
        return shares_memory(describe(*self._elements), describe(*other._elements))

    def agrees_with(self, other: _Alias) -> bool:
        """Whether elements that share memory share their derivatives, too."""
        if not (self.has_derivative and other.has_derivative):
            return self.has_derivative == other.has_derivative
        return self._shift is not None and self._shift == other._shift

    def _shift_to(self, derivative: Any) -> int | None:
        """How far the derivative of each element is from it; None if that is not one number."""
        if self._elements is None or not _has_elements(derivative):
            return None
        start, _, dtype, _, strides, offset = self._elements
        its = derivative.elements
        if (strides, dtype) != (its.strides, its.dtype):
            return None
        shift: int = derivative.address - start - offset
        return shift


def _derivative_of(array: Any, companion: Companion) -> StoredArray | None:
    """The derivative of an array, if it has memory; that of a field may have none yet."""
    if isinstance(array, Tensor):
        has_memory = array.has_grad() if companion is Companion.ADJOINT else array.has_dual()
        if not has_memory:
            return None
    found: StoredArray | None = array.companion_array(companion)
    return found


def _key_of(memory: TapedMemory, derivative: StoredArray | None) -> Any:
    """A key that two arrays share exactly if their memory and their derivatives are the same."""
    return memory.key, None if derivative is None else derivative.identity


def _describe(memory: TapedMemory) -> str:
    """The kind and the shape of an array."""
    array: Any = memory.array
    if isinstance(array, Tensor):
        imported = "imported " * (getattr(array, "imported", None) is not None)
        return f"{imported}{array.describe().split()[0]} of shape {array.shape}"
    library = type(array.owner).__module__.partition(".")[0]
    return f"{library} array of shape {array.elements.shape}"


def _has_elements(array: Any) -> bool:
    return isinstance(array, ForeignArray) and bool(array.elements.size)


def _description(array: Any) -> Any:
    """The description of the memory of another library's array; None for others."""
    if not _has_elements(array):
        return None
    start, end = array.extent
    given = array.elements
    return start, end - start, given.dtype, given.shape, given.strides, array.address - start


def _weak(owner: Any) -> Any:
    try:
        return weakref.ref(owner)
    except TypeError:
        return lambda: owner


class MemoryOverlaps:
    """The arrays of the launches on a tape that may share memory, and who wrote it as which.

    Args:
        companion: what holds derivatives: adjoints on a tape, tangents in forward mode.
    """

    def __init__(self, companion: Companion = Companion.ADJOINT) -> None:
        self._companion = companion
        self._known: dict[Any, _Alias] = {}
        self._spans: list[tuple[int, int, _Span, bool, _Alias]] = []  # by start
        self._longest = 0

    def __bool__(self) -> bool:
        """Whether any are known."""
        return bool(self._spans)

    # -- events ---------------------------------------------------------------------------------

    def see(
        self,
        specialisation: Specialisation,
        memories: Mapping[int, TapedMemory],
        needed: Collection[int] = (),
    ) -> None:
        """Check a launch, before it runs, and note what it writes.

        Args:
            specialisation: the kernel that is launched.
            memories: its arrays, by position.
            needed: the positions of those whose contents the derivative needs later.

        Raises:
            OctantsRuntimeError: a derivative would have to pass from one array to another.
        """
        shared = {k: memory for k, memory in memories.items() if memory.may_share}
        if not shared:
            return
        arrays, kernel = specialisation.arrays, specialisation.signature.kernel
        used = {
            k: self._find(memory, has_derivative=arrays[k].has(self._companion))
            for k, memory in shared.items()
        }
        written = [used[k] for k in specialisation.written if k in used]
        _check_pairs(used, written, kernel)
        read = _read_arrays(specialisation)
        for position, alias in used.items():
            alias.is_used = True
            alias.is_needed |= position in needed or alias.has_derivative
            _check_derivative(alias, written, kernel)
            if position in read:
                _check_read(alias, f"kernel `{kernel}`")
        for alias in written:
            alias.writer = f"kernel `{kernel}`"
            for other in alias.neighbours:
                other.outdated = other.outdated or (alias.name, alias.writer)

    def see_host_write(self, array: Tensor, region: tuple[int, ...]) -> None:
        """Note that the host writes the elements of an array at a region."""
        if not self._spans or array.explicit_identity is not None:
            return
        alias = self._alias_of(array, array.describe())
        known = self._known.get(alias.key)
        for other in self._sharing(alias):
            if other is not known:
                other.outdated = other.outdated or (alias.name, _HOST)
        if known is not None and not region:
            known.outdated = None

    def see_export(self, array: Tensor, writer: str | None, *, is_used: bool) -> None:
        """Note that others see an array from now on.

        Args:
            array: the array, which is about to be exported.
            writer: the launch that has written it.
            is_used: whether launches have used it.
        """
        alias = self._register(self._alias_of(array, array.describe()))
        alias.writer, alias.is_used = writer, is_used

    def see_loss(self, array: StoredArray) -> None:
        """Check the array of a loss, which the tape reads at its end.

        Raises:
            OctantsRuntimeError: its memory was written as another array.
        """
        if self._spans:
            alias = self._known.get(self._alias_of(array, "loss").key)
            if alias is not None:
                _check_read(alias, "the tape")

    # -- the arrays -----------------------------------------------------------------------------

    def _alias_of(self, array: Any, name: str) -> _Alias:
        memory = memory_of(getattr(array, "owner", array), name)
        return _Alias(memory, _derivative_of(array, self._companion))

    def _find(self, memory: TapedMemory, *, has_derivative: bool) -> _Alias:
        if isinstance(memory.array, Tensor) and memory.array.companion is self._companion:
            memory.array.note_export()  # so that launches with its primal are checked
        derivative = memory.companion_array(self._companion) if has_derivative else None
        known = self._known.get(_key_of(memory, derivative))
        if known is not None and known.is_alive:
            return known
        return self._register(_Alias(memory, derivative))

    def _register(self, alias: _Alias) -> _Alias:
        """The known array that is the same; else find the arrays that share memory with this."""
        known = self._known.get(alias.key)
        if known is not None and known.is_alive:
            return known
        for other in self._sharing(alias):
            alias.neighbours.append(other)
            other.neighbours.append(alias)
            if other.writer is not None:
                alias.outdated = other.name, other.writer
        for is_derivative, other in self._near(alias.span):
            if is_derivative:
                alias.holds.append(other)
                other.held_by.append(alias)
        for is_derivative, other in self._near(alias.derivative_span):
            if not is_derivative:
                alias.held_by.append(other)
                other.holds.append(alias)
            elif not alias.agrees_with(other):
                alias.tied.append(other)
                other.tied.append(alias)
        self._add(alias, alias.derivative_span, is_derivative=True)
        self._add(alias, alias.span, is_derivative=False)
        self._known[alias.key] = alias
        return alias

    def _add(self, alias: _Alias, span: _Span, *, is_derivative: bool) -> None:
        if span.start < span.end:
            known = span.start, len(self._spans), span, is_derivative, alias
            bisect.insort(self._spans, known)
            self._longest = max(self._longest, span.end - span.start)

    def _near(self, span: _Span) -> Iterator[tuple[bool, _Alias]]:
        """The known arrays, and derivatives of arrays, that may share memory with a span."""
        first = bisect.bisect_left(self._spans, (span.start - self._longest,))
        last = bisect.bisect_left(self._spans, (span.end,))
        for _, _, other, is_derivative, alias in self._spans[first:last]:
            if span.overlaps(other) and alias.is_alive:
                yield is_derivative, alias

    def _sharing(self, alias: _Alias) -> Iterator[_Alias]:
        """The known arrays that share memory with one, but not their derivatives likewise."""
        for is_derivative, other in self._near(alias.span):
            if not is_derivative and not alias.agrees_with(other) and alias.shares_memory(other):
                yield other


def _read_arrays(specialisation: Specialisation) -> frozenset[int]:
    """The positions of the arrays whose values a kernel reads or updates."""
    return specialisation.derive(("read arrays",), lambda: _find_read(specialisation.module))


def _find_read(module: Module) -> frozenset[int]:
    found = {op.array for op in module.walk() if isinstance(op, ops.Access) and op.reads}
    return frozenset(k for k, array in enumerate(module.arrays) if array in found)


def _check_read(alias: _Alias, reader: str) -> None:
    """Raise an error if the derivative of a read would have to reach a write to another array."""
    if alias.has_derivative and alias.outdated is not None:
        raise OverlapOnTape(reader, alias.name, *alias.outdated).at()


def _check_derivative(alias: _Alias, written: Collection[_Alias], kernel: str) -> None:
    """Raise an error if derivatives add up where other arrays, or other derivatives, are."""
    holders = [other for other in alias.held_by if other.is_needed and other.is_used]
    owners = [other for other in alias.holds if other.is_used] if alias.is_needed else []
    for holder, owner in [(each, alias) for each in holders] + [(alias, each) for each in owners]:
        raise DerivativeInMemory(kernel, owner.name, holder.name).at()
    for other in alias.tied:
        if any(each in written or each.writer is not None for each in (alias, other)):
            name = f"the derivative of {other.name}"
            raise DerivativeInMemory(kernel, alias.name, name).at()


def _check_pairs(used: Mapping[int, _Alias], written: Collection[_Alias], kernel: str) -> None:
    """Raise an error if a launch writes an array and uses another one in its memory."""
    in_use = {id(alias) for alias in used.values()}
    for alias in written:
        for other in alias.neighbours:
            if id(other) in in_use:
                raise PartialOverlap(kernel, alias.parameter, other.parameter).at()
