"""Marks tasks of few work items, whose threads may use more of a GPU each: CUDA.

A GPU has registers for a number of threads, which is smaller the more of them each uses. So
compilers use few: a thread loads, computes, and loads again into the same register, and waits each
time. That pays if there are other threads to run meanwhile. A launch of so few work items that all
of them fit whatever they use has none.
"""

from __future__ import annotations

from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.cooperative_tasks import ALL_REGISTERS
from octants.ir.core import Module

_ALL_REGISTERS = 8
"""The part of the work items of a busy GPU up to which threads use all registers: with half of
them, each thread has 32, so with an eighth 128, which is more than most kernels use."""


@staged("mark_short_tasks")
def mark_short_tasks(module: Module, fills: int) -> None:
    """Mark the parallel tasks that are known to be short, in place.

    Args:
        module: what is compiled.
        fills: how many work items the GPU needs to be busy.
    """
    for task in module.tasks:
        if task.is_parallel and ops.has_few_items(task, fills // _ALL_REGISTERS):
            task.options = {**task.options, ALL_REGISTERS: True}
