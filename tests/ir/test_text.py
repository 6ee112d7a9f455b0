"""The text form round-trips, and the verifier rejects what is not well formed."""

from __future__ import annotations

import pytest

from octants.ir.core import Companion, InvalidIR, Module
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.simplify import simplify
from tests.autodiff.random_ir import Generator
from tests.autodiff.reversing import differentiate
from tests.ir.parser import ParseError, parse


def random_modules() -> list[Module]:
    modules = []
    for seed in range(12):
        module = Generator(seed).module()
        simplify(module)
        modules += [module, differentiate(module).module]
    return modules


def test_round_trip_is_exact() -> None:
    for module in random_modules():
        text = to_text(module)
        again = parse(text)
        verify(again)
        assert to_text(again) == text


def test_layouts_options_and_messages_round_trip() -> None:
    text = """\
kernel @k
array @x: f32, 2, field, (3,) [primal (4, 8) ((0, 1, 0, 96), (1, 1, 0, 12)) (4,), tangent]
array @n: i64, 0, argument, () [primal]
parallel @k_0 {'block_dim': 64} {
  %0: i32 = constant<0>()
  %1: i32 = constant<4>()
  yield(%0, %1)
} { (%2: i32):
  %3: i32 = constant<-1>()
  %4: f32 = load<@x, primal>(%2, %2, %3)
  %5: f64 = constant<inf>()
  %6: u1 = constant<True>()
  print<('x = ', ('.3f',), ' it\\'s "so"\\n'), False>(%4)
  assert<bounds, 'index {} of {}'>(%6, %2, %3)
  %7: f32 = atomic<min, @x, tangent>(%4, %2, %2, %3)
  yield()
}
"""
    module = parse(text)
    verify(module)
    again = to_text(module)
    assert to_text(parse(again)) == again
    assert again.count("\n") == text.count("\n")
    layout = module.arrays[0].layouts[Companion.PRIMAL]
    assert layout is not None
    assert layout.shape == (4, 8)
    assert layout.terms[0].stride == 96
    assert module.tasks[0].options == {"block_dim": 64}


HEAD = "kernel @k\narray @x: f32, 1, ndarray, () [primal]\nserial @k_0 {\n"

MALFORMED = {
    "is not defined": "%1: f32 = unary<sin>(%0)\n%0: f32 = constant<1.0>()\nyield()",
    "does not end in a yield": "%0: f32 = constant<1.0>()",
    "mixes types": (
        "%0: f32 = constant<1.0>()\n%1: f64 = constant<1.0>()\n%2: u1 = constant<True>()\n"
        "%3: f32 = select(%2, %0, %1)\nyield()"
    ),
    "no unary function": "%0: f32 = constant<1.0>()\n%1: f32 = unary<sine>(%0)\nyield()",
    "has no adjoint": "%0: i32 = constant<1>()\n%1: f32 = load<@x, adjoint>(%0)\nyield()",
    "indices for": "%0: i32 = constant<1>()\n%1: f32 = load<@x, primal>(%0, %0)\nyield()",
    "for: yield": (
        "%0: i32 = constant<1>()\n%1: i32 = for(%0, %0, %0) { (%2: i32, %3: i32):\nyield()\n}\n"
        "yield()"
    ),
}


@pytest.mark.parametrize("message", MALFORMED)
def test_verifier_rejects(message: str) -> None:
    text = HEAD + MALFORMED[message] + "\n}\n"
    with pytest.raises((InvalidIR, ParseError), match=message):
        verify(parse(text))


def test_verifier_rejects_records_that_are_only_read() -> None:
    text = """\
kernel @k
record #r (4,): f32
serial @k_0 {
  %0: i64 = constant<0>()
  %1: f32 = record_pop<#r>(%0, %0)
  yield()
}
"""
    with pytest.raises(InvalidIR, match="nothing is pushed to the record"):
        verify(parse(text))


NOTHING_WITHIN = {
    "if": "%0: u1 = constant<True>()\nif(%0) {\nyield()\n} {\n}\nyield()",
    "for": "%0: i32 = constant<1>()\nfor(%0, %0) { (%1: i32):\n}\nyield()",
    "while": "while() {\n} {\nyield()\n}\nyield()",
}


@pytest.mark.parametrize("operation", NOTHING_WITHIN)
def test_verifier_rejects_a_region_without_operations(operation: str) -> None:
    with pytest.raises(InvalidIR, match=f"a block does not end in a yield\nin: {operation}"):
        verify(parse(HEAD + NOTHING_WITHIN[operation] + "\n}\n"))


def test_parser_says_where() -> None:
    with pytest.raises(ParseError, match="no operation 'frobnicate'"):
        parse(HEAD + "frobnicate()\nyield()\n}\n")
