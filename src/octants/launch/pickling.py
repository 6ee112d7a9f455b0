"""Pickles kernels, for `pickle` and cloudpickle: by reference if importable, else by value.

In both cases the kernel is compiled where it is first launched: no compiled code or results are
pickled. By value, a pickled kernel is its function and its source text.
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
    """The result of `Kernel.__reduce_ex__`; ``names`` are those that annotations refer to.

    Raises:
        OctantsRuntimeTypeError: the kernel cannot be imported, and the caller is not cloudpickle.
    """
    function = kernel.function
    module, path = function.__module__, function.__qualname__
    asker = sys._getframe(2).f_globals.get("__name__", "")
    by_value = "cloudpickle" in asker
    if _find(module, path) is kernel and not (by_value and module == "__main__"):
        return _find, (module, path)
    if not by_value:
        raise KernelNotImportable(kernel.name).at()
    file = function.__code__.co_filename
    source = file, tuple(linecache.getlines(file, function.__globals__))
    return _rebuild, (type(kernel), function, names, kernel.wants_graph, *source)


def _find(module: str, path: str) -> Any:
    """The kernel with a name in a module; None without one."""
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
    """Unpickle a kernel that was pickled by value, with its source text."""
    if not linecache.getlines(file):
        linecache.cache[file] = (sum(map(len, lines)), None, list(lines), file)
    return kind(function, lambda: names, wants_graph=wants_graph)
