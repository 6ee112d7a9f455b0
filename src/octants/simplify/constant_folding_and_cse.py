"""Rebuilds every block through the folding builder: constants, copies, common subexpressions.

Before::

    array @x: f32, 1, field, () [primal]
    serial {
      %0: i32 = constant<2>()
      %1: i32 = constant<3>()
      %2: i32 = binary<add>(%0, %1)
      %3: f32 = constant<1.0>()
      store<@x, primal>(%3, %2)
      %4: f32 = load<@x, primal>(%2)
      %5: f32 = binary<mul>(%4, %3)
      %6: f32 = load<@x, primal>(%0)
      %7: f32 = binary<add>(%5, %6)
      store<@x, primal>(%7, %2)
    }

After::

    serial {
      %0: i32 = constant<2>()
      %1: i32 = constant<3>()
      %2: i32 = constant<5>()
      %3: f32 = constant<1.0>()
      store<@x, primal>(%3, %2)
      %4: f32 = load<@x, primal>(%0)
      %5: f32 = binary<add>(%3, %4)
      store<@x, primal>(%5, %2)
    }

Done on the way, in one walk:

- an `if` whose condition is known is replaced by the side taken; one that only chooses between
  values becomes selects;
- a carried value that does not change is taken out of its loop, and an integer that grows by an
  invariant step is computed from the counter, so that no record buffer ever holds it;
- a store to a local vector goes if another one overwrites the element before anything reads it;
- `(x % n + n) % n` becomes `x % n`, which is not negative either, if no sum wraps;
- what does not change in a loop is computed before it, so that its adjoint is summed up in a
  register and flows on once; a load (of what the loop does not write) only if the loop runs at all;
- equal operations are shared where one dominates the other; loads too, and a load after a store to
  the same element reads the stored value, as long as nothing in between may write it. This takes
  for granted that no other work item writes what this one reads, as a race would; behind a barrier
  or a fence others may have written anything.

What lanes of a subgroup do together stays where it is: lanes that are active elsewhere are others.

Derivatives end at an array that has no companion for them, and go on ending there: what is read
back from it is the stored value through two bitcasts, which have no derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from octants.compile_profile import staged
from octants.ir import component_access, ops
from octants.ir.array_aliasing import may_alias
from octants.ir.builder import Builder
from octants.ir.core import (
    ArrayRef,
    Block,
    Companion,
    Module,
    Operation,
    Space,
    Value,
    rebuild,
)
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, by_name, convert, integer_range

DERIVATIVES = frozenset((Companion.ADJOINT, Companion.TANGENT))
"""Operations behind which memory may hold what other work items have written."""


@staged("fold")
def fold(module: Module) -> None:
    """Rebuild all tasks (and the body) of a module, in place."""
    facts = _modes(module), _memory(module), module.noalias
    if module.body is not None:
        module.body = _Folder(*facts).rebuild_block(module.body)
    for task in module.tasks:
        if task.domain is not None:
            task.domain = _Folder(*facts).rebuild_block(task.domain)
        task.body = _Folder(*facts).rebuild_block(task.body)


def _modes(module: Module) -> frozenset[Companion]:
    """The companions by which derivatives of the module may be taken."""
    found = {companion for array in module.arrays for companion in array.layouts}
    if any(array.space is Space.ARGUMENT and array.dtype.is_float for array in module.arrays):
        found.add(Companion.ADJOINT)  # of the argument, where it is asked for
    return DERIVATIVES & found


def _memory(module: Module) -> frozenset[ArrayRef]:
    """The memory that other work items may write while one waits for them."""
    return frozenset(
        ArrayRef(array, companion)
        for array in module.arrays
        for companion in array.layouts
        if array.space is not Space.ARGUMENT or companion is not Companion.PRIMAL
    )


@dataclass(frozen=True, slots=True)
class _Loop:
    """The facts of a loop that hoisting needs: when it runs, what it writes."""

    bounds: tuple[Value, Value] | None
    written: set[ArrayRef]
    asserts: bool

    def pins(self, target: ArrayRef, noalias: bool) -> bool:
        """Whether a load must stay in the loop: the array changes, or a check comes before it."""
        return self.asserts or any(may_alias(each, target, noalias) for each in self.written)


class _Scope:
    """The facts known in a block: shared operations, contents of memory; children see parents."""

    __slots__ = (
        *("block", "depth", "loop", "memory", "noalias", "outer", "owned", "shared", "unread"),
    )

    def __init__(
        self,
        block: Block,
        outer: _Scope | None = None,
        loop: _Loop | None = None,
        noalias: bool = False,
    ) -> None:
        self.block = block
        self.outer = outer
        self.loop = loop
        self.noalias: bool = outer.noalias if outer else noalias
        self.depth: int = outer.depth + 1 if outer else 0
        self.shared: dict[Hashable, Value] = {}
        self.memory: dict[ArrayRef, dict[tuple[Value, ...], Value]] = (
            dict(outer.memory) if outer else {}
        )
        self.owned: set[ArrayRef] = set()
        self.unread: dict[ArrayRef, dict[tuple[Value, ...], Operation]] = {}

    def find(self, key: Hashable) -> Value | None:
        """The value of an operation that dominates the builder's position."""
        scope: _Scope | None = self
        while scope is not None:
            known = scope.shared.get(key)
            if known is not None:
                return known
            scope = scope.outer
        return None

    def contents(self, target: ArrayRef) -> dict[tuple[Value, ...], Value]:
        """The facts known of an array; the caller may change them."""
        if target not in self.owned:
            self.owned.add(target)
            self.memory[target] = dict(self.memory.get(target, ()))
        return self.memory[target]

    def forget(self, written: Iterable[ArrayRef], but: ArrayRef | None = None) -> None:
        """Drop what is known of arrays that may have been written, all ``but`` one."""
        for target in written:
            for known in [t for t in self.memory if may_alias(target, t, self.noalias)]:
                if known != but:
                    del self.memory[known]
                    self.owned.discard(known)


class _SharingBuilder(Builder):
    """Builds each constant once, outermost, and knows at which depth each value is defined."""

    def __init__(self, noalias: bool) -> None:
        super().__init__()
        self.scope = _Scope(self.block, noalias=noalias)
        self.depth: dict[Value, int] = {}

    def append(self, op: Operation) -> Operation:
        for value in op.results:
            self.depth[value] = self.scope.depth
        self._drop_overwritten(op)
        return super().append(op)

    def _drop_overwritten(self, op: Operation) -> None:
        """Drop a store to a work item's own memory if this operation overwrites it unread."""
        if op.is_scalar:
            return
        unread = self.scope.unread
        if isinstance(op, ops.Store):
            if op.array.space is Space.LOCAL:
                earlier = unread.setdefault(op.ref, {})
                if tuple(op.indices) in earlier:
                    self.block.ops.remove(earlier[tuple(op.indices)])
                earlier[tuple(op.indices)] = op
        elif isinstance(op, ops.Access):
            unread.pop(op.ref, None)
        else:
            unread.clear()

    @contextmanager
    def within(self, scope: _Scope) -> Iterator[None]:
        """Build into a scope; what is appended to an outer one comes before the present loop."""
        current, self.scope = self.scope, scope
        with self.into(scope.block):
            yield
        self.scope = current

    def constant(self, value: Any, dtype: DType) -> Value:
        key = (dtype, repr(convert(value, dtype)))
        known = self.scope.find(key)
        if known is None:
            root = self.scope
            while root.outer is not None and root.outer.outer is not None:
                root = root.outer
            with self.within(root):
                known = root.shared[key] = super().constant(value, dtype)
        return known


class _Folder:
    def __init__(
        self, modes: frozenset[Companion], memory: frozenset[ArrayRef], noalias: bool
    ) -> None:
        self.modes = modes
        self.memory = memory
        self.builder = _SharingBuilder(noalias)
        self.values: dict[Value, Value] = {}
        self.written: dict[Block, set[ArrayRef]] = {}
        self.negated: dict[Value, Value] = {}  # differences whose negation dominates them
        self.remainders: dict[Value, tuple[Value, int]] = {}  # x % n, or x % n + n: x % n, and n

    @property
    def scope(self) -> _Scope:
        return self.builder.scope

    def rebuild_block(self, block: Block) -> Block:
        return self._region(block)

    def _region(self, block: Block, forget: Iterable[ArrayRef] = ()) -> Block:
        """Rebuild a block as a region of its own."""
        new = Block([Value(arg.type, arg.name) for arg in block.args])
        self.values.update(zip(block.args, new.args, strict=True))
        with self._inside(new, forget):
            self._operations(block)
            self.builder.yield_([self.values[value] for value in block.yielded])
        return new

    @contextmanager
    def _inside(
        self, block: Block, forget: Iterable[ArrayRef], loop: _Loop | None = None
    ) -> Iterator[None]:
        """Build into a block with a scope of its own, which knows nothing of some arrays."""
        scope = _Scope(block, self.scope, loop)
        scope.forget(forget)
        self.builder.depth.update((arg, scope.depth) for arg in block.args)
        with self.builder.within(scope):
            yield

    def _operations(self, block: Block) -> None:
        for op in block.ops[:-1]:
            self.builder.location = op.location
            _HANDLERS.get(type(op), _Folder._other)(self, op)

    def _operands(self, op: Operation) -> list[Value]:
        return [self.values[value] for value in op.operands]

    def _other(self, op: Operation) -> None:
        """An operation of which only its traits are known; it has no regions."""
        if op.is_scalar:
            self._share(op)
            return
        if isinstance(op, ops.Write):
            self.scope.forget([op.ref])
        elif op.orders_memory:
            self.scope.forget(self.memory)
        new = self.builder.append(rebuild(op, self._operands(op)))
        self.values.update(zip(op.results, new.results, strict=True))

    def _written_in(self, *blocks: Block) -> set[ArrayRef]:
        """The arrays that blocks may write."""
        result: set[ArrayRef] = set()
        for block in blocks:
            if block not in self.written:
                found = set()
                for op in block.ops:
                    if isinstance(op, ops.Write):
                        found.add(op.ref)
                    elif op.orders_memory:
                        found |= self.memory
                    elif op.REGIONS:
                        found |= self._written_in(*op.regions)
                self.written[block] = found
            result |= self.written[block]
        return result

    # -- scalars -----------------------------------------------------------------------------------

    def _constant(self, op: ops.Constant) -> None:
        self.values[op.result] = self.builder.constant(op.value, op.result.type)

    def _share(self, op: Operation) -> None:
        """Reuse an equal operation whose block dominates this one, or build the operation.

        A new one is built in the outermost block that has its operands, for others to reuse.
        """
        operands = self._of_square(op, self._operands(op))
        key = (type(op), tuple(op.attributes), op.result.type, tuple(operands))
        known = self.scope.find(key) or self._known_remainder(op, operands)
        if known is None:
            scope = self._outermost_scope(operands, op.is_costly)
            build = _BUILD.get(type(op), _build_alike)
            if scope is self.scope:
                known = build(self.builder, op, operands)
            else:
                with self.builder.within(scope):
                    known = build(self.builder, op, operands)
            scope.shared[key] = known
            if isinstance(op, ops.Binary) and op.fn == "sub" and known.type.is_float:
                self._note_difference(op, operands[0], operands[1], known)
        if isinstance(op, ops.Binary) and op.fn in ("mod", "add") and known.type.is_integer:
            self._note_remainder(op.fn, operands, known)
        self.values[op.result] = known

    def _of_square(self, op: Operation, operands: list[Value]) -> list[Value]:
        """The operands of an operation; b - a for a - b if it squares that and b - a came first.

        The squares are equal, and what is computed from them can be shared.
        """
        is_square = isinstance(op, ops.Fma) or (isinstance(op, ops.Binary) and op.fn == "mul")
        if not is_square or operands[0] is not operands[1]:
            return operands
        negated = self.negated.get(operands[0])
        return operands if negated is None else [negated, negated, *operands[2:]]

    def _note_difference(self, op: Operation, first: Value, second: Value, built: Value) -> None:
        """Note that a float is the negation of one that is known, if it is so."""
        key = (type(op), tuple(op.attributes), built.type, (second, first))
        known = self.scope.find(key)
        if known is not None and first is not second:
            self.negated[built] = known

    def _known_remainder(self, op: Operation, operands: list[Value]) -> Value | None:
        """The remainder that is divided again by the same constant, if it is so."""
        if not isinstance(op, ops.Binary) or op.fn != "mod" or operands[0] not in self.remainders:
            return None
        remainder, divisor = self.remainders[operands[0]]
        return remainder if self.builder.constant_of(operands[1]) == divisor else None

    def _note_remainder(self, fn: str, operands: list[Value], built: Value) -> None:
        """Note that a value is a remainder by a positive constant, or one with that added."""
        for value, other in (operands, operands[::-1])[: 1 if fn == "mod" else 2]:
            number = self.builder.constant_of(other)
            if number is None or number <= 0 or 2 * number - 1 > integer_range(built.type)[1]:
                continue
            if fn == "mod":
                self.remainders.setdefault(built, (built, number))
            elif self.remainders.get(value) == (value, number):
                self.remainders[built] = value, number

    def _outermost_scope(self, operands: Iterable[Value], leaves_branches: bool = False) -> _Scope:
        """The outermost scope that sees the operands, going out of loops (and branches in them)."""
        deepest = max((self.builder.depth[value] for value in operands), default=0)
        home = scope = self.scope
        while scope.outer is not None and deepest < scope.depth:
            if scope.loop is not None:
                home = scope.outer
            elif not leaves_branches:
                break
            scope = scope.outer
        return home

    def _record_end(self, op: ops.RecordEnd) -> None:
        """A record without slots ends where it begins."""
        if op.record.slots:
            self._other(op)
        else:
            self.values[op.result] = self.values[op.base]

    def _insert(self, op: ops.Insert) -> None:
        index, value, *before = self._operands(op)
        after = component_access.insert(self.builder, index, value, before)
        self.values.update(zip(op.results, after, strict=True))

    # -- memory ------------------------------------------------------------------------------------

    def _load(self, op: ops.Load) -> None:
        indices = tuple(self._operands(op))
        contents = self.scope.contents(op.ref)
        if indices not in contents:
            contents[indices] = self._load_early(op, indices, self.scope)
        self.values[op.result] = contents[indices]

    def _load_early(self, op: ops.Load, indices: tuple[Value, ...], scope: _Scope) -> Value:
        """Load as far out of the present loops as the value is the same."""
        loop, outer, target = scope.loop, scope.outer, op.ref
        depth = max((self.builder.depth[value] for value in indices), default=0)
        is_inner = depth >= scope.depth
        if loop is None or outer is None or is_inner or loop.pins(target, scope.noalias):
            with self.builder.within(scope):
                return self.builder.load(op.array, indices, op.companion)
        known = outer.contents(target).get(indices)
        if known is not None:
            return known
        runs = self._runs(loop, outer)
        if runs is None:
            with self.builder.within(scope):
                return self.builder.load(op.array, indices, op.companion)
        if self.builder.constant_of(runs):
            value = self._load_early(op, indices, outer)
            outer.contents(target)[indices] = value
            return value
        with self.builder.within(outer):
            then, orelse = Block(), Block()
            with self.builder.into(then):
                self.builder.yield_([self.builder.load(op.array, indices, op.companion)])
            zero = self.builder.constant(0, op.array.dtype)
            with self.builder.into(orelse):
                self.builder.yield_([zero])
            return self.builder.if_(runs, then, orelse).result

    def _runs(self, loop: _Loop, outer: _Scope) -> Value | None:
        """Whether a counting loop runs at all; None for other loops."""
        if loop.bounds is None:
            return None
        key = (ops.Compare, "runs", loop.bounds)
        if key not in outer.shared:
            with self.builder.within(outer):
                outer.shared[key] = self.builder.compare("lt", *loop.bounds)
        return outer.shared[key]

    def _store(self, op: ops.Store) -> None:
        value, *indices = self._operands(op)
        element = tuple(indices)
        target = op.ref
        self.scope.forget([target], but=target)
        contents = self.scope.contents(target)
        for other in [known for known in contents if not self._surely_differ(known, element)]:
            del contents[other]
        self.builder.store(op.array, element, value, op.companion)
        held = self._read_back(op, value)
        if held is None:
            contents.pop(element, None)
        else:
            contents[element] = held

    def _read_back(self, op: ops.Store, value: Value) -> Value | None:
        """The result of a load of the stored value; None if it must read memory.

        A derivative must end where the array has no companion for it, in each mode by itself.
        """
        in_memory = op.array.space in (Space.FIELD, Space.NDARRAY)
        if op.companion is not Companion.PRIMAL or not in_memory or not value.type.is_float:
            return value
        carried = self.modes.intersection(op.array.layouts)
        if carried == self.modes:
            return value
        if carried:
            return None
        bits = self.builder.bitcast(value, by_name(f"u{value.type.bits}"))
        return self.builder.bitcast(bits, value.type)

    def _surely_differ(self, a: tuple[Value, ...], b: tuple[Value, ...]) -> bool:
        for x, y in zip(a, b, strict=True):
            left, right = self.builder.constant_of(x), self.builder.constant_of(y)
            if left is not None and right is not None and left != right:
                return True
        return False

    # -- control -----------------------------------------------------------------------------------

    def _if(self, op: ops.If) -> None:
        condition = self.values[op.condition]
        known = self.builder.constant_of(condition)
        if known is not None:
            taken = op.then if known else op.orelse
            self._operations(taken)
            for result, value in zip(op.results, taken.yielded, strict=True):
                self.values[result] = self.values[value]
            return
        then, orelse = self._region(op.then), self._region(op.orelse)
        if len(then.ops) == 1 and len(orelse.ops) == 1:
            pairs = zip(op.results, then.yielded, orelse.yielded, strict=True)
            for result, on_true, on_false in pairs:
                self.values[result] = self.builder.select(condition, on_true, on_false)
            return
        new = self.builder.if_(condition, then, orelse)
        yielded = zip(op.results, new.results, then.yielded, orelse.yielded, strict=True)
        for result, joined, on_true, on_false in yielded:
            self.values[result] = on_true if on_true is on_false else joined
        self.scope.forget(self._written_in(op.then, op.orelse))

    def _for(self, op: ops.For) -> None:
        lower, upper = self.values[op.lower], self.values[op.upper]
        low, high = self.builder.constant_of(lower), self.builder.constant_of(upper)
        inits = [self.values[value] for value in op.inits]
        if low is not None and high is not None and low >= high:
            self.values.update(zip(op.results, inits, strict=True))
            return
        steps = self._inductions(op)
        kept, args = self._loop_arguments(op, inits, steps)
        counter = Value(op.body.args[0].type, op.body.args[0].name)
        self.values[op.body.args[0]] = counter
        body = Block([counter, *args])
        written = self._written_in(op.body)
        with self._inside(body, written, self._loop(op, (lower, upper), written)):
            for k, step in steps.items():
                self.values[op.body.args[1 + k]] = self._advance(inits[k], lower, counter, step)
            self._operations(op.body)
            self.builder.yield_([self.values[op.body.yielded[k]] for k in kept])
        new = self.builder.for_(lower, upper, [inits[k] for k in kept], body)
        self.values.update(zip((op.results[k] for k in kept), new.results, strict=True))
        for k, step in steps.items():
            end = self.builder.binary("max", upper, lower)
            self.values[op.results[k]] = self._advance(inits[k], lower, end, step)
        self.scope.forget(written)

    def _inductions(self, op: ops.For) -> dict[int, Value]:
        """Carried integers that grow by an invariant step: position -> step."""
        updates = {o.result: o for o in op.body.ops if isinstance(o, (ops.Binary, ops.Constant))}
        found = {}
        for k, (arg, yielded) in enumerate(zip(op.body.args[1:], op.body.yielded, strict=True)):
            update: Any = updates.get(yielded)
            if not isinstance(update, ops.Binary) or update.fn != "add" or arg.type.is_float:
                continue
            if arg in (update.lhs, update.rhs):
                step = update.rhs if update.lhs is arg else update.lhs
                constant: Any = updates.get(step)
                if isinstance(constant, ops.Constant):
                    found[k] = self.builder.constant(constant.value, step.type)
                elif step in self.values and step not in updates and step not in op.body.args:
                    found[k] = self.values[step]
        return found

    def _loop_arguments(
        self, op: ops.Loop, inits: list[Value], skip: Iterable[int]
    ) -> tuple[list[int], list[Value]]:
        """Map the carried values that do not change to their start; those kept get arguments."""
        kept, args, settled = [], [], _settle(op.body, {})
        for k, (arg, yielded) in enumerate(zip(op.carried, op.body.yielded, strict=True)):
            if settled.get(yielded, yielded) is arg:
                self.values[arg] = self.values[op.results[k]] = inits[k]
                if isinstance(op, ops.While):
                    self.values[op.condition.args[k]] = inits[k]
            elif k not in skip:
                kept.append(k)
                args.append(Value(arg.type, arg.name))
                self.values[arg] = args[-1]
        return kept, args

    def _loop(
        self, op: ops.Loop, bounds: tuple[Value, Value] | None, written: set[ArrayRef]
    ) -> _Loop:
        asserts = any(isinstance(inside, ops.Assert) for inside in op.body.walk())
        return _Loop(bounds, written, asserts)

    def _advance(self, start: Value, lower: Value, counter: Value, step: Value) -> Value:
        """start + (counter - lower) * step, in the type of start; wrapping makes this exact.

        The distance of two i32 may be no i32, so it is not taken in a type narrower than that.
        """
        ends = [counter, lower]
        if start.type.bits > counter.type.bits:
            ends = [self.builder.cast(end, start.type) for end in ends]
        trips = self.builder.cast(self.builder.binary("sub", *ends), start.type)
        return self.builder.binary("add", start, self.builder.binary("mul", trips, step))

    def _while(self, op: ops.While) -> None:
        inits = [self.values[value] for value in op.inits]
        kept, args = self._loop_arguments(op, inits, ())
        written = self._written_in(op.body)
        condition = Block([Value(arg.type, arg.name) for arg in args])
        for k, arg in zip(kept, condition.args, strict=True):
            self.values[op.condition.args[k]] = arg
        with self._inside(condition, written, self._loop(op, None, written)):
            self._operations(op.condition)
            self.builder.yield_([self.values[op.condition.yielded[0]]])
        body = Block(args)
        with self._inside(body, written, self._loop(op, None, written)):
            self._operations(op.body)
            self.builder.yield_([self.values[op.body.yielded[k]] for k in kept])
        new = self.builder.while_([inits[k] for k in kept], condition, body)
        self.values.update(zip((op.results[k] for k in kept), new.results, strict=True))
        self.scope.forget(written)

    def _parallel_for(self, op: ops.ParallelFor) -> None:
        lower, upper = self.values[op.lower], self.values[op.upper]
        written = self._written_in(op.body)
        body = self._region(op.body, written)
        self.builder.parallel_for(lower, upper, body, op.options)
        self.scope.forget(written)


def _settle(block: Block, settled: dict[Value, Value]) -> dict[Value, Value]:
    """Add the results of ifs that no condition decides, and of loops that do not change them.

    They are those of a block, and of the ifs and loops in it.
    """
    for op in block.ops:
        if isinstance(op, ops.Loop):
            _settle(op.body, settled)
            carried = zip(op.results, op.inits, op.carried, op.body.yielded, strict=True)
            for result, init, arg, end in carried:
                if settled.get(end, end) is arg:
                    settled[result] = settled.get(init, init)
        if isinstance(op, ops.If):
            for region in op.regions:
                _settle(region, settled)
            for result, *branches in zip(
                op.results, op.then.yielded, op.orelse.yielded, strict=True
            ):
                on_true, on_false = (settled.get(each, each) for each in branches)
                if on_true is on_false:
                    settled[result] = on_true
    return settled


def _build_alike(builder: Builder, op: Operation, operands: list[Value]) -> Value:
    return builder.append(rebuild(op, operands)).result


_BUILD: dict[type[Operation], Callable[[Builder, Any, list[Value]], Value]] = {
    ops.Unary: lambda b, op, v: b.unary(op.fn, *v),
    ops.Binary: lambda b, op, v: b.binary(op.fn, *v),
    ops.Fma: lambda b, op, v: b.fma(*v),
    ops.Compare: lambda b, op, v: b.compare(op.fn, *v),
    ops.Select: lambda b, op, v: b.select(*v),
    ops.Cast: lambda b, op, v: b.cast(v[0], op.result.type),
    ops.Bitcast: lambda b, op, v: b.bitcast(v[0], op.result.type),
    ops.Shape: lambda b, op, v: b.shape(op.array, op.axis),
    ops.Extract: lambda b, op, v: component_access.extract(b, v[0], v[1:]),
}

_HANDLERS: dict[type[Operation], Callable[[_Folder, Any], None]] = {
    ops.Constant: _Folder._constant,
    ops.Insert: _Folder._insert,
    ops.RecordEnd: _Folder._record_end,
    ops.Load: _Folder._load,
    ops.Store: _Folder._store,
    ops.If: _Folder._if,
    ops.For: _Folder._for,
    ops.While: _Folder._while,
    ops.ParallelFor: _Folder._parallel_for,
}
