"""Notes which work items access which elements, so that races are seen when the kernel has run.

Before (`x` is watched)::

    parallel @k_0 { ... } { (%i: i32):
      %0: f32 = load<@x, primal>(%j)
      store<@y, primal>(%0, %i)
      yield()
    }

After: each watched access is followed by atomic maxima in a *shadow* of the element, `WORDS`
numbers in the array `words`. They hold the least and the greatest work item that has stored the
element, that has read it, and that has updated it atomically, and the least and the greatest of
what was stored. So what is found does not depend on the order of work items. A number is that of
the work item and of the access (`item_of`, `site_of`); the shadows of an array begin where `starts`
says. An access that is out of bounds is noted in the first shadow, which is not read.

Without `effects` the kernel writes nothing but that and its launch-temporary arrays. It then runs
on memory as it is, before or after the launch; if that would decide otherwise who accesses what,
there is no such kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from octants.analysis.memory.races import OWN
from octants.diagnostics.span import Span
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import copy_block, copy_domain, without_effects
from octants.ir.core import Array, Block, Companion, Module, Operation, Space, Task, Value
from octants.lazy_dataclass import dataclass
from octants.simplify import simplify
from octants.types.scalars import by_name, i64, u64

PRIMAL = Companion.PRIMAL
WORDS = 8
STORED, VALUES, READ, UPDATED = 0, 2, 4, 6
"""Where in a shadow the greatest number stands, with the least one behind it."""

GREATEST = 2**62 - 1
"""The least number is noted as how far it is below this; where nothing is noted, a word is zero."""

_SITES = 1 << 12
_FIRST_ITEM = 1 << 40

_KEPT = (Space.TEMPORARY, Space.SHARED, Space.LOCAL)

Stamp = Callable[[Operation], int | None]
"""The number below 2**60 that stands for what a store stored; None for the bits of the value.

`OWN` stands for something that no other work item stores.
"""


@dataclass(frozen=True, slots=True)
class Site:
    """A watched access: where it is in the source, and whether it stores, reads or updates."""

    location: Span | None
    kind: int


@dataclass(frozen=True)
class Watched:
    """A kernel that notes accesses: `module` has the arrays of a log behind those of the kernel.

    `sections` are the positions of the arrays that have shadows, one for each task that accesses
    one; `sites` the accesses by their numbers.
    """

    module: Module
    sections: tuple[int, ...]
    sites: tuple[Site, ...]


def item_of(number: Any) -> Any:
    """The work item that a number, or an array of them, was noted by."""
    return number // _SITES - _FIRST_ITEM


def site_of(number: int) -> int:
    """The number of the access that a number was noted at."""
    return number % _SITES


def watch_races(
    module: Module, accesses: Iterable[Operation], stamp: Stamp, *, effects: bool
) -> Watched | None:
    """The kernel that notes some accesses; None if it cannot do so without ``effects``."""
    watcher = _Watcher(module, accesses, stamp, effects)
    result = watcher.run()
    if not effects and _reads_what_is_written(module, result.module):
        return None
    return result


def _reads_what_is_written(module: Module, watching: Module) -> bool:
    """Whether what is noted depends on memory that the kernel writes."""
    written = {
        op.array
        for op in module.walk()
        if isinstance(op, ops.Write) and op.array.space in (Space.FIELD, Space.NDARRAY)
    }
    return any(isinstance(op, ops.Load) and op.array in written for op in watching.walk())


class _Watcher:
    def __init__(
        self, module: Module, accesses: Iterable[Operation], stamp: Stamp, effects: bool
    ) -> None:
        self.module = module
        self.stamp = stamp
        self.effects = effects
        self.numbers = {op: number for number, op in enumerate(accesses)}
        self.sections: dict[tuple[int, Array], int] = {}
        self.bounds, self.starts, self.words = (
            Array(f"race_{name}", i64, 1, Space.NDARRAY, layouts={PRIMAL: None})
            for name in ("bounds", "starts", "words")
        )

    def run(self) -> Watched:
        tasks = [self._task(number, task) for number, task in enumerate(self.module.tasks)]
        arrays = [*self.module.arrays, self.bounds, self.starts, self.words]
        name = f"{self.module.name}_races"
        result = Module(name, arrays, None, tasks, self.module.location)
        simplify(result)
        position = {array: number for number, array in enumerate(self.module.arrays)}
        sections = tuple(position[array] for _, array in self.sections)
        sites = tuple(Site(op.location, kind_of(op)) for op in self.numbers)
        return Watched(result, sections, sites)

    def _task(self, number: int, task: Task) -> Task:
        body = copy_block(task.body, {})
        self._watch(body, task.body, number, body.args[0] if task.is_parallel else None)
        domain = copy_domain(task)
        return Task(task.name, body, domain, task.location, task.options)

    def _watch(self, new: Block, primal: Block, task: int, item: Value | None) -> None:
        """Note the accesses of a copy of a block, and take out its effects if need be."""
        builder = Builder(Block())
        for op, origin in zip(new.ops, primal.ops, strict=True):
            builder.location = op.location
            kept = op if self.effects else without_effects(op, _KEPT)
            if kept is not None and not isinstance(op, ops.Print):
                builder.append(kept)
            if origin in self.numbers and item is not None:
                self._note(builder, op, origin, task, item)
            for region, primal_region in zip(op.regions, origin.regions, strict=True):
                self._watch(region, primal_region, task, item)
        new.ops[:] = builder.block.ops

    def _note(self, builder: Builder, op: Any, origin: Operation, task: int, item: Value) -> None:
        section = self.sections.setdefault((task, op.array), len(self.sections))
        shadow = self._shadow(builder, op, section)
        site = min(self.numbers[origin], _SITES - 1)
        number = builder.binary("add", builder.cast(item, i64), builder.constant(_FIRST_ITEM, i64))
        number = builder.binary("mul", number, builder.constant(_SITES, i64))
        number = builder.binary("add", number, builder.constant(site, i64))
        self._extend(builder, shadow, kind_of(op), number)
        if isinstance(op, ops.Store):
            self._extend(builder, shadow, VALUES, self._stored(builder, op, origin, number))

    def _shadow(self, builder: Builder, op: Any, section: int) -> Value:
        """The position of an element's shadow."""
        array, inside, position = op.array, builder.constant(True, by_name("u1")), None
        extents = [builder.cast(builder.shape(array, axis), i64) for axis in range(array.rank)]
        extents += [builder.constant(extent, i64) for extent in array.element_shape]
        position = builder.constant(0, i64)
        for index, extent in zip(op.indices, extents, strict=True):
            wide = builder.cast(index, i64)
            for fn, end in (("ge", builder.constant(0, i64)), ("lt", extent)):
                inside = builder.binary("and", inside, builder.compare(fn, wide, end))
            position = builder.binary("add", builder.binary("mul", position, extent), wide)
        start = builder.load(self.starts, [builder.constant(section, i64)])
        position = builder.binary("add", start, position)
        position = builder.select(inside, position, builder.constant(0, i64))
        return builder.binary("mul", position, builder.constant(WORDS, i64))

    def _stored(self, builder: Builder, op: ops.Store, origin: Operation, number: Value) -> Value:
        """The number, not zero, that stands for what a store stored."""
        stamp = self.stamp(origin)
        if stamp == OWN:
            return builder.binary("add", number, builder.constant(2**60, i64))
        if stamp is not None:
            return builder.constant(stamp + 1, i64)
        value = op.value
        if value.type.is_float:
            value = builder.bitcast(value, by_name(f"u{value.type.bits}"))
        bits = builder.cast(value, u64)
        folded = builder.binary("xor", bits, builder.binary("ushr", bits, builder.constant(4, u64)))
        mask = builder.constant(2**60 - 1, u64)
        number = builder.cast(builder.binary("and", folded, mask), i64)
        return builder.binary("add", number, builder.constant(1, i64))

    def _extend(self, builder: Builder, shadow: Value, offset: int, number: Value) -> None:
        """Let the greatest and the least number at a shadow be no less, or no greater."""
        below = builder.binary("sub", builder.constant(GREATEST, i64), number)
        for behind, noted in enumerate((number, below)):
            position = builder.binary("add", shadow, builder.constant(offset + behind, i64))
            builder.atomic("max", self.words, [position], noted)


def kind_of(op: Operation) -> int:
    """Whether an access stores, reads or updates."""
    return {ops.Store: STORED, ops.Load: READ}.get(type(op), UPDATED)
