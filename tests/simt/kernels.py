"""Runs kernels whose work items work together: as the frontend builds them, and simplified."""

from __future__ import annotations

from typing import Any

import numpy as np

from octants import interpreter
from octants.frontend.build import build
from octants.ir.core import Companion, Module
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.pipeline import Stage, finish, lower
from octants.target import Blocks, Capabilities
from octants.types.scalars import f64, from_numpy, i32
from octants.types.specialisation_signature import (
    ArgumentType,
    NdarrayType,
    ScalarType,
    TemplateValue,
)
from tests.ir.parser import parse


def type_of(x: Any) -> ArgumentType:
    """An array, a scalar of the default type, or a template."""
    if isinstance(x, np.ndarray):
        return NdarrayType(from_numpy(x.dtype), x.ndim, companions=_companions(x))
    if isinstance(x, bool) or not isinstance(x, (int, float)):
        return TemplateValue(x)
    return ScalarType(f64 if isinstance(x, float) else i32)


def _companions(x: np.ndarray[Any, Any]) -> tuple[Companion, ...]:
    return tuple(Companion)[:3] if x.dtype.kind == "f" else (Companion.PRIMAL,)


def compile_kernel(function: Any, *arguments: Any, blocks: Blocks | None = None) -> Module:
    """The module of a kernel as the frontend leaves it."""
    types = [type_of(x) for x in arguments]
    module = build(function, types, default_float=f64, blocks=blocks or Blocks()).module
    verify(module)
    text = to_text(module)
    assert to_text(parse(text)) == text
    return module


def lowered(module: Module, **machine: Any) -> Module:
    """The module that code is generated from."""
    chosen = Stage(Capabilities(**machine), verifies=True)
    lower(module, chosen)
    result = finish(module, chosen)
    text = to_text(result)
    verify(parse(text))
    assert to_text(parse(text)) == text
    return result


def interpret(module: Module, function: Any, arguments: tuple[Any, ...]) -> None:
    names = list(function.__annotations__)
    known = {array.name for array in module.arrays}
    given = {n: np.asarray(x) for n, x in zip(names, arguments, strict=False) if n in known}
    interpreter.run(module, given)


def run(function: Any, *arguments: Any, blocks: Blocks | None = None) -> None:
    """Run a kernel, whose parameters all have annotations; arrays are changed in place.

    What it does as it was built, and after all passes, is the same to the last bit.
    """
    copies = tuple(x.copy() if isinstance(x, np.ndarray) else x for x in arguments)
    module = compile_kernel(function, *arguments, blocks=blocks)
    interpret(module, function, copies)
    interpret(lowered(module, checks_bounds=True), function, arguments)
    for one, other in zip(copies, arguments, strict=True):
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other)
