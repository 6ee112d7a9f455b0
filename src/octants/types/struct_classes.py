"""Finds the members, defaults, methods and constants of a class and its bases, for `dataclass`."""

from __future__ import annotations

import inspect
import typing
from types import FunctionType
from typing import Any

from octants.diagnostics.launch_errors import IgnoredMethod
from octants.diagnostics.user_frames import warn_at_caller

BINARY_METHODS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "@": "matmul",
    "<<": "lshift",
    ">>": "rshift",
    "&": "and",
    "|": "or",
    "^": "xor",
}
"""The methods of operators: ``__add__`` and, if the struct is the right operand, ``__radd__``."""

UNARY_METHODS = {"+": "__pos__", "-": "__neg__", "~": "__invert__"}

COMPARISON_METHODS = {
    "==": ("__eq__", "__eq__"),
    "!=": ("__ne__", "__ne__"),
    "<": ("__lt__", "__gt__"),
    "<=": ("__le__", "__ge__"),
    ">": ("__gt__", "__lt__"),
    ">=": ("__ge__", "__le__"),
}
"""The methods of the left and of the right operand, in the order in which Python asks them."""


def operator_methods(symbol: str) -> tuple[str, str]:
    """The methods of the left and of the right operand that define a binary operator."""
    if symbol in COMPARISON_METHODS:
        return COMPARISON_METHODS[symbol]
    return f"__{BINARY_METHODS[symbol]}__", f"__r{BINARY_METHODS[symbol]}__"


OPERATOR_METHODS = frozenset(
    name for symbol in (*BINARY_METHODS, *COMPARISON_METHODS) for name in operator_methods(symbol)
) | frozenset(UNARY_METHODS.values())

_OF_PYTHON = ("builtins", "typing", "abc", "typing_extensions")
"""Modules whose classes have nothing to say about a struct."""


class StructClass:
    """The members of a struct, their defaults, its methods, and the names of class constants."""

    def __init__(self, cls: type) -> None:
        self.members: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}
        self.methods: dict[str, Any] = {}
        self.constants: set[str] = set()
        for base in reversed(cls.__mro__):
            if base.__module__ not in _OF_PYTHON:
                self._add(base)

    def _add(self, cls: type) -> None:
        annotations = inspect.get_annotations(cls, eval_str=True)
        self.members |= {name: x for name, x in annotations.items() if not _is_class_variable(x)}
        for name, found in vars(cls).items():
            if name in annotations and name in self.members:
                self.defaults[name] = found
            elif name in OPERATOR_METHODS or not _is_dunder(name):
                if hasattr(found, "__get__"):
                    self.methods[name] = found
                else:
                    self.constants.add(name)
            elif isinstance(found, FunctionType) and not name.startswith("__annot"):
                warn_at_caller(IgnoredMethod(cls.__name__, name))


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_class_variable(annotation: Any) -> bool:
    return annotation is typing.ClassVar or typing.get_origin(annotation) is typing.ClassVar
