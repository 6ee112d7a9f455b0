"""Opcodes of functions, by the family of the type."""

from __future__ import annotations

import functools

from octants.codegen.spirv.opcodes import Ext, Op
from octants.ir.ops.arithmetic import BITWISE, COMPARE
from octants.lowering.legal import (
    EXACT,
    FLOATS,
    INTEGERS,
    SIGNED_INTEGERS,
    UNSIGNED_INTEGERS,
    Legal,
    casts,
    table,
)
from octants.mathlib.functions import ALL
from octants.types.scalars import f16, i32, i64, u1, u32, u64

BOOL = {
    "and": Op.LOGICAL_AND,
    "or": Op.LOGICAL_OR,
    "xor": Op.LOGICAL_NOT_EQUAL,
    "not": Op.LOGICAL_NOT,
}

UNSIGNED = {
    "add": Op.I_ADD,
    "sub": Op.I_SUB,
    "mul": Op.I_MUL,
    "neg": Op.S_NEGATE,
    "quotient": Op.U_DIV,
    "remainder": Op.U_MOD,
    "and": Op.BITWISE_AND,
    "or": Op.BITWISE_OR,
    "xor": Op.BITWISE_XOR,
    "not": Op.NOT,
    "shl": Op.SHIFT_LEFT_LOGICAL,
    "shr": Op.SHIFT_RIGHT_LOGICAL,
    "ushr": Op.SHIFT_RIGHT_LOGICAL,
    "popcount": Op.BIT_COUNT,
}
SIGNED = UNSIGNED | {"quotient": Op.S_DIV, "shr": Op.SHIFT_RIGHT_ARITHMETIC}

FLOAT = {
    "add": Op.F_ADD,
    "sub": Op.F_SUB,
    "mul": Op.F_MUL,
    "div": Op.F_DIV,
    "neg": Op.F_NEGATE,
}
EXTENDED = {
    "abs": Ext.ABS,
    "floor": Ext.FLOOR,
    "ceil": Ext.CEIL,
    "round": Ext.ROUND_EVEN,
    "trunc": Ext.TRUNC,
    "sqrt": Ext.SQRT,
    "fma": Ext.FMA,
}

FLOAT_COMPARE = {
    "eq": Op.F_ORD_EQUAL,
    "ne": Op.F_UNORD_NOT_EQUAL,
    "lt": Op.F_ORD_LESS_THAN,
    "le": Op.F_ORD_LESS_THAN_EQUAL,
    "gt": Op.F_ORD_GREATER_THAN,
    "ge": Op.F_ORD_GREATER_THAN_EQUAL,
}
_EQUALITY = {"eq": Op.I_EQUAL, "ne": Op.I_NOT_EQUAL}
SIGNED_COMPARE = _EQUALITY | {
    "lt": Op.S_LESS_THAN,
    "le": Op.S_LESS_THAN_EQUAL,
    "gt": Op.S_GREATER_THAN,
    "ge": Op.S_GREATER_THAN_EQUAL,
}
UNSIGNED_COMPARE = _EQUALITY | {
    "lt": Op.U_LESS_THAN,
    "le": Op.U_LESS_THAN_EQUAL,
    "gt": Op.U_GREATER_THAN,
    "ge": Op.U_GREATER_THAN_EQUAL,
}

_ANY_SIGN = {
    "add": Op.ATOMIC_I_ADD,
    "sub": Op.ATOMIC_I_SUB,
    "and": Op.ATOMIC_AND,
    "or": Op.ATOMIC_OR,
    "xor": Op.ATOMIC_XOR,
    "exchange": Op.ATOMIC_EXCHANGE,
}
ATOMIC = {
    False: _ANY_SIGN | {"min": Op.ATOMIC_U_MIN, "max": Op.ATOMIC_U_MAX},
    True: _ANY_SIGN | {"min": Op.ATOMIC_S_MIN, "max": Op.ATOMIC_S_MAX},
}

_BASIC = ("add", "sub", "mul", "neg")
_ON_INTEGERS = (*_BASIC, *BITWISE, "not", "quotient", "lsl", "lsr")


@functools.cache
def legal(has_f64: bool, fast_math: bool) -> Legal:
    """Return the operations that every device supports, given its types.

    Only ``fast_math`` lets a machine round a product before adding to it.
    """
    functions = table(
        (INTEGERS, _ON_INTEGERS),
        (SIGNED_INTEGERS, ("asr",)),
        (UNSIGNED_INTEGERS, ("remainder",)),
        ((u32,), ("popcount",)),
        (FLOATS, (*_BASIC, "div", "sqrt", *EXACT, *ALL)),
        ((f16,), EXACT),
        ((u1,), (*BITWISE, "not", "eq", "ne")),
        ((*INTEGERS, *FLOATS, f16), COMPARE),
    )
    wide = (i32, i64, u32, u64)
    allowed = casts((*INTEGERS, u1), INTEGERS) | casts((*wide, u1, *FLOATS), FLOATS)
    fma = frozenset(FLOATS if fast_math else ())
    return Legal(functions, allowed, fma, has_f64=has_f64)
