"""Tells updates of one section of an array from what the task does with other sections.

Before::

    array @t: i32, 0, argument, () [primal]
    array @y: f32, 1, ndarray, () [primal]
    array @x: f32, 2, ndarray, () [primal]
    parallel (%2: i32 < shape<@y, 0>()) {
      %3: i32 = load<@t, primal>()
      %4: i32 = constant<1>()
      %5: i32 = binary<add>(%3, %4)
      %6: i32 = binary<add>(%2, %4)
      %7: f32 = load<@x, primal>(%5, %2)
      %8: f32 = atomic<add, @x, primal>(%7, %3, %2)
      %9: f32 = atomic<add, @x, primal>(%7, %3, %6)
    }

After::

    section @x_section0: @x, 0 [primal]
    section @x_section1: @x, 0 [primal]
    parallel (%2: i32 < shape<@y, 0>()) {
      %3: i32 = load<@t, primal>()
      %4: i32 = constant<1>()
      %5: i32 = binary<add>(%3, %4)
      %6: i32 = binary<add>(%2, %4)
      %7: f32 = load<@x_section0, primal>(%5, %2)
      %8: f32 = atomic<add, @x_section1, primal>(%7, %3, %2)
      %9: f32 = atomic<add, @x_section1, primal>(%7, %3, %6)
    }

The accesses of a section have an index that differs from that of other sections, whatever work
items these belong to: `t` and `t + 1`, or two constants. Later passes take sections for arrays of
their own (`ir.array_aliasing`). So the updates of a simulation whose arrays have an axis for time
are as cheap as if each step had arrays of its own. An array has sections only where that makes an
update cheaper, since passes no longer see that elements of two sections are neighbours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from octants.analysis.memory.access_aliasing import ElementAliasing
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.array_aliasing import may_alias_another
from octants.ir.core import ArrayRef, Module, Partition, Task


@staged("section_arrays")
def section_arrays(module: Module, noalias: bool = True) -> None:
    """Let the accesses of tasks name sections of arrays where updates become cheaper, in place.

    Args:
        module: what is rewritten.
        noalias: no two arrays share memory.
    """
    count = 0
    for task in module.tasks:
        for target, groups in _sectioned(task, noalias):
            partition = Partition(target.array)
            layouts = {target.companion: target.array.layouts[target.companion]}
            for group in groups:
                name = f"{target.array.name}_section{count}"
                section = dataclasses.replace(
                    target.array, name=name, layouts=layouts, partition=partition
                )
                access: Any
                for access in group:
                    access.array = section
                count += 1


def _sectioned(task: Task, noalias: bool) -> list[tuple[ArrayRef, list[list[ops.Access]]]]:
    """The targets of a task that need sections, with the accesses to each of these."""
    if task.domain is None:
        return []
    accesses: dict[ArrayRef, list[ops.Access]] = {}
    for op in task.body.walk():
        if isinstance(op, ops.Access):
            accesses.setdefault(op.ref, []).append(op)
    outside = {op.ref for op in task.domain.walk() if isinstance(op, ops.Access)}
    updated = [
        target
        for target, group in accesses.items()
        if len(group) > 1 and any(isinstance(op, ops.Atomic) for op in group)
        if target not in outside and not may_alias_another(target, accesses, noalias)
    ]
    if not updated:
        return []
    aliasing = ElementAliasing(task)
    found = [(target, aliasing.sections(accesses[target])) for target in updated]
    return [
        (target, groups)
        for target, groups in found
        if len(groups) > 1 and _is_better(aliasing, accesses[target], groups)
    ]


def _is_better(
    aliasing: ElementAliasing, whole: Sequence[ops.Access], groups: Sequence[Sequence[ops.Access]]
) -> bool:
    """Whether one of some groups of accesses has cheaper updates than all of them together."""
    if aliasing.is_owned(whole):
        return False
    updates = [group for group in groups if any(isinstance(op, ops.Atomic) for op in group)]
    if any(map(aliasing.is_owned, updates)):
        return True
    return not _only_updates(whole) and any(map(_only_updates, updates))


def _only_updates(accesses: Sequence[ops.Access]) -> bool:
    return all(isinstance(op, ops.Atomic) for op in accesses)
