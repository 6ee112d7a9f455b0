"""Sparse blocks of field trees in kernels.

A block is what ``root.pointer(...)``, ``bitmasked(...)`` or ``dynamic(...)`` gave, or
``x.parent()`` of a field that is placed in it. A list or a vector of indices in the block names a
cell.
"""

from __future__ import annotations

from typing import Any

from octants.lang.directives import grouped, loop_config, ndrange
from octants.lang.library_function_marks import kernel_only, library_function
from octants.lang.scalar_functions import min as min_


@kernel_only
def activate(node: Any, indices: Any) -> None:
    """Activate the cell `indices` of the sparse block `node`, and the cells that it is in.

    `node` is a block of a field tree, such as ``x.parent()``; `indices` is a list or a vector of
    integers. A write to a cell activates it, too.
    """


@kernel_only
def deactivate(node: Any, indices: Any) -> None:
    """Deactivate a cell: what is in it becomes zero, and cells of sparse blocks in it inactive.

    `node` and `indices` are those of `activate`. For a dynamic block, the indices are those of the
    cell that the list is in, which becomes empty.
    """


@kernel_only
def is_active(node: Any, indices: Any) -> Any:
    """1 if the cell `indices` of the sparse block `node` is active, else 0, as an i32."""


@kernel_only
def append(node: Any, indices: Any, val: Any) -> Any:
    """Append to the list of a dynamic block; gives the position in the list, as an i32.

    Args:
        node: A dynamic block in which one field is placed.
        indices: The cell that the list is in: all indices of the field but that of the list.
        val: What is stored at the new position.

    Returns:
        The length before. Where the list is full nothing is stored, and the next synchronisation
        raises an error.
    """


@kernel_only
def length(node: Any, indices: Any) -> Any:
    """The length of the list of a dynamic block `node` in the cell `indices`, as an i32."""


@kernel_only
def no_activate(*fields: Any) -> None:
    """Accepted as a hint that writes to some fields go to active cells; changes nothing."""


# -- what kernels do with activities ---------------------------------------------------------------

SEGMENT = 256
"""The cells of which one work item counts and lists the active ones."""


@kernel_only
def _cell_of(number: Any, parents: Any, level: Any) -> Any:
    """The number of a cell, for one that is counted through all cells of listed parents."""


@kernel_only
def _element_of(number: Any, position: Any, level: Any) -> Any:
    """The number of the cell at a position of a list."""


@library_function
def _list_active(
    flags: Any, parents: Any, level: Any, candidates: Any, starts: Any, cells: Any, count: Any
) -> None:
    """List the active ones of some cells in ascending order: count, sum up, and write.

    `candidates` is the number of cells that lie in the listed cells of `parents`.
    """
    for s in range((candidates + SEGMENT - 1) // SEGMENT):
        active = 0
        for k in range(s * SEGMENT, min_(candidates, (s + 1) * SEGMENT)):
            active += flags[_cell_of(k, parents, level)]
        starts[s] = active
    total = 0
    loop_config(serialize=True)
    for s in range((candidates + SEGMENT - 1) // SEGMENT):
        active = starts[s]
        starts[s] = total
        total += active
    count[0] = total
    for s in range((candidates + SEGMENT - 1) // SEGMENT):
        position = starts[s]
        for k in range(s * SEGMENT, min_(candidates, (s + 1) * SEGMENT)):
            cell = _cell_of(k, parents, level)
            if flags[cell] != 0:
                cells[position] = cell
                position += 1


@library_function
def _list_elements(
    lengths: Any,
    most: Any,
    parents: Any,
    level: Any,
    candidates: Any,
    starts: Any,
    cells: Any,
    count: Any,
) -> None:
    """List the elements of the lists of a dynamic block, of ``most`` cells each, in order."""
    total = 0
    loop_config(serialize=True)
    for s in range(candidates):
        starts[s] = total
        total += min_(lengths[_cell_of(s, parents, level)], most)
    count[0] = total
    for s in range(candidates):
        number = _cell_of(s, parents, level)
        position = starts[s]
        for k in range(min_(lengths[number], most)):
            cells[position + k] = _element_of(number, k, level)


@kernel_only
def _clear_contents(info: Any, cell: Any, extents: Any) -> None:
    """Set everything in a cell to zero."""


@library_function
def _deactivate_cell(flags: Any, number: Any, info: Any, cell: Any, extents: Any) -> None:
    flags[number] = 0
    _clear_contents(info, cell, extents)


@library_function
def _clear_elements(array: Any, first: Any, block: Any) -> None:
    """Set the elements from an index on to zero."""
    for I in grouped(ndrange(*block)):  # noqa: E741, N806
        array[first + I] = 0


@kernel_only
def _number_of(index: Any, extents: Any) -> Any:
    """The row-major number of an index."""


@library_function
def _clear_activity(activity: Any, first: Any, block: Any, extents: Any) -> None:
    for I in grouped(ndrange(*block)):  # noqa: E741, N806
        activity[_number_of(first + I, extents)] = 0
