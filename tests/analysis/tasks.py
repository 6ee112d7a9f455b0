"""Lowered tasks for the tables of analyses: the body of a parallel loop over eight work items."""

from __future__ import annotations

import linecache
import textwrap
from typing import Any

import octants as qd
from octants.ir import ops
from octants.ir.core import Module, Task

LOOP = "for i in range(8)"


def module_of(body: str, loop: str = LOOP) -> Module:
    """A module whose loop, over i, has these statements.

    There are fields of floats x and y with 8 elements, z with 8 times 4, and integers p with 8.
    Arguments are the integers n and m, and the ndarray a with two axes.
    """
    qd.init(arch=qd.cpu, offline_cache=False, log_level="error")
    scope: dict[str, Any] = {"qd": qd}
    scope |= {name: qd.field(qd.f32, 8) for name in "xy"}
    scope |= {"z": qd.field(qd.f32, (8, 4)), "p": qd.field(qd.i32, 8)}
    head = f"@qd.kernel\ndef k(n: qd.i32, m: qd.i32, a: qd.types.ndarray()):\n    {loop}:\n"
    source = head + textwrap.indent(body.replace("; ", "\n"), " " * 8) + "\n"
    name = f"<analysis {loop} {body}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), scope)
    module: Module = scope["k"].specialise((3, 4, qd.ndarray(qd.f32, (5, 6)))).module
    return module


def task_of(body: str, loop: str = LOOP) -> Task:
    """The parallel task of `module_of`."""
    return next(task for task in module_of(body, loop).tasks if task.is_parallel)


def loop_of(body: str) -> ops.For:
    """The first serial loop of the task."""
    return next(op for op in task_of(body).body.walk() if isinstance(op, ops.For))
