"""Records of a capacity: what lies outside is neither written nor read, and checks tell of it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from octants import interpreter
from octants.codegen.llvm import cpu
from octants.diagnostics.exceptions import OctantsAssertionError
from octants.ir.core import InvalidIR
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.runtime.cpu import CpuDevice
from octants.simplify.dead_code import prune
from tests.codegen.compiled import Compiled
from tests.ir.parser import parse

# Each item pushes 10 * k at index k of a record of 4, for n indices; what is pushed behind the
# record is what item 0 finds at its end. Then it pops the indices in `at`.
PUSHES = """\
kernel @k
array @n: i64, 1, ndarray, () [primal]
array @at: i64, 1, ndarray, () [primal]
array @out: i64, 2, ndarray, () [primal]
array @behind: i64, 1, ndarray, () [primal]
record #r0 [4]: i64
record #s1: i64
parallel @t {
  %0: i32 = constant<0>()
  %1: i32 = shape<@n, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: i64 = constant<0>()
  %4: i64 = constant<1>()
  %5: i64 = constant<10>()
  %6: i64 = constant<777>()
  %7: i64 = constant<4>()
  %8: i64 = load<@n, primal>(%2)
  %9: i64 = record_end<#r0>(%3, %7)
  record_push<#s1>(%9, %3, %6)
  for(%3, %8) { (%10: i64):
    %11: i64 = binary<mul>(%10, %5)
    record_push<#r0>(%3, %10, %11)
    yield()
  }
  %12: i64 = record_pop<#s1>(%9, %3)
  store<@behind, primal>(%12, %2)
  %13: i32 = constant<0>()
  %14: i32 = shape<@at, 0>()
  for(%13, %14) { (%15: i32):
    %16: i64 = load<@at, primal>(%15)
    %17: i64 = record_pop<#r0>(%3, %16)
    store<@out, primal>(%17, %2, %15)
    yield()
  }
  CHECK
  store<@behind, primal>(%4, %2)
  yield()
}
"""
CHECK = "record_check<#r0>(%8)"


def data() -> dict[str, np.ndarray]:
    at = np.array([0, 1, 3, 4, 2**40, -1, -(2**62)])
    return {
        "n": np.array([4, 5, 100]),
        "at": at,
        "out": np.full((3, len(at)), -1),
        "behind": np.zeros(3, np.int64),
    }


def test_outside_a_record_nothing_is_written_and_the_last_slot_is_read() -> None:
    module = parse(PUSHES.replace("CHECK", CHECK))
    device = CpuDevice(1)
    kernel = Compiled(module, device)
    found = data()
    kernel.run(found)
    assert found["out"].tolist() == [[0, 10, 30, 30, 30, 30, 30]] * 3
    assert found["behind"].tolist() == [1, 777, 777]  # 1: the work item has come to its end
    with pytest.raises(
        OctantsAssertionError, match="needs 100 slots, one for each iteration, and has 4"
    ):
        device.synchronize()
    device.synchronize()
    expected = data()
    ran = interpreter.run(module, expected)
    assert [(o.record.capacity, o.count, o.item) for o in ran.overflows] == [(4, 5, 1), (4, 100, 2)]
    for name, numbers in expected.items():
        assert np.array_equal(numbers, found[name])


def test_the_text_form() -> None:
    text = PUSHES.replace("CHECK", CHECK)
    assert to_text(parse(text)) == text
    verify(parse(text))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("record_check<#s1>(%8)", "has no capacity"),
        ("record_check<#r0>(%2)", "a count of type i32"),
    ],
)
def test_what_is_no_check(wrong: str, why: str) -> None:
    with pytest.raises(InvalidIR, match=why):
        verify(parse(PUSHES.replace("CHECK", wrong)))


def test_the_checks_of_a_record_that_nobody_reads_are_removed() -> None:
    text = PUSHES.replace("CHECK", CHECK)
    module = parse(text)
    prune(module)
    assert "record_check<#r0>" in to_text(module)
    unread = text.replace("store<@out, primal>(%17, %2, %15)", "store<@out, primal>(%16, %2, %15)")
    module = parse(unread)
    prune(module)
    assert "record_check" not in to_text(module)


def test_without_a_capacity_there_is_no_test_for_it() -> None:
    text = PUSHES.replace("  CHECK\n", "")
    free = cpu.llvm_text(parse(text.replace("#r0 [4]", "#r0")), cpu.host_target())
    test = re.compile(r"icmp ult i64 [^,]+, 4\b")
    assert not test.search(free)
    assert test.search(cpu.llvm_text(parse(text), cpu.host_target()))
