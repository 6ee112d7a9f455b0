"""The text form of a module, which says all of it: tests read it back (`tests/ir/parser.py`).

::

    kernel @scale
    array @x: f32, 1, ndarray, () [primal]
    parallel @scale_0 {
      %0: i32 = constant<0>()
      %1: i32 = shape<@x, 0>()
      yield(%0, %1)
    } { (%2: i32):
      %3: f32 = load<@x, primal>(%2)
      ...
"""

from __future__ import annotations

from typing import Any

from octants.ir.array_aliasing import sections
from octants.ir.core import Array, Block, Companion, Module, Operation, Partition, Record, Value
from octants.types.layouts import Layout, Strided, Term


class Printer:
    """Names values in the order in which they appear."""

    def __init__(self, indent: str = "  ") -> None:
        self._indent = indent
        self._names: dict[Value, str] = {}
        self._records: dict[Record, str] = {}
        self._lines: list[str] = []

    def module(self, module: Module) -> str:
        self._lines = [f"kernel @{module.name}" + " noalias" * module.noalias]
        self._lines.extend(_array(array) for array in module.arrays)
        self._lines.extend(_sections(module))
        body_start = len(self._lines)
        if module.body is not None:
            self._lines.append("body")
            self._block(module.body, 1)
        for task in module.tasks:
            head = f"{'parallel' if task.is_parallel else 'serial'} @{task.name}"
            self._lines.append(head + (f" {task.options!r}" if task.options else ""))
            if task.domain is not None:
                self._block(task.domain, 1)
            self._block(task.body, 1)
        records = [_record(record, name) for record, name in self._records.items()]
        self._lines[body_start:body_start] = records
        return "\n".join(self._lines) + "\n"

    def operation(self, op: Operation) -> str:
        """The lines of an operation."""
        self._lines = []
        self._operation(op, 0)
        return "\n".join(self._lines)

    def _block(self, block: Block, depth: int) -> None:
        """Go on in the last line with a block, whose operations stand ``depth`` indents in."""
        arguments = ", ".join(f"{self.value(arg)}: {arg.type}" for arg in block.args)
        self._lines[-1] += f" {{ ({arguments}):" if block.args else " {"
        for op in block.ops:
            self._operation(op, depth)
        self._lines.append(self._indent * (depth - 1) + "}")

    def _operation(self, op: Operation, depth: int) -> None:
        results = ", ".join(f"{self.value(value)}: {value.type}" for value in op.results)
        text = f"{results} = {op.NAME}" if results else op.NAME
        if op.ATTRIBUTES:
            text += "<" + ", ".join(self._attribute(item) for item in op.attributes) + ">"
        text += "(" + ", ".join(self.value(value) for value in op.operands) + ")"
        self._lines.append(self._indent * depth + text)
        for region in op.regions:
            self._block(region, depth + 1)

    def _inline_block(self, block: Block) -> str:
        """A block that is an attribute, in one line."""
        outer, self._lines = self._lines, [""]
        self._block(block, 1)
        text = " ".join(line.strip() for line in self._lines)
        self._lines = outer
        return text

    def value(self, value: Value) -> str:
        if value not in self._names:
            self._names[value] = f"%{len(self._names)}"
        return self._names[value]

    def _attribute(self, item: Any) -> str:
        if isinstance(item, Block):
            return self._inline_block(item)
        if isinstance(item, Array):
            return f"@{item.name}"
        if isinstance(item, Companion):
            return item.value
        if isinstance(item, Record):
            name = self._records.setdefault(item, f"{item.name}{len(self._records)}")
            return f"#{name}"
        if isinstance(item, str) and item.isidentifier():
            return item
        return repr(item)


def _array(array: Array) -> str:
    companions = ", ".join(
        companion.value + ("" if layout is None else f" {_layout(layout)}")
        for companion, layout in array.layouts.items()
    )
    space = array.space.value + " exported" * array.exported
    head = f"array @{array.name}: {array.dtype}, {array.rank}, {space}"
    like = "" if array.like is None else f" like @{array.like[0].name} {array.like[1]}"
    return f"{head}, {array.element_shape} [{companions}]{like}"


def _sections(module: Module) -> list[str]:
    """The lines of the sections that a module accesses; those of a partition share its number."""
    numbers: dict[Partition | None, int] = {}
    return [
        f"section @{array.name}: @{array.whole.name},"
        f" {numbers.setdefault(array.partition, len(numbers))}"
        f" [{', '.join(companion.value for companion in array.layouts)}]"
        for array in sections(module)
    ]


def _record(record: Record, name: str) -> str:
    capacity = f" [{record.capacity}]" if record.capacity else ""
    near = (record.local, "unrolled") if record.unrolled else (record.local,)
    local = f" {near}" if record.local else ""
    return f"record #{name}{capacity}{local}: {', '.join(map(str, record.slots))}"


def _layout(layout: Layout | Strided) -> str:
    if isinstance(layout, Strided):
        return "strided"
    return f"{layout.shape} {tuple(map(_term, layout.terms))} {layout.element_strides}"


def _term(term: Term) -> tuple[int, int, int, int]:
    return term.axis, term.divisor, term.modulus, term.stride


def to_text(module: Module) -> str:
    """The text form of a module."""
    return Printer().module(module)


def to_dense_text(module: Module) -> str:
    """The text form without indents, which take the square of a module's depth: for keys."""
    return Printer(indent="").module(module)
