"""Finds the serial loops that do nothing but sum, so that their iterations may run in any order."""

from __future__ import annotations

from collections.abc import Container, Iterator

from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.core import Block, Operation, Value
from octants.types.scalars import u1

_DEEPEST = 100  # additions in an iteration


REASSOCIATE_SUMS = "reassociate_sums"
"""The option of a reversed task whose sums no replay must reproduce bit by bit."""


def only_sums(loop: ops.For, true: Container[Value] = (), *, is_nest: bool = False) -> bool:
    """Whether a loop carries only sums that no iteration reads, and flags that only become true.

    Args:
        loop: the loop.
        true: values that are surely true.
        is_nest: Inner loops may carry the sums, too, which may be elements of vectors.
    """
    uses = _Uses(loop.body, with_loops=is_nest, true=true)
    pairs = zip(loop.body.args[1:], loop.body.yielded, strict=True)
    return all(uses.chain(arg).leads_to(end) for arg, end in pairs)


def has_free_order(loop: ops.For, noalias: bool = False) -> bool:
    """Whether only the rounding of sums depends on the order in which a loop runs its iterations.

    What it carries either stays as it is, or is a sum that no iteration reads, perhaps of elements
    of a vector. Inner loops may carry these, too. The only writes are sums into elements that the
    loop does not read.

    Args:
        loop: the loop.
        noalias: no two arrays of the module, nor their companions, share memory.
    """
    if not only_adds(loop, noalias):
        return False
    uses = _Uses(loop.body, with_loops=True)
    return all(
        uses.origin(end) is arg or uses.chain(arg).leads_to(end)
        for arg, end in zip(loop.body.args[1:], loop.body.yielded, strict=True)
    )


def unread_sums(loop: ops.Loop) -> set[Value]:
    """The carried values of a loop that are sums, which no iteration reads.

    Args:
        loop: the loop.

    Returns:
        Arguments of its body.
    """
    uses = _Uses(loop.body, with_loops=True)
    return {
        arg
        for arg, end in zip(loop.carried, loop.body.yielded, strict=True)
        if arg is not end and uses.chain(arg).leads_to(end)
    }


def only_adds(loop: ops.For, noalias: bool) -> bool:
    """Whether the operations of a loop have no effects besides sums that it does not read."""
    inside = list(loop.body.walk())
    used = {value for op in inside for value in op.operands}
    sums = [op for op in inside if isinstance(op, ops.Atomic)]
    if any(op.fn != "add" or op.result in used for op in sums):
        return False
    if any(op.is_tied or op.is_convergent or op.reports or op.orders_memory for op in inside):
        return False
    if any((op.has_effects or op.writes) and not isinstance(op, ops.Atomic) for op in inside):
        return False
    reads = {op.ref for op in inside if isinstance(op, ops.Load)}
    targets = {op.ref for op in sums}
    return not any(may_alias(read, target, noalias) for read in reads for target in targets)


class _Uses:
    """The definitions and the users of the values in a block and its regions.

    ``with_loops`` also follows sums through inner loops, and through elements of vectors. The
    values that are ``true`` are terms of flags.
    """

    def __init__(
        self, block: Block, *, with_loops: bool = False, true: Container[Value] = ()
    ) -> None:
        self.end = block.ops[-1]
        self._with_loops = with_loops
        self._true = true
        self.makers: dict[Value, Operation] = {}
        self.users: dict[Value, list[Operation]] = {}
        for op in block.walk():
            self.makers.update((value, op) for value in op.results)
            for value in op.operands:
                self.users.setdefault(value, []).append(op)

    def chain(self, start: Value) -> _AdditionChain:
        """The additions to a value."""
        return _AdditionChain(self, start, self._true if start.type is u1 else ())

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
        elif isinstance(op, ops.For) and self._with_loops:
            number = op.results.index(value)
            inner = self.chain(op.carried[number])
            if inner.leads_to(op.body.yielded[number], op.body.ops[-1]):
                yield [(op.inits[number], op)]
        elif isinstance(op, ops.Insert) and self._with_loops:
            read = self._element_of_sum(op)
            if read is not None:
                component = op.components[op.results.index(value)]
                yield [(component, op), (component, read)]

    def _element_of_sum(self, op: ops.Insert) -> ops.Extract | None:
        """The read of the element that a write replaces by a sum with it; None if it does not.

        Where the condition of a select is false, the element may stay.
        """
        total = self.makers.get(op.value)
        chosen = total if isinstance(total, ops.Select) else None
        if chosen is not None:
            total = self.makers.get(chosen.on_true)
        uses = [op] if chosen is None else [chosen]
        terms = _terms(total)
        if total is None or not terms or self.users[total.results[0]] != uses:
            return None
        if self.users[op.value] != [op]:
            return None
        reading = [total] if chosen is None else [total, chosen]
        for value in terms if chosen is None else [chosen.on_false]:
            read = self.makers.get(value)
            if (
                isinstance(read, ops.Extract)
                and value in terms
                and self.users[value] == reading
                and read.operands[0] is op.index
                and read.components == op.components
            ):
                return read
        return None

    def origin(self, value: Value) -> Value:
        """The value that a result of an inner loop is, if the loop carries it unchanged."""
        op = self.makers.get(value)
        while isinstance(op, ops.For) and value in op.results:
            number = op.results.index(value)
            if self.origin(op.body.yielded[number]) is not op.carried[number]:
                break
            value = op.inits[number]
            op = self.makers.get(value)
        return value


def _terms(total: Operation | None) -> list[Value]:
    """The terms of a sum that are no products."""
    if isinstance(total, ops.Fma):
        return [total.z]
    return total.operands if isinstance(total, ops.Binary) and total.fn == "add" else []


class _AdditionChain:
    """The additions that lead from a value to others.

    A flag is such a sum, too: a branch yields it as it is, or one of the values that are ``true``.
    """

    def __init__(self, uses: _Uses, start: Value, true: Container[Value] = ()) -> None:
        self._uses, self._start, self._true = uses, start, true
        self._steps: dict[Value, list[Operation]] = {}
        self._others: set[Value] = set()

    def leads_to(self, end: Value, user: Operation | None = None) -> bool:
        """Whether ``end`` is the first value plus terms, and nothing else uses the partial sums.

        That is so if each use of a value in between is a step of the chain. The end of the block
        uses the ``end``, or another ``user``.
        """
        return self._is_sum_chain(end, user or self._uses.end, 0) and all(
            sorted(map(id, self._uses.users.get(value, ()))) == sorted(map(id, steps))
            for value, steps in {self._start: [], **self._steps}.items()
        )

    def _is_sum_chain(self, value: Value, user: Operation, depth: int) -> bool:
        """Whether additions lead to a value; if so, notes its user."""
        if value in self._true:
            return True
        if value in self._others or depth > _DEEPEST:
            return False
        if value is not self._start and value not in self._steps:
            paths = self._uses.sources(value)
            if not any(all(self._is_sum_chain(*one, depth + 1) for one in path) for path in paths):
                self._others.add(value)
                return False
        self._steps.setdefault(value, []).append(user)
        return True
