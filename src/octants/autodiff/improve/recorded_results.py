"""Lets records hold the result of a function instead of its operand, if the sweep computes both.

Before::

    array @x: f32, 0, field, () [primal, adjoint]
    record #r: f32
    serial {
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
    }

After::

    serial {
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
    }

A loop records what it carries. If a function of such a value is its only use in the backward sweep,
and every sweep that records computes that function, too, the result is recorded instead: the record
has the same size, and the backward sweep computes less. A composition such as exp(-2 v), of one
value and constants, counts as one function. So does one with other values of the iteration, such as
sin(v + k), if the sweeps and the replay of the iteration all copy it from one primal operation.
`simplify` removes the redundant operations.

What an inner loop results in may have been recorded with the loop around it (`stored_loops`), or
else be computed again: what is popped is then the result of the first branch of an if. The other
branch computes the function, too.

A cosine may be recorded where the sweep computes the sine: with ``fast_math`` the two share most of
their work if the cosine is for a derivative only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from types import MappingProxyType

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
"""Functions that cost no more than recording their results saves."""

_OF_PUSHES = (ops.RecordPush, ops.If, ops.Yield)
"""Operations that push records, and the ifs around them."""

Chain = list[Operation]
"""Operations, each of which computes the operand of the next."""

InsertionPoint = tuple[Block, Operation]
"""An operation, and the block that contains it."""


_NONE: Mapping[Operation, Operation] = MappingProxyType({})


def record_results(
    module: Module,
    derivative_ops: Collection[Operation] = (),
    origins: Mapping[Operation, Operation] = _NONE,
) -> None:
    """Let the records of all tasks hold results where that saves work, in place.

    Args:
        module: the reverse kernel.
        derivative_ops: the operations that compute derivatives, whose last bits are free.
        origins: the primal operation of each copy of one.
    """
    for task in module.tasks:
        _ResultRecorder(task.body, derivative_ops, origins).rewrite()


@dataclass(eq=False, slots=True)
class _Sites:
    """The pushes and pops of a record; each push with its enclosing operations, outermost first."""

    pushes: list[tuple[ops.RecordPush, list[InsertionPoint]]] = field(default_factory=list)
    pops: list[ops.RecordPop] = field(default_factory=list)


class _ResultRecorder:
    def __init__(
        self,
        body: Block,
        derivative_ops: Collection[Operation],
        origins: Mapping[Operation, Operation],
    ) -> None:
        self.body = body
        self.derivative_ops = derivative_ops
        self.origins = origins
        self.users: dict[Value, list[InsertionPoint]] = {}
        self.constants: set[Value] = set()
        self.sites: dict[Record, _Sites] = {}
        self.replaced: dict[Value, Value] = {}
        self.merges: dict[Operation, ops.If] = {}  # ifs by the ends of their first branches
        self._visit(body, [])

    def _visit(self, block: Block, around: list[InsertionPoint]) -> None:
        for op in block.ops:
            for value in dict.fromkeys(op.operands):
                self.users.setdefault(value, []).append((block, op))
            path = [*around, (block, op)] if op.regions or isinstance(op, ops.RecordPush) else []
            if isinstance(op, ops.Constant) and block is self.body:
                self.constants.add(op.result)
            elif isinstance(op, ops.RecordPush):
                self.sites.setdefault(op.record, _Sites()).pushes.append((op, path))
            elif isinstance(op, ops.RecordPop):
                self.sites.setdefault(op.record, _Sites()).pops.append(op)
            elif isinstance(op, ops.If):
                self.merges[op.then.ops[-1]] = op
            for region in op.regions:
                self._visit(region, path)

    def rewrite(self) -> None:
        for record, sites in self.sites.items():
            if record.name not in (BYTES, CHECKPOINT, LOG) and len(sites.pops) == 1:
                for slot, popped in enumerate(sites.pops[0].results):
                    self._rewrite_slot(sites, slot, popped)
        if self.replaced:
            for op in self.body.walk():
                replace_operands(op, lambda value: self.replaced.get(value, value))

    def _rewrite_slot(self, sites: _Sites, slot: int, popped: Value) -> None:
        """Let a slot of a record hold the result of a chain of functions instead of its operand.

        Sweeps after the first one compute the chain where they record, not where they pop.

        Args:
            sites: The pushes and pops of the record.
            slot: The position of the value in the record.
            popped: The value that the record's only pop gives for the slot.
        """
        merge = self._merge(popped)
        source = popped if merge is None else merge[0].results[merge[1]]
        chain = self._chain(source)
        if not chain:
            return
        varies = any(self._varies(op, value) for op, value in _steps(source, chain))
        found = [
            self._find(push.values[slot], around, source, chain, varies=varies)
            for push, around in sites.pushes
        ]
        if found[0] is None or (varies and (merge is not None or None in found)):
            return
        for (push, around), match in zip(sites.pushes, found, strict=True):
            value = push.values[slot]
            if varies and match is not None:
                _move_behind(match[0], match[1][-1])
            push.values = list(push.values)
            push.values[slot] = (
                _compute(around[-1], value, source, chain)
                if match is None
                else _compute(match[0], value, value, match[1])
            )
        if merge is not None:
            end = merge[0].orelse.ops[-1]
            assert isinstance(end, ops.Yield)
            end.values = list(end.values)
            point = merge[0].orelse, end
            end.values[merge[1]] = _compute(point, end.values[merge[1]], source, chain)
        before_last = source if len(chain) == 1 else chain[-2].results[0]
        for _, op in self.users[before_last]:
            self.replaced[op.results[0]] = source
        if source.name:
            popped.name = source.name = _name(source.name, chain)

    def _merge(self, popped: Value) -> tuple[ops.If, int] | None:
        """The if, and which of its results, whose first branch yields a value as its only use."""
        users = [op for _, op in self.users.get(popped, ())]
        if len(users) != 1 or users[0] not in self.merges or users[0].operands.count(popped) != 1:
            return None
        return self.merges[users[0]], users[0].operands.index(popped)

    def _chain(self, popped: Value) -> Chain:
        """The composition of functions that is the only use of a popped value."""
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
        if chain and self._is_derivative_of_sine(chain[-1]):
            chain[-1] = _beside_sine(chain[-1])
        return chain

    def _is_derivative_of_sine(self, op: Operation) -> bool:
        """Whether a cosine and the other functions of its angle are only for derivatives."""
        if not isinstance(op, ops.Unary) or op.fn != "cos" or op.x.type is not f32:
            return False
        return all(user in self.derivative_ops for _, user in self.users[op.x])

    def _is_function(self, op: Operation, value: Value) -> bool:
        """Whether an operation is a function of a value, of the value's type.

        Its other operands are constants, or it is a copy of a primal operation: then other copies
        for the same iteration have the same result.
        """
        return (
            isinstance(op, (ops.Unary, ops.Binary, ops.Fma))
            and op.result.type is value.type
            and (op in self.origins or not self._varies(op, value))
        )

    def _varies(self, op: Operation, value: Value) -> bool:
        """Whether an operation has operands besides a value that are not constants."""
        return not self.constants.issuperset(each for each in op.operands if each is not value)

    def _find(
        self,
        value: Value,
        around: list[InsertionPoint],
        popped: Value,
        chain: Chain,
        *,
        varies: bool,
    ) -> tuple[InsertionPoint, Chain] | None:
        """The innermost point around a push whose block computes the chain of the pushed value.

        Returns:
            The point, and the operations of the block; None if there are none, or if some of their
            operands may be computed behind the point, and it cannot be moved behind them.
        """
        for point in reversed(around):
            found = self._computed_in(point[0], value, popped, chain)
            if found is not None:
                return (point, found) if not varies or _can_move_behind(point, found[-1]) else None
        return None

    def _computed_in(self, block: Block, value: Value, popped: Value, chain: Chain) -> Chain | None:
        """The operations of a block that do with a value what a chain does with a popped one."""
        found: Chain = []
        for op, operand in _steps(popped, chain):
            wanted = _sine_of(op) if _is_beside_sine(op) else op
            users = [user for where, user in self.users.get(value, ()) if where is block]
            same = [user for user in users if self._is_copy(user, wanted, value, operand)]
            if not same:
                return None
            found.append(_beside_sine(same[0]) if _is_beside_sine(op) else same[0])
            value = same[0].results[0]
        return found

    def _is_copy(self, op: Operation, other: Operation, value: Value, of_other: Value) -> bool:
        """Whether an operation does with a value what another one does with its own operand."""
        if not self._varies(other, of_other):
            return _is_same(op, other, value, of_other)
        positions = [operand is value for operand in op.operands]
        return self.origins.get(op) is self.origins[other] and positions == [
            operand is of_other for operand in other.operands
        ]


def _steps(popped: Value, chain: Chain) -> list[tuple[Operation, Value]]:
    """The operations of a chain, each with the operand that the one before computes."""
    return list(zip(chain, [popped, *(op.results[0] for op in chain)], strict=False))


def _can_move_behind(point: InsertionPoint, last: Operation) -> bool:
    """Whether a push, perhaps in an if, can move behind a later operation of its block."""
    block, op = point
    if op.results or not all(isinstance(each, _OF_PUSHES) for each in Block([], [op]).walk()):
        return False
    first, end = block.ops.index(op), _position(block, last)
    return all(each.is_scalar or isinstance(each, ops.Load) for each in block.ops[first + 1 : end])


def _move_behind(point: InsertionPoint, last: Operation) -> None:
    """Move an operation behind another one of its block, unless it is there already."""
    block, op = point
    first, end = block.ops.index(op), _position(block, last)
    if first < end:
        block.ops[first : end + 1] = [*block.ops[first + 1 : end + 1], op]


def _position(block: Block, op: Operation) -> int:
    """The position of the operation in a block that has the result of ``op``."""
    (result,) = op.results
    return next(k for k, each in enumerate(block.ops) if result in each.results)


def _is_cheap(op: Operation) -> bool:
    return isinstance(op, ops.Fma) or op.attributes[0] in _CHEAP[type(op)]


def _beside_sine(op: Operation) -> Operation:
    """A cosine that shares the work of the sine."""
    return ops.Unary("cos_beside_sin", op.operands[0], results=op.results, location=op.location)


def _sine_of(op: Operation) -> Operation:
    """The sine whose work a cosine shares."""
    return ops.Unary("sin", op.operands[0], results=op.results, location=op.location)


def _is_beside_sine(op: Operation) -> bool:
    return isinstance(op, ops.Unary) and op.fn == "cos_beside_sin"


def _is_same(op: Operation, other: Operation, value: Value, of_other: Value) -> bool:
    """Whether an operation does with a value what another operation does with its own operand."""
    if type(op) is not type(other) or op.attributes != other.attributes:
        return False
    swapped = [value if operand is of_other else operand for operand in other.operands]
    return op.operands == swapped


def _name(name: str, chain: Chain) -> str:
    """The name of a composition of functions of a named value."""
    for op in chain:
        fn = str(op.attributes[0]).removesuffix("_beside_sin") if op.attributes else op.NAME
        name = f"-{name}" if fn == "neg" else f"{fn}({name})"
    return name


def _compute(point: InsertionPoint, value: Value, popped: Value, chain: Chain) -> Value:
    """Compute the chain of a value before an operation."""
    block, before = point
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
