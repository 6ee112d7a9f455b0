"""Kernels for `pickle` and cloudpickle: by reference where an import finds them, else by value.

Both arrive as kernels that are compiled where they are first launched: neither code nor results of
compilation travel. By value a kernel is its function, and the text that its source is read from.
"""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from octants.diagnostics.launch_errors import KernelNotImportable

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def reduce(kernel: Any, names: dict[str, Any]) -> Reduced:
    """What `Kernel.__reduce_ex__` gives; ``names`` are those that annotations refer to.

    Raises `OctantsRuntimeTypeError` for a kernel that no import finds, unless cloudpickle asks.
    """
    function = kernel.function
    module, path = function.__module__, function.__qualname__
    asker = sys._getframe(2).f_globals.get("__name__", "")
    by_value = "cloudpickle" in asker
    if _find(module, path) is kernel and not (by_value and module == "__main__"):
        return _find, (module, path)
    if not by_value:
        raise KernelNotImportable(kernel.name).at(None)
    file = function.__code__.co_filename
    source = file, tuple(linecache.getlines(file, function.__globals__))
    return _rebuild, (type(kernel), function, names, kernel.wants_graph, *source)


def _find(module: str, path: str) -> Any:
    """The kernel of a name in a module; None if there is none."""
    __import__(module)
    try:
        return functools.reduce(getattr, path.split("."), sys.modules[module])
    except AttributeError:  # `f.<locals>.k`, say
        return None


def _rebuild(
    kind: type[Any],
    function: FunctionType,
    names: dict[str, Any],
    wants_graph: bool,
    file: str,
    lines: tuple[str, ...],
) -> Any:
    """A kernel that travelled by value; its source is that of where it comes from."""
    if not linecache.getlines(file):
        linecache.cache[file] = (sum(map(len, lines)), None, list(lines), file)
    return kind(function, lambda: names, wants_graph=wants_graph)
