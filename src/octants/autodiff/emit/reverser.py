"""The interface of the backward sweep to the adjoint statements of operations."""

from __future__ import annotations

from typing import Protocol

from octants.autodiff.emit.adjoint_values import Adjoints
from octants.autodiff.emit.primal_operations import PrimalMemory
from octants.autodiff.emit.primal_values import PrimalValues
from octants.autodiff.emit.reverse_task_builder import EntryBuilder
from octants.autodiff.facts.task_facts import TaskFacts
from octants.ir.core import Operation


class Reverser(Protocol):
    """The part of `backward_sweep.Backward` that adjoint statements of operations use."""

    builder: EntryBuilder
    facts: TaskFacts
    values: PrimalValues
    memory: PrimalMemory
    adjoints: Adjoints
    derivative_ops: set[Operation]
