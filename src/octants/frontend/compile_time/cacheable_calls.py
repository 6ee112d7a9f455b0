"""Finds the calls of Python at compile time that always give the same result.

What a kernel reads is noted, and a kernel that would read the same is the same kernel. A call of a
function that may look at anything else - a file, the time, an object that does as it likes - makes
an end of that: each process builds such a kernel again.
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

from octants.types.compile_time_reads import ABSENT
from octants.types.matrix_types import MatrixType
from octants.types.matrix_values import Matrix
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
_ARRANGING = frozenset((zip, enumerate, reversed, tuple, list, range, len))
"""These look at the containers that they are given, not at what is in them."""

_OF_CLASSES = frozenset((isinstance, issubclass))

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
_NUMBERS = frozenset((bool, int, float, complex, str, bytes, type(None), type(...), range, slice))
_UNCHANGING = frozenset((bool, int, float, complex, str, bytes, range))
"""Types whose methods depend on the object and the arguments, and change nothing."""
_METACLASSES = ("builtins", "abc", "enum")
_OURS = tuple(f"octants.{part}." for part in ("types", "lang", "frontend", "ir", "compat"))
_DEEPEST = 8


def is_repeatable(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether a call depends on nothing but the values of its arguments, and does nothing else."""
    if not _is_known(function):
        return False
    if function in _ARRANGING:
        return all(map(_is_arranged, args))
    if function in _OF_CLASSES:
        return all(is_plain(arg) or not isinstance(arg, (type, tuple)) for arg in args)
    if function is operator.getitem:
        base, index = args
        return is_plain(index) and (_is_container(base) or _is_array(base))
    if function is operator.contains and isinstance(args[0], dict):
        return is_plain(args[1])
    return all(map(is_plain, args))


def has_plain_truth(value: Any) -> bool:
    """Whether ``bool(value)`` is a matter of Python alone."""
    kind = type(value)
    return is_plain(value, 1) or not (hasattr(kind, "__bool__") or hasattr(kind, "__len__"))


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether Python's operations on a value depend on what it holds, and on nothing else."""
    kind = type(value)
    if kind in _NUMBERS or value is ABSENT or isinstance(value, types.ModuleType):
        return True
    if isinstance(value, (np.generic, DType, enum.Enum, MatrixType)) or _is_array(value):
        return True
    if isinstance(value, type):
        return kind.__module__ in _METACLASSES
    if depth < _DEEPEST and type(value) in (list, tuple):
        return all(is_plain(item, depth + 1) for item in value)
    if depth < _DEEPEST and type(value) is dict:
        return all(is_plain(item, depth + 1) for pair in value.items() for item in pair)
    return _is_ours(type(value))


def _is_array(value: Any) -> bool:
    """Whether a value is a vector, a matrix, or an array of numbers."""
    return isinstance(value, Matrix) or (type(value) is np.ndarray and value.dtype.kind in "biufcU")


def _is_container(value: Any) -> bool:
    """Whether a value is one of Python's containers, or of a class that holds items like one."""
    kind: Any = type(value)
    if kind in _CONTAINERS:
        return True
    base: Any = next((each for each in (tuple, list, dict) if isinstance(value, each)), None)
    return base is not None and all(
        getattr(kind, name) is getattr(base, name)
        for name in ("__iter__", "__len__", "__getitem__")
    )


def _is_arranged(value: Any) -> bool:
    if isinstance(value, (type, types.ModuleType)):  # a class may have items as its metaclass likes
        return False
    return _is_container(value) or type(value) in _ITERATORS or is_plain(value, _DEEPEST - 1)


def _is_known(function: Any) -> bool:
    """Whether a function is one of those whose work is known."""
    owner = getattr(function, "__self__", None)
    if isinstance(function, types.BuiltinMethodType) and type(owner) in _UNCHANGING:
        return True
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
        return function in _FUNCTIONS | _ARRANGING | _OF_CLASSES | _OF_NUMPY
    except TypeError:
        return False


def _is_ours(kind: Any) -> bool:
    return f"{getattr(kind, '__module__', '')}.".startswith(_OURS)
