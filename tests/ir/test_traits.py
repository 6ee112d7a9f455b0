"""What operations say of themselves: each tells by a trait what its results depend on."""

from __future__ import annotations

import pytest

from octants.analysis.control_flow.uniformity import Uniformity
from octants.ir.core import OPERATIONS, Operation
from octants.ir.printer import to_text
from octants.simplify import simplify
from tests.ir.parser import parse

WITHOUT_RESULTS = {"yield", "parallel_for"}
OF_SEVERAL_RESULTS = {"custom_derivative"}
"""Pure, but shared and moved by no pass."""


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_each_operation_says_what_its_results_depend_on(name: str) -> None:
    kind: type[Operation] = OPERATIONS[name]
    is_known = kind.is_scalar or kind.reads or kind.is_convergent or kind.is_tied or kind.REGIONS
    assert is_known or kind.has_effects or name in WITHOUT_RESULTS | OF_SEVERAL_RESULTS


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_traits_go_together(name: str) -> None:
    kind = OPERATIONS[name]
    assert kind.is_scalar or not kind.is_pure
    assert not (kind.is_scalar and (kind.has_effects or kind.reads or kind.is_varying))
    assert not (kind.is_speculatable and (kind.has_effects or kind.is_convergent))
    assert not (kind.is_speculatable and kind.is_costly)


LOWERED = """\
kernel @k
array @x: i32, 1, ndarray, () [primal]
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: i32 = constant<3>()
  %4: i32 = call<integer_power>(%2, %3)
  %5: i32 = call<integer_power>(%2, %3)
  %6: f32 = cast(%2)
  %7: i32 = float_to_int(%6)
  %8: i32 = float_to_int(%6)
  %9: u64 = launch_constant<seed>()
  %10: u64 = launch_constant<seed>()
  %11: i32 = cast(%9)
  %12: i32 = cast(%10)
  %13: i32 = binary<add>(%4, %5)
  %14: i32 = binary<add>(%7, %8)
  %15: i32 = binary<add>(%11, %12)
  %16: i32 = binary<add>(%13, %14)
  %17: i32 = binary<add>(%15, %16)
  store<@x, primal>(%17, %2)
  yield()
}
"""


def test_operations_of_lowered_code_are_shared_where_they_are_equal() -> None:
    module = parse(LOWERED)
    facts = Uniformity(module.tasks[0].body)
    by_name = {op.NAME: op for op in module.walk()}
    assert facts.varies(by_name["call"].result)
    assert not facts.varies(by_name["launch_constant"].result)
    simplify(module)
    text = to_text(module)
    assert [text.count(name) for name in ("call<", "float_to_int", "launch_constant")] == [1, 1, 1]
