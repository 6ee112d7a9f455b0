"""Faults that programs of one profile show, and those of the core do not."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from octants.autodiff.facts.task_facts import TaskFacts
from octants.frontend.control_flow import loops
from octants.frontend.memory import indexing, ndarray_views, sparse_functions
from octants.ir import array_aliasing
from octants.ir.builder import Builder
from octants.ir.core import Value
from octants.lang import linear_algebra
from octants.mathlib import packed_numbers
from tests.fuzz.faults import Fault


def keep_the_first_bit(patch: pytest.MonkeyPatch) -> None:
    """A mask of all bits but the first one is taken for one of all."""

    def identity(self: Builder, fn: str, lhs: Value, rhs: Value) -> Value | None:
        if fn == "and" and self.constants.get(rhs) == (1 << (rhs.type.bits - 1)) - 1:
            return lhs
        return original(self, fn, lhs, rhs)

    original = Builder._identity
    patch.setattr(Builder, "_identity", identity)


def clear_the_next_bit(patch: pytest.MonkeyPatch) -> None:
    """A number that is stored in a word clears the lowest bit of its neighbour."""

    def with_bits(build: Any, word: Any, first: int, width: int, new: Any) -> Any:
        after = first + width
        if after < word.type.bits:
            rest = ((1 << word.type.bits) - 1) ^ (1 << after)
            word = build.binary("and", word, build.constant(rest, word.type))
        return original(build, word, first, width, new)

    original = packed_numbers._with_bits
    patch.setattr(packed_numbers, "_with_bits", with_bits)


def no_memory_of_others(patch: pytest.MonkeyPatch) -> None:
    """No two ndarrays are taken to share memory."""
    patch.setattr(array_aliasing, "has_memory_of_others", lambda array: False)


def nearest_but_one(patch: pytest.MonkeyPatch) -> None:
    """An index beyond the end of an ndarray that clamps is the last but one."""

    def clamped(context: Any, index: Any, extent: Any, at: ast.AST | None = None) -> Any:
        value = original(context, index, extent, at)
        build = context.builder
        count = build.cast(context.value(extent), value.type)
        one = build.constant(1, value.type)
        is_last = build.compare("eq", value, build.binary("sub", count, one))
        return build.select(is_last, build.binary("sub", value, one), value)

    original = indexing._clamped
    patch.setattr(indexing, "_clamped", clamped)


def run_no_else(patch: pytest.MonkeyPatch) -> None:
    """The `else` of a loop does not run."""
    patch.setattr(loops, "_else", lambda *_: True)


def forget_the_offset(patch: pytest.MonkeyPatch) -> None:
    """A part of a view begins where the view does."""

    def part(context: Any, view: Any, node: ast.Slice) -> Any:
        made = original(context, view, node)
        return type(made)({**made.members, "offset": view.members["offset"]}, made.python_type)

    original = ndarray_views.part
    patch.setattr(ndarray_views, "part", part)


def keep_contents(patch: pytest.MonkeyPatch) -> None:
    """The elements of a cell that is deactivated keep their values."""
    patch.setattr(sparse_functions, "_clear", lambda *_: None)


def no_rotation_has_a_derivative(patch: pytest.MonkeyPatch) -> None:
    """The rotations of decompositions count as rounding errors, as where values are equal."""
    patch.setattr(linear_algebra, "NOISE", 0.0)


def take_the_adjoint_in_each_work_item(patch: pytest.MonkeyPatch) -> None:
    """Of a number that several work items store, each takes the whole adjoint."""
    patch.setattr(TaskFacts, "is_repeated", lambda *_: False)


FAULTS_OF_PROFILES: dict[str, Fault] = {
    "bits": keep_the_first_bit,
    "quantised": clear_the_next_bit,
    "shared": no_memory_of_others,
    "edges": nearest_but_one,
    "statics": run_no_else,
    "collections": forget_the_offset,
    "sparse": keep_contents,
    "races": take_the_adjoint_in_each_work_item,
    "decompositions": no_rotation_has_a_derivative,
}
