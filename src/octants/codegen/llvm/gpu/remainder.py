"""C's `fmod` for machines without it: exact, by long division of the mantissas."""

from __future__ import annotations

from octants.codegen.llvm.function import FunctionText
from octants.codegen.llvm.module import ModuleText

_ATTRIBUTES = "nounwind willreturn memory(none)"


def remainder(f: FunctionText, type: str, a: str, b: str) -> str:
    """The remainder of two floats; that of two f32 is the same in f64, and has no more bits."""
    name = f.text.helper("@octants.fmod", _text)
    if type == "float":
        a, b = (f.convert("fpext", "float", x, "double") for x in (a, b))
    result = f.call(name, "double", [("double", a), ("double", b)])
    return f.convert("fptrunc", "double", result, "float") if type == "float" else result


def _text(text: ModuleText, name: str) -> str:
    """Numbers are `m * 2**(e - 1075)` with 2**52 <= m < 2**53, subnormal ones with e < 1."""
    text.declare("@llvm.ctlz.i64", "i64", "i64, i1")
    split = "\n".join(map(_split, "xy"))
    return f"""\
define internal double {name}(double %a, double %b) {_ATTRIBUTES} {{
entry:
  %abits = bitcast double %a to i64
  %bbits = bitcast double %b to i64
  %sign = and i64 %abits, -9223372036854775808
  %x = and i64 %abits, 9223372036854775807
  %y = and i64 %bbits, 9223372036854775807
  %yiszero = icmp eq i64 %y, 0
  %xisspecial = icmp uge i64 %x, 9218868437227405312
  %yisnan = icmp ugt i64 %y, 9218868437227405312
  %none = or i1 %yiszero, %xisspecial
  %invalid = or i1 %none, %yisnan
  br i1 %invalid, label %nan, label %number
nan:
  ret double 0x7FF8000000000000
number:
  %issmaller = icmp ult i64 %x, %y
  br i1 %issmaller, label %same, label %divide
same:
  ret double %a
divide:
{split}
  br label %turn
turn:
  %e = phi i64 [ %xe, %divide ], [ %elower, %again ]
  %m = phi i64 [ %xm, %divide ], [ %mtwice, %again ]
  %difference = sub i64 %m, %ym
  %fits = icmp sge i64 %difference, 0
  %rest = select i1 %fits, i64 %difference, i64 %m
  %more = icmp sgt i64 %e, %ye
  br i1 %more, label %again, label %divided
again:
  %mtwice = shl i64 %rest, 1
  %elower = sub i64 %e, 1
  br label %turn
divided:
  %iszero = icmp eq i64 %rest, 0
  br i1 %iszero, label %zero, label %round
zero:
  %zerovalue = bitcast i64 %sign to double
  ret double %zerovalue
round:
  %zeros = call i64 @llvm.ctlz.i64(i64 %rest, i1 true)
  %up = sub i64 %zeros, 11
  %lifted = shl i64 %rest, %up
  %newe = sub i64 %e, %up
  %isnormal = icmp sgt i64 %newe, 0
  br i1 %isnormal, label %normal, label %subnormal
normal:
  %mantissa = and i64 %lifted, 4503599627370495
  %exponent = shl i64 %newe, 52
  %whole = or i64 %mantissa, %exponent
  br label %signed
subnormal:
  %down = sub i64 1, %newe
  %small = lshr i64 %lifted, %down
  br label %signed
signed:
  %size = phi i64 [ %whole, %normal ], [ %small, %subnormal ]
  %bits = or i64 %size, %sign
  %result = bitcast i64 %bits to double
  ret double %result
}}
"""


def _split(x: str) -> str:
    """The exponent and the mantissa of a number that is not zero, or is the smaller one's."""
    return f"""\
  %{x}raw = lshr i64 %{x}, 52
  %{x}isnormal = icmp ne i64 %{x}raw, 0
  %{x}fraction = and i64 %{x}, 4503599627370495
  %{x}with = or i64 %{x}fraction, 4503599627370496
  %{x}zeros = call i64 @llvm.ctlz.i64(i64 %{x}fraction, i1 false)
  %{x}shift = sub i64 %{x}zeros, 11
  %{x}limited = and i64 %{x}shift, 63
  %{x}lifted = shl i64 %{x}fraction, %{x}limited
  %{x}low = sub i64 1, %{x}shift
  %{x}m = select i1 %{x}isnormal, i64 %{x}with, i64 %{x}lifted
  %{x}e = select i1 %{x}isnormal, i64 %{x}raw, i64 %{x}low"""
