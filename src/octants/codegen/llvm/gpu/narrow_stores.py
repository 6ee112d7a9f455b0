"""Make PTX store a register of the right width, to avoid a conversion by NVIDIA's assembler.

Before::

    cvt.rn.f64.s32  %rd40, %r30;
    st.global.b32   [%rd75], %rd40;

After::

    cvt.rn.f64.s32  %rd40, %r30;
    { .reg .b32 %part0; cvt.u32.u64 %part0, %rd40; st.global.b32 [%rd75], %part0; }

PTX defines that the low bits are stored, which is what LLVM means. But if an instruction wrote the
register as a float, NVIDIA's assembler converts that to an integer.
"""

from __future__ import annotations

import re

_STORE = re.compile(
    r"^[ \t]*(?P<guard>@!?%p\d+\s+)?(?P<name>st[.\w:]*\.b(?P<bits>8|16|32))\s+"
    r"(?P<address>\[[^\]]*\]),\s*(?P<values>\{[^}]*\}|%\w+);",
    re.MULTILINE,
)
_REGISTER = re.compile(r"%(rd|rs|r)\d+")
_WIDTHS = {"rd": 64, "r": 32, "rs": 16}


def narrow_stores(text: str) -> str:
    """Replace each store of a register that is wider than the stored number."""
    return _STORE.sub(_narrowed, text)


def _narrowed(store: re.Match[str]) -> str:
    bits, parts = int(store["bits"]), list[str]()

    def part(register: re.Match[str]) -> str:
        width = _WIDTHS[register[1]]
        if width <= bits:
            return register[0]
        # There are no 8-bit registers: such values are the low bits of wider ones.
        kept = 32 if width == 16 else max(bits, 16)
        name = f"%part{len(parts)}"
        parts.append(f".reg .b{kept} {name}; cvt.u{kept}.u{width} {name}, {register[0]}; ")
        return name

    values = _REGISTER.sub(part, store["values"])
    if not parts:
        return store[0]
    guard = store["guard"] or ""
    return f"\t{{ {''.join(parts)}{guard}{store['name']} {store['address']}, {values}; }}"
