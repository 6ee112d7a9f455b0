"""Makes the values that a kernel returns of the flat numbers that its launch gives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from octants.types.matrix_values import Matrix, Vector
from octants.types.specialisation_signature import ScalarType, StructArgument


def next_value(kind: Any, left: Iterator[Any]) -> Any:
    """Make a number, vector, matrix or struct of the next of the numbers that are left."""
    if isinstance(kind, StructArgument):
        return kind.python_type(**{name: next_value(member, left) for name, member in kind.members})
    return make_value(kind, list(itertools.islice(left, math.prod(kind.element_shape))))


def make_value(kind: ScalarType, flat: Sequence[Any]) -> Any:
    """Make a number, vector or matrix of its components."""
    shape = kind.element_shape
    if not shape:
        return flat[0]
    cls = Vector if len(shape) == 1 else Matrix
    return cls.of(np.array(flat, kind.dtype.numpy).reshape(shape), kind.dtype)
