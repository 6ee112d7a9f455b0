"""Reads the text form of `ir.printer` back; ``to_text(parse(text)) == text``.

Values may have any names in the text (``%x``); a test writes a module as text, runs a pass and
compares texts.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from typing import Any

from octants.ir import ops as _registered  # noqa: F401  (importing registers the operations)
from octants.ir.core import (
    OPERATIONS,
    Array,
    Block,
    Companion,
    Module,
    Operation,
    Partition,
    Record,
    Space,
    Task,
    Value,
)
from octants.types.layouts import STRIDED, Layout, Strided, Term
from octants.types.scalars import by_name

_TOKEN = re.compile(
    r"""\s*(?: (?P<comment>;[^\n]*)
      | (?P<value>%[\w.]+) | (?P<symbol>@[\w.$]+) | (?P<record>\#[\w.]+)
      | (?P<string>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
      | (?P<number>[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf\b|nan\b))
      | (?P<word>[A-Za-z_]\w*) | (?P<mark>[(){}<>\[\]:,=]))""",
    re.VERBOSE,
)
_SPECIAL = {"True": True, "False": False, "None": None, "inf": float("inf"), "nan": float("nan")}


class ParseError(Exception):
    """The text is not that of a module."""


class Parser:
    """A recursive-descent parser over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokenise(text)
        self._position = 0
        self._values: dict[str, Value] = {}
        self._arrays: dict[str, Array] = {}
        self._partitions: dict[int, Partition] = {}
        self._records: dict[str, Record] = {}

    # -- tokens ------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._position += 1
        return token

    def _take(self, expected: str) -> bool:
        if self._peek() == expected:
            self._position += 1
            return True
        return False

    def _expect(self, expected: str) -> None:
        if not self._take(expected):
            near = " ".join(self._tokens[max(0, self._position - 6) : self._position + 3])
            raise ParseError(f"expected {expected!r} near: {near}")

    # -- modules -----------------------------------------------------------------------------------

    def module(self) -> Module:
        self._expect("kernel")
        module = Module(self._next()[1:])
        module.noalias = self._take("noalias")
        while self._peek():
            head = self._next()
            if head == "array":
                module.arrays.append(self._array())
            elif head == "section":
                self._section()
            elif head == "record":
                self._record()
            elif head == "body":
                module.body = self._block()
            elif head in ("parallel", "serial"):
                module.tasks.append(self._task(head))
            else:
                raise ParseError(f"unexpected {head!r}")
        return module

    def _array(self) -> Array:
        name = self._next()[1:]
        self._expect(":")
        dtype = by_name(self._next())
        self._expect(",")
        rank = int(self._next())
        self._expect(",")
        space = Space(self._next())
        exported = self._take("exported")
        self._expect(",")
        array = Array(name, dtype, rank, space, self._literal(), exported=exported)
        self._expect("[")
        while not self._take("]"):
            companion = Companion(self._next())
            array.layouts[companion] = self._layout()
            self._take(",")
        if self._take("like"):
            array.like = self._arrays[self._next()[1:]], int(self._next())
        self._arrays[name] = array
        return array

    def _section(self) -> None:
        name = self._next()[1:]
        self._expect(":")
        whole = self._arrays[self._next()[1:]]
        self._expect(",")
        partition = self._partitions.setdefault(int(self._next()), Partition(whole))
        self._expect("[")
        layouts = {}
        while not self._take("]"):
            companion = Companion(self._next())
            layouts[companion] = whole.layouts[companion]
            self._take(",")
        self._arrays[name] = dataclasses.replace(
            whole, name=name, layouts=layouts, partition=partition
        )

    def _layout(self) -> Layout | Strided | None:
        if self._take("strided"):
            return STRIDED
        if self._peek() != "(":
            return None
        shape, terms, strides = self._literal(), self._literal(), self._literal()
        return Layout(shape, tuple(Term(*term) for term in terms), strides)

    def _record(self) -> None:
        name = self._next()[1:]
        capacity = self._literal()[0] if self._peek() == "[" else 0
        local, *unrolled = self._literal() if self._peek() == "(" else (0,)
        self._expect(":")
        slots = []
        while re.fullmatch(r"[uif]\d+", self._peek()):
            slots.append(by_name(self._next()))
            self._take(",")
        kind = re.sub(r"\d+$", "", name)
        self._records[name] = Record(kind, slots, None, capacity, local, bool(unrolled))

    def _task(self, head: str) -> Task:
        name = self._next()[1:]
        first = self._literal_or_block()
        options: dict[str, Any] = {}
        if isinstance(first, dict):
            options, first = first, self._block()
        if head == "serial":
            return Task(name, first, options=options)
        return Task(name, self._block(), first, options=options)

    def _literal_or_block(self) -> Any:
        is_literal = self._tokens[self._position + 1][0] in "'\""
        return self._literal() if is_literal else self._block()

    def _block(self) -> Block:
        self._expect("{")
        block = Block()
        if self._take("("):
            while not self._take(")"):
                block.args.append(self._define())
                self._take(",")
            self._expect(":")
        while not self._take("}"):
            block.ops.append(self._operation())
        return block

    # -- operations --------------------------------------------------------------------------------

    def _define(self) -> Value:
        name = self._next()
        self._expect(":")
        value = Value(by_name(self._next()), "" if name[1:].isdigit() else name[1:])
        self._values[name] = value
        return value

    def _operation(self) -> Operation:
        results = []
        if self._peek().startswith("%"):
            results.append(self._deferred_definition())
            while self._take(","):
                results.append(self._deferred_definition())
            self._expect("=")
        cls = OPERATIONS.get(name := self._next())
        if cls is None:
            raise ParseError(f"no operation {name!r}")
        attributes = self._attributes() if cls.ATTRIBUTES else []
        operands = self._operands()
        fields: dict[str, Any] = dict(zip(cls.ATTRIBUTES, attributes, strict=True))
        fields.update(zip(cls.OPERANDS, operands, strict=False))
        if cls.VARIADIC is not None:
            fields[cls.VARIADIC] = operands[len(cls.OPERANDS) :]
        fields.update((region, self._block()) for region in cls.REGIONS)
        for result_name, value in results:
            self._values[result_name] = value
        return cls(**fields, results=[value for _, value in results])

    def _deferred_definition(self) -> tuple[str, Value]:
        name = self._next()
        self._expect(":")
        return name, Value(by_name(self._next()), "" if name[1:].isdigit() else name[1:])

    def _attributes(self) -> list[Any]:
        self._expect("<")
        items = []
        while not self._take(">"):
            items.append(self._attribute())
            self._take(",")
        return items

    def _attribute(self) -> Any:
        token = self._peek()
        if token.startswith("@"):
            return self._arrays[self._next()[1:]]
        if token.startswith("#"):
            return self._records[self._next()[1:]]
        if token.isidentifier() and token not in _SPECIAL:
            word = self._next()
            return Companion(word) if word in _COMPANIONS else word
        if token == "{" and self._tokens[self._position + 1] == "(":
            return self._block()
        return self._literal()

    def _operands(self) -> list[Value]:
        self._expect("(")
        values = []
        while not self._take(")"):
            name = self._next()
            if name not in self._values:
                raise ParseError(f"{name} is not defined")
            values.append(self._values[name])
            self._take(",")
        return values

    # -- Python literals ---------------------------------------------------------------------------

    def _literal(self) -> Any:
        token = self._next()
        if token in "([{":
            return self._container(token)
        if token in _SPECIAL:
            return _SPECIAL[token]
        if token[0] in "+-" and token[1:] in _SPECIAL:
            return -_SPECIAL[token[1:]]  # type: ignore[operator]
        return ast.literal_eval(token)

    def _container(self, opening: str) -> Any:
        closing = {"(": ")", "[": "]", "{": "}"}[opening]
        items, keys = [], []
        while not self._take(closing):
            items.append(self._literal())
            if self._take(":"):
                keys.append(items.pop())
                items.append(self._literal())
            self._take(",")
        if opening == "{":
            return dict(zip(keys, items, strict=True))
        return tuple(items) if opening == "(" else items


_COMPANIONS = {companion.value for companion in Companion}


def _tokenise(text: str) -> list[str]:
    tokens, position = [], 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ParseError(f"cannot read: {text[position : position + 30]!r}")
        position = match.end()
        if match.lastgroup != "comment":
            tokens.append(match.group().strip())
    return tokens


def parse(text: str) -> Module:
    """The module that a text describes. `ParseError` if it is none."""
    return Parser(text).module()
