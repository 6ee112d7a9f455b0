"""Sparse fields from the host: grids, their usage, deactivation of everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octants.api import kernel
from octants.data.axes import axes
from octants.data.errors import WrongExtents, describe
from octants.data.struct_field import StructField
from octants.data.tree import SNode
from octants.data.tree_roots import root
from octants.diagnostics.sparse_block_errors import WrongBlock
from octants.lang import sparse
from octants.lang.directives import grouped, template
from octants.types.structs import Struct

__all__ = ["grid", "usage"]


def grid(field_dict: Mapping[str, Any], shape: Any) -> Any:
    """A field of structs in a `bitmasked` block: each element is active or not.

    Args:
        field_dict: The members of the structs, by name: types of scalars, vectors, matrices.
        shape: The number of elements along each axis.

    Returns:
        The field.
    """
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    if not extents:
        raise WrongExtents("sparse.grid()", describe(shape), 1).at()
    made = Struct.field(field_dict)
    root.bitmasked(axes(*range(len(extents))), extents).place(made)
    return made


def usage(x: Any) -> float:
    """The share of elements of a sparse field that lie in active cells, from 0 to 1.

    Args:
        x: A field of any element type in sparse blocks.

    Raises:
        OctantsTypeError: it is not in a sparse block.
    """
    first = next(x.leaves()) if isinstance(x, StructField) else x
    sparsity = getattr(first, "sparsity", None)
    if sparsity is None:
        raise WrongBlock("sparse.usage", "a field in sparse blocks", describe(x)).at()
    level = sparsity.levels[-1]
    return int(level.activity.to_numpy().sum()) / int(level.count)


@kernel
def _deactivate_cells(block: template()) -> None:  # type: ignore[valid-type]
    for cell in grouped(block):
        sparse.deactivate(block, cell)


@kernel
def _empty_lists(block: template(), above: template()) -> None:  # type: ignore[valid-type]
    for cell in grouped(above):
        sparse.deactivate(block, cell)


@kernel
def _empty_list(block: template()) -> None:  # type: ignore[valid-type]
    sparse.deactivate(block, [])


def deactivate(block: SNode) -> None:
    """Deactivate all cells of a sparse block; `octants.data.tree.deactivate_cells`."""
    above = block.above
    if block.kind != "dynamic":
        _deactivate_cells(block)
    elif above is None or above.above is None:
        _empty_list(block)
    else:
        _empty_lists(block, above)
