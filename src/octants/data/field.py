"""Fields: arrays that belong to the program, placed in trees of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from octants.data import current_runtime, torch_and_dlpack_conversion, tree
from octants.data.array_base import Array, E, Tensor
from octants.data.axes import i
from octants.data.companion_assignment import refuses_assignment
from octants.data.component_views import ComponentField, HasNoComponents, check_component
from octants.data.errors import MissingCompanion, NotPlaced, TreeIsAllocated
from octants.data.host_element_access import ElementRange, HostWindow
from octants.data.tree import COMPANION_WORDS, PlaceNode, SNode
from octants.data.tree_allocation import allocate
from octants.deferred_import import Deferred
from octants.internal_members import internal
from octants.runtime.device import Device
from octants.types.companions import Companion
from octants.types.layouts import Layout
from octants.types.scalars import DType, i32
from octants.types.sparsity import Sparsity
from octants.types.specialisation_signature import FieldHandle

if TYPE_CHECKING:
    from typing_extensions import Self

    from octants.data import sparse_blocks
    from octants.diagnostics import sparse_block_errors
else:
    sparse_blocks = Deferred("octants.data.sparse_blocks")
    sparse_block_errors = Deferred("octants.diagnostics.sparse_block_errors")

PRIMAL, ADJOINT, TANGENT = Companion.PRIMAL, Companion.ADJOINT, Companion.TANGENT

_COMPOSED = {
    (ADJOINT, TANGENT): Companion.ADJOINT_TANGENT,
    (TANGENT, ADJOINT): Companion.ADJOINT_TANGENT,
}


@refuses_assignment
class Field(Tensor[E], FieldHandle):
    """An array that is placed in a tree of blocks: made by `field`, ``Vector.field``, ...

    Kernels use it as a global name, or as the argument of a ``template()`` parameter.
    """

    _kind = "field"
    has_own_blocks = False
    """Whether a shape placed the field: then only `lazy_grad` can still give it a companion."""

    def __init__(
        self,
        dtype: DType,
        element_shape: tuple[int, ...] = (),
        name: str = "",
        needed: tuple[Companion, ...] = (),
        primal: Field | None = None,
        companion: Companion = PRIMAL,
    ) -> None:
        super().__init__()
        if primal is not None:
            self.explicit_identity = None
        self.dtype = dtype
        self.element_shape = element_shape
        self.name = name
        self.needed = needed
        self.companion = companion
        self.place_nodes: dict[tuple[int, ...] | None, PlaceNode] = {}
        self._primal = primal  # None for a primal: a reference to itself would keep it alive
        self._companions: dict[Companion, Field] = {}
        self._layout: Layout | None = None
        self._sparsity_of_memory: Sparsity | None = None
        self._runtime = current_runtime.runtime()
        self._runtime.register(self)

    def __copy__(self) -> Field:
        return self  # another object of the same memory would be an alias, too

    # -- companions -----------------------------------------------------------------------------

    @property
    def primal(self) -> Field:
        """The field whose gradient or dual this is; itself if it is neither."""
        return self if self._primal is None else self._primal

    @property
    @internal
    def is_exported(self) -> bool:
        """See `FieldHandle.is_exported`."""
        return self.primal.explicit_identity is None

    def companion_array(self, companion: Companion) -> Field | None:
        """The companion, which may not be placed; None where the type has none."""
        known = self._companions.get(companion)
        if known is not None:
            return known
        if companion is PRIMAL:
            return self
        if not self.dtype.is_float:
            return None
        if self.companion is not PRIMAL:
            composed = _COMPOSED.get((self.companion, companion))
            return None if composed is None else self.primal.companion_array(composed)
        made = type(self)(
            self.dtype, self.element_shape, self.name, (), primal=self, companion=companion
        )
        self._companions[companion] = made
        return made

    @property
    def grad(self) -> Self | Any:
        """The field of the gradient; None if there is none.

        Of a field that was made without a shape, it can be placed until the field is first used:
        till then this is a field without memory. `has_grad` reports whether it has any.
        """
        return self._companion_if_possible(ADJOINT)

    @property
    def dual(self) -> Self | Any:
        """The field of the derivative of forward mode; None as for `grad`."""
        return self._companion_if_possible(TANGENT)

    def _companion_if_possible(self, companion: Companion) -> Field | None:
        """A companion that is placed, or can still be: until the field gets its memory."""
        found = self.companion_array(companion)
        if found is None or found.place_nodes or companion in self.needed:
            return found
        is_too_late = self.primal.has_own_blocks or self.primal._layout is not None
        return None if is_too_late else found

    def has_grad(self) -> bool:
        """Whether a gradient is placed, or will be."""
        return self._has(ADJOINT)

    def has_dual(self) -> bool:
        """Whether a dual is placed, or will be."""
        return self._has(TANGENT)

    def _has(self, companion: Companion) -> bool:
        found = self.companion_array(companion)
        return found is not None and (companion in self.needed or bool(found.place_nodes))

    # -- place ----------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The extent of each axis; an error if the field is not placed."""
        return self._layout.shape if self._layout is not None else self._place_node().shape

    @property
    def snode(self) -> PlaceNode | None:
        """The place node of the field in its tree; None if it is not placed."""
        return next(iter(self.place_nodes.values()), None)

    @property
    def device(self) -> int:  # type: ignore[override]
        """The number of the device that the memory is on; that of `init` until it is placed."""
        place = self.primal.snode
        return self._runtime.device.number if place is None else place.tree.device.number

    def parent(self, n: int = 1) -> SNode | None:
        """The block that the field is placed in; for larger n, the block that is in, and so on."""
        return None if self.snode is None else self.snode.parent(n)

    @internal
    def note_placed(self, offset: tuple[int, ...] | None) -> None:
        """Take notice of being placed; `tree.SNode.place` calls this."""
        if offset is not None and any(offset):
            self.offset = offset

    @internal
    def require_placeable(self) -> None:
        """An error if it is too late to place this; `tree.SNode.place` calls this."""
        self.require_alive()
        if self.companion is not PRIMAL and self.primal._layout is not None:
            raise TreeIsAllocated(f"placing the {self.describe()}").at()

    def _place_node(self) -> PlaceNode:
        if self.snode is not None:
            return self.snode
        if self.companion in self.primal.needed:
            return self.primal._place_node()  # will be placed like that when the tree is allocated
        self.require_alive()
        raise self._missing().at()

    def _missing(self) -> Any:
        """The error for a field or companion that is used, but placed nowhere."""
        if self.companion is PRIMAL:
            return NotPlaced(self.describe())
        words = COMPANION_WORDS[self.companion]
        return MissingCompanion(self.primal.describe(), *words)

    def describe(self) -> str:
        """The field in the words of a message."""
        if self.companion is PRIMAL:
            return super().describe()
        return f"{COMPANION_WORDS[self.companion][0]} of {self.primal.describe()}"

    # -- sparse blocks --------------------------------------------------------------------------

    @property
    @internal
    def sparsity(self) -> Sparsity | None:
        """The sparse blocks that the field is placed in; None if all are dense."""
        place = self.primal.snode
        if place is None or place.above is None:
            return None
        return sparse_blocks.sparsity_of(place.above, self.primal.offset)

    def active_elements(self) -> Array | None:
        """Whether each element is in an active cell, if it is a sparse field; None for others."""
        sparsity = self._sparsity_of_memory
        return None if sparsity is None else sparse_blocks.active_elements(sparsity)

    def _activate(self, values: Any, region: ElementRange) -> Any:
        """Activate the cells that the element at a region is in; leave out inactive cells where all
        elements are written.
        """
        sparsity = self._sparsity_of_memory
        if sparsity is None:
            return values
        if region:
            sparse_blocks.activate(sparsity, region[: len(sparsity.shape)])
            return values
        return sparse_blocks.only_active(sparsity, values, len(self.element_shape))

    def require_shareable(self) -> None:
        """An error if other libraries cannot get the memory itself."""
        if self.sparsity is not None:
            raise sparse_block_errors.SparseMemory(self.describe()).at()

    # -- memory ---------------------------------------------------------------------------------

    def _open(self) -> HostWindow:
        tree = self._place_node().tree
        with self._runtime.lock:
            if self._opened is None:
                allocate(self, tree)
        assert self._opened is not None
        return self._opened

    @internal
    def settle(self, window: HostWindow, layout: Layout) -> None:
        """Take the memory that `allocate` gives."""
        self._opened, self._layout = window, layout
        current_runtime.note_change()
        self._sparsity_of_memory = self.sparsity
        self._is_sparse = self._sparsity_of_memory is not None

    @internal
    def layouts(self) -> Mapping[Companion, Layout]:
        """The layout of every companion that exists; allocates the field if it is not yet."""
        self.window()
        found = {PRIMAL: self, **(self._companions if self.companion is PRIMAL else {})}
        placed = {kind: each for kind, each in found.items() if each.place_nodes}
        for each in placed.values():
            each.window()
        return {kind: each._layout for kind, each in placed.items() if each._layout is not None}

    @internal
    def address(self, companion: Companion) -> int:
        """The address of the first element of the field, or of a companion."""
        found = self.companion_array(companion)
        if found is None:
            words = COMPANION_WORDS[companion]
            raise MissingCompanion(self.describe(), *words).at()
        return found.window().address

    def __repr__(self) -> str:
        if self._end is not None:
            return f"<qd.{self.describe()}, no longer usable>"
        if not self.place_nodes:
            return f"<qd.{self.describe()}, not placed>"
        return f"<qd.{self.describe()}, {self.shape}{self.values_text()}>"


class ScalarField(Field[E]):
    """A field of numbers."""

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)


class MatrixField(HasNoComponents, Field[E]):
    """A field of vectors or matrices."""

    @property
    def n(self) -> int:
        """The number of rows, or of a vector's elements."""
        return self.element_shape[0]

    @property
    def m(self) -> int:
        """The number of columns; 1 for vectors."""
        return self.element_shape[1] if len(self.element_shape) == 2 else 1

    @property
    def ndim(self) -> int:
        """1 for vectors, 2 for matrices."""
        return len(self.element_shape)

    def get_scalar_field(self, *indices: int) -> ComponentField:
        """One component of all elements, as an array of its own on the host; it can be placed."""
        return ComponentField(self, check_component(self, indices))

    def to_numpy(  # type: ignore[override]
        self, keep_dims: bool = False, dtype: Any = None, *, copy: bool = True
    ) -> Array:
        """The elements as a numpy array of `shape` + `element_shape`; see `Tensor.to_numpy`.

        A single column is left out, with `keep_dims` it is not, and vectors get one.
        """
        values = super().to_numpy(dtype, copy=copy)
        if keep_dims:
            return values[..., np.newaxis] if self.ndim == 1 else values
        return values[..., 0] if self.ndim == 2 and self.m == 1 else values

    def to_torch(self, device: Any = None, keep_dims: bool = False, *, copy: bool = True) -> Any:
        """The elements as a torch tensor on `device`; see `to_numpy` and `Tensor.to_torch`.

        `copy` is that of `Tensor.to_torch`.
        """
        if copy:
            return torch_and_dlpack_conversion.to_torch(self.to_numpy(keep_dims), device)
        tensor = self._share_torch(device)
        if keep_dims:
            return tensor.unsqueeze(-1) if self.ndim == 1 else tensor
        return tensor[..., 0] if self.ndim == 2 and self.m == 1 else tensor


def _make_activity(name: str, count: int, device: Device) -> ScalarField:
    made = ScalarField(i32, name=name)
    tree.Tree(current_runtime.runtime(), device=device).root.dense(i, count).place(made)
    return made


tree.make_activity = _make_activity
