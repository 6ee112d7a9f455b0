"""Numbers of the host that a kernel is not specialised for: hidden arguments.

A global that changes before each launch would have a kernel compiled each time. Where it
decides nothing that is compiled, it is an argument instead, which each launch evaluates. Arithmetic
on such numbers alone is Python's and part of what is evaluated; the result becomes an argument
where it is combined with a value of the kernel. Whatever needs the number itself - ``static``, a
shape, a function of Python - raises `DecidesAtCompileTime`, and the kernel is specialised for it
after all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NoReturn

from octants.types.compile_time_reads import HiddenArgument, Read, ReadKey, key_of
from octants.types.scalars import DType, integer_range, u1

_WHOLE_IN_FLOATS = 2**53
_LARGEST = {"f16": 65504.0, "f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}


class DecidesAtCompileTime(Exception):
    """A number that changes is needed when the kernel is compiled."""


def _decide(*_: Any, **__: Any) -> NoReturn:
    raise DecidesAtCompileTime


_RING = {"+": "add", "-": "sub", "*": "mul"}
"""Operators that give the same modulo 2^32: if the result fits, it is the one of i32."""


def _arithmetic(symbol: str, gives: Callable[[type, type], type]) -> tuple[Any, Any]:
    """The methods for ``self symbol other`` and ``other symbol self``."""

    def combined(left: Any, right: Any) -> HostNumber:
        kinds, texts = zip(*map(_parts, (left, right)), strict=True)
        kind, fn = gives(*kinds), _RING.get(symbol)
        operation = (fn, left, right) if kind is int and fn is not None else None
        return HostNumber(f"({texts[0]} {symbol} {texts[1]})", kind, operation)

    return combined, lambda self, other: combined(other, self)


def _parts(number: Any) -> tuple[type, str]:
    if isinstance(number, HostNumber):
        return number.kind, number.text
    if type(number) not in (int, float) or not math.isfinite(number):
        raise DecidesAtCompileTime
    return type(number), f"({number!r})"


def _widest(one: type, other: type) -> type:
    return float if float in (one, other) else int


def _only_integers(one: type, other: type) -> type:
    if float in (one, other):
        raise DecidesAtCompileTime
    return int


class HostNumber:
    """A number that each launch evaluates: its expression, and its Python type.

    In the expression, ``r0``, ``r1``, ... are the numbers that were read. A sum, difference or
    product of integers has its `operation`: its function and its operands. Kernels compute it, so
    that it is seen how it depends on other numbers.
    """

    __slots__ = ("kind", "operation", "text")

    def __init__(
        self, text: str, kind: type, operation: tuple[str, Any, Any] | None = None
    ) -> None:
        self.text = text
        self.kind = kind
        self.operation = operation

    __add__, __radd__ = _arithmetic("+", _widest)
    __sub__, __rsub__ = _arithmetic("-", _widest)
    __mul__, __rmul__ = _arithmetic("*", _widest)
    __floordiv__, __rfloordiv__ = _arithmetic("//", _widest)
    __mod__, __rmod__ = _arithmetic("%", _widest)
    __truediv__, __rtruediv__ = _arithmetic("/", lambda one, other: float)
    __and__, __rand__ = _arithmetic("&", _only_integers)
    __or__, __ror__ = _arithmetic("|", _only_integers)
    __xor__, __rxor__ = _arithmetic("^", _only_integers)

    def __neg__(self) -> HostNumber:
        return 0 - self if self.kind is int else HostNumber(f"(-{self.text})", float)

    def __pos__(self) -> HostNumber:
        return self

    __bool__ = __index__ = __int__ = __float__ = __complex__ = __hash__ = _decide
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _decide
    __str__ = __repr__ = __format__ = _decide
    __round__ = __abs__ = __trunc__ = __floor__ = __ceil__ = _decide


class HostNumbers:
    """The numbers of a kernel that are not compiled in, and the arguments made of them.

    `varying` are the keys of the reads whose numbers change.
    """

    def __init__(self, varying: frozenset[ReadKey] = frozenset()) -> None:
        self.varying = varying
        self.arguments: list[HiddenArgument] = []
        self._demands: dict[str, None] = {}
        self._reads: dict[ReadKey, int] = {}
        self._values: dict[tuple[str, DType], Any] = {}

    def find(self, read: Read) -> HostNumber | None:
        """The value that a read stands for, if its number changes."""
        key = key_of(read)
        if key not in self.varying or type(read.value) not in (int, float):
            return None
        number = self._reads.setdefault(key, len(self._reads))
        return HostNumber(f"r{number}", type(read.value))

    def value(self, number: HostNumber, dtype: DType, make: Callable[[str, int], Any]) -> Any:
        """A number as a run-time value; ``make`` declares the argument of a name and a position."""
        key = number.text, dtype
        if key not in self._values:
            position = len(self.arguments)
            name = f"h{position}"
            limits = _limits(number.kind, dtype)
            hidden = HiddenArgument(name, number.text, limits, dtype)
            self._values[key] = make(name, position)
            self.arguments.append(hidden)
        return self._values[key]

    def demand(self, number: HostNumber, dtype: DType, limits: str) -> None:
        """Launch the kernel only where a number can be of ``dtype``, and is within ``limits``.

        These are a condition over ``{0}``, or empty.
        """
        self._demands[(limits or _limits(number.kind, dtype)).format(number.text)] = None

    @property
    def hidden(self) -> tuple[HiddenArgument, ...]:
        """The arguments; what is demanded of other numbers is part of the last one's condition."""
        if not self._demands:
            return tuple(self.arguments)
        *others, last = self.arguments
        condition = " and ".join([last.condition, *self._demands])
        return *others, dataclasses.replace(last, condition=condition)

    def compare(self, symbol: str, left: Any, right: Any) -> HostNumber:
        """A comparison, which Python makes at each launch."""
        (_, one), (_, other) = _parts(left), _parts(right)
        return HostNumber(f"({one} {symbol} {other})", bool)


def _limits(kind: type, dtype: DType) -> str:
    """A condition under which a number of a Python type has one of ``dtype`` that is the same."""
    if kind is bool:
        if dtype is not u1:
            raise DecidesAtCompileTime
        return "({0}) is not None"
    if dtype.is_float:
        most = _WHOLE_IN_FLOATS if kind is int else _LARGEST[dtype.name]
        return f"{-most!r} <= {{0}} <= {most!r}"
    if kind is float or dtype is u1:
        raise DecidesAtCompileTime
    low, high = integer_range(dtype)
    return f"{low} <= {{0}} <= {high}"


def has_host_number(value: Any) -> bool:
    """Whether there is such a number in a value, or in a sequence or dictionary of values."""
    if isinstance(value, (tuple, list)):
        return any(map(has_host_number, value))
    if isinstance(value, dict):
        return any(map(has_host_number, value.values()))
    return isinstance(value, HostNumber)
