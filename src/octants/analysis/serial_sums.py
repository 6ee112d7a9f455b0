"""Finds the serial loops that do nothing but sum, so that their iterations may run in any order."""

from __future__ import annotations

from collections.abc import Container, Iterator

from octants.ir import ops
from octants.ir.core import Block, Operation, Value
from octants.types.scalars import u1

_DEEPEST = 100  # additions in an iteration


REASSOCIATE_SUMS = "reassociate_sums"
"""The option of a reversed task whose sums no replay must reproduce bit by bit."""


def only_sums(loop: ops.For, true: Container[Value] = ()) -> bool:
    """Whether a loop carries only sums that no iteration reads, and flags that only become true.

    Args:
        loop: the loop.
        true: values outside the loop that are surely true.
    """
    uses = _Uses(loop.body)
    pairs = zip(loop.body.args[1:], loop.body.yielded, strict=True)
    return all(
        uses.is_flag(arg, end, true) if arg.type is u1 else _AdditionChain(uses, arg).leads_to(end)
        for arg, end in pairs
    )


class _Uses:
    """The definitions and the users of the values in a block and its regions."""

    def __init__(self, block: Block) -> None:
        self.end = block.ops[-1]
        self.makers: dict[Value, Operation] = {}
        self.users: dict[Value, list[Operation]] = {}
        for op in block.walk():
            self.makers.update((value, op) for value in op.results)
            for value in op.operands:
                self.users.setdefault(value, []).append(op)

    def sources(self, value: Value) -> Iterator[list[tuple[Value, Operation]]]:
        """The paths back from a sum: a term, or the yields of both branches, each with its user."""
        op = self.makers.get(value)
        if isinstance(op, ops.If):
            number = op.results.index(value)
            yield [(region.yielded[number], region.ops[-1]) for region in op.regions]
        elif isinstance(op, ops.Fma):
            yield [(op.z, op)]
        elif isinstance(op, ops.Binary) and op.fn in ("add", "sub"):
            yield [(op.lhs, op)]
            if op.fn == "add":
                yield [(op.rhs, op)]

    def is_flag(self, start: Value, end: Value, true: Container[Value]) -> bool:
        """Whether a flag keeps its value, or becomes true."""
        if any(not isinstance(op, ops.Yield) for op in self.users.get(start, ())):
            return False
        wanted = [end]
        while wanted:
            value = wanted.pop()
            op = self.makers.get(value)
            if isinstance(op, ops.If):
                number = op.results.index(value)
                wanted += [region.yielded[number] for region in op.regions]
            elif value is not start and value not in true:
                return False
        return True


class _AdditionChain:
    """The additions that lead from a value to others."""

    def __init__(self, uses: _Uses, start: Value) -> None:
        self._uses, self._start = uses, start
        self._steps: dict[Value, list[Operation]] = {}
        self._others: set[Value] = set()

    def leads_to(self, end: Value) -> bool:
        """Whether ``end`` is the first value plus terms, and nothing else uses the partial sums.

        That is so if each use of a value in between is a step of the chain.
        """
        return self._is_sum_chain(end, self._uses.end, 0) and all(
            sorted(map(id, self._uses.users[value])) == sorted(map(id, steps))
            for value, steps in self._steps.items()
        )

    def _is_sum_chain(self, value: Value, user: Operation, depth: int) -> bool:
        """Whether additions lead to a value; if so, notes its user."""
        if value in self._others or depth > _DEEPEST:
            return False
        if value is not self._start and value not in self._steps:
            paths = self._uses.sources(value)
            if not any(all(self._is_sum_chain(*one, depth + 1) for one in path) for path in paths):
                self._others.add(value)
                return False
        self._steps.setdefault(value, []).append(user)
        return True
