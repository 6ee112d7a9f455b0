"""Reads code objects as the loader of a GPU does: segments, and the table of symbols."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_LOAD, _TABLE = 1, 2
_STRINGS, _SYMBOLS, _HASH = 5, 6, 4


@dataclass
class Code:
    """What is loaded: pieces at addresses, in so many bytes; the addresses of symbols."""

    nbytes: int
    segments: list[tuple[int, bytes]]
    symbols: dict[str, int]


def read_code(code: bytes) -> Code:
    """Read a code object."""
    (first,), (count,) = struct.unpack_from("<Q", code, 32), struct.unpack_from("<H", code, 56)
    size, segments, table = 0, list[tuple[int, bytes]](), dict[int, int]()
    for number in range(count):
        kind, _, offset, address, _, nbytes, extent, _ = struct.unpack_from(
            "<IIQQQQQQ", code, first + 56 * number
        )
        if kind == _LOAD:
            segments.append((address, code[offset : offset + nbytes]))
            size = max(size, address + extent)
        elif kind == _TABLE:
            table = dict(struct.iter_unpack("<qQ", code[offset : offset + nbytes]))
    symbols = {}
    (total,) = struct.unpack_from("<I", code, table[_HASH] + 4)
    for number in range(1, total):
        name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", code, table[_SYMBOLS] + 24 * number)
        start = table[_STRINGS] + name
        symbols[code[start : code.index(b"\0", start)].decode()] = value
    return Code(-(-size // 4096) * 4096, segments, symbols)
