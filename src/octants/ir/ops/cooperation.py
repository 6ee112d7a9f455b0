"""Operations that the work items of a block run together.

A task that has such an operation, or an array of `Space.SHARED`, *cooperates*. Its work items run
in *blocks* of ``options['block_dim']``: item ``lower + b * block_dim + t`` is number t of block b;
the last block may have fewer. A block's items run in *subgroups* of ``options['subgroup_size']``,
consecutive ones: number t is lane ``t % subgroup_size``. A lane without a work item has no part.

All work items of a block come to a barrier of the block, and all lanes that an operation of a
subgroup is about come to it, each as often as the others; else the program is wrong. What an item
has written is seen by the others of its block after the next barrier or fence; where two of them
touch one element in between, and one of them writes, not both by atomics, the outcome is undefined.
"""

from __future__ import annotations

from octants.ir.core import InvalidIR, Operation, Value, attribute, operand, operands, operation
from octants.types.scalars import i32, u1, u64

BARRIERS = ("block", "subgroup")
FENCES = ("subgroup", "block", "device")
SHUFFLES = ("shuffle", "shuffle_up", "shuffle_down", "shuffle_xor", "broadcast")
BITWISE = ("and", "or", "xor")
REDUCTIONS = ("add", "mul", "min", "max", *BITWISE)
SCANS = tuple(f"inclusive_{fn}" for fn in REDUCTIONS)


@operation("barrier")
class Barrier(Operation):
    """``barrier<block>()``: the items of the block, or of the subgroup, wait for each other."""

    orders_memory = True
    is_convergent = True
    has_effects = True

    scope: str = attribute()

    def verify(self) -> None:
        if self.scope not in BARRIERS:
            raise InvalidIR(f"no barrier of a {self.scope}")


@operation("fence")
class Fence(Operation):
    """``fence<block>()``: writes before it are seen before those behind it, by so many others.

    They are those of the subgroup, of the block, or all work items of the device. No work item
    waits.
    """

    orders_memory = True
    has_effects = True

    scope: str = attribute()

    def verify(self) -> None:
        if self.scope not in FENCES:
            raise InvalidIR(f"no fence of a {self.scope}")


@operation("subgroup")
class Subgroup(Operation):
    """``%1: f32 = subgroup<add, 32>(%0)``, ``%2: f32 = subgroup<shuffle, 32>(%0, %lane)``.

    `lanes`, a power of 2, is how many lanes take part: a subgroup, or an aligned part of one.

    - `shuffle` and `broadcast` give the value of a lane (i32, of the subgroup; one for all with
      `broadcast`), `shuffle_up`, `shuffle_down` and `shuffle_xor` that of the lane so many before
      or behind, or whose number differs in these bits; where there is no such lane, the own value;
    - `add`, `mul`, `min`, `max`, `and`, `or`, `xor` give what the values of all lanes make,
      ``inclusive_add`` and so on what those up to the own lane make. The order in which floats are
      added and multiplied is the machine's;
    - `ballot` gives a bit for each lane, as an u64, of a u1.
    """

    is_convergent = True
    is_varying = True

    fn: str = attribute()
    lanes: int = attribute()
    value: Value = operand()
    lane: list[Value] = operands()

    def verify(self) -> None:
        dtype, result = self.value.type, self.result.type
        if self.lanes < 1 or self.lanes & (self.lanes - 1) or self.lanes > 64:
            raise InvalidIR(f"subgroup: {self.lanes} lanes")
        if [lane.type for lane in self.lane] != [i32] * (self.fn in SHUFFLES):
            raise InvalidIR(f"subgroup {self.fn}: lanes {self.lane}")
        if self.fn == "ballot":
            if dtype is not u1 or result is not u64:
                raise InvalidIR(f"a ballot of {dtype} as {result}")
        elif result is not dtype or not _is_defined(self.fn, self.value):
            raise InvalidIR(f"subgroup {self.fn} of {dtype} as {result}")


@operation("act_as")
class ActAs(Operation):
    """``act_as(%i)``: failures of what follows in the text name work item i.

    It stands where work items of one task do the work of those of another.
    """

    has_effects = True
    is_tied = True

    item: Value = operand()


def _is_defined(fn: str, value: Value) -> bool:
    if fn in SHUFFLES:
        return True
    if fn not in REDUCTIONS and fn not in SCANS:
        return False
    is_bitwise = fn.removeprefix("inclusive_") in BITWISE
    return not value.type.is_float if is_bitwise else not value.type.is_bool
