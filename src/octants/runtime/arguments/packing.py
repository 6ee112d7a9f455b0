"""Lays out the parameter block of a kernel, and generates the code that fills it.

The block is one piece of memory::

    | slots, 8 bytes each | storage, zeroed: temporaries, returned values, adjoints of scalars |

Each slot has a format of `struct` and an expression of the arguments. The fast path packs them as
they are; where that fails, `ParameterPacking.repack` converts each argument, or raises an error.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from octants.artifact import Slot
from octants.diagnostics.exceptions import InternalError, OctantsError
from octants.ir.core import Array, ArrayRef, Companion, Space
from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.argument_replacement import replace
from octants.runtime.arguments.array_bindings import COPIED, Binding
from octants.runtime.arguments.conversions import (
    check_extents,
    check_scalar,
    check_torch_memory,
    components,
    device_address,
    flatten,
    interface,
    strides_of,
    torch_address,
    torch_strided_address,
    with_gradient,
)
from octants.runtime.device import Device
from octants.runtime.memory.host import address_of, overlaps_itself
from octants.runtime.parameter_blocks.pool import (
    STRUCTS,
    Block,
    block_maker,
    no_struct,
    temporary_address,
)
from octants.runtime.parameter_blocks.segments import (
    CONSTANT,
    LAUNCH,
    Piece,
    cut,
    packing,
    with_constants,
)
from octants.types.layouts import Strided
from octants.types.scalars import DType, Kind
from octants.types.specialisation_signature import (
    FieldSource,
    ScalarType,
    TemporarySource,
)

STRUCT_LETTERS = {
    "u1": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q",
    "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "f16": "e", "f32": "f", "f64": "d",
}  # fmt: skip
"""The formats of `struct` for the types of numbers."""

_WITH_HEAD = {"octants", *COPIED}  # arrays of Octants, and staging copies

_NO_NAMES: Mapping[Slot, str] = {}

_MOST_ZEROED = 1024
"""The most bytes of an array in the storage that is zeroed although the kernel writes it first."""


def _nbytes(array: Array) -> int:
    """The bytes of an array without axes."""
    return math.prod(array.element_shape) * array.dtype.size


@dataclass(frozen=True)
class Stored:
    """Part of the storage after the slots: `count` numbers at `offset` of the block, in bytes."""

    offset: int
    dtype: DType
    count: int

    @property
    def end(self) -> int:
        return self.offset + self.dtype.size * self.count


class ParameterPacking:
    """The formats and expressions of all slots, and of the storage after them.

    The values of ``named`` slots, which change with each launch, get names in generated code.
    """

    def __init__(
        self, binding: Binding, device: Device, named: Mapping[Slot, str] = _NO_NAMES
    ) -> None:
        self.binding = binding
        self.device = device
        self._named = named
        self.prepare = self.fetch = ""
        self.scope: dict[str, Any] = {
            "address_of": address_of,
            "torch_address": torch_address,
            "with_gradient": with_gradient,
            "torch_strided_address": torch_strided_address,
            "interface": interface,
        }
        self._strict: dict[str, Any] = {}  # replaces names of `scope` on the slow path
        self._pieces: list[Piece] = []
        self.storage: dict[ArrayRef, Stored] = {}
        self.temporaries = 0  # temporaries with memory of their own
        self._assign_storage()
        for slot in binding.parameters.slots:
            if not self._is_in_head(slot):
                self._slot(slot)
        if device.shares_memory:
            self._add_piece(f"{self.size - self._slots}x", "")
        elif self.storage:
            self.scope |= {"clear": device.clear, "read": device.read}
            self.prepare = f"clear(storage, {self.size - self._slots})"
        self._segments = cut(self._pieces)
        self.packing = packing(self._segments, binding.structs, self.scope)

    def _add_piece(self, format: str, value: str, change: int = LAUNCH) -> None:
        self._pieces.append(Piece(format, value, change))

    @property
    def _slots(self) -> int:
        """The size of the slots, in bytes."""
        return 8 * len(self.binding.parameters.slots)

    @property
    def sizes(self) -> str:
        """The sizes of the slots, and of the storage that the host zeroes, in bytes."""
        return f"{self._slots}, {self.size - self._slots if self.device.shares_memory else 0}"

    # -- storage --------------------------------------------------------------------------------

    def _assign_storage(self) -> None:
        """Assign storage to each pointer that belongs neither to an argument nor to a field."""
        position = self._slots
        for slot in self.binding.parameters.slots:
            if slot.kind != "pointer":
                continue
            array = self.binding.arrays[slot.array]
            if array.space in (Space.TEMPORARY, Space.RETURN, Space.ARGUMENT):
                if array.like is not None or self._is_scratch(array, slot.companion):
                    continue
                if array.rank:
                    raise InternalError(f"{array.space.value} array {array.name} has axes")
                if (array, slot.companion) in self.binding.persistent:
                    continue
                position = -(-position // 8) * 8
                stored = Stored(position, array.dtype, math.prod(array.element_shape))
                self.storage[ArrayRef(array, slot.companion)] = stored
                position = stored.end
        self.size = max(8, -(-position // 8) * 8)

    def result_expression(self) -> str:
        """The flat results as an expression over ``view`` or ``memory``: a tuple."""
        terms = []
        view, first = "view", 0
        if not self.device.shares_memory and self.binding.results:
            view, first = "memory", self._fetched()[0]
            self.fetch = f"read(storage + {first - self._slots}, memory)"
        for number, ref in enumerate(self.binding.results):
            stored = self.storage[ref]
            letters = f"<{stored.count}{STRUCT_LETTERS[stored.dtype.name]}"
            self.scope[f"unpack{number}"] = struct.Struct(letters).unpack_from
            terms.append(f"unpack{number}({view}, {stored.offset - first})")
        return " + ".join(terms) or "()"

    def _fetched(self) -> tuple[int, int]:
        """The offsets where the results begin and end."""
        found = [self.storage[ref] for ref in self.binding.results]
        start = min((stored.offset for stored in found), default=0)
        return start, max((stored.end for stored in found), default=0)

    def blocks(self) -> Callable[[], Block]:
        """The function that makes parameter blocks."""
        start, end = self._fetched()
        storage, structs = self.size - self._slots, len(self.binding.structs)
        make = block_maker(self.device, self._slots, storage, end - start, structs)
        return with_constants(make, self._segments)

    # -- slots ----------------------------------------------------------------------------------

    def _is_in_head(self, slot: Slot) -> bool:
        """Whether a slot is part of the `head` that an ndarray has ready: its extents and its
        address.

        The slots are neighbours, and the slot of the address, which is the last, writes all of
        them.
        """
        if slot.kind not in ("shape", "pointer") or slot.companion is not Companion.PRIMAL:
            return False
        array = self.binding.arrays[slot.array]
        if array.space is not Space.NDARRAY or self.binding.kind(array) not in _WITH_HEAD:
            return False
        assert next(iter(array.layouts)) is Companion.PRIMAL
        if slot.kind == "pointer":
            head = f"{self.binding.leaf(array).expression}.head"
            self._add_piece(f"{8 * array.rank + 8}s", head, self.binding.change(array))
        return True

    def _slot(self, slot: Slot) -> None:
        if slot.kind == "system":
            self._add("Q", {"messages": "0", "seed": "seed", "launch": "number"}[slot.name])
            return
        array = self.binding.arrays[slot.array]
        if slot.kind == "shape":
            extent = self._with_name(slot, self._extent(array, slot.index))
            self._add("i", extent, CONSTANT if extent.isdigit() else LAUNCH)
        elif slot.kind == "scalar":
            self._scalar(array, slot.index)
        elif slot.kind == "stride":
            if slot.index == 0:
                self._strides(array, slot.companion)
        else:
            address = self._with_name(slot, self._address(array, slot.companion))
            is_own = array.space is Space.NDARRAY and self.binding.kind(array) == "octants"
            change = self.binding.change(array) if is_own else LAUNCH
            self._add("Q", address, CONSTANT if address.isdigit() else change)

    def _with_name(self, slot: Slot, value: str) -> str:
        name = self._named.get(slot)
        return value if name is None else f"({name} := {value})"

    def _extent(self, array: Array, axis: int) -> str:
        """An extent of an array."""
        if array.fixed_shape is not None:
            return str(array.fixed_shape[axis])
        value, kind = self.binding.leaf(array).expression, self.binding.kind(array)
        shape = f"interface({value})['shape']" if kind == "interface" else f"{value}.shape"
        return f"{shape}[{axis}]"

    def _is_scratch(self, array: Array, companion: Companion) -> bool:
        """Whether an array has memory of its own, which takes too long to be zeroed in vain."""
        source = self.binding.source(array)
        is_written_first = isinstance(source, TemporarySource) and not source.is_zeroed
        return is_written_first and companion is Companion.PRIMAL and _nbytes(array) > _MOST_ZEROED

    def _temporary(self, array: Array) -> str:
        """The address of a temporary that is as long as an argument, or has a constant size."""
        name, nbytes = f"temporary{self.temporaries}", str(_nbytes(array))
        self.scope[name] = functools.partial(temporary_address, self.device, self.temporaries)
        self.temporaries += 1
        if array.like is not None:
            nbytes += f" * {self._extent(*array.like)}"
        return f"{name}(block, {nbytes})"

    def _strides(self, array: Array, companion: Companion) -> None:
        """All strides of an array at once."""
        if (array, companion) not in self.binding.accessed:
            self._add_piece(f"{8 * (array.rank + len(array.element_shape))}x", "", CONSTANT)
            return
        leaf, name = self.binding.leaf(array), f"strides{len(self._pieces)}"
        is_written = companion is Companion.PRIMAL and array in self.binding.written
        kind = self.binding.kind(array)

        def strides(value: Any) -> tuple[int, ...]:
            found = strides_of(kind, value, companion)
            if is_written and overlaps_itself(value.shape, found, array.dtype.size):
                raise leaf.error(
                    "the kernel writes this array, whose elements share memory with each other",
                    "pass a copy",
                )
            return found

        self.scope[name] = strides
        self._add_piece(
            "q" * (array.rank + len(array.element_shape)), f"*{name}({leaf.expression})"
        )

    def _add(self, letter: str, value: str, change: int = LAUNCH) -> None:
        size = struct.calcsize("<" + letter)
        self._add_piece(letter + (f"{8 - size}x" if size < 8 else ""), value, change)

    def _scalar(self, array: Array, component: int) -> None:
        leaf, letter = self.binding.leaf(array), STRUCT_LETTERS[array.dtype.name]
        if not array.element_shape:
            value = leaf.expression
            if array.dtype.kind is Kind.BOOL:  # `struct` takes anything for one
                name = f"truth{len(self._pieces)}"
                self.scope[name] = functools.partial(check_scalar, leaf, dtype=array.dtype)
                value = f"({value} is True or {value} is not False and {name}({value}))"
            self._add(letter, value)
            return
        value = ""
        if component == 0:
            name = f"components{len(self._pieces)}"
            kind = ScalarType(array.dtype, array.element_shape)
            self._strict[name] = strict = functools.partial(flatten, leaf, kind)
            is_bool = array.dtype.kind is Kind.BOOL
            self.scope[name] = strict if is_bool else functools.partial(components, strict, kind)
            value = f"*{name}({leaf.expression})"
        self._add(letter, value)

    def _address(self, array: Array, companion: Companion) -> str:
        ref = ArrayRef(array, companion)
        if ref in self.binding.persistent:
            return f"persistent + {self.binding.persistent[ref]}"
        stored = self.storage.get(ref)
        if stored is not None:
            return f"storage + {stored.offset - self._slots}"
        if array.like is not None or self._is_scratch(array, companion):
            return self._temporary(array)
        source = self.binding.source(array)
        if isinstance(source, FieldSource):
            return str(source.field.address(companion))
        value, kind = self.binding.leaf(array).expression, self.binding.kind(array)
        if companion is not Companion.PRIMAL and (array, companion) not in self.binding.accessed:
            return f"with_gradient({value})" if kind == "torch" else "0"
        self.scope[companion.name] = companion
        if kind in _WITH_HEAD:
            return f"{value}.address({companion.name})"
        if not self.device.shares_memory:
            name, leaf = f"address{len(self._pieces)}", self.binding.leaf(array)
            strided = isinstance(array.layouts[companion], Strided)
            self.scope[name] = functools.partial(device_address, self.device, leaf, strided)
            return f"{name}({value}, {companion.name})"
        if kind == "torch":
            strided = isinstance(array.layouts[companion], Strided)
            return f"torch_{'strided_' * strided}address({value}, {companion.name})"
        return f"address_of({value})"

    # -- the slow path --------------------------------------------------------------------------

    def repack(
        self,
        block: Block,
        seed: int,
        number: int,
        persistent: int,
        arguments: Sequence[Any],
    ) -> None:
        """Fill a block after the fast path failed: convert each scalar, or raise an error that says
        why.
        """
        try:
            self._repack(block, seed, number, persistent, arguments)
        except OctantsError as error:
            raise error from None

    def _repack(
        self, block: Block, seed: int, number: int, persistent: int, arguments: Sequence[Any]
    ) -> None:
        view, base, storage = block[:3]
        converted: Sequence[Any] = arguments
        for array in self.binding.arrays:
            if array.space is Space.NDARRAY:
                self._check_array(array, arguments)
            if array.space is Space.ARGUMENT and not array.element_shape:
                leaf = self.binding.leaf(array)
                number_given = check_scalar(leaf, leaf.value(arguments), array.dtype)
                converted = replace(converted, leaf, number_given)
        names = {f"a{k}": value for k, value in enumerate(converted)}
        names |= {"block": block, "base": base, "storage": storage}
        names |= {"seed": seed, "number": number, "persistent": persistent}
        block[STRUCTS][:] = [no_struct] * len(block[STRUCTS])
        expressions = [piece.value for piece in self._pieces if piece.value]
        values = eval(f"[{', '.join(expressions)}]", self.scope | self._strict, names)
        formats = "".join(piece.format for piece in self._pieces)
        struct.Struct("<" + formats).pack_into(view, 0, *values)

    def _check_array(self, array: Array, arguments: Sequence[Any]) -> None:
        """Check that an array has memory, and indices that fit an i32."""
        leaf = self.binding.leaf(array)
        value, kind = leaf.value(arguments), self.binding.kind(array)
        if kind == "octants":
            value.address(Companion.PRIMAL)
        if kind == "torch":
            check_torch_memory(leaf, value)
        shape = interface(value)["shape"] if kind == "interface" else value.shape
        check_extents(leaf, shape[: array.rank])
