"""An operation that the compiler has never seen: its class and its handlers are enough.

CONTRIBUTING.md says which files a new operation touches. These are registered while the tests run:
a function of numbers, and one that writes memory. Analyses and passes know them by their traits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from octants import interpreter
from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.codegen import arithmetic, memory
from octants.codegen.function_emitter import FunctionEmitter
from octants.codegen.llvm import operations
from octants.codegen.structured import operations as structured
from octants.ir import ops
from octants.ir.core import (
    OPERATIONS,
    Array,
    Companion,
    Module,
    Value,
    attribute,
    operand,
    operands,
    operation,
)
from octants.ir.ops.arithmetic import Pure
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.pipeline import Stage, finish
from octants.simplify import simplify
from octants.target import Capabilities
from octants.types.scalars import f32
from tests.codegen.compiled import Compiled
from tests.devices import on_cpu
from tests.ir.parser import parse
from tests.vulkan.compiled import OnVulkan


class Midpoint(Pure):
    """``%2: f32 = midpoint(%0, %1)``"""

    x: Value = operand()
    y: Value = operand()


class Scale(ops.Write):
    """``scale<@x, primal>(%factor, %i)`` multiplies an element by a number."""

    reads = True

    array: Array = attribute()
    companion: Companion = attribute()
    value: Value = operand()
    indices: list[Value] = operands()


def _midpoint(_: interpreter.Interpreter, op: Any, env: dict[Value, Any]) -> None:
    env[op.result] = (env[op.x] + env[op.y]) / 2


def _scale(self: interpreter.Interpreter, op: Any, env: dict[Value, Any]) -> None:
    data = self.storage[op.ref]
    data[tuple(env[index] for index in op.indices)] *= env[op.value]


def _write_midpoint(f: FunctionEmitter, op: Any) -> None:
    total = arithmetic.combine(f, "add", f32, f.use(op.x), f.use(op.y))
    f.bind(op.result, arithmetic.combine(f, "mul", f32, total, f.code.constant(0.5, f32)))


def _write_scale(f: FunctionEmitter, op: Any) -> None:
    place = memory.address_of(f, op.array, op.companion, op.indices)
    scaled = arithmetic.combine(
        f, "mul", f32, memory.read(f.code, place, f32, op.ref), f.use(op.value)
    )
    memory.write(f.code, place, f32, scaled, op.ref)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    handlers = {"midpoint": (_midpoint, _write_midpoint), "scale": (_scale, _write_scale)}
    for declared in (Midpoint, Scale):
        name = declared.__name__.lower()
        made = operation(name)(declared)
        monkeypatch.setitem(interpreter.HANDLERS, made, handlers[name][0])
        for table in (operations.TABLE, structured.TABLE):
            monkeypatch.setitem(table, made, handlers[name][1])
    yield
    for name in handlers:
        del OPERATIONS[name]


TEXT = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, ndarray, () [primal]
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: f32 = load<@x, primal>(%2)
  %4: f32 = load<@y, primal>(%2)
  %5: f32 = midpoint(%3, %4)
  %6: f32 = midpoint(%3, %4)
  %7: f32 = midpoint(%4, %4)
  scale<@x, primal>(%6, %2)
  %8: f32 = load<@x, primal>(%2)
  %9: f32 = load<@y, primal>(%2)
  %10: f32 = binary<add>(%8, %5)
  %11: f32 = binary<add>(%10, %9)
  store<@y, primal>(%11, %2)
  yield()
}
"""
SIMPLER = """\
  %3: f32 = load<@x, primal>(%2)
  %4: f32 = load<@y, primal>(%2)
  %5: f32 = midpoint(%3, %4)
  scale<@x, primal>(%5, %2)
  %6: f32 = load<@x, primal>(%2)
"""
"""Equal ones are shared, the dead one is gone; what was written is loaded again."""


def inputs() -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    return {name: generator.uniform(0.5, 1.5, 37).astype(np.float32) for name in "xy"}


def expected() -> dict[str, np.ndarray[Any, Any]]:
    x, y = inputs().values()
    middle = (x + y) / 2
    return {"x": x * middle, "y": (x * middle + middle) + y}


def check(run: Any) -> None:
    arrays = inputs()
    run(arrays)
    for name, values in expected().items():
        np.testing.assert_allclose(arrays[name], values, rtol=1e-6)


def finished(module: Module) -> Module:
    """The module that code is generated from, where the arrays may share memory."""
    return finish(module, Stage(Capabilities(contracts=True), verifies=True), noalias=True)


def test_it_is_printed_parsed_verified_and_interpreted() -> None:
    module = parse(TEXT)
    verify(module)
    assert to_text(module) == TEXT
    check(lambda arrays: interpreter.run(module, arrays))


def test_it_is_shared_and_pruned_and_memory_is_read_again() -> None:
    module = parse(TEXT)
    simplify(module)
    assert SIMPLER in to_text(module)
    check(lambda arrays: interpreter.run(module, arrays))


def test_analyses_know_its_operands() -> None:
    module = parse(TEXT)
    forms = AffineExpressions(module.tasks[0])
    found = [op for op in module.walk() if op.NAME == "midpoint"]
    assert not any(forms.is_uniform(op.result) for op in found)


@on_cpu
@pytest.mark.parametrize("machine", [Compiled, OnVulkan])
def test_it_is_compiled(machine: type[Compiled]) -> None:
    module = parse(TEXT)
    simplify(module)
    check(lambda arrays: machine(finished(module)).run(arrays))
