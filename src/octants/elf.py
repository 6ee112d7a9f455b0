"""The layout of ELF files of 64 bits, lowest byte first, as far as object files of LLVM use it."""

from __future__ import annotations

import struct
from typing import NamedTuple

HEAD = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")

PROGRAM, SYMBOLS, STRINGS, ADDENDS, ZEROS, NO_ADDENDS = 1, 2, 3, 4, 8, 9
"""Types of sections."""
WRITE, ALLOCATE, EXECUTE = 1, 2, 4
"""Flags of sections."""
LOCAL, GLOBAL = 0, 1
"""How symbols are bound."""


class Head(NamedTuple):
    """The header of a file."""

    identity: bytes
    type: int
    machine: int
    version: int
    entry: int
    segments: int
    sections: int
    flags: int
    size: int
    segment_size: int
    segment_count: int
    section_size: int
    section_count: int
    section_names: int


class Section(NamedTuple):
    """The header of a section."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


def text_at(names: bytes, start: int) -> str:
    """The name that begins at a position of a table of names."""
    return names[start : names.index(b"\0", start)].decode()
