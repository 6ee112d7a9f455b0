"""Splits the slots of a parameter block by how often they change, so that a launch fills few.

    | seed, number | scalars | arrays of a frozen struct | addresses of fields | storage |
      each launch    each       when it is another struct   when a block is made   each

Slots that rarely change are skipped only where there are many: a call for a segment costs as much
as a few values.
"""

from __future__ import annotations

import itertools
import struct
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.frozen_structs import FrozenStruct
from octants.runtime.parameter_blocks.pool import STRUCTS, Block, no_struct

LAUNCH, CONSTANT = -1, -2
"""When a slot changes: with each launch, or never; a number from 0 on is that of a struct."""
_FEWEST = 6  # values that justify a segment of their own


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring slots: their format, the expression of their values ("" for zeros), when they
    change.
    """

    format: str
    value: str
    change: int


@dataclass(frozen=True, slots=True)
class BlockSegment:
    """Neighbouring pieces that change together, at ``offset`` bytes of the block."""

    offset: int
    pieces: tuple[Piece, ...]
    change: int

    @property
    def pack(self) -> Callable[..., None]:
        """The function that writes the segment."""
        return struct.Struct("<" + "".join(piece.format for piece in self.pieces)).pack_into

    @property
    def values(self) -> list[str]:
        """The expressions of the values."""
        return [piece.value for piece in self.pieces if piece.value]


def cut(pieces: Sequence[Piece]) -> list[BlockSegment]:
    """The segments of a block."""
    counts = Counter(piece.change for piece in pieces if piece.value)

    def merged() -> Iterator[Piece]:
        for change, run in itertools.groupby(pieces, lambda piece: piece.change):
            found = list(run)
            count = sum(bool(piece.value) for piece in found)
            is_small = (count if change == CONSTANT else counts[change]) < _FEWEST
            for piece in found:
                yield Piece(piece.format, piece.value, LAUNCH) if is_small else piece

    segments, offset = [], 0
    for change, run in itertools.groupby(merged(), lambda piece: piece.change):
        found = tuple(run)
        segments.append(BlockSegment(offset, found, change))
        offset += struct.calcsize("<" + "".join(piece.format for piece in found))
    return segments


def packing(
    segments: Sequence[BlockSegment], structs: Sequence[FrozenStruct], scope: dict[str, Any]
) -> list[str]:
    """Generate the lines that fill a block, named ``view``, for a launch.

    They use ``block``, and names that this function adds to ``scope``.
    """
    lines: dict[int, list[str]] = {LAUNCH: []}
    for segment in segments:
        if segment.change != CONSTANT:
            scope[name := f"pack{len(scope)}"] = segment.pack
            values = "".join(f", {value}" for value in segment.values)
            lines.setdefault(segment.change, []).append(f"{name}(view, {segment.offset}{values})")
    text = lines.pop(LAUNCH)
    if lines:
        scope |= {"reference_to": weakref.ref, "no_struct": no_struct}
        text.append(f"structs = block[{STRUCTS}]")
    for number, packs in lines.items():
        expression = structs[number].expression
        text += [
            f"if structs[{number}]() is not {expression}:",
            f"    structs[{number}] = no_struct",
        ]
        text += [f"    {each}" for each in packs]
        kinds = structs[number].kind_test(scope)
        text.append(f"    if {kinds}: structs[{number}] = reference_to({expression})")
    return text


def with_constants(
    make: Callable[[], Block], segments: Sequence[BlockSegment]
) -> Callable[[], Block]:
    """Wrap a function that makes blocks, so that it fills the slots that never change."""
    constants = [segment for segment in segments if segment.change == CONSTANT]
    fills = [(each.pack, each.offset, list(map(int, each.values))) for each in constants]

    def make_filled() -> Block:
        block = make()
        for pack, offset, values in fills:
            pack(block[0], offset, *values)
        return block

    return make_filled if fills else make
