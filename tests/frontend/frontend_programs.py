"""Runs a kernel's source twice: built and interpreted, and as the Python function that it is."""

from __future__ import annotations

import functools
import itertools
import linecache
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from octants import interpreter
from octants.frontend import Built, build
from octants.ir.core import Companion, Module
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.types.layouts import Layout, Term
from octants.types.scalars import DType, by_name, f64, i32
from octants.types.specialisation_signature import (
    ArgumentType,
    FieldHandle,
    NdarrayType,
    ScalarType,
    TemplateValue,
)
from tests.ir.parser import parse

_numbers = itertools.count()


def func(function: Callable[..., Any]) -> Callable[..., Any]:
    """What the decorator of functions does, as far as the frontend sees."""
    function.octants_function = function  # type: ignore[attr-defined]
    return function


def define(text: str, name: str = "kernel", file: str = "", **names: Any) -> types.FunctionType:
    """The function ``name`` of a source text, which `inspect` can find again."""
    file = file or f"<program {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace: dict[str, Any] = {"func": func, **names}
    exec(compile(text, file, "exec"), namespace)
    function = namespace[name]
    assert isinstance(function, types.FunctionType)
    return function


class Field(FieldHandle):
    """A dense field, row-major, for tests: `data` is its memory."""

    device = 0

    def __init__(
        self, dtype: DType, shape: tuple[int, ...], element_shape: tuple[int, ...] = ()
    ) -> None:
        self.dtype, self.shape, self.element_shape = dtype, shape, element_shape
        self.name = "field"

    @functools.cached_property
    def data(self) -> Any:
        return np.zeros(self.shape + self.element_shape, self.dtype.numpy)

    @functools.cached_property
    def gradient(self) -> Any:
        return np.zeros_like(self.data)

    def layouts(self) -> dict[Companion, Layout]:
        extents, rank = self.shape + self.element_shape, len(self.shape)
        strides = [self.dtype.size * math.prod(extents[k + 1 :]) for k in range(len(extents))]
        terms = tuple(Term(axis, 1, 0, strides[axis]) for axis in range(rank))
        layout = Layout(self.shape, terms, tuple(strides[rank:]))
        return {Companion.PRIMAL: layout, Companion.ADJOINT: layout}

    def address(self, companion: Companion) -> int:
        raise AssertionError("tests are interpreted")


def type_of(argument: Any) -> ArgumentType:
    """The type of an argument: an array, a number, or a template's value."""
    if isinstance(argument, np.ndarray):
        return NdarrayType(by_name(_name(argument.dtype)), argument.ndim)
    if isinstance(argument, bool):
        return TemplateValue(argument)
    if isinstance(argument, int):
        return ScalarType(i32)
    if isinstance(argument, float):
        return ScalarType(f64)
    return TemplateValue(argument)


def _name(dtype: Any) -> str:
    kind = {"f": "f", "i": "i", "u": "u", "b": "u"}[dtype.kind]
    return f"{kind}{1 if dtype.kind == 'b' else dtype.itemsize * 8}"


def compile_kernel(function: Callable[..., Any], *arguments: Any, **options: Any) -> Built:
    """Build for the types of these arguments; the module is valid and its text is read back."""
    given = {"default_int": i32, "default_float": f64, **options}
    assert isinstance(function, types.FunctionType)
    built = build(function, [type_of(argument) for argument in arguments], **given)
    verify(built.module)
    text = to_text(built.module)
    assert to_text(parse(text)) == text
    return built


def run(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Build and interpret; arrays are changed in place, and what is returned is given."""
    built = compile_kernel(function, *arguments, **options)
    return interpret(built, function, *arguments)


def interpret(built: Built, function: Callable[..., Any], *arguments: Any) -> Any:
    """Interpret what was built."""
    return launch(built, *arguments)[0]


def launch(built: Built, *arguments: Any) -> tuple[Any, interpreter.Interpreter]:
    """Interpret what was built; what it returns, and the interpreter."""
    data: dict[Any, Any] = {}
    for array, source in zip(built.module.arrays, built.sources, strict=True):
        field = getattr(source, "field", None)
        if field is not None:
            data[array.name] = field.data
            data[array.name, Companion.ADJOINT] = field.gradient
        position = getattr(source, "position", None)
        if position is not None and not array.name.startswith("return_"):
            argument = arguments[position]
            data[array.name] = np.asarray(argument, array.dtype.numpy)
    done = interpreter.run(built.module, data)
    results = [
        storage[()]
        for (array, _), storage in done.storage.items()
        if array.name.startswith("return_")
    ]
    if not results:
        return None, done
    return (tuple(results) if built.returns_tuple else results[0]), done


def printed(function: Callable[..., Any], *arguments: Any, **options: Any) -> list[str]:
    """The lines that a kernel prints."""
    built = compile_kernel(function, *arguments, **options)
    return "".join(text for _, text in launch(built, *arguments)[1].printed).splitlines()


def text_of(module: Module) -> str:
    """The text of a module's body, without the head."""
    return to_text(module)


def agree(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Require that the kernel does what the Python function does; gives what it returns."""
    copies = [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]
    wanted = function(*copies)
    given = run(function, *arguments, **options)
    if wanted is None:
        assert given is None
    else:
        np.testing.assert_allclose(given, wanted, rtol=1e-12)
    for copy, argument in zip(copies, arguments, strict=True):
        if isinstance(copy, np.ndarray):
            np.testing.assert_allclose(argument, copy, rtol=1e-12)
    return given
