"""Hooks by which `types` makes the arrays of `data`, for ``Vector.field`` and ``S.field``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FACTORIES: dict[str, Callable[..., Any]] = {}
"""By the kind of what is made: "field", "ndarray", "tensor", "struct_field" and "quant_array".

``FACTORIES["field"](dtype, shape, *, element_shape=(n,) or (n, m), **options)``, and the same for
"ndarray" and "tensor"; ``FACTORIES["struct_field"](struct_type, shape, **options)``;
``FACTORIES["quant_array"](block, axes, dimensions, max_num_bits)``.
"""


def make(kind: str, *args: Any, **options: Any) -> Any:
    """Call a factory; the packages that register them are imported with `octants`."""
    return FACTORIES[kind](*args, **options)
