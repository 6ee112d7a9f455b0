"""Texts with run-time values in them: what ``print`` and ``assert`` say."""

from __future__ import annotations

import ast
import string
from typing import Any

from octants.diagnostics.errors import NotAValue, WrongFormat
from octants.frontend.compile_time import compile_time_evaluation
from octants.frontend.context import Context
from octants.frontend.values.expression_values import (
    ArrayReference,
    FormattedString,
    GroupedDomain,
    MatrixValue,
    ProductDomain,
    RangeDomain,
    StructValue,
    describe,
    is_run_time,
)
from octants.frontend.values.operands import element_of
from octants.ir import scalar_semantics
from octants.ir.core import Value
from octants.types.scalars import convert

MessagePart = str | tuple[str]

_WITHOUT_TEXT = (ArrayReference, RangeDomain, ProductDomain, GroupedDomain)
"""Values that only loops and indices can use."""


class Message:
    """A text in pieces: literal strings, and (format spec,) where a run-time value stands."""

    def __init__(self, context: Context, node: ast.AST) -> None:
        self.context = context
        self.node = node
        self.parts: list[MessagePart] = []
        self.values: list[Value] = []

    def add(self, value: Any, spec: str = "") -> None:
        """Append a value of any type; ``spec`` applies to each number in it."""
        if isinstance(value, Value):
            self._check(value, spec)
            self.parts.append((spec,))
            self.values.append(value)
        elif isinstance(value, FormattedString):
            for part in value.parts:
                self.add(*((part,) if isinstance(part, str) else (part[1], part[0])))
        elif isinstance(value, MatrixValue):
            self._sequence(compile_time_evaluation.rows(value), spec, "[]")
        elif isinstance(value, StructValue):
            self._members(value, spec)
        elif isinstance(value, (tuple, list)) and is_run_time(value):
            self._sequence(list(value), spec, "()" if isinstance(value, tuple) else "[]")
        elif type(value) is dict and is_run_time(value):
            self._dictionary(value, spec)
        elif isinstance(value, _WITHOUT_TEXT):
            self.context.fail(NotAValue(describe(value), element_of(value)), self.node)
        else:
            self.text(compile_time_evaluation.call(self.context, self.node, format, value, spec))

    def text(self, text: str) -> None:
        """Append a literal string."""
        if self.parts and isinstance(self.parts[-1], str):
            self.parts[-1] += text
        elif text:
            self.parts.append(text)

    def _sequence(self, items: list[Any], spec: str, brackets: str) -> None:
        self.text(brackets[0])
        for position, item in enumerate(items):
            self.text(", " if position else "")
            self._item(item, spec)
        self.text("," if brackets == "()" and len(items) == 1 else "")
        self.text(brackets[1])

    def _dictionary(self, value: dict[Any, Any], spec: str) -> None:
        self.text("{")
        for position, (key, item) in enumerate(value.items()):
            self.text(f"{', ' if position else ''}{key!r}: ")
            self._item(item, spec)
        self.text("}")

    def _item(self, item: Any, spec: str) -> None:
        """Append an item of a container, in which Python shows strings in quotes."""
        if isinstance(item, str):
            self.text(repr(item))
        else:
            self.add(item, spec)

    def _members(self, value: StructValue, spec: str) -> None:
        self.text("{")
        for position, (name, member) in enumerate(value.members.items()):
            self.text(f"{', ' if position else ''}{name}: ")
            self.add(member, spec)
        self.text("}")

    def _check(self, value: Value, spec: str) -> None:
        try:
            scalar_semantics.format_number(convert(1, value.type), value.type, spec)
        except ValueError:
            problem = f"the format `{spec}` does not fit {value.type}"
            self.context.fail(WrongFormat(problem), self.node)

    def template(self) -> str:
        """The text as a format string for the values."""
        return "".join(
            part.replace("{", "{{").replace("}", "}}")
            if isinstance(part, str)
            else f"{{:{part[0]}}}"
            if part[0]
            else "{}"
            for part in self.parts
        )


def format_string(
    context: Context, node: ast.AST, template: str, args: list[Any], named: dict[str, Any]
) -> Any:
    """``template.format(*args, **named)``."""
    if not is_run_time([*args, *named.values()]):
        return compile_time_evaluation.call(context, node, template.format, *args, **named)
    parts: list[Any] = []
    automatic = iter(range(len(args)))
    for text, name, spec, _ in _parse(context, node, template):
        parts.append(text)
        if name is not None:
            parts.append((spec or "", _field(context, node, name, args, named, automatic)))
    return FormattedString(tuple(part for part in parts if part != ""))


def _parse(context: Context, node: ast.AST, template: str) -> list[Any]:
    parsed: list[Any] = compile_time_evaluation.call(context, node, _split, template)
    return parsed


def _split(template: str) -> list[Any]:
    return list(string.Formatter().parse(template))


def _field(
    context: Context,
    node: ast.AST,
    name: str,
    args: list[Any],
    named: dict[str, Any],
    automatic: Any,
) -> Any:
    """The argument that a replacement field of a format string names."""
    try:
        if name == "":
            return args[next(automatic)]
        return args[int(name)] if name.isdigit() else named[name]
    except (IndexError, KeyError, StopIteration):
        problem = f"the format has a field `{{{name}}}` and no value for it"
        context.fail(WrongFormat(problem), node)


def percent_format(context: Context, node: ast.AST, template: str, operand: Any) -> Any:
    """``template % operand`` with run-time values: the common conversions."""
    values = list(operand) if isinstance(operand, tuple) else [operand]
    parts: list[Any] = []
    rest = template
    while "%" in rest:
        text, _, rest = rest.partition("%")
        parts.append(text)
        if rest.startswith("%"):
            parts.append("%")
            rest = rest[1:]
            continue
        length = next((k for k, c in enumerate(rest) if c.isalpha()), None)
        if length is None or not values:
            context.fail(WrongFormat("the format does not fit its values"), node)
        spec, kind = rest[:length], rest[length]
        parts.append((spec + ("" if kind in "sri" else kind), values.pop(0)))
        rest = rest[length + 1 :]
    parts.append(rest)
    if values:
        context.fail(WrongFormat("the format has fewer fields than there are values"), node)
    return FormattedString(tuple(part for part in parts if part != ""))
