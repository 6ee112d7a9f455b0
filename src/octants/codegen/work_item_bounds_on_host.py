"""Write a task's work-item bounds as a Python expression over the parameter block.

The host evaluates it before a launch instead of asking the device. That works where bounds depend
on constants, extents and arguments alone.
"""

from __future__ import annotations

from collections import Counter

from octants.artifact import ParameterLayout, Slot
from octants.ir import ops
from octants.ir.core import Array, Block, Companion, Operation, Space, Value
from octants.types.scalars import DType

_SYMBOLS = {"add": "+", "sub": "-", "mul": "*"}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LONGEST = 8000  # characters


class _Unknown(Exception):
    """The bounds depend on something that only the device knows."""


def host_bounds(domain: Block, arrays: list[Array], parameters: ParameterLayout) -> str | None:
    """Write ``(lower, upper)`` as signed integers over ``slots``.

    A value that is used more than once is computed first: ``[v0 := ..., (lower, upper)][-1]``.

    Args:
        domain: The block that yields the bounds.
        arrays: The kernel's arrays, in the order of its parameters.
        parameters: The layout of the parameter block.

    Returns:
        The expression's text; None where only the device can compute the bounds.
    """
    writer = _Writer(domain, arrays, parameters)
    try:
        lower, upper = (writer.write(value) for value in domain.yielded)
    except _Unknown:
        return None
    text = f"({lower}, {upper})"
    if writer.known:
        text = f"[{', '.join(writer.known)}, {text}][-1]"
    return text if len(text) <= _LONGEST else None


class _Writer:
    def __init__(self, domain: Block, arrays: list[Array], parameters: ParameterLayout) -> None:
        self._definitions = {value: op for op in domain.ops for value in op.results}
        self._arrays, self._parameters = arrays, parameters
        self._uses = Counter(value for op in domain.ops for value in op.operands)
        self._names: dict[Value, str] = {}
        self.known: list[str] = []  # definitions of named values

    def write(self, value: Value) -> str:
        """Return a value as a Python expression over the parameter slots.

        Raises:
            _Unknown: The host cannot compute the value.
        """
        op = self._definitions.get(value)
        if op is None or not (value.type.is_integer or value.type.is_bool):
            raise _Unknown
        if value in self._names:
            return self._names[value]
        text = self._operation(op)
        if self._uses[value] > 1 and not isinstance(op, ops.Constant):
            name = self._names[value] = f"v{len(self.known)}"
            self.known.append(f"{name} := {text}")
            return name
        return text

    def _operation(self, op: Operation) -> str:
        if isinstance(op, ops.Constant):
            return str(int(op.value))
        if isinstance(op, ops.Shape):
            return self._shape(op)
        if isinstance(op, ops.Load):
            return self._load(op)
        if isinstance(op, ops.Cast) and not op.x.type.is_float:
            return self._cast(op)
        if isinstance(op, ops.Binary):
            return self._binary(op)
        if isinstance(op, ops.Compare) and not op.lhs.type.is_float:
            return f"({self.write(op.lhs)} {_COMPARISONS[op.fn]} {self.write(op.rhs)})"
        if isinstance(op, ops.Select):
            on_true, on_false = self.write(op.on_true), self.write(op.on_false)
            return f"({on_true} if {self.write(op.condition)} else {on_false})"
        raise _Unknown

    def _shape(self, op: ops.Shape) -> str:
        if op.array.fixed_shape is not None:
            return str(op.array.fixed_shape[op.axis])
        number = self._arrays.index(op.array)
        slot = self._parameters.position(Slot("shape", array=number, index=op.axis))
        return _wrapped(f"slots[{slot}]", op.result.type)

    def _load(self, op: ops.Load) -> str:
        """Read an argument from the low bytes of its slot."""
        if op.array.space is not Space.ARGUMENT or op.companion is not Companion.PRIMAL:
            raise _Unknown
        component = 0
        for index, extent in zip(op.indices, op.array.element_shape, strict=True):
            found = self._definitions.get(index)
            if not isinstance(found, ops.Constant):
                raise _Unknown
            component = component * extent + found.value
        number = self._arrays.index(op.array)
        slot = self._parameters.position(Slot("scalar", array=number, index=component))
        return _wrapped(f"slots[{slot}]", op.result.type)

    def _cast(self, op: ops.Cast) -> str:
        text, source, target = self.write(op.x), op.x.type, op.result.type
        if target.is_bool:
            return f"({text} != 0)"
        holds = source.is_bool or (
            source.is_signed == target.is_signed and source.bits < target.bits
        )
        return f"int({text})" if holds else _wrapped(f"int({text})", target)

    def _binary(self, op: ops.Binary) -> str:
        a, b = self.write(op.lhs), self.write(op.rhs)
        dtype = op.result.type
        if dtype.is_bool:
            symbol = {"and": "and", "or": "or"}.get(op.fn)
            if symbol is None:
                raise _Unknown
            return f"({a} {symbol} {b})"
        if op.fn in _SYMBOLS:
            return _wrapped(f"{a} {_SYMBOLS[op.fn]} {b}", dtype)
        if op.fn in ("min", "max"):
            return f"{op.fn}({a}, {b})"
        if op.fn == "shl":
            return _wrapped(f"{a} << {b} % {dtype.bits}", dtype)
        if op.fn == "shr":
            return f"({a} >> {b} % {dtype.bits})"
        divisor = self._definitions[op.rhs]
        if op.fn == "floordiv" and isinstance(divisor, ops.Constant) and divisor.value > 0:
            return f"({a} // {b})"
        raise _Unknown


def _wrapped(text: str, dtype: DType) -> str:
    """Wrap a number as its type does."""
    size = 1 << dtype.bits
    if dtype.is_bool:
        return f"({text} % 256 != 0)"
    if not dtype.is_signed:
        return f"(({text}) % {size})"
    return f"((({text}) + {size // 2}) % {size} - {size // 2})"
