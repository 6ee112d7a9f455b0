"""All operations. Importing this package registers them with the parser."""

from __future__ import annotations

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
    Access,
    Assert,
    Atomic,
    CompareExchange,
    Load,
    Print,
    Shape,
    Store,
    Write,
)
from octants.ir.ops.tape import (
    Longest,
    RecordAccess,
    RecordCheck,
    RecordEnd,
    RecordPop,
    RecordPush,
    RecordReserve,
    RecordRoom,
)

__all__ = [
    "Access",
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
    "RecordAccess",
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
    "Write",
    "Yield",
]
