"""Generates conditions that recognise arguments like earlier ones.

They are a fast path for comparing keys (see `parameters`): where a condition holds, the key is the
same. Where it does not, or raises one of `UNKNOWN`, the key itself decides.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from octants.functions_from_text import define
from octants.runtime.arguments.frozen_structs import FrozenStruct, frozen_structs
from octants.runtime.arguments.parameters import (
    KEY_FUNCTIONS,
    NUMPY_FLAGS,
    Leaf,
    key_term,
    object_key,
)
from octants.types.parameter_annotations import AnyTensor, NdarrayAnnotation, Template
from octants.types.specialisation_signature import FieldHandle, NdarrayHandle
from octants.types.weak_references import reference_to

UNKNOWN = (AttributeError, TypeError, ValueError)
"""The exceptions that a condition raises for an argument of another kind."""


class Recognition:
    """Conditions that hold for arguments with the key of given ones.

    `conditions` are generated code over the names in `scope`, which keeps no argument alive.
    ``structs`` are frozen structs of other arguments with the key; they may not be frozen here.
    """

    def __init__(
        self, leaves: Sequence[Leaf], structs: Sequence[FrozenStruct], arguments: Sequence[Any]
    ) -> None:
        self.scope: dict[str, Any] = {}
        if not all(each.is_frozen_in(arguments) for each in structs):
            structs = frozen_structs(leaves, arguments)
        self._structs = [_LastStruct(each, arguments) for each in structs]
        settled = {(leaf.position, leaf.path) for each in structs for leaf in each.leaves}
        others = [leaf for leaf in leaves if (leaf.position, leaf.path) not in settled]
        terms = [condition(leaf, leaf.value(arguments), self.scope) for leaf in others]
        self.conditions = [each for each in terms if each]
        for number, last in enumerate(self._structs):
            self.scope[name := f"last{number}"] = last
            position, expression = last.struct.position, last.struct.expression
            self.conditions.append(f"({name}.reference() is {expression} or {name}(a{position}))")

    @property
    def is_outlived(self) -> bool:
        """Whether a struct is gone before conditions on its members were generated."""
        return any(each.is_unknown for each in self._structs)


class _LastStruct:
    """The frozen struct of the last launch; a call tells whether an argument is like it."""

    def __init__(self, struct: FrozenStruct, arguments: Sequence[Any]) -> None:
        self.struct = struct
        self.reference: Any = reference_to(struct.value(arguments))
        self._is_like: Any = None
        self._is_frozen: Any = None

    @property
    def is_unknown(self) -> bool:
        return self._is_like is None and self.reference() is None

    def __call__(self, argument: Any) -> bool:
        if self._is_like is None:
            value = self.reference()
            if value is None:
                return False
            self._define(value)
        if not self._is_like(argument):
            return False
        if self._is_frozen(argument):
            path = self.struct.path
            self.reference = reference_to(functools.reduce(getattr, path, argument))
        return True

    def _define(self, struct: Any) -> None:
        """Generate the functions that compare another argument with the struct."""
        scope: dict[str, Any] = {}
        depth, parameter = len(self.struct.path), f"a{self.struct.position}"
        values = [
            (leaf, functools.reduce(getattr, leaf.path[depth:], struct))
            for leaf in self.struct.leaves
        ]
        terms = " and ".join(condition(leaf, value, scope) for leaf, value in values)
        kinds = self.struct.kind_test(scope)
        self._is_frozen = define(
            "is_frozen", f"def is_frozen({parameter}):\n    return {kinds}", scope
        )
        self._is_like = define("is_like", f"def is_like({parameter}):\n    return {terms}", scope)


def same_conditions(
    leaves: Sequence[Leaf], structs: Sequence[FrozenStruct], arguments: Sequence[Any]
) -> tuple[list[str], dict[str, Any]] | None:
    """Conditions that hold for arguments with the same key and the same arrays, with their scope.

    Frozen structs are recognised by identity. None where an array belongs to another library, whose
    memory can change while the object stays.
    """
    scope: dict[str, Any] = {}
    if not all(each.is_frozen_in(arguments) for each in structs):
        structs = frozen_structs(leaves, arguments)
    conditions = []
    for each in structs:
        scope[name := f"k{len(scope)}"] = reference_to(each.value(arguments))
        conditions.append(f"{name}() is {each.expression}")
    settled = {(leaf.position, leaf.path) for each in structs for leaf in each.leaves}
    for leaf in leaves:
        if (leaf.position, leaf.path) in settled:
            continue
        value = leaf.value(arguments)
        if value is not None and isinstance(leaf.annotation, (NdarrayAnnotation, AnyTensor)):
            if not isinstance(value, (FieldHandle, NdarrayHandle)):
                return None
            term = is_same(leaf.expression, value, f"k{len(scope)}", scope)
        else:
            term = condition(leaf, value, scope)
        if term:
            conditions.append(term)
    return conditions, scope


def condition(leaf: Leaf, value: Any, scope: dict[str, Any]) -> str:
    """A condition that holds for arguments with the key of ``value``; "" where all have it.

    The names that it uses are added to ``scope``.
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
    """A condition that an expression is an object, which ``scope`` does not keep alive."""
    if isinstance(value, (FieldHandle, NdarrayHandle)) and hasattr(value, "octants_number"):
        return f"{expression}.octants_number == {value.octants_number}"
    reference = reference_to(value)
    scope[name] = value if reference is None else reference
    return f"{expression} is {name}{'()' * (reference is not None)}"


def _numpy_condition(expression: str, value: Any, name: str, scope: dict[str, Any]) -> str:
    """A condition on a numpy array; native dtypes are one object each, so that `is` mostly
    suffices.
    """
    scope[name], scope["numpy_array"] = value.dtype, np.ndarray
    flags = value.flags.num & NUMPY_FLAGS
    return (
        f"type({expression}) is numpy_array"
        f" and ({expression}.dtype is {name} or {expression}.dtype == {name})"
        f" and {expression}.ndim == {value.ndim}"
        f" and {expression}.flags.num & {NUMPY_FLAGS} == {flags}"
    )
