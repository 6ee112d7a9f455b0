"""Turns functions that call each other at run time into one loop with a stack.

Before, a function is a block, in which `Recurse` stands for a call of one of them::

    function 0 (%n: i32) {                      # def fib(n):
      %small = compare<lt>(%n, 2)               #     if n < 2:
      %r = if(%small) { yield(%n) } {           #         return n
        %a = recurse<0>(%n - 1)                 #     return fib(n - 1) + fib(n - 2)
        %b = recurse<0>(%n - 2)
        yield(%a + %b)
      }
      yield(%r)
    }

After, each iteration of a `while` runs one *segment*: the operations up to the next call::

    while depth >= 0:
      top = stack[depth]                        # of each stack: that of segments, those of values
      if segment is "return": segment = top.segment
      segment 0, the entry:  if n < 2: result = n, return
                             else: call 0 with n - 1, go on with 1
      segment 1:             a = result; call 0 with top.n - 2, keep a, go on with 2
      segment 2:             result = top.a + result, return
      stack[depth] = top
      depth, segment = ...                      # a call adds one to the depth, a return takes one

A segment begins at the entry of a function, behind a call, and where control flow joins. Only the
branches and loops that contain a call are cut. What a segment needs of earlier ones travels in
*registers*, which the loop carries, or, across a call, on the stacks: vectors with a component for
each depth, which one `Extract` and one `Insert` in each iteration access. So nothing behind the
frontend knows calls, and derivatives follow from those of loops and vectors.

An `Assert` of the kind "recursion" fails where a call would exceed the stacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import NamedTuple

from octants.diagnostics.span import Span
from octants.ir import component_access, ops
from octants.ir.builder import Builder
from octants.ir.core import (
    Block,
    Operation,
    Value,
    attribute,
    operands,
    operation,
    replace_operands,
)
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, i32, u1

RETURN = -1
"""The segment of a return: the one that the frame on top of the stack goes on with."""


@operation("recurse")
class Recurse(Operation):
    """``%r: f32 = recurse<0>(%x)``: a call of a function; only the frontend knows it."""

    has_effects = True

    function: int = attribute()
    arguments: list[Value] = operands()


# -- segments --------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Segment:
    """Operations without a call, and how they end.

    `parameters` are set by each jump or return to it. `live` are values of earlier segments
    that this one needs, or that it passes on to later ones.
    """

    parameters: list[Value]
    ops: list[Operation] = field(default_factory=list)
    end: _End | None = None
    live: list[Value] = field(default_factory=list)
    number: int | None = None
    """Where the loop finds it; None if it is part of the segments that jump to it."""


class _Jump(NamedTuple):
    target: _Segment
    values: list[Value]


class _Branch(NamedTuple):
    condition: Value
    then: _Segment
    orelse: _Segment


class _Call(NamedTuple):
    function: int
    values: list[Value]
    after: _Segment
    location: Span | None


class _Return(NamedTuple):
    values: list[Value]


_End = _Jump | _Branch | _Call | _Return


def _successors(segment: _Segment) -> list[_Segment]:
    end = segment.end
    if isinstance(end, _Jump):
        return [end.target]
    if isinstance(end, _Branch):
        return [end.then, end.orelse]
    return [end.after] if isinstance(end, _Call) else []


def _values(end: _End | None) -> list[Value]:
    """The values that the end of a segment uses."""
    if isinstance(end, _Branch):
        return [end.condition]
    return end.values if end is not None else []


class _Function:
    """A function, cut into segments; the first one is its entry."""

    def __init__(self, body: Block) -> None:
        self.constants: list[Operation] = []
        self.segments: list[_Segment] = []
        self._replaced: dict[Value, Value] = {}
        self._cut(body, self._segment(body.args), _Return)
        self._replace()
        self._find_live()

    def _segment(self, parameters: Sequence[Value] = ()) -> _Segment:
        self.segments.append(_Segment(list(parameters)))
        return self.segments[-1]

    def _cut(self, block: Block, segment: _Segment, finish: Callable[[list[Value]], _End]) -> None:
        """Put the operations of a block into a segment, and into others behind it."""
        for op in block.ops[:-1]:
            if isinstance(op, Recurse):
                after = self._segment(op.results)
                segment.end = _Call(op.function, op.arguments, after, op.location)
                segment = after
            elif isinstance(op, ops.Constant):
                self.constants.append(op)
            elif not any(isinstance(x, Recurse) for each in op.regions for x in each.walk()):
                segment.ops.append(op)
            elif isinstance(op, ops.If):
                segment = self._if(op, segment)
            elif isinstance(op, ops.For):
                segment = self._for(op, segment)
            else:
                assert isinstance(op, ops.While)
                segment = self._while(op, segment)
        segment.end = finish(block.yielded)

    def _if(self, op: ops.If, segment: _Segment) -> _Segment:
        then, orelse, after = self._segment(), self._segment(), self._segment(op.results)
        segment.end = _Branch(op.condition, then, orelse)
        for branch, start in ((op.then, then), (op.orelse, orelse)):
            self._cut(branch, start, lambda values: _Jump(after, values))
        return after

    def _for(self, op: ops.For, segment: _Segment) -> _Segment:
        counter = op.body.args[0]
        head, body, after = self._segment(op.body.args), self._segment(), self._segment()
        segment.end = _Jump(head, [op.lower, *op.inits])
        is_left = ops.Compare("lt", counter, op.upper, results=[Value(u1)], location=op.location)
        head.ops.append(is_left)
        head.end = _Branch(is_left.result, body, after)
        one = ops.Constant(1, results=[Value(counter.type)])
        self.constants.append(one)
        following = ops.Binary("add", counter, one.result, results=[Value(counter.type)])
        op.body.ops.insert(-1, following)
        self._cut(op.body, body, lambda values: _Jump(head, [following.result, *values]))
        self._replaced.update(zip(op.results, op.carried, strict=True))
        return after

    def _while(self, op: ops.While, segment: _Segment) -> _Segment:
        head, body, after = self._segment(op.body.args), self._segment(), self._segment()
        segment.end = _Jump(head, op.inits)
        self._replaced.update(zip(op.condition.args, op.carried, strict=True))
        self._replaced.update(zip(op.results, op.carried, strict=True))
        (condition,) = op.condition.yielded
        self._cut(op.condition, head, lambda _: _Branch(condition, body, after))
        self._cut(op.body, body, lambda values: _Jump(head, values))
        return after

    def _replace(self) -> None:
        """Let the results of loops be what the loops carry."""

        def resolve(value: Value) -> Value:
            while value in self._replaced:
                value = self._replaced[value]
            return value

        for segment in self.segments:
            for op in _walk(segment.ops):
                replace_operands(op, resolve)
            end = segment.end
            if isinstance(end, _Branch):
                segment.end = end._replace(condition=resolve(end.condition))
            elif end is not None:
                segment.end = end._replace(values=[resolve(value) for value in end.values])

    def _find_live(self) -> None:
        order: dict[Value, int] = {}
        for segment in self.segments:
            for value in _defined(segment):
                order[value] = len(order)
        live = {segment: _used(segment) & order.keys() for segment in self.segments}
        changed = True
        while changed:
            changed = False
            for segment in reversed(self.segments):
                found = live[segment].union(*(live[each] for each in _successors(segment)))
                found.difference_update(_defined(segment))
                changed = changed or found != live[segment]
                live[segment] = found
        for segment, values in live.items():
            segment.live = sorted(values, key=order.__getitem__)


def _walk(operations: Iterable[Operation]) -> Iterable[Operation]:
    for op in operations:
        yield op
        for region in op.regions:
            yield from region.walk()


def _defined(segment: _Segment) -> list[Value]:
    return [*segment.parameters, *(value for op in segment.ops for value in op.results)]


def _used(segment: _Segment) -> set[Value]:
    used = {value for op in _walk(segment.ops) for value in op.operands}
    used.update(_values(segment.end))
    return used.difference(_defined(segment))


# -- the loop --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _State:
    """The state that an iteration leaves to the next; `tops` has the tops of the stacks."""

    depth: Value
    segment: Value
    registers: list[Value]
    tops: list[Value]

    def values(self) -> list[Value]:
        return [self.depth, self.segment, *self.registers, *self.tops]

    def copy(self) -> _State:
        return _State(self.depth, self.segment, list(self.registers), list(self.tops))

    def set(self, values: Sequence[Value]) -> None:
        count = len(self.registers)
        self.depth, self.segment = values[:2]
        self.registers, self.tops = list(values[2 : 2 + count]), list(values[2 + count :])


class _Cells:
    """Numbers places for values of given types: a value gets the first free one of its type."""

    def __init__(self) -> None:
        self.types: list[DType] = []

    def numbers(self, types: Sequence[DType]) -> list[int]:
        """The places of some values that are there at the same time."""
        taken: Counter[DType] = Counter()
        found = []
        for dtype in types:
            own = [k for k, other in enumerate(self.types) if other is dtype]
            if taken[dtype] == len(own):
                own.append(len(self.types))
                self.types.append(dtype)
            found.append(own[taken[dtype]])
            taken[dtype] += 1
        return found


def _stacked(value: Value) -> DType:
    return i32 if value.type.is_bool else value.type


class RecursionLoop:
    """Builds the loop that runs a call of the first of some functions.

    Args:
        builder: builds the loop at its current position.
        bodies: the functions, by their numbers; they are used up.
        name: the name of the first one, for the message of the check.
        max_depth: how many calls may be active at the same time.
    """

    def __init__(
        self, builder: Builder, bodies: Sequence[Block], name: str, max_depth: int
    ) -> None:
        self._builder = builder
        self._functions = [_Function(body) for body in bodies]
        self._message = f"`{name}` calls itself more than {max_depth} calls deep"
        self._capacity = max(max_depth - 1, 1)
        self._limit = max_depth - 1
        self._registers = _Cells()
        self._stacks = _Cells()
        self._stacks.numbers([i32])  # the segments that frames go on with
        self._numbered = self._number()
        self._constants: dict[int, Value] = {}

    def _number(self) -> list[_Segment]:
        """Number the segments that the loop looks for, and place what they need."""
        segments = [each for function in self._functions for each in function.segments]
        jumps = Counter(
            target
            for segment in segments
            if not isinstance(segment.end, _Call)
            for target in _successors(segment)
        )
        entries = [function.segments[0] for function in self._functions]
        behind = {each.end.after for each in segments if isinstance(each.end, _Call)}
        numbered: list[_Segment] = []
        for segment in segments:
            is_joined = jumps[segment] > 1 and not _is_trivial(segment)
            if segment in entries or segment in behind or is_joined:
                segment.number = len(numbered)
                numbered.append(segment)
            if segment in behind:
                self._registers.numbers([value.type for value in segment.parameters])
                self._stacks.numbers([i32, *map(_stacked, segment.live)])
            else:
                self._registers.numbers([x.type for x in (*segment.parameters, *segment.live)])
            if isinstance(segment.end, _Return):
                self._registers.numbers([value.type for value in segment.end.values])
        self._behind = behind
        return numbered

    def build(self, arguments: Sequence[Value], results: Sequence[DType]) -> list[Value]:
        """Build the loop; gives the results of the call, whose types are given."""
        builder, entry = self._builder, self._functions[0].segments[0]
        for function in self._functions:
            builder.block.ops.extend(function.constants)
        for number in sorted({RETURN, 0, 1, self._limit, *range(len(self._numbered))}):
            self._constants[number] = builder.index(number)
        zeros = [builder.constant(0, dtype) for dtype in self._registers.types]
        state = _State(self._constants[0], self._constants[entry.number or 0], zeros, [])
        self._set_registers(state, arguments)
        vectors = [[builder.constant(0, dtype)] * self._capacity for dtype in self._stacks.types]
        inits = [*state.values(), *(each for vector in vectors for each in vector)]
        condition = Block([Value(init.type) for init in inits])
        with builder.into(condition):
            builder.yield_([builder.compare("ge", condition.args[0], self._constants[0])])
        body = Block([Value(init.type) for init in inits])
        with builder.into(body):
            builder.yield_(self._iteration(body.args))
        after = builder.while_(inits, condition, body).results
        return [after[2 + k] for k in self._registers.numbers(results)]

    def _iteration(self, values: list[Value]) -> list[Value]:
        builder, count = self._builder, len(self._registers.types)
        depth, segment, *registers = values[: 2 + count]
        vectors = [
            values[start : start + self._capacity]
            for start in range(2 + count, len(values), self._capacity)
        ]
        tops = [component_access.extract(builder, depth, vector) for vector in vectors]
        returns = builder.compare("eq", segment, self._constants[RETURN])
        segment = builder.select(returns, tops[0], segment)
        state = _State(depth, segment, registers, tops)
        self._dispatch(self._numbered, segment, state)
        for vector, top in zip(vectors, state.tops, strict=True):
            vector[:] = component_access.insert(builder, depth, top, vector)
        left = [state.depth, state.segment, *state.registers]
        return [*left, *(each for vector in vectors for each in vector)]

    def _dispatch(self, segments: list[_Segment], number: Value, state: _State) -> None:
        """Run the segment of a number."""
        if len(segments) == 1:
            self._begin(segments[0], state)
            return
        middle = len(segments) // 2
        bound = self._constants[segments[middle].number or 0]
        self._branch(
            self._builder.compare("lt", number, bound),
            lambda inner: self._dispatch(segments[:middle], number, inner),
            lambda inner: self._dispatch(segments[middle:], number, inner),
            state,
        )

    def _branch(
        self,
        condition: Value,
        then: Callable[[_State], None],
        orelse: Callable[[_State], None],
        state: _State,
    ) -> None:
        """Build an `If` whose results are the parts of the state that its branches change."""
        builder = self._builder
        blocks, ends = (Block(), Block()), []
        for block, build in zip(blocks, (then, orelse), strict=True):
            inner = state.copy()
            with builder.into(block):
                build(inner)
            ends.append(inner.values())
        changed = [k for k, (a, b) in enumerate(zip(*ends, strict=True)) if a is not b]
        for block, values in zip(blocks, ends, strict=True):
            with builder.into(block):
                builder.yield_([values[k] for k in changed])
        after = list(ends[0])
        for k, result in zip(changed, builder.if_(condition, *blocks).results, strict=True):
            after[k] = result
        state.set(after)

    def _begin(self, segment: _Segment, state: _State) -> None:
        """Run a segment that the loop has found."""
        held = [*segment.parameters, *([] if segment in self._behind else segment.live)]
        numbers = self._registers.numbers([value.type for value in held])
        known = {value: state.registers[k] for value, k in zip(held, numbers, strict=True)}
        if segment in self._behind:
            places = self._stacks.numbers([i32, *map(_stacked, segment.live)])[1:]
            for value, k in zip(segment.live, places, strict=True):
                top = state.tops[k]
                is_bool = value.type.is_bool
                known[value] = (
                    self._builder.compare("ne", top, self._constants[0]) if is_bool else top
                )
        self._run(segment, known, state)

    def _run(self, segment: _Segment, known: dict[Value, Value], state: _State) -> None:
        """Run a segment, with what stands for values of earlier ones."""

        def resolve(value: Value) -> Value:
            return known.get(value, value)

        builder, end = self._builder, segment.end
        for op in _walk(segment.ops):
            replace_operands(op, resolve)
        builder.block.ops.extend(segment.ops)
        if isinstance(end, _Jump):
            self._jump(end.target, [resolve(value) for value in end.values], known, state)
        elif isinstance(end, _Branch):
            then, orelse = end.then, end.orelse
            self._branch(
                resolve(end.condition),
                lambda inner: self._jump(then, [], known, inner),
                lambda inner: self._jump(orelse, [], known, inner),
                state,
            )
        elif isinstance(end, _Call):
            self._call(end, known, state)
        elif isinstance(end, _Return):
            self._set_registers(state, [resolve(value) for value in end.values])
            state.depth = builder.binary("sub", state.depth, self._constants[1])
            state.segment = self._constants[RETURN]

    def _jump(
        self, target: _Segment, values: list[Value], known: dict[Value, Value], state: _State
    ) -> None:
        if target.number is None:
            bound = dict(zip(target.parameters, values, strict=True))
            self._run(target, {**known, **bound}, state)
            return
        self._set_registers(state, [*values, *(known.get(value, value) for value in target.live)])
        state.segment = self._constants[target.number]

    def _call(self, call: _Call, known: dict[Value, Value], state: _State) -> None:
        builder, after = self._builder, call.after
        location = builder.location
        builder.location = call.location
        fits = builder.compare("lt", state.depth, self._constants[self._limit])
        builder.assert_("recursion", self._message, fits)
        builder.location = location
        kept = [known.get(value, value) for value in after.live]
        places = self._stacks.numbers([i32, *map(_stacked, after.live)])
        state.tops[places[0]] = self._constants[after.number or 0]
        for value, k in zip(kept, places[1:], strict=True):
            state.tops[k] = builder.cast(value, self._stacks.types[k])
        self._set_registers(state, [known.get(value, value) for value in call.values])
        state.depth = builder.binary("add", state.depth, self._constants[1])
        state.segment = self._constants[self._functions[call.function].segments[0].number or 0]

    def _set_registers(self, state: _State, values: Sequence[Value]) -> None:
        numbers = self._registers.numbers([value.type for value in values])
        for k, value in zip(numbers, values, strict=True):
            state.registers[k] = value


def _is_trivial(segment: _Segment) -> bool:
    """Whether a segment does so little that it is repeated in each segment that jumps to it."""
    return not segment.ops and isinstance(segment.end, (_Jump, _Return))
