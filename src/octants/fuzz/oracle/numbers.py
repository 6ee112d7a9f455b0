"""Typed numbers that record what is done with them."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from octants.fuzz.oracle.state import STATE, IllDefined, Link


class Type:
    """A scalar type of the language, callable as a conversion."""

    def __init__(self, name: str, kind: str, bits: int) -> None:
        self.name = name
        self.kind = kind
        self.bits = bits
        self.is_float = kind == "float"
        self.roundoff = {16: 2.0**-11, 32: 2.0**-24}.get(bits, 2.0**-53)
        signed = kind == "int"
        self.low = -(1 << (bits - 1)) if signed else 0
        self.high = (1 << (bits - signed)) - 1

    def __call__(self, value: Any) -> Any:
        return value.cast(self) if hasattr(value, "cast") else convert(lift(value), self)

    def __repr__(self) -> str:
        return self.name


U1 = Type("u1", "bool", 1)
I8, I16, I32, I64 = (Type(f"i{bits}", "int", bits) for bits in (8, 16, 32, 64))
U8, U16, U32, U64 = (Type(f"u{bits}", "uint", bits) for bits in (8, 16, 32, 64))
F16, F32, F64 = (Type(f"f{bits}", "float", bits) for bits in (16, 32, 64))
TYPES = {t.name: t for t in (U1, I8, I16, I32, I64, U8, U16, U32, U64, F16, F32, F64)}


class Defaults:
    """The types of literals."""

    floating = F32
    integer = I32


class Num:
    """A value of a type.

    `error` bounds the distance of a sound implementation's value from `value`; 0 says that all of
    them agree. `tangent` is the derivative in the direction of the run, with its own bound; `node`
    is the number on the tape, -1 for what does not depend on a differentiable input. What is
    `literal` may be computed when the kernel is compiled, in double precision.
    """

    __slots__ = ("error", "literal", "node", "tangent", "tangent_error", "type", "value")

    def __init__(self, type: Type, value: Any, error: float = 0.0) -> None:
        self.type = type
        self.value = value
        self.error = error
        self.tangent = 0.0
        self.tangent_error = 0.0
        self.node = -1
        self.literal = False

    def __repr__(self) -> str:
        return f"{self.value}: {self.type}"

    def __bool__(self) -> bool:
        decision = bool(self.value)
        if self.error and abs(self.value) <= 2 * self.error:
            STATE.note_near("truth of a float")
        STATE.burn()
        STATE.decide(decision)
        return decision

    def __index__(self) -> int:
        if self.type.is_float:
            raise IllDefined("a float as an index")
        return int(self.value)

    __hash__ = None  # type: ignore[assignment]


def offset_of(indices: Sequence[Any], shape: Sequence[int]) -> int:
    """The row-major number of an element, whose indices must be in bounds."""
    if len(indices) != len(shape):
        raise IllDefined("wrong number of indices")
    offset = 0
    for index, extent in zip(indices, shape, strict=True):
        number = lift(index).__index__()
        if not 0 <= number < extent:
            raise IllDefined(f"index {number} of {extent}")
        offset = offset * extent + number
    return offset


def lift(value: Any) -> Num:
    """A Python number as a literal."""
    if isinstance(value, Num):
        return value
    if isinstance(value, bool):
        return Num(U1, value)
    if not isinstance(value, (int, float)):
        raise IllDefined(f"not a number: {value!r}")
    if isinstance(value, int):
        kind = _type_of_literal(value)
        result = Num(kind, wrap(kind, value))
    else:
        result = Num(Defaults.floating, rounded(Defaults.floating, value))
    result.literal = True
    return result


def _type_of_literal(value: int) -> Type:
    """The first type that holds an integer: the default one, i64, u64."""
    fitting = (kind for kind in (Defaults.integer, I64, U64) if wrap(kind, value) == value)
    return next(fitting, Defaults.integer)


_FORMATS = {32: struct.Struct("f"), 16: struct.Struct("e")}


def rounded(dtype: Type, value: float) -> float:
    """The nearest number of a float type."""
    if dtype.bits == 64 or not STATE.rounding:
        return value
    layout = _FORMATS[dtype.bits]
    return float(layout.unpack(layout.pack(value))[0])


def wrap(dtype: Type, value: int) -> int:
    """An integer brought into the range of its type."""
    if dtype.low <= value <= dtype.high:
        return value
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if value > dtype.high else value


def promote(a: Type, b: Type) -> Type:
    """The type of a result: floats beat integers, wider beats narrower, unsigned beats signed."""
    if a is b:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    return a if a.kind == "uint" else b


EXACT = -1.0

Parent = tuple[Num, float, float]
"""An operand of a float operation, its partial derivative, and a bound on that one's error."""


def real(dtype: Type, value: float, parents: Sequence[Parent], slack: float = 0.0) -> Num:
    """The result of a float operation.

    ``slack`` is how far, in units of roundoff of the result, implementations may differ where their
    operands agree: 0 for what is rounded correctly, negative for what is never rounded. Operands
    that differ add two more: the two results may be rounded in opposite directions.
    """
    STATE.burn()
    if not math.isfinite(value):
        raise IllDefined("not finite")
    roundoff = dtype.roundoff
    error = 0.0
    tangent = tangent_error = 0.0
    links: list[Link] = []
    literal = bool(parents)
    for operand, partial, partial_error in parents:
        literal = literal and operand.literal
        if operand.error:
            error += abs(partial) * operand.error
        if operand.tangent:
            term = partial * operand.tangent
            tangent += term
            tangent_error += abs(operand.tangent) * partial_error + 2.0 * roundoff * abs(term)
        if operand.tangent_error:
            tangent_error += abs(partial) * operand.tangent_error
        if operand.node >= 0 and (partial or partial_error):
            links.append((operand.node, partial, partial_error))
    if slack >= 0.0 and (error or STATE.inexact):
        slack += 2.0
    if slack > 0.0:
        error += slack * roundoff * abs(value)
    if literal:  # in double precision, neither it nor its operands are rounded
        terms = (abs(partial * operand.value) for operand, partial, _ in parents)
        error += roundoff * (abs(value) + sum(terms))
    result = Num(dtype, rounded(dtype, value), error)
    result.literal = literal
    if tangent or tangent_error:
        result.tangent = tangent
        result.tangent_error = tangent_error + roundoff * abs(tangent)
    if links:
        result.node = STATE.node(links, min(roundoff, F32.roundoff))  # f16 adjoints are f32
    return result


def convert(x: Num, dtype: Type) -> Num:
    """The language's conversion: integers wrap, floats saturate and truncate, or are rounded."""
    if x.type is dtype:
        return x
    if dtype.is_float:
        if x.type.is_float:
            narrower = x.type.bits > dtype.bits
            return real(dtype, x.value, [(x, 1.0, 0.0)], 0.0 if narrower else EXACT)
        result = Num(dtype, rounded(dtype, float(x.value)))
        result.literal = x.literal
        return result
    if dtype.kind == "bool":
        if x.error and abs(x.value) <= 2 * x.error:
            STATE.note_near("cast to u1")
        return Num(dtype, bool(x.value))
    if not x.type.is_float:
        return Num(dtype, wrap(dtype, int(x.value)))
    near_integer(x, "cast to an integer")
    whole = int(x.value)
    STATE.decide(whole)
    return Num(dtype, min(max(whole, dtype.low), dtype.high))


def near_integer(x: Num, what: str, offset: float = 0.0) -> None:
    """Note it if the value is so close to an integer (plus offset) that rounding may decide."""
    if x.error:
        position = x.value - offset
        if abs(position - round(position)) <= 2 * x.error:
            STATE.note_near(what)
