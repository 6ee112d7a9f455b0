"""Opcodes of functions, by the family of the type."""

from __future__ import annotations

from octants.codegen.spirv.opcodes import Ext, Op

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
    "rsqrt": Ext.INVERSE_SQRT,
    "sin_estimate": Ext.SIN,
    "cos_estimate": Ext.COS,
    "exp2_estimate": Ext.EXP2,
    "fma": Ext.FMA,
    "min": Ext.N_MIN,
    "max": Ext.N_MAX,
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
