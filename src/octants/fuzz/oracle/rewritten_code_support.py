"""The functions that rewritten programs call, as `_o` (see `rewrite`)."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from octants.fuzz.oracle import arrays, matrices
from octants.fuzz.oracle.arrays import CONVERTED, Sums, View
from octants.fuzz.oracle.matrices import Matrix, broadcast
from octants.fuzz.oracle.numbers import I32, I64, U1, Num, Type, convert, lift, promote
from octants.fuzz.oracle.operators import binary
from octants.fuzz.oracle.races import RaceWatch
from octants.fuzz.oracle.state import STATE, IllDefined
from octants.fuzz.oracle.structs import (
    MatrixType,
    Struct,
    StructElement,
    StructType,
    settled,
)

unassigned = object()
_locals_watch = RaceWatch()
_local_sums = Sums()
update = arrays.update
update_then = arrays.update_then
Items = arrays.Items
Scope = dict[str, Any]


def scope() -> Scope:
    """The types of a function's locals, by name."""
    return {}


def assign(types: Scope, name: str, value: Any) -> Any:
    """The value as a local of that name holds it: converted to the local's type, copied."""
    if isinstance(value, Matrix):
        return _assign_matrix(types, name, value)
    if isinstance(value, Struct | StructElement):
        return settled(types.setdefault(name, value.kind), value)
    if not isinstance(value, (Num, int, float)):
        if value is unassigned:
            raise IllDefined("an unassigned value")
        return value
    number = lift(value)
    dtype = types.setdefault(name, number.type)
    if not isinstance(dtype, Type):
        raise IllDefined("a scalar for a vector")
    return _settled(convert(number, dtype))


def _settled(number: Num) -> Num:
    """A number as it is in a local: rounded to its type."""
    if not number.literal:
        return number
    return Num(number.type, number.value, number.error)


def _assign_matrix(types: Scope, name: str, value: Matrix) -> Matrix:
    items = value.items
    shape, dtype = types.setdefault(name, (value.shape, items[0].type))
    if shape != value.shape:
        raise IllDefined("a local changes its shape")
    return Matrix([_settled(convert(item, dtype)) for item in items], shape)


def assign_all(types: Scope, names: Sequence[str], value: Any) -> list[Any]:
    """Unpacking: all values are taken before the first is bound."""
    values = list(value)
    return [assign(types, name, item) for name, item in zip(names, values, strict=True)]


def enter(types: Scope, name: str, value: Any, annotation: Any) -> Any:
    """An argument as its function sees it: by value, except for arrays and templates."""
    if getattr(annotation, "is_template", False):
        return value
    if getattr(annotation, "clamps", False):
        return arrays.Clamped(value)
    if isinstance(annotation, Type):
        value = annotation(value)
    if isinstance(value, (Matrix, Num, int, float, Struct, StructElement)):
        return assign(types, name, value)
    return value


def taken(values: Any) -> list[Any]:
    """The values of an unpacking, as they are before the first target is assigned."""
    return [v.copy() if isinstance(v, Matrix | Struct | StructElement) else v for v in values]


def leave(value: Any, annotation: Any) -> Any:
    """A returned value: converted to what the function declares, copied."""
    if isinstance(annotation, Type):
        return annotation(value)
    if isinstance(value, tuple):
        return tuple(leave(item, None) for item in value)
    if isinstance(annotation, MatrixType | StructType):
        return settled(annotation, value)
    return value.copy() if isinstance(value, Matrix | Struct | StructElement) else value


def negate(value: Any) -> Num:
    return Num(U1, not lift(value))


def operate(symbol: str, left: Any, right: Any) -> Any:
    return broadcast(lambda a, b: binary(symbol, a, b), left, right)


def updated(symbol: str, before: Any, value: Any) -> Any:
    """``before symbol= value`` of a local variable."""
    return broadcast(lambda a, b: arrays.updated(symbol, a, b), before, value)


def choose(condition: Any, then: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
    """``then if condition else orelse``: one is evaluated.

    The type is that of both together, unless the condition and both are numbers of Python.
    """
    taken, other = (then, orelse) if lift(condition) else (orelse, then)
    value = taken()
    if not isinstance(value, (Num, int, float)):
        return value
    is_computed = isinstance(condition, Num)
    with contextlib.suppress(Exception), _quietly():
        beside = other()
        if is_computed or isinstance(value, Num) or isinstance(beside, Num):
            value = lift(value)
            return convert(value, promote(value.type, lift(beside).type))
    return lift(value) if is_computed else value


def decide(is_and: bool, left: Any, right: Callable[[], Any]) -> Any:
    """``left and right``, ``left or right``: the operand that decides, in the type of both."""
    if not isinstance(left, Num):
        return (left and right()) if is_and else (left or right())
    sides = (right, lambda: left) if is_and else (lambda: left, right)
    return choose(left, *sides)


def select(condition: Any, then: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
    """``select(condition, then, orelse)``: both are evaluated, one is taken.

    What the other one is, if it is anything, must not matter.
    """
    if isinstance(condition, Matrix):
        return matrices.select(condition, then(), orelse())
    decision = bool(lift(condition))
    first = then() if decision else _attempt(then)
    second = _attempt(orelse) if decision else orelse()
    taken, other = (first, second) if decision else (second, first)
    return taken if other is None else matrices.select(decision, first, second)


def _attempt(side: Callable[[], Any]) -> Any:
    """A value that is not taken, or None if it has none; its draws count."""
    STATE.quiet += 1
    try:
        return side()
    except (ValueError, ArithmeticError, IllDefined):
        return None
    finally:
        STATE.quiet -= 1


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Evaluate for the type only: nothing is stored, drawn or noted."""
    draws = STATE.draws
    STATE.quiet += 1
    try:
        yield
    finally:
        STATE.quiet -= 1
        STATE.draws = draws


ATOMIC_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}


def atomic(target: Any, index: Any, fn: str, value: Any, used: bool) -> Any:
    return update(target, index, ATOMIC_SYMBOLS.get(fn, fn), value, used)


# -- work items ------------------------------------------------------------------------------------


def begin_task(task: int) -> None:
    STATE.task = task
    STATE.draws = 0
    STATE.item = None


def parallel(domain: Iterable[Any], task: int, in_order: bool = False) -> Iterator[Any]:
    """The work items of a parallel loop, one after the other.

    Its bounds have been evaluated as part of the serial stretch before it. The last work item is
    the last one that runs if they run ``in_order``.
    """
    begin_task(task)
    STATE.epoch += 1
    start = domain.first if isinstance(domain, Range) else 0
    items: Iterable[Any] = enumerate(domain, start)
    for item, index in items if in_order else STATE.ordered(items):
        STATE.item = item
        STATE.draws = 0
        yield index
    STATE.item = None
    STATE.draws = 0


_LOCAL_MODES = {"+": "add", "-": "add", "*": "mul"}


def touch(name: str, value: Any, mode: str) -> Any:
    """A use of a kernel's local in a parallel loop that assigns it."""
    if not isinstance(value, View):  # its array notes accesses
        _locals_watch.note(name, _LOCAL_MODES.get(mode, mode))
    return value


def accumulate(types: Scope, name: str, fn: str, before: Any, value: Any) -> Any:
    """``name fn= value`` of a kernel's local in a parallel loop: atomic."""
    if fn in CONVERTED:
        value = assign(types, name, value)
    after = assign(types, name, operate(fn, before, value))
    if not isinstance(after, Matrix):
        return _local_sums.unordered(name, fn, lift(before), lift(value), after)
    operands = value.items if isinstance(value, Matrix) else [lift(value)] * len(after.items)
    quartets = enumerate(zip(before.items, operands, after.items, strict=True))
    items = [_local_sums.unordered((name, k), fn, *numbers) for k, numbers in quartets]
    return Matrix(items, after.shape)


def accumulate_component(name: str, target: Any, index: Any, fn: str, value: Any) -> None:
    """``name[index] fn= value`` of such a local."""
    before = update(target, index, fn, value)
    if isinstance(target, Matrix) and isinstance(before, Num):
        key = name, target._offset(index)
        target[index] = _local_sums.unordered(key, fn, before, lift(value), target[index])


# -- iteration -------------------------------------------------------------------------------------


class Range:
    """``range`` on typed integers; the counter is an i32, or an i64 if a bound has a wider type."""

    def __init__(self, *bounds: Any) -> None:
        numbers = [lift(bound) for bound in bounds]
        if any(number.type.is_float for number in numbers):
            raise IllDefined("a float as a bound")
        self.type = I64 if any(number.type.high > I32.high for number in numbers) else I32
        self.range = range(*(number.value for number in numbers))
        is_wide = self.type.high > I32.high
        self.first = 0 if is_wide or self.range.step != 1 else self.range.start
        """The number of the first work item."""

    def __iter__(self) -> Iterator[Num]:
        for value in self.range:
            STATE.burn()
            yield Num(self.type, value)

    def __reversed__(self) -> Iterator[Num]:
        for value in reversed(self.range):
            STATE.burn()
            yield Num(self.type, value)

    def __len__(self) -> int:
        return len(self.range)


class NdRange:
    """``ndrange``: the last index runs fastest, or that of the last one of the axes."""

    def __init__(self, *extents: Any, axes: Sequence[Any] = ()) -> None:
        self.axes = [lift(axis).__index__() for axis in axes] or range(len(extents))
        pairs = [e if isinstance(e, tuple) else (0, e) for e in extents]
        self.ranges = [Range(low, high) for low, high in pairs]

    def __iter__(self) -> Iterator[Any]:
        for point in itertools.product(*(self.ranges[axis].range for axis in self.axes)):
            STATE.burn()
            numbers = tuple(lift(k) for _, k in sorted(zip(self.axes, point, strict=True)))
            yield numbers[0] if len(numbers) == 1 else numbers


def grouped(domain: Iterable[Any]) -> Iterator[Any]:
    """Indices as a vector."""
    for point in domain:
        items = point if isinstance(point, tuple) else (point,)
        yield Matrix(items, (len(items),))


def tick() -> None:
    """An iteration of a while loop, which may do nothing else that costs fuel."""
    STATE.burn()


def static(*values: Any) -> Any:
    """Compile-time values; a range is unrolled."""
    values = tuple(list(v.range) if isinstance(v, Range) else v for v in values)
    return values[0] if len(values) == 1 else values
