"""Python objects in kernels: fields and ndarrays become arrays, structs become values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from octants.diagnostics.errors import MissingCompanion
from octants.frontend.context import Context
from octants.frontend.memory import quantised_fields
from octants.frontend.values.expression_values import ArrayReference, StructValue
from octants.ir.core import Companion
from octants.types.compile_time_reads import Read
from octants.types.specialisation_signature import (
    FieldHandle,
    NdarrayHandle,
    QuantHandle,
    StructHandle,
)
from octants.types.structs import Struct


def wrap(context: Context, found: Any, label: str) -> Any:
    """A Python object as the frontend sees it: fields and ndarrays become arrays of the kernel."""
    if isinstance(found, (FieldHandle, NdarrayHandle)):
        return _wrap_field(context, found, label)
    if isinstance(found, QuantHandle):
        return quantised_fields.reference(_wrap_field(context, found.words, label), found)
    if isinstance(found, StructHandle):
        members = {key: wrap(context, x, f"{label}_{key}") for key, x in found.members.items()}
        return StructValue(members, found.python_type)
    if isinstance(found, Struct):
        members = {key: wrap(context, found[key], f"{label}_{key}") for key in found.keys}
        return StructValue(members, found.struct_type or found)
    if isinstance(found, StructValue):  # an argument, with templates among its members
        members = {key: wrap(context, x, f"{label}_{key}") for key, x in found.members.items()}
        return StructValue(members, found.python_type)
    return found


def _wrap_field(context: Context, found: FieldHandle | NdarrayHandle, label: str) -> ArrayReference:
    """A field, or a companion of one: ``x.grad`` as a global or an argument is `x`'s adjoint."""
    context.reads.append(Read("field", found.primal, label, found.primal))
    reference = context.arrays.field(found.primal, label)
    if reference.array not in context.active.of_array:
        sparsity = found.primal.sparsity
        if sparsity is not None:
            context.active.of_array[reference.array] = sparsity
    if not reference.array.has(found.companion):
        attr = "grad" if found.companion is Companion.ADJOINT else "dual"
        context.fail(MissingCompanion(reference.array.name, attr))
    return replace(reference, companion=found.companion)
