"""f16: 16 bits in memory, in a register a `float` that holds one of its values.

Machines with instructions for it convert through LLVM's `half`; for others LLVM would call the
compiler's run-time library, which a process need not have, and so they get integer code.
"""

from __future__ import annotations

from octants.codegen.llvm.function import FunctionText
from octants.codegen.llvm.module import ModuleText


def round_float(f: FunctionText, x: str) -> str:
    """The value of f16 nearest to a `float`, even at a tie."""
    return from_bits(f, to_bits(f, x))


def to_bits(f: FunctionText, x: str) -> str:
    """A `float` as what is stored: `half`, or i16 where there is no such thing."""
    if f.machine.has_half:
        return f.convert("fptrunc", "float", x, "half")
    return f.call(f.text.helper("@octants.half.bits", _narrow), "i16", [("float", x)])


def from_bits(f: FunctionText, bits: str) -> str:
    """The `float` of what is stored."""
    if f.machine.has_half:
        return f.convert("fpext", "half", bits, "float")
    return f.call(f.text.helper("@octants.half.value", _widen), "float", [("i16", bits)])


def stored_type(f: FunctionText) -> str:
    """The LLVM type of an f16 in memory."""
    return "half" if f.machine.has_half else "i16"


def to_integer(f: FunctionText, x: str) -> str:
    """The 16 bits as an i16."""
    bits = to_bits(f, x)
    return f.convert("bitcast", "half", bits, "i16") if f.machine.has_half else bits


def from_integer(f: FunctionText, x: str) -> str:
    """The `float` of 16 bits in an i16."""
    return from_bits(f, f.convert("bitcast", "i16", x, "half") if f.machine.has_half else x)


def round_to_odd(f: FunctionText, x: str) -> str:
    """A `float` that rounds to the f16 of the `double`: truncated, its last bit says inexact."""
    return f.call(f.text.helper("@octants.half.odd", _odd), "float", [("double", x)])


_ATTRIBUTES = "nounwind willreturn memory(none)"


def _odd(text: ModuleText, name: str) -> str:
    """After Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008."""
    text.declare("@llvm.fabs.f64", "double", "double")
    return f"""\
define internal float {name}(double %x) {_ATTRIBUTES} {{
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %inexact = fcmp one double %back, %x
  %size = call double @llvm.fabs.f64(double %x)
  %backsize = call double @llvm.fabs.f64(double %back)
  %beyond = fcmp ogt double %backsize, %size
  %bits = bitcast float %near to i32
  %less = sub i32 %bits, 1
  %cut = select i1 %beyond, i32 %less, i32 %bits
  %odd = or i32 %cut, 1
  %all = select i1 %inexact, i32 %odd, i32 %bits
  %result = bitcast i32 %all to float
  ret float %result
}}
"""


def _narrow(_: ModuleText, name: str) -> str:
    """Adding a power of two lets the hardware round: to 2**-24 for subnormals, else by integers."""
    return f"""\
define internal i16 {name}(float %x) {_ATTRIBUTES} {{
  %bits = bitcast float %x to i32
  %top = lshr i32 %bits, 16
  %sign = and i32 %top, 32768
  %size = and i32 %bits, 2147483647
  %absolute = bitcast i32 %size to float
  %shifted = fadd float %absolute, 5.000000e-01
  %shiftedbits = bitcast float %shifted to i32
  %small = sub i32 %shiftedbits, 1056964608
  %last = lshr i32 %size, 13
  %odd = and i32 %last, 1
  %rebased = sub i32 %size, 939524096
  %up = add i32 %rebased, 4095
  %even = add i32 %up, %odd
  %normal = lshr i32 %even, 13
  %is_small = icmp ult i32 %size, 947912704
  %finite = select i1 %is_small, i32 %small, i32 %normal
  %is_big = icmp uge i32 %size, 1199570944
  %capped = select i1 %is_big, i32 31744, i32 %finite
  %is_nan = icmp ugt i32 %size, 2139095040
  %payload = lshr i32 %size, 13
  %kept = and i32 %payload, 1023
  %nan = or i32 %kept, 32256
  %magnitude = select i1 %is_nan, i32 %nan, i32 %capped
  %all = or i32 %magnitude, %sign
  %result = trunc i32 %all to i16
  ret i16 %result
}}
"""


def _widen(_: ModuleText, name: str) -> str:
    """Multiplying by 2**112 moves the exponent, of subnormals too."""
    return f"""\
define internal float {name}(i16 %x) {_ATTRIBUTES} {{
  %bits = zext i16 %x to i32
  %high = and i32 %bits, 32768
  %sign = shl i32 %high, 16
  %rest = and i32 %bits, 32767
  %moved = shl i32 %rest, 13
  %scaled = bitcast i32 %moved to float
  %value = fmul float %scaled, 0x46F0000000000000
  %valuebits = bitcast float %value to i32
  %is_special = icmp uge i32 %rest, 31744
  %special = or i32 %moved, 2139095040
  %magnitude = select i1 %is_special, i32 %special, i32 %valuebits
  %all = or i32 %magnitude, %sign
  %result = bitcast i32 %all to float
  ret float %result
}}
"""
