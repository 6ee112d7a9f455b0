"""Reads code objects as the loader of a GPU does: segments, and the table of symbols."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

_LOAD, _TABLE, _NOTE, _METADATA = 1, 2, 4, 32
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


def metadata_of(code: bytes) -> dict[str, Any]:
    """What the note of a code object says of its kernels."""
    (first,), (count,) = struct.unpack_from("<Q", code, 32), struct.unpack_from("<H", code, 56)
    for number in range(count):
        kind, _, offset, _, _, _, _, _ = struct.unpack_from("<IIQQQQQQ", code, first + 56 * number)
        if kind == _NOTE:
            name, size, what = struct.unpack_from("<III", code, offset)
            assert what == _METADATA
            start = offset + 12 + -(-name // 4) * 4
            found: dict[str, Any] = _unpacked(memoryview(code)[start : start + size])[0]
            return found
    raise AssertionError("there is no note")


def _unpacked(data: memoryview) -> tuple[Any, memoryview]:
    """The first value of MessagePack, as far as LLVM uses that, and what is behind it."""
    head = data[0]
    if head < 0x80:
        return head, data[1:]
    if head in (0xC2, 0xC3):
        return head == 0xC3, data[1:]
    if head in _NUMBERS:
        size = _NUMBERS[head]
        return int.from_bytes(data[1 : 1 + size], "big"), data[1 + size :]
    if 0xA0 <= head < 0xC0 or head in _TEXTS:
        size = _TEXTS.get(head, 0)
        length = int.from_bytes(data[1 : 1 + size], "big") if size else head & 0x1F
        end = 1 + size + length
        return bytes(data[1 + size : end]).decode(), data[end:]
    size = 2 if head in (0xDC, 0xDE) else 0
    length = int.from_bytes(data[1 : 1 + size], "big") if size else head & 0x0F
    is_map, data = head < 0x90 or head == 0xDE, data[1 + size :]
    values = []
    for _ in range(length * (2 if is_map else 1)):
        value, data = _unpacked(data)
        values.append(value)
    return (dict(zip(values[::2], values[1::2], strict=True)) if is_map else values), data


_NUMBERS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_TEXTS = {0xD9: 1, 0xDA: 2}
