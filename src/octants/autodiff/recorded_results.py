"""Records hold what the reverse sweep needs, where the first sweep computes it as well.

Before::

    kernel @k
    array @x: f32, 0, field, () [primal, adjoint]
    record #r: f32
    serial @k_0 {
      %0: i64 = constant<0>()
      %1: i64 = constant<9>()
      %2: f32 = load<@x, primal>()
      %3: f32 = for(%0, %1, %2) { (%4: i64, %5: f32):
        record_push<#r>(%0, %4, %5)
        %6: f32 = unary<exp>(%5)
        yield(%6)
      }
      %7: f32 = load<@x, adjoint>()
      %8: f32 = for(%0, %1, %7) { (%9: i64, %10: f32):
        %11: f32 = record_pop<#r>(%0, %9)
        %12: f32 = unary<exp>(%11)
        %13: f32 = binary<mul>(%10, %12)
        yield(%13)
      }
      store<@x, adjoint>(%8)
      yield()
    }

After::

    kernel @k
    array @x: f32, 0, field, () [primal, adjoint]
    record #r: f32
    serial @k_0 {
      %0: i64 = constant<0>()
      %1: i64 = constant<9>()
      %2: f32 = load<@x, primal>()
      %3: f32 = for(%0, %1, %2) { (%4: i64, %5: f32):
        %6: f32 = unary<exp>(%5)
        record_push<#r>(%0, %4, %6)
        %7: f32 = unary<exp>(%5)
        yield(%7)
      }
      %8: f32 = load<@x, adjoint>()
      %9: f32 = for(%0, %1, %8) { (%10: i64, %11: f32):
        %12: f32 = record_pop<#r>(%0, %10)
        %13: f32 = unary<exp>(%12)
        %14: f32 = binary<mul>(%11, %12)
        yield(%14)
      }
      store<@x, adjoint>(%9)
      yield()
    }

A loop records what it carries. If all that is made of such a value afterwards is a function of it,
which each sweep that records computes, too, then the result is recorded: the record is as large as
before, and the reverse sweep computes less. A function of a function, and of constants, such as
exp(-2 v), is one here. `simplify` shares and removes what there is too much of.

A cosine may be recorded where the sweep computes the sine: with ``fast_math`` the two share most of
their work, if the cosine is for a derivative only.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field

from octants.ir import ops
from octants.ir.core import (
    BYTES,
    CHECKPOINT,
    LOG,
    Block,
    Module,
    Operation,
    Record,
    Value,
    rebuild,
    replace_operands,
)
from octants.lazy_dataclass import dataclass
from octants.types.scalars import f32

_CHEAP = {
    ops.Unary: ("neg", "abs", "sign", "floor", "ceil", "round", "trunc", "not", "popcount", "clz"),
    ops.Binary: ("add", "sub", "mul", "min", "max", "and", "or", "xor", "shl", "shr", "ushr"),
}
"""Functions that are no more work than to record their results."""

Chain = list[Operation]
"""Operations, each of which makes the operand of the next."""

InsertionPoint = tuple[Block, Operation]
"""An operation in a block."""


def record_results(module: Module, slopes: Collection[Operation] = ()) -> None:
    """Have the records of all tasks hold results, in place.

    Of what derivatives are made of, ``slopes`` are the operations that need not be exact to the
    last digit.
    """
    for task in module.tasks:
        _Records(task.body, slopes).rewrite()


@dataclass(eq=False, slots=True)
class _Sites:
    """Where a record is read, and written: each place with those around it, outermost first."""

    pushes: list[tuple[ops.RecordPush, list[InsertionPoint]]] = field(default_factory=list)
    pops: list[ops.RecordPop] = field(default_factory=list)


class _Records:
    def __init__(self, body: Block, slopes: Collection[Operation]) -> None:
        self.body = body
        self.slopes = slopes
        self.users: dict[Value, list[InsertionPoint]] = {}
        self.constants: set[Value] = set()
        self.sites: dict[Record, _Sites] = {}
        self.replaced: dict[Value, Value] = {}
        self._visit(body, [])

    def _visit(self, block: Block, around: list[InsertionPoint]) -> None:
        for op in block.ops:
            for value in dict.fromkeys(op.operands):
                self.users.setdefault(value, []).append((block, op))
            place = [*around, (block, op)] if op.regions or isinstance(op, ops.RecordPush) else []
            if isinstance(op, ops.Constant) and block is self.body:
                self.constants.add(op.result)
            elif isinstance(op, ops.RecordPush):
                self.sites.setdefault(op.record, _Sites()).pushes.append((op, place))
            elif isinstance(op, ops.RecordPop):
                self.sites.setdefault(op.record, _Sites()).pops.append(op)
            for region in op.regions:
                self._visit(region, place)

    def rewrite(self) -> None:
        for record, sites in self.sites.items():
            if record.name not in (BYTES, CHECKPOINT, LOG) and len(sites.pops) == 1:
                for slot, popped in enumerate(sites.pops[0].results):
                    chain = self._chain(popped)
                    if chain:
                        self._rewrite_slot(sites, slot, popped, chain)
        if self.replaced:
            for op in self.body.walk():
                replace_operands(op, lambda value: self.replaced.get(value, value))

    def _rewrite_slot(self, sites: _Sites, slot: int, popped: Value, chain: Chain) -> None:
        places = [
            self._place(push.values[slot], around, popped, chain) for push, around in sites.pushes
        ]
        if None in places:
            return
        for (push, _), place in zip(sites.pushes, places, strict=True):
            assert place is not None
            push.values = list(push.values)
            push.values[slot] = _compute(place, push.values[slot], popped, chain)
        before_last = popped if len(chain) == 1 else chain[-2].results[0]
        for _, op in self.users[before_last]:
            self.replaced[op.results[0]] = popped
        if popped.name:
            popped.name = _name(popped.name, chain)

    def _chain(self, popped: Value) -> Chain:
        """The functions, one of the other, that are all that is made of a value."""
        chain: Chain = []
        value = popped
        while True:
            users = [op for _, op in self.users.get(value, ())]
            if not users or not self._is_function(users[0], value):
                break
            if not all(_is_same(op, users[0], value, value) for op in users):
                break
            chain.append(users[0])
            if len(users) > 1:
                break
            value = users[0].results[0]
        while chain and _is_cheap(chain[-1]):
            chain.pop()
        if chain and self._is_slope_of_sine(chain[-1]):
            chain[-1] = _beside_sine(chain[-1])
        return chain

    def _is_slope_of_sine(self, op: Operation) -> bool:
        """Whether all that a cosine, and others of its angle, are needed for is a derivative."""
        if not isinstance(op, ops.Unary) or op.fn != "cos" or op.x.type is not f32:
            return False
        return all(user in self.slopes for _, user in self.users[op.x])

    def _is_function(self, op: Operation, value: Value) -> bool:
        """Whether an operation is a function of a value, and constants, of the value's type."""
        others = [operand for operand in op.operands if operand is not value]
        return (
            isinstance(op, (ops.Unary, ops.Binary, ops.Fma))
            and op.result.type is value.type
            and self.constants.issuperset(others)
        )

    def _place(
        self, value: Value, around: list[InsertionPoint], popped: Value, chain: Chain
    ) -> InsertionPoint | None:
        """Where a push is in the block that computes of its value what a chain does of a popped."""
        for block, op in reversed(around):
            if self._computes(block, value, popped, chain):
                return block, op
        return None

    def _computes(self, block: Block, value: Value, popped: Value, chain: Chain) -> bool:
        for op in chain:
            if _is_beside_sine(op):
                op = ops.Unary("sin", op.operands[0], results=op.results)
            users = [user for where, user in self.users.get(value, ()) if where is block]
            found = [user for user in users if _is_same(user, op, value, popped)]
            if not found:
                return False
            value, popped = found[0].results[0], op.results[0]
        return True


def _is_cheap(op: Operation) -> bool:
    return isinstance(op, ops.Fma) or op.attributes[0] in _CHEAP[type(op)]


def _beside_sine(op: Operation) -> Operation:
    """A cosine that is computed where the sine is."""
    return ops.Unary("cos_beside_sin", op.operands[0], results=op.results, location=op.location)


def _is_beside_sine(op: Operation) -> bool:
    return isinstance(op, ops.Unary) and op.fn == "cos_beside_sin"


def _is_same(op: Operation, other: Operation, value: Value, of_other: Value) -> bool:
    """Whether an operation does with a value what another one does with its own."""
    if type(op) is not type(other) or op.attributes != other.attributes:
        return False
    swapped = [value if operand is of_other else operand for operand in other.operands]
    return op.operands == swapped


def _name(name: str, chain: Chain) -> str:
    """How to call functions of functions of what has a name."""
    for op in chain:
        fn = str(op.attributes[0]).removesuffix("_beside_sin") if op.attributes else op.NAME
        name = f"-{name}" if fn == "neg" else f"{fn}({name})"
    return name


def _compute(place: InsertionPoint, value: Value, popped: Value, chain: Chain) -> Value:
    """Compute of a value, at a place, what is computed of a popped one."""
    block, before = place
    added: Chain = []
    for op in chain:
        operands = [value if operand is popped else operand for operand in op.operands]
        if _is_beside_sine(op):  # first the sine, so that it is there wherever this is needed
            added.append(ops.Unary("sin", value, results=[Value(value.type)], location=op.location))
        added.append(rebuild(op, operands))
        value, popped = added[-1].results[0], op.results[0]
    position = block.ops.index(before)
    block.ops[position:position] = added
    return value
