"""Finds the data races on which the derivative of a kernel depends.

They are those for an element of an array with a derivative, in a task that writes such arrays:
between two stores, unless the stored values have no derivative or are the same for all work items;
between a store and a read or an update; and between a read and an update. In reverse mode, races
with reads of other arrays matter too, because the reverse kernel repeats these reads.

The companion selects the mode: adjoint for reverse mode, tangent for forward mode.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.analysis.memory.races import OWN, Matters, RacePair, Races, matters_forward, races_of
from octants.autodiff.errors import racing
from octants.autodiff.facts.activity import ActivityFlow
from octants.autodiff.facts.cooperative_tasks import changes_something
from octants.ir import ops
from octants.ir.core import Array, Companion, Module, Operation, Task, Value


def gradient_races(module: Module, companion: Companion = Companion.ADJOINT) -> list[RacePair]:
    """The certain and possible races of a kernel on which its derivative depends."""
    found: list[RacePair] = []
    for task in module.tasks:
        if task.is_parallel and changes_something(task, _active(companion)):
            found += races_of(task, _matters(task, companion))
    return found


def launch_races(module: Module) -> list[RacePair]:
    """The certain and possible races of a kernel that make its results undefined."""
    return [race for task in module.tasks for race in races_of(task, matters_forward)]


def value_races(module: Module) -> list[RacePair]:
    """The `launch_races` for elements of arrays that have a derivative."""
    return [race for race in launch_races(module) if _active()(race.one.array)]


def stamps(
    module: Module, companion: Companion = Companion.ADJOINT
) -> Callable[[Operation], int | None]:
    """Identify what stores store, as far as derivatives go; see `passes.checks.watch_races.Stamp`.

    Args:
        module: the kernel.
        companion: the mode.

    Returns:
        A function of stores. It is 0 for values without a derivative, the same number for stores of
        one value that is uniform, and `OWN` for other stores, which all differ.
    """
    found: dict[Operation, int] = {}
    for task in module.tasks:
        varied = ActivityFlow(task.body).varied(_active(companion))
        races = Races(task)
        same: dict[Value, int] = {}
        for op in task.body.walk():
            if isinstance(op, ops.Store):
                found[op] = 0 if op.value not in varied else OWN
                if found[op] == OWN and races.is_same_everywhere(op.value):
                    found[op] = same.setdefault(op.value, len(same) + 1)
    return found.get


def refuse_races(module: Module, companion: Companion = Companion.ADJOINT) -> None:
    """Raise an error for a kernel that surely has a race on which its derivative depends.

    Raises:
        OctantsCompilationError: OCT303, with both accesses.
    """
    sure = [race for race in gradient_races(module, companion) if race.is_sure]
    if sure:
        raise racing(module.name, sure)


def _active(companion: Companion = Companion.ADJOINT) -> Callable[[Array], bool]:
    """A predicate: whether an array has a derivative in a mode."""
    return lambda array: array.dtype.is_float and array.has(companion)


def _matters(task: Task, companion: Companion) -> Matters:
    """A predicate: whether a race between two accesses changes the derivative of a task."""
    is_active = _active(companion)
    varied = ActivityFlow(task.body).varied(is_active)
    reads_again = companion is Companion.ADJOINT

    def matters(races: Races, one: ops.Access, other: ops.Access) -> bool:
        if isinstance(one, ops.Store) and isinstance(other, ops.Store):
            if not is_active(one.array) or races.store_the_same(one, other):
                return False
            return one.value in varied or other.value in varied
        return is_active(one.array) or (reads_again and isinstance(other, ops.Load))

    return matters
