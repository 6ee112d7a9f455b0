"""Make PTX take minima and maxima of 16 bits from 32 bits, to avoid a fault of NVIDIA's assembler.

Before::

    max.s16         %rs3, %rs2, -2;

After::

    { .reg .b32 %one, %other; cvt.s32.s16 %one, %rs2; mov.b32 %other, -2;
    max.s32 %one, %one, %other; cvt.u16.u32 %rs3, %one; }

Code that compares such a maximum with an operand takes the wrong branch on capabilities 9.0 and
10.0: there the assembler uses an instruction that compares two pairs of 16 bits, and takes the
result for the wrong pair. LLVM narrows extrema of numbers that were cast from 8 or 16 bits, such as
the end of ``range(1 + cast(x, i8))``, which is compared with zero.
"""

from __future__ import annotations

import re

_EXTREMUM = re.compile(
    r"(?<![.\w])(?P<fn>max|min)\.(?P<sign>[su])16\s+"
    r"(?P<result>%\w+),\s*(?P<one>[%\w-]+),\s*(?P<other>[%\w-]+);"
)


def widen_extrema(text: str) -> str:
    """Replace each minimum and maximum of 16 bits."""
    return _EXTREMUM.sub(_widened, text)


def _widened(found: re.Match[str]) -> str:
    sign, fn = found["sign"], f"{found['fn']}.{found['sign']}32"

    def widen(name: str, operand: str) -> str:
        if operand.startswith("%"):
            return f"cvt.{sign}32.{sign}16 {name}, {operand};"
        bits = int(operand) & 0xFFFF
        return f"mov.b32 {name}, {bits - 0x10000 if sign == 's' and bits >= 0x8000 else bits};"

    operands = f"{widen('%one', found['one'])} {widen('%other', found['other'])}"
    narrow = f"cvt.u16.u32 {found['result']}, %one;"
    return f"{{ .reg .b32 %one, %other; {operands}\n\t{fn} %one, %one, %other; {narrow} }}"
