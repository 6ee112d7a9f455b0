"""All operations. Importing this package registers them with the parser."""

from __future__ import annotations

from typing import Any

from octants.ir.ops.arithmetic import (
    Binary,
    Bitcast,
    Cast,
    Compare,
    Constant,
    Fma,
    Random,
    Select,
    Unary,
)
from octants.ir.ops.control import For, If, ParallelFor, While, Yield
from octants.ir.ops.cooperation import ActAs, Barrier, Fence, Subgroup
from octants.ir.ops.memory import (
    Assert,
    Atomic,
    CompareExchange,
    Load,
    Print,
    Shape,
    Store,
)
from octants.ir.ops.tape import (
    Longest,
    RecordCheck,
    RecordEnd,
    RecordPop,
    RecordPush,
    RecordReserve,
    RecordRoom,
)

OF_OPERANDS: tuple[type[Any], ...] = (
    Constant,
    Unary,
    Binary,
    Fma,
    Compare,
    Select,
    Cast,
    Bitcast,
)
"""The operations that depend on their operands alone."""

SCALAR: tuple[type[Any], ...] = (*OF_OPERANDS, Random, Shape)
"""The operations that depend on nothing but their operands and the launch."""

ACCESSES = (Load, Store, Atomic, CompareExchange)
"""The operations that read or write elements of arrays."""

__all__ = [
    "ACCESSES",
    "OF_OPERANDS",
    "SCALAR",
    "ActAs",
    "Assert",
    "Atomic",
    "Barrier",
    "Binary",
    "Bitcast",
    "Cast",
    "Compare",
    "CompareExchange",
    "Constant",
    "Fence",
    "Fma",
    "For",
    "If",
    "Load",
    "Longest",
    "ParallelFor",
    "Print",
    "Random",
    "RecordCheck",
    "RecordEnd",
    "RecordPop",
    "RecordPush",
    "RecordReserve",
    "RecordRoom",
    "Select",
    "Shape",
    "Store",
    "Subgroup",
    "Unary",
    "While",
    "Yield",
]
