"""The arrays of the kernel that is being built, and where each comes from."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from octants.frontend.values.expression_values import ArrayReference, MatrixValue, StructValue
from octants.ir.builder import Builder
from octants.ir.core import Array, Block, Companion, Operation, Space, Value
from octants.types.layouts import STRIDED, Layout, Term
from octants.types.scalars import DType
from octants.types.specialisation_signature import (
    ArgumentSource,
    ArgumentType,
    ArraySource,
    FieldHandle,
    FieldSource,
    NdarrayHandle,
    NdarrayType,
    ReturnSource,
    ScalarType,
    SharedSource,
    StructArgument,
    TemplateValue,
    TemporarySource,
)


class Arrays:
    """Makes arrays on demand; `arrays` and `sources` are parallel.

    Scalar arguments are loaded in `entry`, which comes before all else of the kernel.
    """

    def __init__(self, builder: Builder) -> None:
        self.arrays: list[Array] = []
        self.sources: list[ArraySource] = []
        self.entry = Block()
        self.extents: set[Value] = set()  # the values that are known to be extents of arrays
        self.clamped: set[Array] = set()  # indices of these are clamped to their extents
        self._builder = builder
        self._fields: dict[int, ArrayReference] = {}
        self._names: set[str] = set()

    def field(self, handle: FieldHandle | NdarrayHandle, name: str = "") -> ArrayReference:
        """The array of a field, or of an ndarray that was found as a field is; one for each."""
        known = self._fields.get(id(handle))
        if known is None:
            array = Array(
                self._name(getattr(handle, "name", "") or name or "field"),
                handle.dtype,
                len(handle.shape),
                Space.FIELD,
                tuple(handle.element_shape),
                dict(handle.layouts()),
                exported=handle.is_exported,
            )
            known = ArrayReference(self._add(array, FieldSource(handle)), handle=handle)
            self._fields[id(handle)] = known
        return known

    def argument(self, kind: ArgumentType, name: str, source: ArgumentSource) -> Any:
        """The value of a kernel's parameter; that of a template is returned as it is."""
        if isinstance(kind, TemplateValue):
            return kind.value
        if isinstance(kind, StructArgument):
            members = {
                member: self.argument(
                    inner,
                    f"{name}_{member}",
                    ArgumentSource(source.position, (*source.path, member)),
                )
                for member, inner in kind.members
            }
            return StructValue(members, kind.python_type)
        if isinstance(kind, NdarrayType):
            array = Array(
                self._name(name), kind.dtype, kind.rank, Space.NDARRAY, kind.element_shape
            )
            array.layouts = dict.fromkeys(kind.companions, STRIDED if kind.strided else None)
            if kind.clamped:
                self.clamped.add(array)
            return ArrayReference(self._add(array, source), handle=kind)
        return self._scalar(kind, name, source)

    def _scalar(self, kind: ScalarType, name: str, source: ArgumentSource) -> Any:
        array = self._plain(name, kind.dtype, Space.ARGUMENT, kind.element_shape, source)
        with self._builder.into(self.entry):
            return _load_all(self._builder, array)

    def temporary(
        self,
        name: str,
        dtype: DType,
        element_shape: tuple[int, ...],
        *,
        is_zeroed: bool = True,
    ) -> ArrayReference:
        """Launch-temporary memory for a variable."""
        source = TemporarySource(is_zeroed)
        array = self._plain(name, dtype, Space.TEMPORARY, element_shape, source)
        return ArrayReference(array)

    def shared(
        self, name: str, dtype: DType, shape: tuple[int, ...], element_shape: tuple[int, ...]
    ) -> ArrayReference:
        """An array of which each block of work items has its own: row-major, elements together."""
        extents, rank = (*shape, *element_shape), len(shape)
        strides = [dtype.size * math.prod(extents[k + 1 :]) for k in range(len(extents))]
        terms = tuple(Term(axis, 1, 0, strides[axis]) for axis in range(rank))
        layout = Layout(shape, terms, tuple(strides[rank:]))
        array = Array(self._name(name), dtype, rank, Space.SHARED, element_shape)
        array.layouts[Companion.PRIMAL] = layout
        return ArrayReference(self._add(array, SharedSource()))

    def drop_unused_shared(self, body: Block) -> None:
        """Forget the arrays of blocks that only attempts to build a loop have made."""
        used = {op.array for op in body.walk() if hasattr(op, "array")}
        self._drop(
            {each for each in self.arrays if each.space is Space.SHARED and each not in used}
        )

    @contextmanager
    def tentative_fields(self) -> Iterator[None]:
        """Forget at the end of a ``with`` the fields that were first used in it."""
        before = set(self._fields)
        try:
            yield
        finally:
            new = self._fields.keys() - before
            if new:
                self._drop({self._fields.pop(key).array for key in new})

    def _drop(self, dropped: set[Array]) -> None:
        pairs = zip(self.arrays, self.sources, strict=True)
        kept = [pair for pair in pairs if pair[0] not in dropped]
        self.arrays[:] = [array for array, _ in kept]
        self.sources[:] = [source for _, source in kept]

    def returned(self, position: int, kind: ScalarType) -> ArrayReference:
        """The memory of a return value."""
        source = ReturnSource(position)
        array = self._plain(
            f"return_{position}", kind.dtype, Space.RETURN, kind.element_shape, source
        )
        return ArrayReference(array)

    def _plain(
        self,
        name: str,
        dtype: DType,
        space: Space,
        element_shape: tuple[int, ...],
        source: ArraySource,
    ) -> Array:
        array = Array(self._name(name), dtype, 0, space, element_shape, {Companion.PRIMAL: None})
        return self._add(array, source)

    def _add(self, array: Array, source: ArraySource) -> Array:
        self.arrays.append(array)
        self.sources.append(source)
        return array

    def _name(self, wanted: str) -> str:
        base = re.sub(r"\W", "_", wanted.lstrip("$")) or "array"
        name, number = base, 1
        while name in self._names:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        return name

    def used_entry(self, body: Block) -> list[Operation]:
        """The operations of `entry` that the body needs."""
        used = body.used()
        kept: list[Operation] = []
        for op in reversed(self.entry.ops):
            if any(value in used for value in op.results):
                used.update(op.operands)
                kept.append(op)
        return kept[::-1]


def _load_all(builder: Builder, array: Array) -> Any:
    shape = array.element_shape
    if not shape:
        return builder.load(array, [])
    columns = shape[1] if len(shape) == 2 else 1
    elements: list[Value] = []
    for k in range(shape[0] * columns):
        position = (k // columns, k % columns) if len(shape) == 2 else (k,)
        elements.append(builder.load(array, [builder.index(axis) for axis in position]))
    return MatrixValue(shape, elements)
