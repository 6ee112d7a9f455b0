"""Whether what a kernel was specialised for still holds: globals, closures, attributes.

A kernel sees the numbers, fields and other Python values that its names stood for when it was
built. If one of them has changed, the kernel is built anew: it means what Python would mean. Of a
number that varies (`launch.varying`) the type counts; a launch passes it as a hidden argument. The
conditions are expressions of generated code, since each launch looks at them (`launch.entry`).
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from octants.diagnostics.generated import define
from octants.types.matrix_values import Matrix
from octants.types.reads import ABSENT, HiddenArgument, Read, ReadKey, key_of
from octants.types.scalars import DType
from octants.types.signature import FieldHandle, NdarrayHandle, StructHandle
from octants.types.structs import Struct

_NUMBERS = (int, float, bool, str, type(None))
_HANDLES = (FieldHandle, NdarrayHandle, StructHandle, DType, enum.Enum)
_MOST_BYTES = 4096  # of an array of numpy that is compared at each launch
_CONSTANT = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)


Terms = tuple[list[str], dict[str, Any]]
"""Conditions in generated code, and the names that they use."""

GONE = (KeyError, ValueError, AttributeError, ArithmeticError)
"""What a condition raises where a name is gone, or a hidden argument cannot be evaluated."""


def guard_terms(reads: Iterable[Any]) -> Terms:
    """Conditions that say whether these reads would give the same values.

    Functions, classes, modules and what Octants itself holds are taken for constant, as are objects
    that a property makes anew each time it is read.
    """
    conditions: dict[tuple[Any, ...], str] = {}
    scope: dict[str, Any] = {}
    for read in reads:
        key = key_of(read)
        if key not in conditions and not read.varies and _is_watched(read):
            conditions[key] = _condition(read, str(len(conditions)), scope)
    return list(conditions.values()), scope


def hidden_terms(reads: Iterable[Read], hidden: Sequence[HiddenArgument]) -> Terms:
    """Conditions that a launch can give the kernel its hidden arguments, and evaluate them.

    They assign the arguments to their names.
    """
    found: dict[ReadKey, str] = {}
    scope: dict[str, Any] = {}
    for read in reads:
        key, number = key_of(read), len(found)
        if read.varies and key not in found:
            expression = _expression(read, f"r{number}", scope)
            found[key] = f"type(r{number} := {expression}) is {type(read.value).__name__}"
    limits = [each.condition.format(f"({each.name} := {each.expression})") for each in hidden]
    return [*found.values(), *limits], scope


def make_evaluation(
    terms: Terms, hidden: Sequence[HiddenArgument]
) -> Callable[[], tuple[Any, ...]] | None:
    """A function that gives the hidden arguments of a launch; None if there are none."""
    if not hidden:
        return None
    conditions, names = terms
    source = f"def evaluate():\n    return ({' and '.join(conditions)}) and ({{}})"
    text = source.format("".join(f"{each.name}, " for each in hidden))
    evaluate: Callable[[], tuple[Any, ...]] = define("evaluate", text, dict(names))
    return evaluate


def make_guard(terms: Terms) -> Callable[[], bool] | None:
    """A function that says whether all conditions hold; None without any."""
    conditions, names = terms
    if not conditions:
        return None
    guard = define("guard", f"def guard():\n    return {' and '.join(conditions)}", dict(names))

    def is_same() -> bool:
        try:
            return bool(guard())
        except GONE:
            return False

    return is_same


def _is_watched(read: Any) -> bool:
    owner, value = read.owner, read.value
    if read.kind in ("field", "attribute of a type"):
        return False
    if isinstance(value, _CONSTANT) or isinstance(owner, (*_HANDLES, type)):
        return False
    module = owner.__name__ if isinstance(owner, types.ModuleType) else type(owner).__module__
    if read.kind == "attribute" and module.partition(".")[0] == "octants":
        return False
    if isinstance(value, (*_NUMBERS, *_HANDLES)) or value is ABSENT:
        return True
    if read.kind == "attribute":
        return getattr(owner, "__dict__", {}).get(read.name) is value  # else a property
    return True


def _condition(read: Any, number: str, scope: dict[str, Any]) -> str:
    scope[f"v{number}"] = read.value
    expression = _expression(read, number, scope)
    if isinstance(read.value, (float, int, str)):
        scope[f"t{number}"] = type(read.value)
        equal = f"type(x) is t{number} and x == v{number}"
        return f"((x := {expression}) is v{number} or ({equal}))"
    content = _content(read.value, f"v{number}")
    if content is not None:
        scope[f"c{number}"], present = content
        return f"({expression} is v{number} and {present} == c{number})"
    return f"{expression} is v{number}"


def _content(value: Any, name: str) -> tuple[Any, str] | None:
    """A copy of what a value holds that can be changed in place, and an expression for it."""
    if isinstance(value, (list, dict)) and _is_plain(value):
        return _copy(value), name
    if isinstance(value, Matrix):
        return value.to_numpy().tobytes(), f"{name}.to_numpy().tobytes()"
    if isinstance(value, np.ndarray) and value.nbytes <= _MOST_BYTES and not value.dtype.hasobject:
        return value.tobytes(), f"{name}.tobytes()"
    if isinstance(value, Struct):
        return value.to_dict(), f"{name}.to_dict()"
    return None


def _copy(value: Any) -> Any:
    """A copy of nested lists and dictionaries."""
    if isinstance(value, list):
        return [_copy(item) for item in value]
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return value


def _is_plain(value: Any) -> bool:
    """Whether the items of a list or dict can be compared with ``==``."""
    items = value.values() if isinstance(value, dict) else value
    return all(
        _is_plain(item)
        if isinstance(item, (list, dict, tuple))
        else isinstance(item, (*_NUMBERS, *_HANDLES))
        for item in items
    )


def _expression(read: Any, number: str, scope: dict[str, Any]) -> str:
    """The present value, in generated code."""
    if read.kind == "attribute":
        scope[f"o{number}"] = read.owner
        if read.value is ABSENT:
            return f"getattr(o{number}, {read.name!r}, v{number})"
        return f"o{number}.{read.name}"
    if read.kind == "closure":
        position = read.owner.__code__.co_freevars.index(read.name)
        scope[f"o{number}"] = read.owner.__closure__[position]
        return f"o{number}.cell_contents"
    if read.name not in read.owner.__globals__:
        return f"v{number}"
    scope[f"o{number}"] = read.owner.__globals__
    return f"o{number}[{read.name!r}]"
