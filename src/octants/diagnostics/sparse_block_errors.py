"""Errors about sparse blocks of field trees."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsTypeError,
    OctantsValueError,
)


class WrongBlock(UserError):
    """A function of sparse blocks was called with something else."""

    function: str
    wanted: str
    given: str
    code = "OCT250"
    exception = OctantsTypeError
    title = "`{function}` takes {wanted}, not {given}"
    label = "called here"
    remedy = "pass the block itself, or `x.parent()` of a field that is placed in it"


class WrongCell(UserError):
    """A cell of a block was named by too few or too many indices."""

    function: str
    wanted: int
    given: str
    block: str
    code = "OCT251"
    exception = OctantsTypeError
    title = "`{function}` takes {wanted} integer index(es) of a cell of `{block}`; given: {given}"
    label = "called here"
    remedy = (
        "`qd.rescale_index(x, block, I)` makes the cell of a block from the index of an element"
    )


class NestedSparseLoop(UserError):
    """A loop over a sparse field stands inside of another loop or a condition."""

    what: str
    code = "OCT252"
    title = "a loop over {what} must be at the top level of the kernel: it lists the active cells"
    label = "this loop"
    remedy = "move it to the top level, or loop over all indices and test `qd.is_active`"


class TooManyCells(UserError):
    """A sparse block has more cells than can be listed."""

    kind: str
    cells: int
    most: int
    code = "OCT253"
    exception = OctantsValueError
    title = "a {kind} block has {cells} cells in all; it can have at most {most}"
    remedy = "put larger dense blocks into fewer sparse cells"


class SparseCompanion(UserError):
    """A gradient or dual was placed in a sparse block in which its field is not."""

    what: str
    code = "OCT254"
    title = "the {what} is placed in a sparse block in which the field itself is not"
    remedy = "place it beside its field, in a dense block, or by `needs_grad=True`"


class SparseMemory(UserError):
    """The memory of a sparse field was to be shared."""

    what: str
    code = "OCT255"
    exception = OctantsValueError
    title = "the memory of {what} cannot be shared: the field is sparse, and writes activate cells"
    remedy = "copy it by `to_numpy()` and `from_numpy()`"
