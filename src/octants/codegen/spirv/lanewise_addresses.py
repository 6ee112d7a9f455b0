"""Addresses for a driver that accesses memory lane by lane, as Mesa's does on the CPU.

For each lane of an access, llvmpipe (seen in 22.3) takes the address from a vector. LLVM stores the
whole vector to the stack, and loads one element. Eight addresses are 64 bytes, which a CPU with
AVX-512 stores by one instruction, and Intel's forward only the lower half of such a store: a load
from the upper half takes 4 ns instead of 0.3.

LLVM takes an element of the operands of an operation instead, if one of them is a constant, and if
nothing else uses the result. So an address is written as ``base + (i64(words) << 2)`` with 32-bit
words that no other access has: where two have the same, one counts from another ``base``.
"""

from __future__ import annotations

from typing import Any

from octants.codegen.instruction_writer import Pointer
from octants.codegen.spirv.control_flow import EntryPoint
from octants.codegen.spirv.instruction_writer import SpirvCode
from octants.codegen.spirv.module_builder import Assembly
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, i32, i64, u64


@dataclass(frozen=True, slots=True)
class _Element:
    """An address in an array: ``offset`` is an i32, the rest is known."""

    base: int
    offset: int
    nbytes: int


class LanewiseCode(SpirvCode):
    """A function whose accesses inside arrays each compute their address from 32-bit numbers."""

    def __init__(self, assembly: Assembly, entry: EntryPoint) -> None:
        super().__init__(assembly, entry)
        self._widened: dict[int, int] = {}  # i32 by the i64 that were made of them
        self._elements: dict[int, _Element] = {}  # by their addresses
        self._taken: dict[tuple[int, int], set[int]] = {}  # positions, by offset and digits

    def convert(self, x: int, source: DType, target: DType) -> int:
        result = super().convert(x, source, target)
        if source is i32 and target is i64:
            self._widened[result] = x
        return result

    def index(self, fn: str, a: int, b: int, *, signed: bool = False) -> int:  # noqa: ARG002
        narrow = self.apply(fn, i32, self._narrowed(a), self._narrowed(b))
        return self.convert(narrow, i32, i64)

    def _narrowed(self, x: int) -> int:
        """Return an i64 as the i32 that it was made of, or converted."""
        known = self.known(x)
        if known is not None:
            return self.constant(known, i32)
        return self._widened.get(x) or self.convert(x, i64, i32)

    def moved(self, address: Pointer, nbytes: Any, *, inside: bool = False) -> Any:
        result = super().moved(address, nbytes, inside=inside)
        known, element = self.known(nbytes), self._elements.get(address)
        if known is not None and element is not None:
            nbytes = element.nbytes + known
            self._elements[result] = _Element(element.base, element.offset, nbytes)
        elif known is None and inside:
            self._elements[result] = _Element(address, self._narrowed(nbytes), 0)
        return result

    def _pointer(self, address: Pointer, dtype: DType) -> int:
        element = self._elements.get(address)
        digits = min(dtype.size, 4).bit_length() - 1
        if element is not None and digits:
            address = self._address(element, digits)
        return super()._pointer(address, dtype)

    def _address(self, element: _Element, digits: int) -> int:
        """Return the address of an aligned element, computed for one access alone."""
        taken = self._taken.setdefault((element.offset, digits), set())
        position = element.nbytes >> digits
        if position in taken:
            position = min(0, *taken) - 1
        taken.add(position)
        number = self.apply("shr", i32, element.offset, self.constant(digits, i32))
        if position:
            number = self.apply("add", i32, number, self.constant(position, i32))
        wide = self.apply("shl", i64, self.convert(number, i32, i64), self.constant(digits, i64))
        base = element.base
        if rest := element.nbytes - (position << digits):
            base = self.apply("add", u64, base, self.constant(rest, u64))
        return self.apply("add", u64, base, wide)
