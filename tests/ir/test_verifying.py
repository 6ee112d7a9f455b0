"""A stage verifies a module again when any part of it has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from octants.ir import ops, verifier
from octants.ir.core import Module
from octants.ir.parser import parse
from octants.pass_context import Stage

TEXT = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: f32 = load<@x, primal>(%2)
  %4: u1 = compare<lt>(%3, %3)
  %5: f32 = if(%4) {
    %6: f32 = unary<neg>(%3)
    yield(%6)
  } {
    yield(%3)
  }
  store<@x, primal>(%5, %2)
  yield()
}
"""


def _first(module: Module, kind: type[Any]) -> Any:
    return next(op for op in module.walk() if isinstance(op, kind))


def _use_what_is_defined_later(module: Module) -> None:
    _first(module, ops.Compare).rhs = _first(module, ops.If).results[0]


def _forget_the_array(module: Module) -> None:
    module.arrays.clear()


def _yield_nothing(module: Module) -> None:
    _first(module, ops.If).then.ops[-1].values.clear()


def _define_twice(module: Module) -> None:
    _first(module, ops.Unary).results[:] = _first(module, ops.Load).results


def _take_no_index(module: Module) -> None:
    module.tasks[0].body.args.clear()


BREAKS = [
    _use_what_is_defined_later,
    _forget_the_array,
    _yield_nothing,
    _define_twice,
    _take_no_index,
]


@pytest.mark.parametrize("damage", BREAKS)
def test_each_kind_of_change_is_verified(damage: Callable[[Module], None]) -> None:
    stage, module = Stage(verifies=True), parse(TEXT)
    stage.see("parse", module)
    damage(module)
    with pytest.raises(verifier.InvalidIR):
        stage.see("damage", module)


def test_what_has_not_changed_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Module] = []
    monkeypatch.setattr(verifier, "verify", seen.append)
    stage, module = Stage(verifies=True), parse(TEXT)
    for _ in range(3):
        stage.see("nothing", module)
    _first(module, ops.Unary).fn = "abs"
    stage.see("abs", module)
    stage.see("nothing", parse(TEXT))
    assert len(seen) == 3
