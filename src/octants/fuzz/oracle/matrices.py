"""Vectors and matrices as values: assignment copies, operators work by element."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from octants.fuzz.oracle import functions
from octants.fuzz.oracle.numbers import (
    Num,
    Type,
    convert,
    lift,
    offset_of,
    promote,
)
from octants.fuzz.oracle.operators import (
    binary,
    install_operators,
    invert,
    negative,
)
from octants.fuzz.oracle.state import STATE, IllDefined


class inexact:
    """Within it the order and the form of operations are not part of the language's definition."""

    def __enter__(self) -> None:
        STATE.inexact += 1

    def __exit__(self, *_: object) -> None:
        STATE.inexact -= 1


def loosely(method: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose roundings are an implementation's own."""

    def wrapper(*args: Any, **keywords: Any) -> Any:
        with inexact():
            return method(*args, **keywords)

    return wrapper


class Matrix:
    """A vector, shape (n,), or a matrix, shape (n, m), with elements of one type, row by row."""

    def __init__(self, items: Sequence[Any], shape: tuple[int, ...]) -> None:
        numbers = [lift(item) for item in items]
        dtype = numbers[0].type
        for number in numbers[1:]:
            dtype = promote(dtype, number.type)
        self.items: list[Any] = [convert(number, dtype) for number in numbers]
        self.shape = shape

    # -- elements -------------------------------------------------------------------------------

    def _offset(self, index: Any) -> int:
        return offset_of(index if isinstance(index, tuple) else (index,), self.shape)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            items = self.items[index]
            return Matrix(items, (len(items),))
        if isinstance(index, tuple) and any(isinstance(part, slice) for part in index):
            return self._part(index)
        return self.items[self._offset(index)]

    def _part(self, index: tuple[Any, ...]) -> Matrix:
        """A row, a column, or a block."""
        picked = [
            list(range(extent))[part] if isinstance(part, slice) else [lift(part).__index__()]
            for part, extent in zip(index, self.shape, strict=True)
        ]
        items = [self._at(i, j) for i in picked[0] for j in picked[1]]
        lengths = [
            len(numbers)
            for numbers, part in zip(picked, index, strict=True)
            if isinstance(part, slice)
        ]
        return Matrix(items, tuple(lengths))

    def __setitem__(self, index: Any, value: Any) -> None:
        offset = self._offset(index)
        stored = convert(lift(value), self.items[offset].type)
        if not STATE.quiet:
            self.items[offset] = stored

    def __iter__(self) -> Iterator[Any]:
        if len(self.shape) == 1:
            return iter(self.items)
        columns = self.shape[1]
        rows = [self.items[k : k + columns] for k in range(0, len(self.items), columns)]
        return iter(Matrix(row, (columns,)) for row in rows)

    def __len__(self) -> int:
        return self.shape[0]

    def copy(self) -> Matrix:
        return Matrix(self.items, self.shape)

    def cast(self, dtype: Type) -> Matrix:
        return self.map(lambda x: convert(x, dtype))

    def map(self, fn: Callable[[Num], Num]) -> Matrix:
        return Matrix([fn(item) for item in self.items], self.shape)

    # -- linear algebra -------------------------------------------------------------------------

    def _at(self, row: int, column: int) -> Any:
        return self.items[row * self.shape[1] + column]

    def _build(self, entry: Callable[[int, int], Any], rows: int, columns: int) -> Matrix:
        entries = [entry(i, j) for i in range(rows) for j in range(columns)]
        return Matrix(entries, (rows, columns))

    @loosely
    def __matmul__(self, other: Matrix) -> Any:
        if len(self.shape) == 1:
            raise IllDefined("vector @")
        rows, inner = self.shape
        if len(other.shape) == 1:
            return Matrix(
                [
                    total([self._at(i, k) * other.items[k] for k in range(inner)])
                    for i in range(rows)
                ],
                (rows,),
            )

        def entry(i: int, j: int) -> Any:
            return total([self._at(i, k) * other._at(k, j) for k in range(inner)])

        return self._build(entry, rows, other.shape[1])

    @loosely
    def dot(self, other: Matrix) -> Any:
        return total([a * b for a, b in zip(self.items, other.items, strict=True)])

    @loosely
    def cross(self, other: Matrix) -> Any:
        a, b = self.items, other.items
        if len(a) == 2:
            return a[0] * b[1] - a[1] * b[0]
        pairs = ((1, 2), (2, 0), (0, 1))
        return Matrix([a[i] * b[j] - a[j] * b[i] for i, j in pairs], (3,))

    def outer_product(self, other: Matrix) -> Matrix:
        a, b = self.items, other.items
        return self._build(lambda i, j: a[i] * b[j], len(a), len(b))

    def transpose(self) -> Matrix:
        return self._build(lambda i, j: self._at(j, i), self.shape[1], self.shape[0])

    def norm_sqr(self) -> Any:
        return self.dot(self)

    @loosely
    def norm(self, eps: Any = 0) -> Any:
        square = self.dot(self)
        return functions.smooth("sqrt", square + eps if not isinstance(eps, int) else square)

    @loosely
    def normalized(self, eps: Any = 0) -> Any:
        length = self.norm()
        return self / (length if isinstance(eps, int) else length + eps)

    @loosely
    def sum(self) -> Any:
        return total(self.items)

    @loosely
    def trace(self) -> Any:
        return total([self._at(k, k) for k in range(self.shape[0])])

    def max(self) -> Any:
        return fold("max", self.items)

    def min(self) -> Any:
        return fold("min", self.items)

    @loosely
    def determinant(self) -> Any:
        n = self.shape[0]
        if n == 1:
            return self.items[0]
        terms = [
            self._at(0, j) * self._minor(0, j).determinant() * (1.0 if j % 2 == 0 else -1.0)
            for j in range(n)
        ]
        return convert(total(terms), self.items[0].type)

    def _minor(self, row: int, column: int) -> Matrix:
        n = self.shape[0]
        rows = [i for i in range(n) if i != row]
        columns = [j for j in range(n) if j != column]
        return Matrix([self._at(i, j) for i in rows for j in columns], (n - 1, n - 1))

    @loosely
    def inverse(self) -> Matrix:
        n = self.shape[0]
        dtype, determinant = self.items[0].type, self.determinant()

        def entry(i: int, j: int) -> Any:
            if n == 1:
                return convert(lift(1.0), dtype) / determinant
            cofactor = self._minor(j, i).determinant()
            return (cofactor if (i + j) % 2 == 0 else -cofactor) / determinant

        return self._build(entry, n, n)

    def __bool__(self) -> bool:
        raise IllDefined("truth of a vector")

    __hash__ = None  # type: ignore[assignment]


for _position, _name in enumerate("xyzw"):

    def _get(self: Matrix, position: int = _position) -> Num:
        return self[position]  # type: ignore[no-any-return]

    def _set(self: Matrix, value: Any, position: int = _position) -> None:
        self[position] = value

    setattr(Matrix, _name, property(_get, _set))

for _letters in (word for n in (2, 3, 4) for word in itertools.product("xyzw", repeat=n)):

    def _get_several(self: Matrix, letters: tuple[str, ...] = _letters) -> Matrix:
        return Matrix([self["xyzw".index(letter)] for letter in letters], (len(letters),))

    def _set_several(self: Matrix, value: Any, letters: tuple[str, ...] = _letters) -> None:
        items = list(value.items) if isinstance(value, Matrix) else [value] * len(letters)
        for letter, item in zip(letters, items, strict=True):
            self["xyzw".index(letter)] = item

    setattr(Matrix, "".join(_letters), property(_get_several, _set_several))


def total(items: Sequence[Any]) -> Any:
    result = items[0]
    for item in items[1:]:
        result = result + item
    return result


def fold(fn: str, items: Sequence[Any]) -> Any:
    result = items[0]
    for item in items[1:]:
        result = broadcast(lambda a, b: binary(fn, a, b), result, item)
    return result


def broadcast(fn: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """Apply a function of two scalars by element; a scalar goes with every element."""
    if isinstance(x, Matrix) and isinstance(y, Matrix):
        if x.shape != y.shape:
            raise IllDefined(f"shapes {x.shape} and {y.shape}")
        return Matrix([fn(a, b) for a, b in zip(x.items, y.items, strict=True)], x.shape)
    if isinstance(x, Matrix):
        return x.map(lambda a: fn(a, y))
    if isinstance(y, Matrix):
        return y.map(lambda b: fn(x, b))
    return fn(x, y)


def select(condition: Any, x: Any, y: Any) -> Any:
    """``select``, by element where the condition or a side is a vector."""
    if isinstance(condition, Matrix):
        sides = [v.items if isinstance(v, Matrix) else [v] * len(condition.items) for v in (x, y)]
        trios = zip(condition.items, *sides, strict=True)
        return Matrix([functions.select(*trio) for trio in trios], condition.shape)
    return broadcast(lambda a, b: functions.select(condition, a, b), x, y)


def _elementwise(fn: str, apply: Callable[[str, Any, Any], Num], flipped: bool = False) -> Any:
    def method(self: Matrix, other: Any) -> Any:
        if not isinstance(other, (Matrix, Num, int, float)):
            return NotImplemented
        left, right = (other, self) if flipped else (self, other)
        return broadcast(lambda a, b: apply(fn, a, b), left, right)

    return method


install_operators(
    Matrix, _elementwise, lambda self: self.map(negative), lambda self: self.map(invert)
)


def vector(items: Any) -> Matrix:
    """``Vector([...])``."""
    values = list(items)
    return Matrix(values, (len(values),))


def matrix(rows: Any) -> Matrix:
    """``Matrix([[...], ...])``; of a flat list, a vector."""
    listed = [list(row) if isinstance(row, (list, tuple, Matrix)) else row for row in rows]
    if not isinstance(listed[0], list):
        return vector(listed)
    flat = [item for row in listed for item in row]
    return Matrix(flat, (len(listed), len(listed[0])))
