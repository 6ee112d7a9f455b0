"""The types of the language: what users reach as ``qd.types``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octants.deferred_import import names_of as _names_of
from octants.types import enums as enums
from octants.types import primitive_types as primitive_types
from octants.types.default_types import resolve
from octants.types.matrix_types import MatrixType as MatrixType
from octants.types.matrix_types import VectorType as VectorType
from octants.types.matrix_types import matrix as matrix
from octants.types.matrix_types import vector as vector
from octants.types.parameter_annotations import (
    NdarrayAnnotation,
    SparseMatrixBuilderAnnotation,
    Template,
)
from octants.types.parameter_annotations import ref as ref
from octants.types.structs import StructType as StructType
from octants.types.structs import struct as struct

template = Template
ndarray = NdarrayAnnotation
sparse_matrix_builder = SparseMatrixBuilderAnnotation


def is_integral(dtype: Any) -> bool:
    """Whether this is a type of integers; ``u1`` is one."""
    return not resolve(dtype).is_float


def is_real(dtype: Any) -> bool:
    """Whether this is a type of floats."""
    return resolve(dtype).is_float


def is_signed(dtype: Any) -> bool:
    """Whether this is a type of signed numbers."""
    return resolve(dtype).is_signed


def is_tensor(dtype: Any) -> bool:
    """Whether this is a type of vectors or matrices."""
    return isinstance(dtype, MatrixType)


if TYPE_CHECKING:
    from octants.types import quant as quant
    from octants.types.typing_stubs import *  # noqa: F403
else:
    from octants.types.primitive_types import *  # noqa: F403

    NDArray = NdarrayAnnotation
    __getattr__ = _names_of(__name__, submodules=("quant",))
