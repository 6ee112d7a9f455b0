"""Which serial loops do nothing but sum up, so that their iterations may come in any order."""

from __future__ import annotations

from collections.abc import Container, Iterator

from octants.ir import ops
from octants.ir.core import Block, Operation, Value
from octants.types.scalars import u1

_DEEPEST = 100  # additions in an iteration


FREE_SUMS = "free_sums"
"""The option of a reversed task whose sums no replay must find again to the bit."""


def only_sums(loop: ops.For, true: Container[Value] = ()) -> bool:
    """Whether all that a loop carries are sums, which no iteration looks at, or flags that rise.

    ``true`` are values around the loop that are surely true.
    """
    uses = _Uses(loop.body)
    pairs = zip(loop.body.args[1:], loop.body.yielded, strict=True)
    return all(
        uses.is_flag(arg, end, true) if arg.type is u1 else _Way(uses, arg).leads_to(end)
        for arg, end in pairs
    )


class _Uses:
    """The operations of a block and its regions, by what they make and what they use."""

    def __init__(self, block: Block) -> None:
        self.end = block.ops[-1]
        self.makers: dict[Value, Operation] = {}
        self.users: dict[Value, list[Operation]] = {}
        for op in block.walk():
            self.makers.update((value, op) for value in op.results)
            for value in op.operands:
                self.users.setdefault(value, []).append(op)

    def sources(self, value: Value) -> Iterator[list[tuple[Value, Operation]]]:
        """The ways back from a sum: a term, or what either side of an if gives, and who uses it."""
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
        """Whether a truth stays what it is, or becomes true."""
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


class _Way:
    """The additions that lead from a value to others."""

    def __init__(self, uses: _Uses, start: Value) -> None:
        self._uses, self._start = uses, start
        self._steps: dict[Value, list[Operation]] = {}
        self._others: set[Value] = set()

    def leads_to(self, end: Value) -> bool:
        """Whether a value is the first and what is added to it, and nothing else sees the sums.

        So each use of a value in between is a step on the way.
        """
        return self._reaches(end, self._uses.end, 0) and all(
            sorted(map(id, self._uses.users[value])) == sorted(map(id, steps))
            for value, steps in self._steps.items()
        )

    def _reaches(self, value: Value, user: Operation, depth: int) -> bool:
        """Whether additions lead to a value; then notes who uses it."""
        if value in self._others or depth > _DEEPEST:
            return False
        if value is not self._start and value not in self._steps:
            ways = self._uses.sources(value)
            if not any(all(self._reaches(*one, depth + 1) for one in way) for way in ways):
                self._others.add(value)
                return False
        self._steps.setdefault(value, []).append(user)
        return True
