"""Check what a cooperative task needs against the machine's limits."""

from __future__ import annotations

from octants.codegen.numbers_as_bits import word_of
from octants.diagnostics.cooperation_errors import WrongSharedArray
from octants.diagnostics.exceptions import InternalError
from octants.ir.cooperative_tasks import shared_array_refs, sizes, words
from octants.ir.core import Task
from octants.target import Blocks


def check(task: Task, blocks: Blocks) -> None:
    """Raise an error if a task's block or its shared arrays exceed the machine's limits."""
    size, limit = blocks.subgroup_size, blocks.shared_bytes
    if sizes(task)[1] != size:
        raise InternalError(f"{task.name}: subgroups of {sizes(task)[1]}, not {size}")
    taken = sum(words(array) * word_of(array.dtype).size for array, _ in shared_array_refs(task))
    if taken > limit:
        problem = f"this loop has {taken} bytes of them, and a block can have {limit} here"
        way_out = "tangents take as much as what they are of, and no number less than 4 bytes"
        raise WrongSharedArray(problem, f"use fewer elements: {way_out}").at(task.location)
