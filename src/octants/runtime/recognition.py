"""Conditions, as generated code, that an argument is like one that was given before.

They are a quick way to compare keys (see `arguments`): where a condition holds, the key is the
same. It may fail for the same key, or raise one of `UNKNOWN`: then the key itself decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octants.runtime.arguments import KEY_FUNCTIONS, NUMPY_FLAGS, Leaf, key_term, object_key
from octants.types.annotations import Template
from octants.types.signature import FieldHandle, NdarrayHandle
from octants.types.weak import reference_to

UNKNOWN = (AttributeError, TypeError, ValueError)
"""What a condition raises for an argument that is nothing of the kind."""


def condition(leaf: Leaf, value: Any, scope: dict[str, Any]) -> str:
    """A condition that holds for arguments with the key of ``value``; "" where all have it.

    ``scope`` gets the names that it uses.
    """
    expression, name = leaf.expression, f"k{len(scope)}"
    term = key_term(leaf, expression)
    if not term:
        return ""
    key = eval(f"({key_term(leaf, 'value')},)", dict(KEY_FUNCTIONS), {"value": value})
    if len(key) == 1 and isinstance(value, NdarrayHandle):
        return f"{expression}.argument_key == {value.argument_key}"
    if len(key) == 1 and type(value) is np.ndarray and not isinstance(leaf.annotation, Template):
        return _numpy_condition(expression, value, name, scope)
    if key == (object_key(value),):
        return is_same(expression, value, name, scope)
    scope[name] = value
    if isinstance(leaf.annotation, Template) and type(value) in (int, bool, str):
        return f"type({expression}) is {type(value).__name__} and {expression} == {name}"
    scope.update(KEY_FUNCTIONS)
    scope[name] = key
    return f"({term},) == {name}"


def is_same(expression: str, value: Any, name: str, scope: dict[str, Any]) -> str:
    """A condition that an expression is this object, which ``scope`` does not keep alive."""
    if isinstance(value, (FieldHandle, NdarrayHandle)) and hasattr(value, "octants_number"):
        return f"{expression}.octants_number == {value.octants_number}"
    reference = reference_to(value)
    scope[name] = value if reference is None else reference
    return f"{expression} is {name}{'()' * (reference is not None)}"


def _numpy_condition(expression: str, value: Any, name: str, scope: dict[str, Any]) -> str:
    """Dtypes of the machine's own numbers are one object each, so that `is` often serves."""
    scope[name], scope["numpy_array"] = value.dtype, np.ndarray
    flags = value.flags.num & NUMPY_FLAGS
    return (
        f"type({expression}) is numpy_array"
        f" and ({expression}.dtype is {name} or {expression}.dtype == {name})"
        f" and {expression}.ndim == {value.ndim}"
        f" and {expression}.flags.num & {NUMPY_FLAGS} == {flags}"
    )
