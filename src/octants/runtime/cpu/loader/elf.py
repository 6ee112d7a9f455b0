"""Lays out and relocates ELF object files, as far as LLVM's output for kernels needs.

Anything else in a file raises `Refused`; LLVM then links the file. The image of a file has its code
first, with a stub for each external function, then constants and a table of addresses, then
writable data; each part begins with a page.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from octants import elf
from octants.runtime.cpu.loader.relocations import MACHINES, Refused

Find = Callable[[str], "int | None"]

_IDENTITY = b"\x7fELF\x02\x01\x01"  # 64 bits, the lowest byte first, version 1
_RELOCATABLE = 1
_UNWINDING = 0x70000001
_KNOWN = elf.WRITE | elf.ALLOCATE | elf.EXECUTE | 16 | 32  # and flags for what a linker may merge
_NAMES = (".text", ".rodata", ".data", ".bss")  # how names of sections begin
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1
_PLAIN_SYMBOLS = range(5)  # without a type, data, function, section, file
_MOST = 1 << 30

CODE, CONSTANTS, DATA = range(3)
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 1 << 16


class _Symbol(NamedTuple):
    name: str
    section: int
    value: int
    is_global: bool


class ObjectFile:
    """A parsed object file: `size` is that of its image in bytes, `parts` are (start, end) of each
    part.

    Raises:
        Refused: it is no such file, or has content that is not supported.
    """

    def __init__(self, code: bytes) -> None:
        try:
            self._read(code)
            self._lay_out()
        except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
            raise Refused(f"the file is damaged: {error}") from None

    def image(self, base: int, find: Find) -> bytes:
        """The image for the address ``base``; ``find`` returns addresses of external functions."""
        image = bytearray(self.size)
        for number, start in self._starts.items():
            section = self._sections[number]
            if section.type == elf.PROGRAM:
                end = section.offset + section.size
                image[start : start + section.size] = self._code[section.offset : end]
        for symbol, start in self._stubs.items():
            stub = self._machine.stub(self._outside(symbol, find))
            image[start : start + len(stub)] = stub
        try:
            for symbol, start in self._slots.items():
                struct.pack_into("<Q", image, start, self._address(symbol, base, find))
            self._relocate(image, base, find)
        except (struct.error, IndexError) as error:
            raise Refused(f"a relocation does not fit: {error}") from None
        return bytes(image)

    def exports(self, base: int, names: Iterable[str]) -> dict[str, int]:
        """The addresses of global symbols."""
        known = {symbol.name: number for number, symbol in self._defined()}
        missing = [name for name in names if name not in known]
        if missing:
            raise Refused(f"the file does not define {', '.join(missing)}")
        return {name: base + self._offset_of(self._symbols[known[name]]) for name in names}

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, code: bytes) -> None:
        head = elf.Head(*elf.HEAD.unpack_from(code))
        machine = MACHINES.get(head.machine)
        if not head.identity.startswith(_IDENTITY) or head.type != _RELOCATABLE:
            raise Refused("this is no object file")
        if machine is None:
            raise Refused(f"machine {head.machine} is unknown")
        if head.section_size != elf.SECTION.size or not head.section_count:
            raise Refused("the file has no sections")
        table = _checked(code, head.sections, head.section_count * elf.SECTION.size)
        self._code, self._machine = code, machine
        self._sections = [elf.Section(*each) for each in elf.SECTION.iter_unpack(table)]
        self._names = self._content(self._sections[head.section_names])
        self._loaded = [n for n, each in enumerate(self._sections) if self._is_loaded(each)]
        self._symbols = self._read_symbols()
        self._relocations = list(self._read_relocations())

    def _is_loaded(self, section: elf.Section) -> bool:
        """Whether a section is loaded. Frames are never unwound, so unwind tables are not."""
        if not section.flags & elf.ALLOCATE:
            return False
        name = elf.text_at(self._names, section.name)
        if section.type == _UNWINDING or name == ".eh_frame":
            return False
        is_known = section.type in (elf.PROGRAM, elf.ZEROS) and not section.flags & ~_KNOWN
        is_known = is_known and name.startswith(_NAMES)
        has_align = section.align <= PAGE and section.align & (section.align - 1) == 0
        if (
            not is_known
            or not has_align
            or (section.flags & elf.WRITE and section.flags & elf.EXECUTE)
        ):
            raise Refused(f"section {name}")
        if section.type == elf.PROGRAM:
            _checked(self._code, section.offset, section.size)
        return True

    def _read_symbols(self) -> list[_Symbol]:
        tables = [section for section in self._sections if section.type == elf.SYMBOLS]
        if len(tables) != 1:
            raise Refused("the file has no table of symbols")
        names = self._content(self._sections[tables[0].link])
        found = []
        for name, kind, _, section, value, _ in elf.SYMBOL.iter_unpack(self._content(tables[0])):
            if kind >> 4 not in (elf.LOCAL, elf.GLOBAL) or kind & 15 not in _PLAIN_SYMBOLS:
                raise Refused(f"symbol {elf.text_at(names, name)}")
            found.append(_Symbol(elf.text_at(names, name), section, value, kind >> 4 == elf.GLOBAL))
        return found

    def _read_relocations(self) -> Iterator[tuple[int, int, int, int, int]]:
        """The relocations of loaded sections: section, offset, type, symbol, addend."""
        loaded = set(self._loaded)
        for section in self._sections:
            if section.info not in loaded:
                continue
            if section.type == elf.NO_ADDENDS:
                raise Refused("relocations without addends")
            if section.type == elf.ADDENDS:
                for offset, what, addend in elf.RELOCATION.iter_unpack(self._content(section)):
                    yield section.info, offset, what & 0xFFFFFFFF, what >> 32, addend

    def _content(self, section: elf.Section) -> bytes:
        return _checked(self._code, section.offset, section.size)

    def _defined(self) -> Iterator[tuple[int, _Symbol]]:
        for number, symbol in enumerate(self._symbols):
            if symbol.is_global and symbol.section != _UNDEFINED:
                yield number, symbol

    # -- layout ------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        """Assign positions in the image."""
        used = [(kind, symbol) for _, _, kind, symbol, _ in self._relocations]
        kinds = self._machine
        unknown = {kind for kind, _ in used} - kinds.relocations.keys()
        if unknown:
            raise Refused(f"relocations of types {sorted(unknown)}")
        called = dict.fromkeys(s for kind, s in used if kind in kinds.calls and self._is_outside(s))
        listed = dict.fromkeys(symbol for kind, symbol in used if kind in kinds.through_table)
        starts: dict[int, int] = {}
        self.parts: list[tuple[int, int]] = []
        end = 0
        for part in (CODE, CONSTANTS, DATA):
            start = end = _aligned(end, PAGE)
            for number in self._loaded:
                section = self._sections[number]
                if _part(section) == part:
                    starts[number] = _aligned(end, max(1, section.align))
                    end = starts[number] + section.size
            if part == CODE:
                self._stubs, end = _rows(called, end, kinds.stub_bytes)
            if part == CONSTANTS:
                self._slots, end = _rows(listed, end, 8)
            self.parts.append((start, end))
        if end > _MOST:
            raise Refused(f"an image of {end} bytes")
        self._starts, self.size = starts, end

    def _is_outside(self, symbol: int) -> bool:
        return self._symbols[symbol].section == _UNDEFINED

    # -- relocation --------------------------------------------------------------------------------

    def _relocate(self, image: bytearray, base: int, find: Find) -> None:
        relocations, through_table = self._machine.relocations, self._machine.through_table
        for section, offset, kind, symbol, addend in self._relocations:
            if offset + 4 > self._sections[section].size:
                raise Refused("a relocation outside of its section")
            position = self._starts[section] + offset
            if kind in through_table:
                target = base + self._slots[symbol]
            elif symbol in self._stubs and kind in self._machine.calls:
                target = base + self._stubs[symbol]
            else:
                target = self._address(symbol, base, find)
            relocations[kind](image, position, target, addend, base + position)

    def _address(self, number: int, base: int, find: Find) -> int:
        symbol = self._symbols[number]
        if symbol.section == _UNDEFINED:
            return self._outside(number, find)
        if symbol.section == _ABSOLUTE:
            return symbol.value
        return base + self._offset_of(symbol)

    def _outside(self, number: int, find: Find) -> int:
        name = self._symbols[number].name
        address = find(name) if name else None
        if not address:
            raise Refused(f"{name or 'a symbol without a name'} has no known address")
        return address

    def _offset_of(self, symbol: _Symbol) -> int:
        if symbol.section not in self._starts or symbol.value > self._sections[symbol.section].size:
            raise Refused(f"symbol {symbol.name} stands for nothing in memory")
        return self._starts[symbol.section] + symbol.value


def _checked(code: bytes, start: int, size: int) -> bytes:
    """A range of the file, which must be inside it."""
    if start + size > len(code):
        raise Refused("the file ends early")
    return code[start : start + size]


def _part(section: elf.Section) -> int:
    if section.flags & elf.EXECUTE:
        return CODE
    return DATA if section.flags & elf.WRITE else CONSTANTS


def _aligned(size: int, to: int) -> int:
    return -(-size // to) * to


def _rows(symbols: Iterable[int], start: int, nbytes: int) -> tuple[dict[int, int], int]:
    """A position of ``size`` bytes for each symbol, and where they end."""
    offsets = dict(zip(symbols, itertools.count(_aligned(start, 16), nbytes), strict=False))
    return offsets, max([start, *(offset + nbytes for offset in offsets.values())])
