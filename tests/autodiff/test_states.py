"""On which memory a reverse kernel must run, and what its loops record."""

from __future__ import annotations

import pytest

from octants.autodiff.reverse import Reversed
from octants.ir import ops
from octants.simplify import simplify
from tests.autodiff.reversing import differentiate
from tests.ir.parser import parse

ITEM = """
kernel @k
array @x: f32, 2, ndarray, () [primal, adjoint]
array @y: f32, 1, ndarray, () [primal, adjoint]
array @t: i32, 0, argument, () [primal]
array @c: f32, 0, argument, () [primal]
parallel @k_0 {
  %a: i32 = constant<0>()
  %b: i32 = constant<4>()
  yield(%a, %b)
} { (%i: i32):
  %zero: i32 = constant<0>()
  %one: i32 = constant<1>()
  %two: i32 = constant<2>()
  %three: i32 = constant<3>()
  %t: i32 = load<@t, primal>()
  %next: i32 = binary<add>(%t, %one)
  %c: f32 = load<@c, primal>()
  BODY
  yield()
}
"""


def reverse_of(body: str) -> Reversed:
    module = parse(ITEM.replace("BODY", body))
    simplify(module)
    return differentiate(module)


def record_bytes(result: Reversed) -> int:
    """The bytes of an iteration, over all records of the module."""
    pushes = [op for op in result.module.walk() if isinstance(op, ops.RecordPush)]
    return sum(op.record.offsets()[1] for op in pushes)


STATES = {
    "read only": (
        "after",
        """%v: f32 = load<@x, primal>(%i, %zero)
        %w: f32 = binary<mul>(%v, %v)
        store<@y, primal>(%w, %i)""",
    ),
    "in place": (
        "before",
        """%v: f32 = load<@x, primal>(%i, %zero)
        %w: f32 = binary<mul>(%v, %v)
        store<@x, primal>(%w, %i, %zero)""",
    ),
    "in place, but linear": (
        "after",
        """%v: f32 = load<@x, primal>(%i, %zero)
        %w: f32 = binary<mul>(%v, %c)
        store<@x, primal>(%w, %i, %zero)""",
    ),
    "another time step, by an argument": (
        "after",
        """%v: f32 = load<@x, primal>(%t, %i)
        %w: f32 = binary<mul>(%v, %v)
        store<@x, primal>(%w, %next, %i)""",
    ),
    "a neighbour": (
        "before",
        """%v: f32 = load<@x, primal>(%i, %zero)
        %w: f32 = binary<mul>(%v, %v)
        %j: i32 = binary<add>(%i, %one)
        store<@x, primal>(%w, %j, %zero)""",
    ),
    "a trajectory": (
        "after",
        """for(%zero, %t) { (%s: i32):
          %v: f32 = load<@x, primal>(%i, %s)
          %w: f32 = binary<mul>(%v, %v)
          %n: i32 = binary<add>(%s, %one)
          store<@x, primal>(%w, %i, %n)
          yield()
        }""",
    ),
    "a trajectory that runs back into itself": (
        "before",
        """for(%one, %t) { (%s: i32):
          %v: f32 = load<@x, primal>(%i, %s)
          %w: f32 = binary<mul>(%v, %v)
          %n: i32 = binary<add>(%s, %two)
          %m: i32 = binary<sub>(%n, %three)
          store<@x, primal>(%w, %i, %n)
          store<@x, primal>(%c, %i, %s)
          yield()
        }""",
    ),
    "what was stored just before": (
        "after",
        """%v: f32 = load<@y, primal>(%i)
        store<@x, primal>(%v, %i, %zero)
        %w: f32 = load<@x, primal>(%i, %zero)
        %u: f32 = binary<mul>(%w, %w)
        %o: f32 = atomic<add, @x, primal>(%u, %i, %one)""",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_state(name: str) -> None:
    state, body = STATES[name]
    result = reverse_of(body)
    assert not result.hazards
    assert result.state == state


@pytest.mark.parametrize(
    ("nbytes", "read"),
    [
        (0, "%v: f32 = load<@x, primal>(%i, %zero)"),
        (
            0,
            """%is_low: u1 = compare<lt>(%i, %t)
            %v: f32 = if(%is_low) {
              %low: f32 = load<@x, primal>(%i, %zero)
              yield(%low)
            } { yield(%c) }""",
        ),
        (
            8,
            """%v: f32 = for(%zero, %t, %c) { (%s: i32, %sum: f32):
              %each: f32 = load<@x, primal>(%i, %s)
              %more: f32 = binary<mul>(%each, %each)
              %new: f32 = binary<add>(%sum, %more)
              yield(%new)
            }""",
        ),
    ],
    ids=["once", "in a branch", "in a loop"],
)
def test_what_runs_once_is_not_logged(nbytes: int, read: str) -> None:
    result = reverse_of(f"""{read}
        %w: f32 = binary<mul>(%v, %v)
        store<@x, primal>(%w, %i, %zero)""")
    assert (result.state, record_bytes(result)) == ("before", nbytes)


LOOP = """%v: f32 = load<@x, primal>(%i, %zero)
%r: f32, %q: f32, %e: i32 = for(%zero, %t, %v, %v, %zero) { (%k: i32, %p: f32, %s: f32, %n: i32):
  STEP
}
store<@y, primal>(%r, %i)"""

RECORDS = {
    "constant coefficients": (
        0,
        """%a2: f32 = constant<0.95>()
        %b2: f32 = binary<mul>(%p, %a2)
        yield(%b2, %s, %n)""",
    ),
    "a nonlinear recurrence": (4, "%b2: f32 = unary<sin>(%p)\n yield(%b2, %s, %n)"),
    "two carried values": (
        8,
        "%b2: f32 = binary<mul>(%p, %s)\n %c2: f32 = unary<sin>(%s)\n yield(%b2, %c2, %n)",
    ),
    "an accumulator of what is read again": (
        0,
        """%w: f32 = load<@x, primal>(%k, %one)
        %d: f32 = unary<sin>(%w)
        %b2: f32 = binary<add>(%p, %d)
        yield(%b2, %s, %n)""",
    ),
    "an integer that is affine in the counter": (
        4,
        """%f: f32 = cast(%n)
        %d: f32 = binary<mul>(%p, %p)
        %b2: f32 = binary<mul>(%d, %f)
        %m: i32 = binary<add>(%n, %three)
        yield(%b2, %s, %m)""",
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_record(name: str) -> None:
    size, step = RECORDS[name]
    assert record_bytes(reverse_of(LOOP.replace("STEP", step))) == size


def test_atomic_result_cannot_be_had_again() -> None:
    result = reverse_of(
        """%v: f32 = load<@x, primal>(%i, %zero)
        %n: f32 = atomic<add, @y, primal>(%v, %zero)
        %w: f32 = binary<mul>(%n, %n)
        store<@x, primal>(%w, %i, %one)"""
    )
    assert {hazard.kind for hazard in result.hazards} == {"atomic", "order"}
