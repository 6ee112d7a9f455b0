"""Which tasks of a kernel may run at the same time, because the program says that they may.

A program says it with blocks of `lang.syntax.stream_parallel`, whose numbers are options of tasks.
They may not where one writes what another reads or writes, as the order of reverse tasks shows:
what several loops read has one adjoint.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from octants.ir import ops
from octants.ir.core import ArrayRef, Module, Space, Task

_OWN = (Space.LOCAL, Space.SHARED)


def sides_of(module: Module) -> list[int]:
    """For each task, which one of those at the same time it belongs to; 0: it runs alone.

    Tasks of one number run in order.
    """
    found: list[int] = []
    for is_beside, group in itertools.groupby(module.tasks, lambda task: bool(_side(task))):
        tasks = list(group)
        is_apart = is_beside and _are_independent(tasks)
        found += [_side(task) if is_apart else 0 for task in tasks]
    return found


def _side(task: Task) -> int:
    return int(task.options.get("side") or 0)


def _are_independent(tasks: Sequence[Task]) -> bool:
    touched: dict[int, set[ArrayRef]] = {}
    written: dict[int, set[ArrayRef]] = {}
    for task in tasks:
        for op in itertools.chain(task.body.walk(), task.domain.walk() if task.domain else ()):
            if isinstance(op, ops.Access) and op.array.space not in _OWN:
                place = op.ref
                touched.setdefault(_side(task), set()).add(place)
                if isinstance(op, ops.Write):
                    written.setdefault(_side(task), set()).add(place)
    return all(
        places.isdisjoint(touched[other])
        for side, places in written.items()
        for other in touched
        if other != side
    )
