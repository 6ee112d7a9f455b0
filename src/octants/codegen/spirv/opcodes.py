"""The numbers of SPIR-V: instructions, and enumerants of their operands.

After "SPIR-V Specification", version 1.5, the Khronos Group.
"""

from __future__ import annotations

import enum

MAGIC = 0x07230203
VERSION = 0x00010500


class Op(enum.IntEnum):
    """Instructions."""

    EXTENSION = 10
    EXT_INST_IMPORT = 11
    EXT_INST = 12
    MEMORY_MODEL = 14
    ENTRY_POINT = 15
    EXECUTION_MODE = 16
    CAPABILITY = 17
    TYPE_VOID = 19
    TYPE_BOOL = 20
    TYPE_INT = 21
    TYPE_FLOAT = 22
    TYPE_VECTOR = 23
    TYPE_ARRAY = 28
    TYPE_RUNTIME_ARRAY = 29
    TYPE_STRUCT = 30
    TYPE_POINTER = 32
    TYPE_FUNCTION = 33
    CONSTANT_TRUE = 41
    CONSTANT_FALSE = 42
    CONSTANT = 43
    FUNCTION = 54
    FUNCTION_PARAMETER = 55
    FUNCTION_END = 56
    FUNCTION_CALL = 57
    VARIABLE = 59
    LOAD = 61
    STORE = 62
    ACCESS_CHAIN = 65
    DECORATE = 71
    MEMBER_DECORATE = 72
    COMPOSITE_CONSTRUCT = 80
    COMPOSITE_EXTRACT = 81
    CONVERT_F_TO_U = 109
    CONVERT_F_TO_S = 110
    CONVERT_S_TO_F = 111
    CONVERT_U_TO_F = 112
    U_CONVERT = 113
    S_CONVERT = 114
    F_CONVERT = 115
    CONVERT_U_TO_PTR = 120
    BITCAST = 124
    S_NEGATE = 126
    F_NEGATE = 127
    I_ADD = 128
    F_ADD = 129
    I_SUB = 130
    F_SUB = 131
    I_MUL = 132
    F_MUL = 133
    U_DIV = 134
    S_DIV = 135
    F_DIV = 136
    U_MOD = 137
    U_MUL_EXTENDED = 151
    LOGICAL_NOT_EQUAL = 165
    LOGICAL_OR = 166
    LOGICAL_AND = 167
    LOGICAL_NOT = 168
    LOGICAL_EQUAL = 164
    SELECT = 169
    I_EQUAL = 170
    I_NOT_EQUAL = 171
    U_GREATER_THAN = 172
    S_GREATER_THAN = 173
    U_GREATER_THAN_EQUAL = 174
    S_GREATER_THAN_EQUAL = 175
    U_LESS_THAN = 176
    S_LESS_THAN = 177
    U_LESS_THAN_EQUAL = 178
    S_LESS_THAN_EQUAL = 179
    F_ORD_EQUAL = 180
    F_UNORD_NOT_EQUAL = 183
    F_ORD_LESS_THAN = 184
    F_ORD_GREATER_THAN = 186
    F_ORD_LESS_THAN_EQUAL = 188
    F_ORD_GREATER_THAN_EQUAL = 190
    SHIFT_RIGHT_LOGICAL = 194
    SHIFT_RIGHT_ARITHMETIC = 195
    SHIFT_LEFT_LOGICAL = 196
    BITWISE_OR = 197
    BITWISE_XOR = 198
    BITWISE_AND = 199
    NOT = 200
    BIT_COUNT = 205
    CONTROL_BARRIER = 224
    MEMORY_BARRIER = 225
    ATOMIC_LOAD = 227
    ATOMIC_EXCHANGE = 229
    ATOMIC_COMPARE_EXCHANGE = 230
    ATOMIC_I_ADD = 234
    ATOMIC_I_SUB = 235
    ATOMIC_S_MIN = 236
    ATOMIC_U_MIN = 237
    ATOMIC_S_MAX = 238
    ATOMIC_U_MAX = 239
    ATOMIC_AND = 240
    ATOMIC_OR = 241
    ATOMIC_XOR = 242
    LOOP_MERGE = 246
    SELECTION_MERGE = 247
    LABEL = 248
    BRANCH = 249
    BRANCH_CONDITIONAL = 250
    RETURN = 253
    RETURN_VALUE = 254
    UNREACHABLE = 255
    GROUP_BALLOT = 339
    GROUP_SHUFFLE = 345
    ATOMIC_F_ADD = 6035


class Capability(enum.IntEnum):
    """Capabilities that a module requires of a device."""

    SHADER = 1
    FLOAT_64 = 10
    INT_64 = 11
    INT_64_ATOMICS = 12
    INT_16 = 22
    INT_8 = 39
    GROUP = 61
    GROUP_BALLOT = 64
    GROUP_SHUFFLE = 65
    STORAGE_16_BIT = 4433
    STORAGE_8_BIT = 4448
    DENORM_PRESERVE = 4464
    SIGNED_ZERO_INF_NAN_PRESERVE = 4466
    ROUNDING_MODE_RTE = 4467
    PHYSICAL_ADDRESSES = 5347
    ATOMIC_FLOAT_32_ADD = 6033
    ATOMIC_FLOAT_64_ADD = 6034


class Mode(enum.IntEnum):
    """Execution modes of an entry point."""

    LOCAL_SIZE = 17
    DENORM_PRESERVE = 4459
    SIGNED_ZERO_INF_NAN_PRESERVE = 4461
    ROUNDING_MODE_RTE = 4462


class StorageClass(enum.IntEnum):
    """Storage classes."""

    INPUT = 1
    WORKGROUP = 4
    FUNCTION = 7
    PUSH_CONSTANT = 9
    BUFFER = 12
    PHYSICAL = 5349


class Decoration(enum.IntEnum):
    """Decorations of results and members."""

    BLOCK = 2
    ARRAY_STRIDE = 6
    BUILT_IN = 11
    ALIASED = 20
    BINDING = 33
    DESCRIPTOR_SET = 34
    OFFSET = 35
    NO_CONTRACTION = 42


class BuiltIn(enum.IntEnum):
    """Built-in variables."""

    NUMBER_OF_WORKGROUPS = 24
    WORKGROUP = 26
    LOCAL_INVOCATION = 27
    GLOBAL_INVOCATION = 28
    SUBGROUP = 40
    LANE = 41


class Ext(enum.IntEnum):
    """Instructions of GLSL.std.450."""

    ROUND_EVEN = 2
    TRUNC = 3
    ABS = 4
    FLOOR = 8
    CEIL = 9
    SIN = 13
    COS = 14
    EXP2 = 29
    SQRT = 31
    INVERSE_SQRT = 32
    FMA = 50
    N_MIN = 79
    N_MAX = 80


LOGICAL_ADDRESSING, PHYSICAL_ADDRESSING = 0, 5348
GLSL_MEMORY = 1
COMPUTE = 5
ALIGNED = 2
DEVICE_SCOPE, BLOCK_SCOPE, SUBGROUP_SCOPE = 1, 2, 3
RELAXED, ACQUIRE_RELEASE = 0, 8
OF_MEMORY, OF_SHARED_MEMORY = 0x40, 0x100
"""The memory that a barrier orders: that of the device, and that of a block."""


def text_words(text: str) -> list[int]:
    """Return the words of a string with its terminator, padded with zeros."""
    data = text.encode() + b"\0"
    data += b"\0" * (-len(data) % 4)
    return [int.from_bytes(data[k : k + 4], "little") for k in range(0, len(data), 4)]


def instruction(op: Op, *operands: int) -> list[int]:
    """Return the words of an instruction; the first one has its length."""
    return [(len(operands) + 1) << 16 | op, *operands]
