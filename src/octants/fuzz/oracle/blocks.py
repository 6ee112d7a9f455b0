"""Work items that share a block: all run up to a barrier, one after the other, before any goes on.

`rewrite` makes the body of such a loop a generator, which yields where work items wait for each
other: the request, and the operands. It goes on with an answer::

    for i in range(n):                       def _block_body1(_point):
        total = block.reduce_add(x[i], 8)        i = _point
                                                 total = (yield 'reduce_add', x[i], 8)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from octants.fuzz.oracle.arrays import Array
from octants.fuzz.oracle.numbers import I32, Num, Type, convert, lift
from octants.fuzz.oracle.operators import binary
from octants.fuzz.oracle.races import RaceWatch
from octants.fuzz.oracle.rewritten_code_support import Range, begin_task
from octants.fuzz.oracle.state import STATE, IllDefined
from octants.fuzz.oracle.structs import MatrixType

Body = Callable[[Any], Generator[tuple[Any, ...], Any, None]]


@dataclass
class Block:
    """The block in progress: its work items, its arrays in the order in which they are made."""

    first: int = 0  # the number in the loop of its first work item
    size: int = 0
    thread: int = 0  # the work item in progress
    phase: int = 0  # how many barriers it has passed
    arrays: list[SharedArray] = field(default_factory=list)
    made: list[int] = field(default_factory=list)  # how many of these each work item has made


BLOCK = Block()


class _WatchBetweenBarriers(RaceWatch):
    """The accesses since the last barrier."""

    def __init__(self) -> None:
        super().__init__()
        self._phase = -1

    def note(self, element: Any, mode: str, stored: Num | None = None) -> None:
        if self._phase != BLOCK.phase:
            self._phase, self.accesses = BLOCK.phase, {}
        super().note(element, mode, stored)


class SharedArray(Array):
    """An array of a block, whose elements are undefined at first."""

    def __init__(self, shape: tuple[int, ...], dtype: Type, element: tuple[int, ...]) -> None:
        super().__init__(dtype, shape, element, needs_grad=True)
        self.needs_grad = True
        self.watch = _WatchBetweenBarriers()
        self.undefined = set(range(len(self.cells)))

    def read(self, offset: int) -> Num:
        self._require(offset)
        return super().read(offset)

    def update(self, offset: int, fn: str, value: Any, used: bool = False) -> Num:
        self._require(offset)
        return super().update(offset, fn, value, used)

    def put(self, offset: int, value: Num) -> None:
        if not STATE.quiet:
            self.undefined.discard(offset)
        super().put(offset, value)

    def _require(self, offset: int) -> None:
        if offset in self.undefined:
            raise IllDefined("an undefined element of a shared array")


def run(domain: Iterable[Any], task: int, size: int, body: Body) -> None:
    """Run the work items of a parallel loop in blocks of a size."""
    global BLOCK
    begin_task(task)
    STATE.epoch += 1
    start = domain.first if isinstance(domain, Range) else 0
    points = list(enumerate(domain, start))
    for first in STATE.ordered(range(0, len(points), size)):
        of_block = points[first : first + size]
        BLOCK = Block(first, len(of_block), made=[0] * len(of_block))
        _run_block(of_block, body)
    STATE.item = None
    STATE.draws = 0


def _run_block(points: Sequence[tuple[int, Any]], body: Body) -> None:
    runs = [body(point) for _, point in points]
    draws = [0] * len(points)
    answers: list[Any] = [None] * len(points)
    for phase in itertools.count():
        BLOCK.phase = phase
        requests: list[tuple[Any, ...] | None] = [None] * len(points)
        for thread, (item, _) in STATE.ordered(enumerate(points)):
            STATE.item, STATE.draws, BLOCK.thread = item, draws[thread], thread
            requests[thread] = _resume(runs[thread], answers[thread])
            draws[thread] = STATE.draws
        kinds = {each[0] if each else "" for each in requests}
        if len(kinds) > 1:
            raise IllDefined("not all work items of a block reach a barrier")
        kind = kinds.pop()
        if not kind:
            return
        operands = zip(*(each[1:] for each in requests if each), strict=True)
        answers = COOPERATION[kind](*operands) or [None] * len(points)


def _resume(run: Generator[tuple[Any, ...], Any, None], answer: Any) -> tuple[Any, ...] | None:
    """The next request of a work item; None at its end."""
    try:
        return run.send(answer)
    except StopIteration:
        return None


# -- what work items do together -------------------------------------------------------------------


def _combine(fn: str, one: Num, other: Num, dtype: Type) -> Num:
    """Combine two values in any order with others: a sum of floats has more error."""
    result = convert(binary(fn, one, other), dtype)
    if not dtype.is_float:
        return result
    if fn in ("min", "max"):
        if one.value == other.value and one.node != other.node:
            STATE.note_near(f"{fn} of equals")
        return result
    STATE.has_sums = True
    inexact = Num(dtype, result.value, result.error + dtype.roundoff * _size(one, other)[0])
    inexact.node, inexact.tangent = result.node, result.tangent
    inexact.tangent_error = result.tangent_error + dtype.roundoff * _size(one, other)[1]
    return inexact


def _size(*numbers: Num) -> tuple[float, float]:
    return sum(abs(n.value) for n in numbers), sum(abs(n.tangent) for n in numbers)


def _scan(fn: str, values: Sequence[Num]) -> list[Num]:
    return list(itertools.accumulate(values, lambda a, b: _combine(fn, a, b, a.type)))


def _reduction(fn: str) -> Callable[..., list[Num]]:
    def reduce(values: Sequence[Any], _: Any, dtypes: Sequence[Type]) -> list[Num]:
        numbers = _converted(values, dtypes)
        return [_scan(fn, numbers)[-1]] * len(numbers)

    return reduce


def _inclusive(fn: str) -> Callable[..., list[Num]]:
    return lambda values, _, dtypes: _scan(fn, _converted(values, dtypes))


def _exclusive_add(values: Sequence[Any], _: Any, dtypes: Sequence[Type]) -> list[Num]:
    numbers = _converted(values, dtypes)
    return [dtypes[0](0), *_scan("+", numbers)[:-1]]


def _converted(values: Sequence[Any], dtypes: Sequence[Type]) -> list[Num]:
    return [convert(lift(value), dtype) for value, dtype in zip(values, dtypes, strict=True)]


def _tiles(values: Sequence[Any], logarithms: Sequence[Any]) -> list[list[Num]]:
    numbers = [lift(value) for value in values]
    size = 1 << lift(logarithms[0]).__index__()
    return [numbers[k : k + size] for k in range(0, len(numbers), size)]


def _tiled_sum(values: Sequence[Any], logarithms: Sequence[Any]) -> list[Num]:
    tiles = _tiles(values, logarithms)
    return [_scan("+", tile)[-1] for tile in tiles for _ in tile]


def _tiled_scan(values: Sequence[Any], logarithms: Sequence[Any]) -> list[Num]:
    return [number for tile in _tiles(values, logarithms) for number in _scan("+", tile)]


def _shuffle_xor(values: Sequence[Any], bits: Sequence[Any]) -> list[Any]:
    """The value of another lane; a lane's own if that one does not exist."""
    others = [k ^ lift(each).__index__() for k, each in enumerate(bits)]
    return [values[o] if o < len(values) else values[k] for k, o in enumerate(others)]


def _count(predicates: Sequence[Any]) -> int:
    return sum(bool(lift(each)) for each in predicates)


COOPERATION: dict[str, Callable[..., list[Any] | None]] = {
    "sync": lambda: None,
    "reduce_add": _reduction("+"),
    "reduce_min": _reduction("min"),
    "reduce_max": _reduction("max"),
    "inclusive_add": _inclusive("+"),
    "inclusive_min": _inclusive("min"),
    "inclusive_max": _inclusive("max"),
    "exclusive_add": _exclusive_add,
    "reduce_add_tiled": _tiled_sum,
    "inclusive_add_tiled": _tiled_scan,
    "shuffle_xor": _shuffle_xor,
    "sync_count_nonzero": lambda p: [Num(I32, _count(p))] * len(p),
    "sync_any_nonzero": lambda p: [Num(I32, int(_count(p) > 0))] * len(p),
    "sync_all_nonzero": lambda p: [Num(I32, int(_count(p) == len(p)))] * len(p),
}
"""The operations that work items do together, given the operands of all of them."""


# -- what a program names --------------------------------------------------------------------------


def _shared_array(shape: Any, dtype: Any) -> SharedArray:
    """The same array for all work items of the block."""
    number = BLOCK.made[BLOCK.thread]
    BLOCK.made[BLOCK.thread] += 1
    if number == len(BLOCK.arrays):
        extents = tuple(
            lift(k).__index__() for k in (shape if isinstance(shape, tuple) else (shape,))
        )
        element, kind = (dtype.shape, dtype.dtype) if isinstance(dtype, MatrixType) else ((), dtype)
        BLOCK.arrays.append(SharedArray(extents, kind, element))
    return BLOCK.arrays[number]


class Simt:
    """``qd.simt``."""

    class block:
        """``qd.simt.block``: what needs no other work items."""

        SharedArray = staticmethod(_shared_array)
        thread_idx = staticmethod(lambda: Num(I32, BLOCK.thread))
        global_thread_idx = staticmethod(lambda: Num(I32, BLOCK.first + BLOCK.thread))
        size = staticmethod(lambda: Num(I32, BLOCK.size))
