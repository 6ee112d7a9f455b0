"""Finds the tasks of a kernel that may run concurrently, as the program allows.

The program allows it by blocks of `lang.directives.stream_parallel`, whose numbers are options of
tasks, and by the sections of a `lang.directives.parallel_context`, which have the number of their
region as well. The tasks must not run concurrently if one writes what another reads or writes,
which is common in reverse kernels: several loops that read an array add to one adjoint.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from octants.ir import ops
from octants.ir.core import ArrayRef, Module, Space, Task

_OWN = (Space.LOCAL, Space.SHARED)


def concurrent_groups(module: Module) -> list[int]:
    """The concurrent group of each task of a module; 0 if the task runs alone.

    The tasks of one group run in order, those of different groups may overlap. A task that runs
    alone waits for those before it, and those after it for the task: so does the first one of a
    region that follows another region at once.
    """
    found: list[int] = []
    for (is_grouped, _), run in itertools.groupby(module.tasks, _block):
        tasks = list(run)
        are_concurrent = is_grouped and _are_independent(tasks)
        groups = [_group(task) if are_concurrent else 0 for task in tasks]
        if found and found[-1]:
            groups[0] = 0
        found += groups
    return found


def _block(task: Task) -> tuple[bool, int]:
    """Whether a task may overlap with others, and the region that these are in."""
    return bool(_group(task)), int(task.options.get("region") or 0)


def _group(task: Task) -> int:
    return int(task.options.get("group") or 0)


def _are_independent(tasks: Sequence[Task]) -> bool:
    touched: dict[int, set[ArrayRef]] = {}
    written: dict[int, set[ArrayRef]] = {}
    for task in tasks:
        for op in itertools.chain(task.body.walk(), task.domain.walk() if task.domain else ()):
            if isinstance(op, ops.Access) and op.array.space not in _OWN:
                touched.setdefault(_group(task), set()).add(op.ref.whole)
                if isinstance(op, ops.Write):
                    written.setdefault(_group(task), set()).add(op.ref.whole)
    return all(
        refs.isdisjoint(touched[other])
        for group, refs in written.items()
        for other in touched
        if other != group
    )
