"""Functions that a kernel must not call while it is compiled: their effect or result would be lost.

Python calls functions that take no run-time values when the kernel is compiled, and never again. A
field made then, a number drawn, or a time read would be the same in each launch.
"""

from __future__ import annotations

import sys
from typing import Any

_ON_THE_HOST = frozenset(
    """
    octants.api.init octants.api.reset octants.api.sync
    octants.data.field_factories.field octants.data.ndarray.ndarray octants.data.ndarray.array
    octants.data.ndarray.zeros octants.data.ndarray.from_numpy octants.data.tensor_factories.tensor
    octants.data.tree_roots.FieldsBuilder octants.types.structs.StructType.field
    octants.types.matrix_values.Vector.field octants.types.matrix_values.Vector.ndarray
    octants.types.matrix_values.Matrix.field octants.types.matrix_values.Matrix.ndarray
    """.split()
)
_CLOCKS = frozenset(
    f"{module}.{name}"
    for module, names in {
        "time": "time monotonic perf_counter process_time thread_time",
        "datetime": "datetime.now datetime.utcnow datetime.today date.today",
    }.items()
    for name in names.split()
)
_GENERATORS = {"random": ("Random",), "numpy.random": ("RandomState", "Generator")}
"""Classes of generators of random numbers, by the modules to look in if they are loaded."""


def way_out(function: Any) -> str:
    """The remedy for a function that kernels cannot call; "" if they can."""
    owner = getattr(function, "__self__", None)
    module = getattr(owner if isinstance(owner, type) else function, "__module__", "")
    name = f"{module}.{getattr(function, '__qualname__', '')}"
    if name in _ON_THE_HOST:
        return "call it on the host, outside of the kernel"
    if _is_generator(owner):
        return (
            "`qd.random()` draws a number whenever it is called;"
            " `qd.static(...)` around the call draws one while the kernel is compiled"
        )
    if name.removesuffix("_ns") in _CLOCKS:
        return "read the time on the host, and pass it as an argument"
    return ""


def _is_generator(instance: Any) -> bool:
    """Return whether an object draws random numbers."""
    return any(
        isinstance(instance, getattr(sys.modules[module], name))
        for module, names in _GENERATORS.items()
        if module in sys.modules
        for name in names
    )
