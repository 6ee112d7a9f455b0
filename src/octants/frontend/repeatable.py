"""Which calls of Python, made while a kernel is built, give the same whenever they are made.

What a kernel reads is noted, and a kernel that would read the same is the same kernel. A call of a
function that may look at anything else - a file, the time, an object that does as it likes - makes
an end of that: such a kernel is built anew by each process.
"""

from __future__ import annotations

import builtins
import enum
import math
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from octants.types.matrix_types import MatrixType
from octants.types.matrix_values import Matrix
from octants.types.reads import ABSENT
from octants.types.scalars import DType

_CONTAINERS = (list, tuple, dict, str, range, zip, enumerate, reversed)
_ITERABLES: tuple[Any, ...] = (
    [],
    (),
    {},
    "",
    "ä",
    range(0),
    range(1 << 70),
    {}.values(),
    {}.items(),
)
_ITERATORS = (
    *(type(iter(each)) for each in _ITERABLES),
    type(reversed([0])),
    *(type(view) for view in ({0: 0}.keys(), {0: 0}.values(), {0: 0}.items())),
)
_ARRANGING = frozenset((zip, enumerate, reversed, tuple, list, range, len, isinstance, issubclass))
"""These look at the containers that they are given, not at what is in them."""

_FUNCTIONS = frozenset(
    getattr(builtins, name)
    for name in "abs all any ascii bool dict divmod float format int max min pow repr round"
    " sorted str sum type".split()
)
_OF_NUMPY = frozenset(
    getattr(np, name)
    for name in "arange array asarray cross diag dot eye full identity linspace ones outer"
    " zeros".split()
)
_METHODS = frozenset("count format get index items join keys lower upper values".split())
_NUMBERS = (bool, int, float, complex, str, bytes, type(None), np.generic, DType, enum.Enum)
_OURS = ("octants.types.", "octants.lang.", "octants.frontend.", "octants.ir.")
_DEEPEST = 8


def is_repeatable(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether a call depends on nothing but the values of its arguments, and does nothing else."""
    if not _is_known(function):
        return False
    if function in _ARRANGING:
        return all(map(_is_arranged, args))
    if function is operator.getitem:
        base, index = args
        return isinstance(base, (*_CONTAINERS, Matrix, np.ndarray)) and is_plain(index)
    if function is operator.contains and isinstance(args[0], dict):
        return is_plain(args[1])
    return all(map(is_plain, args))


def has_plain_truth(value: Any) -> bool:
    """Whether ``bool(value)`` is a matter of Python alone."""
    kind = type(value)
    return is_plain(value, 1) or not (hasattr(kind, "__bool__") or hasattr(kind, "__len__"))


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether Python's operations on a value depend on what it holds, and on nothing else."""
    if isinstance(value, (*_NUMBERS, Matrix, MatrixType, types.ModuleType, type)):
        return True
    if value is ABSENT or value is Ellipsis or isinstance(value, (range, slice)):
        return True
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufcU"
    if depth < _DEEPEST and type(value) in (list, tuple):
        return all(is_plain(item, depth + 1) for item in value)
    if depth < _DEEPEST and type(value) is dict:
        return all(is_plain(item, depth + 1) for pair in value.items() for item in pair)
    return _is_ours(type(value))


def _is_arranged(value: Any) -> bool:
    return isinstance(value, (*_CONTAINERS, *_ITERATORS)) or is_plain(value, _DEEPEST - 1)


def _is_known(function: Any) -> bool:
    """Whether a function is one of those whose work is known."""
    owner = getattr(function, "__self__", None)
    if isinstance(function, types.BuiltinMethodType) and isinstance(
        owner, (str, list, tuple, dict)
    ):
        return function.__name__ in _METHODS and (isinstance(owner, str) or is_plain(owner))
    if isinstance(function, (np.ufunc, DType, MatrixType)):
        return True
    module = getattr(function, "__module__", None) or ""
    if module in ("math", "_operator") or (isinstance(function, type) and module == "numpy"):
        return getattr(math, function.__name__, None) is function or module != "math"
    if _is_ours(function if isinstance(function, (type, types.FunctionType)) else type(function)):
        return True
    try:
        return function in _FUNCTIONS or function in _ARRANGING or function in _OF_NUMPY
    except TypeError:
        return False


def _is_ours(kind: Any) -> bool:
    return f"{getattr(kind, '__module__', '')}.".startswith(_OURS)
