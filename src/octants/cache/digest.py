"""Hashes of Python values that are the same in each process.

A value that could decide what a kernel becomes is hashed in full. What can do so only by its
attributes, as the object of a kernel that is a method, is hashed by its class: its attributes are
hashed as they are read. Objects are numbered in the order in which they are met, so that a hash
tells which values are one and the same object, and a number leads to the object again.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import struct
import types
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from octants.diagnostics.source_text import source_text
from octants.hashing import blake2b
from octants.lang.library_function_marks import (
    home_of,
    marked_function,
    note_compiled,
    recursion_depth,
)
from octants.types.compile_time_reads import ABSENT
from octants.types.matrix_types import MatrixType
from octants.types.matrix_values import Matrix
from octants.types.parameter_annotations import NdarrayAnnotation, Template, resolve_annotation
from octants.types.scalars import DType
from octants.types.specialisation_signature import (
    FieldHandle,
    NdarrayHandle,
    NdarrayType,
    QuantHandle,
    StructHandle,
)
from octants.types.structs import Struct, StructType

_NOT_OURS = ("octants.demos.", "octants.fuzz.")


class Digest:
    """A hash that grows, and the objects that it has met, by their numbers."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._hash = blake2b(digest_size=20)

    def copy(self) -> Digest:
        """The same, to go on from here in another way."""
        other = Digest()
        other.objects = list(self.objects)
        other._numbers = dict(self._numbers)
        other._hash = self._hash.copy()
        return other

    @property
    def text(self) -> str:
        """The hash so far, in hexadecimal digits."""
        return self._hash.hexdigest()

    def number(self, value: Any) -> int | None:
        """The number of an object that was met; None for others."""
        return self._numbers.get(id(value))

    def word(self, *words: str | bytes | int) -> None:
        """Add words; where one ends and the next begins is part of the hash."""
        for word in words:
            data = word if type(word) is bytes else str(word).encode(errors="surrogatepass")
            self._hash.update(b"%d:%b" % (len(data), data))

    def value(self, value: Any) -> None:
        """Add a value."""
        plain = _PLAIN.get(type(value))
        if plain is not None:
            self.word(type(value).__name__, plain(value))
        elif not self._is_known(value):
            for kinds, add in _RULES:
                if isinstance(value, kinds):
                    add(self, value)
                    return
            _add_object(self, value)

    def values(self, *values: Any) -> None:
        """Add several values."""
        self.word("values", len(values))
        for value in values:
            self.value(value)

    def field(self, field: FieldHandle | NdarrayHandle) -> None:
        """Add what a kernel depends on of a field or ndarray that it uses.

        This gives a field memory.
        """
        self.value(field)
        self.word(type(field).__qualname__, field.dtype.name, field.name)
        layouts = sorted((kind.name, repr(layout)) for kind, layout in field.layouts().items())
        described = tuple(field.element_shape), tuple(field.offset), layouts, field.is_exported
        self.word(repr(described))
        self.value(field.sparsity)

    def _is_known(self, value: Any) -> bool:
        """Number an object; whether it has a number already, which then stands for it."""
        if isinstance(value, types.MethodType):  # created each time
            return False
        known = self._numbers.get(id(value))
        if known is not None:
            self.word("again", known)
            return True
        self._numbers[id(value)] = len(self.objects)
        self.objects.append(value)
        return False


_PLAIN: dict[type, Callable[[Any], str | bytes]] = {
    type(None): str,
    type(Ellipsis): str,
    bool: str,
    int: str,
    str: str,
    bytes: bytes,
    float: lambda x: struct.pack("<d", x),
    complex: lambda x: struct.pack("<dd", x.real, x.imag),
    DType: str,
    NdarrayType: functools.cache(repr),
}
"""Types that are hashed as one word, and own nothing that a kernel reads."""


def is_plain(value: Any) -> bool:
    """Whether a value is hashed as one word."""
    return type(value) in _PLAIN


# -- objects ---------------------------------------------------------------------------------------


def is_ours(module: str | None) -> bool:
    """Whether a module is a part of Octants that programs cannot see into."""
    name = f"{module}."
    return name.startswith("octants.") and not name.startswith(_NOT_OURS)


def target_of(function: Any) -> Any:
    """The function that a call in a kernel is a call of.

    What a decorator has made of a Python function is called itself, not the function inside.
    """
    marked = marked_function(function)
    return function if marked is None else marked


def _add_object(digest: Digest, value: Any) -> None:
    digest.word("object")
    digest.value(type(value))


def _add_function(digest: Digest, function: types.FunctionType) -> None:
    module = function.__module__
    digest.word("function", str(module), function.__qualname__)
    target = target_of(function)
    if target is not function:
        digest.value(target)
    if is_ours(home_of(function)):
        return
    code = function.__code__
    text = source_text(function)
    digest.word(code.co_filename, code.co_firstlineno, code.co_name, text or "no source")
    digest.word(*code.co_freevars)
    digest.values(*(function.__defaults__ or ()))
    digest.value(dict(function.__kwdefaults__ or {}))
    note_compiled(function)
    adjoint = getattr(function, "octants_adjoint", None)
    if adjoint is not None:
        digest.word("adjoint")
        digest.value(adjoint)
    digest.word("depth", str(recursion_depth(function)))
    for name, annotation in function.__annotations__.items():
        digest.word(name)
        digest.value(resolve_annotation(function, annotation))


def _add_builtin(digest: Digest, function: types.BuiltinFunctionType) -> None:
    owner = function.__self__
    digest.word("builtin", str(function.__module__), function.__qualname__)
    digest.value(None if isinstance(owner, types.ModuleType) else owner)


def _add_class(digest: Digest, kind: type) -> None:
    digest.word("class", *(f"{each.__module__}.{each.__qualname__}" for each in kind.__mro__))
    if dataclasses.is_dataclass(kind) and not is_ours(kind.__module__):
        for parameter in inspect.signature(kind).parameters.values():
            digest.word(parameter.name, str(parameter.kind))
            digest.value(parameter.default)


# -- values ----------------------------------------------------------------------------------------


def _add_numpy(digest: Digest, array: Any) -> None:
    if array.dtype.hasobject:
        _add_object(digest, array)
        return
    given = np.asarray(array)
    digest.word("numpy", type(array).__name__, array.dtype.str, repr(given.shape), given.tobytes())


def _add_field(digest: Digest, field: FieldHandle) -> None:
    """A field that is held by something; what it is like counts where it is used."""
    digest.word("field", field.companion.name)
    if field.primal is not field:
        digest.value(field.primal)


def _add_quant_field(digest: Digest, field: QuantHandle) -> None:
    digest.word("quantised field")
    if not field.is_placed:
        return
    digest.values(field.packing, field.slots, field.inner, field.word_axes, field.words)
    digest.values(field.shape, field.offset, field.element_shape)


def _add_dataclass(digest: Digest, value: Any) -> None:
    """One of ours, such as the type of an argument."""
    digest.word("dataclass", type(value).__qualname__)
    digest.values(*(getattr(value, entry.name) for entry in dataclasses.fields(value)))


class _OurDataclass(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return dataclasses.is_dataclass(value) and is_ours(type(value).__module__)


class _Ours(metaclass=_OurDataclass):
    """The type of instances of dataclasses of Octants."""


def _parts(kind: str, parts: Callable[[Any], Sequence[Any]]) -> Callable[[Digest, Any], None]:
    """A rule for values that are hashed as their parts."""

    def add(digest: Digest, value: Any) -> None:
        found = parts(value)
        digest.word(kind, len(found))
        for each in found:
            digest.value(each)

    return add


_RULES: tuple[tuple[Any, Callable[[Digest, Any], None]], ...] = (
    (type(ABSENT), _parts("absent", lambda _: ())),
    (types.FunctionType, _add_function),
    (types.MethodType, _parts("method", lambda x: (x.__func__, x.__self__))),
    (property, _parts("property", lambda x: (x.fget,))),
    (types.BuiltinFunctionType, _add_builtin),
    (type, _add_class),
    (types.ModuleType, _parts("module", lambda x: (x.__name__,))),
    (enum.Enum, _parts("member", lambda x: (x.name, type(x), x.value))),
    ((np.ndarray, np.generic), _add_numpy),
    # A subclass of a number or string may mean more than it holds.
    ((int, float, str, bytes, range, slice), _parts("number", lambda x: (repr(x), type(x)))),
    ((list, tuple), _parts("sequence", lambda x: (type(x), *x))),
    (dict, _parts("dictionary", lambda x: (type(x), *chain.from_iterable(x.items())))),
    (Matrix, _parts("matrix", lambda x: (type(x).__name__, x.to_numpy(), x.declared_dtype))),
    (MatrixType, _parts("matrix type", lambda x: (type(x).__name__, x.n, x.m, x.python_dtype))),
    (Struct, _parts("struct", lambda x: (x.entries, x.methods, x.struct_type))),
    (StructType, _parts("struct type", lambda x: (x.name, x.members, x.methods, x.defaults))),
    ((NdarrayAnnotation, Template), _parts("annotation", lambda x: (type(x).__name__, repr(x)))),
    (FieldHandle, _add_field),
    (StructHandle, _parts("struct field", lambda x: (dict(x.members), x.python_type))),
    (QuantHandle, _add_quant_field),
    (_Ours, _add_dataclass),
)
