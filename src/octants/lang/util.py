"""``lang.util`` of the peers: conversions of types, and which libraries are installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from octants.deferred_import import Deferred
from octants.types.default_types import resolve as cook_dtype

_torch = Deferred("torch")


def has_pytorch() -> bool:
    """Whether torch is installed."""
    return importlib.util.find_spec("torch") is not None


def has_paddle() -> bool:
    """False: Octants takes Paddle's arrays by DLPack only."""
    return False


def to_numpy_type(dtype: Any) -> type:
    """The type of numpy that holds the numbers of a scalar type."""
    kind: type = cook_dtype(dtype).numpy.type
    return kind


def to_pytorch_type(dtype: Any) -> Any:
    """The type of torch that holds the numbers of a scalar type."""
    return getattr(_torch, cook_dtype(dtype).numpy.name)


def to_quadrants_type(dtype: Any) -> Any:
    """The scalar type of numbers of a type of numpy or torch."""
    is_torch = str(dtype).startswith("torch.")
    return cook_dtype(np.dtype(str(dtype).rpartition(".")[2]) if is_torch else dtype)


to_taichi_type = to_quadrants_type
