"""Applies relocations to machine code: inserts addresses into instructions.

Letters are those of the ABIs: S is the address of a symbol, A the addend, P the address that is
changed. https://gitlab.com/x86-psABIs, https://github.com/ARM-software/abi-aa
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

Relocate = Callable[[bytearray, int, int, int, int], None]
"""Changes an image at a position, given S, A and P."""


class Refused(Exception):
    """The file cannot be loaded without LLVM; the text says why."""


class RelocationRules(NamedTuple):
    """The relocations of a machine, and its stub that jumps to an address."""

    relocations: Mapping[int, Relocate]
    calls: frozenset[int]
    """Types of which the target may be a stub."""
    through_table: frozenset[int]
    """Types for which S is the address of an entry in a table."""
    stub_bytes: int
    stub: Callable[[int], bytes]


# -- both ------------------------------------------------------------------------------------------


def _absolute_64(image: bytearray, position: int, s: int, a: int, _: int) -> None:
    struct.pack_into("<Q", image, position, (s + a) % 2**64)


def _relative_64(image: bytearray, position: int, s: int, a: int, p: int) -> None:
    struct.pack_into("<q", image, position, s + a - p)


def _relative_32(image: bytearray, position: int, s: int, a: int, p: int) -> None:
    struct.pack_into("<i", image, position, s + a - p)


# -- x64 -------------------------------------------------------------------------------------------


def _x64_stub(address: int) -> bytes:
    """``jmp *(rip)``, and the address behind it."""
    return b"\xff\x25\0\0\0\0" + struct.pack("<Q", address) + b"\xcc\xcc"


_X64 = RelocationRules(
    {
        1: _absolute_64,
        2: _relative_32,
        4: _relative_32,  # a call
        9: _relative_32,  # the last three: through the table
        41: _relative_32,
        42: _relative_32,
        24: _relative_64,
    },
    calls=frozenset((4,)),
    through_table=frozenset((9, 41, 42)),
    stub_bytes=16,
    stub=_x64_stub,
)


# -- arm64 -----------------------------------------------------------------------------------------


def _arm64_stub(address: int) -> bytes:
    """``ldr x16, 8; br x16``, and the address behind it."""
    return struct.pack("<IIQ", 0x58000050, 0xD61F0200, address)


def _insert(image: bytearray, position: int, value: int, bits: int, shift: int) -> None:
    """Put the lowest bits of a value into an instruction."""
    (old,) = struct.unpack_from("<I", image, position)
    mask = (1 << bits) - 1
    struct.pack_into("<I", image, position, old & ~(mask << shift) | (value & mask) << shift)


def _require(fits: bool, distance: int) -> None:
    if not fits:
        raise Refused(f"a distance of {distance:#x}")


def _arm64_branch(
    bits: int, shift: int, image: bytearray, position: int, s: int, a: int, p: int
) -> None:
    """A distance in words: of a branch, or of a constant."""
    distance = s + a - p
    _require(distance % 4 == 0 and -(2 ** (bits + 1)) <= distance < 2 ** (bits + 1), distance)
    _insert(image, position, distance >> 2, bits, shift)


def _arm64_address(unit: int, image: bytearray, position: int, s: int, a: int, p: int) -> None:
    """``adr`` (a unit of 1) or ``adrp``: a distance in units of 21 bits, the lowest two apart."""
    distance = (s + a) // unit - p // unit
    _require(-(2**20) <= distance < 2**20, distance)
    _insert(image, position, distance, 2, 29)
    _insert(image, position, distance >> 2, 19, 5)


def _arm64_in_page(size: int, image: bytearray, position: int, s: int, a: int, _: int) -> None:
    """The offset within a page of 4096 bytes, in units of the access."""
    offset = (s + a) % 4096
    _require(offset % size == 0, offset)
    _insert(image, position, offset // size, 12, 10)


_ARM64 = RelocationRules(
    {
        257: _absolute_64,
        260: _relative_64,
        261: _relative_32,
        273: partial(_arm64_branch, 19, 5),  # a constant at a distance
        274: partial(_arm64_address, 1),
        275: partial(_arm64_address, 4096),
        277: partial(_arm64_in_page, 1),
        278: partial(_arm64_in_page, 1),
        279: partial(_arm64_branch, 14, 5),
        280: partial(_arm64_branch, 19, 5),
        282: partial(_arm64_branch, 26, 0),
        283: partial(_arm64_branch, 26, 0),
        284: partial(_arm64_in_page, 2),
        285: partial(_arm64_in_page, 4),
        286: partial(_arm64_in_page, 8),
        299: partial(_arm64_in_page, 16),
        311: partial(_arm64_address, 4096),  # this and the last one: through the table
        312: partial(_arm64_in_page, 8),
    },
    calls=frozenset((282, 283)),
    through_table=frozenset((311, 312)),
    stub_bytes=16,
    stub=_arm64_stub,
)

MACHINES = {62: _X64, 183: _ARM64}
"""By their numbers in the head of a file."""
