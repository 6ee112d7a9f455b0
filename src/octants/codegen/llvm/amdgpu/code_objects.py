"""Code objects of AMD's GPUs, made of the object files of LLVM: what a linker does, for one file.

Before: an object file with the code and the descriptors of kernels in sections without addresses,
and relocations between them. After: a shared object, as the HIP runtime loads it::

    segment 0   headers, the note with what the runtime has to know of kernels, the symbols of
                kernels, their descriptors, constants
    segment 1   code
    segment 2   the table of what a loader looks for

Each part stands at the same offset in the file and in memory. Whatever else there is in an object
file is an `InternalError`: code generation writes nothing that needs it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from octants import elf
from octants.diagnostics.exceptions import InternalError

_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_SHARED_OBJECT = 3
_HASH, _DYNAMIC, _NOTE, _OTHER_SYMBOLS = 5, 6, 7, 11  # further types of sections
_LOAD, _LOAD_TABLE, _LOAD_NOTE = 1, 2, 4  # types of segments
_X, _W, _R = 1, 2, 4  # what a segment may be used for
_TABLE_HASH, _TABLE_STRINGS, _TABLE_SYMBOLS, _TABLE_BYTES, _TABLE_SYMBOL = 4, 5, 6, 10, 11
_PAGE = 4096
_CODE_ALIGNMENT = 256  # also how far instructions are fetched ahead

_DISTANCES = {4: ("<I", 0), 5: ("<Q", 0), 10: ("<I", 0), 11: ("<I", 32)}
"""Relocations that give a distance: REL32, REL64, REL32_LO, REL32_HI. How it is stored, and from
which bit on.
"""


class _Symbol(NamedTuple):
    name: int
    info: int
    visibility: int
    section: int
    value: int
    size: int


def link(code: bytes) -> bytes:
    """The code object of an object file."""
    return _Linker(code).link()


class _ObjectFile:
    """The sections and symbols of a file."""

    def __init__(self, code: bytes) -> None:
        self.code = code
        self.head = elf.Head(*elf.HEAD.unpack_from(code))
        first = self.head.sections
        table = code[first : first + self.head.section_count * elf.SECTION.size]
        self.sections = [elf.Section(*each) for each in elf.SECTION.iter_unpack(table)]
        (symbols,) = (each for each in self.sections if each.type == elf.SYMBOLS)
        self.symbols = [_Symbol(*each) for each in elf.SYMBOL.iter_unpack(self.content(symbols))]
        self._names = self.content(self.sections[symbols.link])

    def content(self, section: elf.Section) -> bytes:
        if section.type == elf.ZEROS:
            return bytes(section.size)
        return self.code[section.offset : section.offset + section.size]

    def name(self, symbol: _Symbol) -> str:
        return elf.text_at(self._names, symbol.name)


class _Linker:
    """Lays out one file. `starts` are the addresses of its sections."""

    def __init__(self, code: bytes) -> None:
        self._file = _ObjectFile(code)
        self._image = bytearray(elf.HEAD.size + 6 * _SEGMENT.size)
        self._starts: dict[int, int] = {}
        self._headers: list[elf.Section] = [elf.Section(*[0] * 10)]
        self._section_names = bytearray(b"\0")

    def link(self) -> bytes:
        parts = self._parts()
        kernels = [each for each in self._file.symbols if each.info >> 4 == elf.GLOBAL]
        for each in kernels:
            if not each.section:
                name = self._file.name(each)
                raise InternalError(f"code for AMD's GPUs refers to `{name}`, which is nowhere")
        note = self._append_sections(".note", _NOTE, parts["note"])
        names, symbols = self._names(kernels), len(kernels) + 1
        dynamic = len(self._headers)
        found = {
            "symbols": self._append(
                *(".dynsym", _OTHER_SYMBOLS, bytes(symbols * elf.SYMBOL.size), 8, elf.ALLOCATE),
                link=dynamic + 2,
                info=1,
                entry=elf.SYMBOL.size,
            ),
            "hash": self._append(
                *(".hash", _HASH, _hash_of(symbols), 8, elf.ALLOCATE), link=dynamic, entry=4
            ),
            "names": self._append(".dynstr", elf.STRINGS, names[0], 1, elf.ALLOCATE),
        }
        self._append_sections(".rodata", elf.PROGRAM, parts["constants"])
        constants_end = len(self._image)
        self._pad(_PAGE)
        text = self._append_sections(
            ".text", elf.PROGRAM, parts["code"], elf.EXECUTE, _CODE_ALIGNMENT
        )
        self._pad(_CODE_ALIGNMENT)
        text_end = len(self._image)
        self._pad(_PAGE)
        table = _dynamic_table(found, len(names[0]))
        start = self._append(
            ".dynamic", _DYNAMIC, table, 8, elf.ALLOCATE | elf.WRITE, link=dynamic + 2
        )
        end = len(self._image)
        symbol_table = self._symbols(kernels, names[1])
        self._image[found["symbols"] : found["symbols"] + len(symbol_table)] = symbol_table
        self._relocate()
        self._append_symbols(symbol_table, names[0])
        self._write_heads(
            [
                (_LOAD, _R, 0, constants_end, _PAGE),
                (_LOAD, _R | _X, text, text_end, _PAGE),
                (_LOAD, _R | _W, start, end, _PAGE),
                (_LOAD_TABLE, _R | _W, start, end, 8),
                (_LOAD_NOTE, _R, note, note + sum(s.size for _, s in parts["note"]), 4),
            ]
        )
        return bytes(self._image)

    # -- what goes where --------------------------------------------------------------------------

    def _parts(self) -> dict[str, list[tuple[int, elf.Section]]]:
        """The sections that are loaded, with their numbers."""
        parts: dict[str, list[tuple[int, elf.Section]]] = {"note": [], "constants": [], "code": []}
        for number, each in enumerate(self._file.sections):
            if not each.flags & elf.ALLOCATE or not each.size:
                continue
            if each.flags & elf.WRITE or each.type not in (elf.PROGRAM, _NOTE):
                raise InternalError(f"a section of an object file has type {each.type}")
            is_code = bool(each.flags & elf.EXECUTE)
            part = "note" if each.type == _NOTE else "code" if is_code else "constants"
            parts[part].append((number, each))
        return parts

    def _append_sections(
        self,
        name: str,
        type: int,
        sections: Iterable[tuple[int, elf.Section]],
        flags: int = 0,
        alignment: int = 4,
    ) -> int:
        """Put sections of the file one after the other; gives their start."""
        content, sections = bytearray(), list(sections)
        alignment = max([alignment, *(each.align for _, each in sections)])
        start = -(-len(self._image) // alignment) * alignment
        for number, each in sections:
            content += bytes(-len(content) % each.align)
            self._starts[number] = start + len(content)
            content += self._file.content(each)
        return self._append(name, type, bytes(content), alignment, elf.ALLOCATE | flags)

    def _append(
        self,
        name: str,
        type: int,
        content: bytes,
        alignment: int,
        flags: int = 0,
        *,
        link: int = 0,
        info: int = 0,
        entry: int = 0,
    ) -> int:
        """Put a section behind the last one; gives its start."""
        self._pad(alignment)
        start = len(self._image)
        self._image += content
        name_offset = len(self._section_names)
        self._section_names += name.encode() + b"\0"
        address = start if flags & elf.ALLOCATE else 0
        self._headers.append(
            elf.Section(
                *(name_offset, type, flags, address, start, len(content)),
                *(link, info, alignment, entry),
            )
        )
        return start

    def _pad(self, alignment: int) -> None:
        self._image += bytes(-len(self._image) % alignment)

    # -- symbols ----------------------------------------------------------------------------------

    def _names(self, symbols: list[_Symbol]) -> tuple[bytes, list[int]]:
        """The names of symbols, and where each begins."""
        text, offsets = bytearray(b"\0"), []
        for each in symbols:
            offsets.append(len(text))
            text += self._file.name(each).encode() + b"\0"
        return bytes(text), offsets

    def _symbols(self, symbols: list[_Symbol], names: list[int]) -> bytes:
        """The table of symbols, with their addresses."""
        table = bytearray(elf.SYMBOL.size)
        for symbol, name in zip(symbols, names, strict=True):
            address = self._address(symbol)
            section = self._header_at(self._starts[symbol.section])
            table += elf.SYMBOL.pack(
                name, symbol.info, symbol.visibility, section, address, symbol.size
            )
        return bytes(table)

    def _header_at(self, address: int) -> int:
        """The number of the new section that is at an address."""
        return next(
            number
            for number, each in enumerate(self._headers)
            if each.size and each.offset <= address < each.offset + each.size
        )

    def _address(self, symbol: _Symbol) -> int:
        if symbol.section not in self._starts:
            name = self._file.name(symbol)
            raise InternalError(f"code for AMD's GPUs refers to `{name}`, which is not loaded")
        return self._starts[symbol.section] + symbol.value

    def _append_symbols(self, symbols: bytes, names: bytes) -> None:
        """Append the symbols, which tools and some versions of the loader read."""
        number = len(self._headers)
        self._append(
            *(".symtab", elf.SYMBOLS, symbols, 8), link=number + 1, info=1, entry=elf.SYMBOL.size
        )
        self._append(".strtab", elf.STRINGS, names, 1)

    def _relocate(self) -> None:
        for section in self._file.sections:
            if section.type != elf.ADDENDS or section.info not in self._starts:
                continue
            base = self._starts[section.info]
            for offset, info, addend in elf.RELOCATION.iter_unpack(self._file.content(section)):
                kind, symbol = info & 0xFFFFFFFF, self._file.symbols[info >> 32]
                if kind not in _DISTANCES:
                    raise InternalError(f"relocation {kind} is in code for AMD's GPUs")
                form, shift = _DISTANCES[kind]
                address = base + offset
                value = (self._address(symbol) + addend - address) >> shift
                mask = (1 << 8 * struct.calcsize(form)) - 1
                struct.pack_into(form, self._image, address, value & mask)

    # -- headers ----------------------------------------------------------------------------------

    def _write_heads(self, segments: list[tuple[int, int, int, int, int]]) -> None:
        """The headers of the file, of its segments (type, use, start, end, alignment), sections."""
        number = len(self._headers)
        self._append(".shstrtab", elf.STRINGS, b"", 1)
        names = self._headers[number]._replace(size=len(self._section_names))
        self._headers[number] = names
        self._image += self._section_names
        self._pad(8)
        headers_start = len(self._image)
        for each in self._headers:
            self._image += elf.SECTION.pack(*each)
        head = self._file.head._replace(
            type=_SHARED_OBJECT,
            entry=0,
            segments=elf.HEAD.size,
            segment_size=_SEGMENT.size,
            segment_count=len(segments),
            sections=headers_start,
            section_size=elf.SECTION.size,
            section_count=len(self._headers),
            section_names=number,
        )
        elf.HEAD.pack_into(self._image, 0, *head)
        for position, (kind, use, start, end, alignment) in enumerate(segments):
            size = end - start
            _SEGMENT.pack_into(
                self._image,
                elf.HEAD.size + position * _SEGMENT.size,
                *(kind, use, start, start, start, size, size, alignment),
            )


def _hash_of(symbols: int) -> bytes:
    """A table of one bucket, which all symbols are in."""
    chain = [0, *range(2, symbols), 0] if symbols > 1 else [0]
    return struct.pack(f"<{3 + symbols}I", 1, symbols, 1 if symbols > 1 else 0, *chain)


def _dynamic_table(starts: dict[str, int], names: int) -> bytes:
    """The addresses of the tables for a loader, by ELF's numbers for these."""
    entries = (
        (_TABLE_SYMBOLS, starts["symbols"]),
        (_TABLE_SYMBOL, elf.SYMBOL.size),
        (_TABLE_STRINGS, starts["names"]),
        (_TABLE_BYTES, names),
        (_TABLE_HASH, starts["hash"]),
        (0, 0),
    )
    return b"".join(_ENTRY.pack(*each) for each in entries)
