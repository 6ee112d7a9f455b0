"""What `simplify` may rewrite and what it must leave: results, and how many operations remain.

A case is a body, the operations that remain, and, for the reader, why. Each body runs before and
after simplification on the same memory, and must leave the same bits.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest

from octants.interpreter import run
from octants.ir.cloning import copy_module
from octants.ir.verifier import verify
from octants.simplify import simplify
from tests.ir.parser import parse

HEAD = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, ndarray, () [primal]
array @g: f32, 1, field, () [primal (4,) ((0, 1, 0, 4),) ()]
array @h: f32, 1, field exported, () [primal (4,) ((0, 1, 0, 4),) ()]
array @n: i32, 1, ndarray, () [primal]
array @m: u8, 1, ndarray, () [primal]
array @l: f32, 1, local, () [primal (4,) ((0, 1, 0, 4),) ()]
serial @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = constant<1>()
  %three: i32 = constant<3>()
  %a: f32 = load<@x, primal>(%0)
  %i: i32 = load<@n, primal>(%0)
"""
TAIL = "  yield()\n}\n"
FLOATS = (0.0, -0.0, 1.5, np.nan, np.inf, -np.inf, 1e-40, 3e38)
INTEGERS = (0, 1, -1, 2, 7, 2**31 - 1, -(2**31))


class Case(NamedTuple):
    """A body, and how many operations of some kinds remain in it."""

    name: str
    body: str
    remain: dict[str, int]


def store(value: str, array: str = "y") -> str:
    return f"  store<@{array}, primal>({value}, %0)\n"


FOLDING = [
    Case(
        "constants are computed",
        "  %v: i32 = binary<add>(%1, %three)\n" + store("%v", "n"),
        {"binary": 0},
    ),
    Case(
        "integers wrap",
        "  %big: i32 = constant<2147483647>()\n  %v: i32 = binary<add>(%big, %1)\n"
        + store("%v", "n"),
        {"binary": 0},
    ),
    Case(
        "narrow integers wrap in their width",
        "  %p: u8 = constant<255>()\n  %q: u8 = constant<3>()\n  %v: u8 = binary<mul>(%p, %q)\n"
        + store("%v", "m"),
        {"binary": 0},
    ),
    Case(
        "a remainder that is made not negative",
        "  %v: i32 = binary<mod>(%i, %three)\n  %w: i32 = binary<add>(%three, %v)\n"
        "  %u: i32 = binary<mod>(%w, %three)\n" + store("%u", "n"),
        {"binary": 1},
    ),
    Case(
        "a remainder of a remainder",
        "  %v: i32 = binary<mod>(%i, %three)\n  %u: i32 = binary<mod>(%v, %three)\n"
        + store("%u", "n"),
        {"binary": 1},
    ),
    Case(
        "a remainder by another number",
        "  %7: i32 = constant<7>()\n  %v: i32 = binary<mod>(%i, %7)\n"
        "  %w: i32 = binary<add>(%v, %7)\n  %u: i32 = binary<mod>(%w, %three)\n" + store("%u", "n"),
        {"binary": 3},
    ),
    Case(
        "a remainder by a negative number",
        "  %7: i32 = constant<-7>()\n  %v: i32 = binary<mod>(%i, %7)\n"
        "  %w: i32 = binary<add>(%v, %7)\n  %u: i32 = binary<mod>(%w, %7)\n" + store("%u", "n"),
        {"binary": 3},
    ),
    Case(
        "a remainder whose sum with the divisor wraps",
        "  %7: i32 = constant<1500000000>()\n  %v: i32 = binary<mod>(%i, %7)\n"
        "  %w: i32 = binary<add>(%v, %7)\n  %u: i32 = binary<mod>(%w, %7)\n" + store("%u", "n"),
        {"binary": 3},
    ),
    Case(
        "the same of unsigned numbers",
        "  %p: u8 = load<@m, primal>(%0)\n  %7: u8 = constant<200>()\n"
        "  %v: u8 = binary<mod>(%p, %7)\n  %w: u8 = binary<add>(%v, %7)\n"
        "  %u: u8 = binary<mod>(%w, %7)\n" + store("%u", "m"),
        {"binary": 3},
    ),
    Case(
        "adding an integer zero",
        "  %v: i32 = binary<add>(%i, %0)\n" + store("%v", "n"),
        {"binary": 0},
    ),
    Case(
        "multiplying by an integer zero",
        "  %v: i32 = binary<mul>(%i, %0)\n" + store("%v", "n"),
        {"binary": 0},
    ),
    Case(
        "multiplying by one",
        "  %o: f32 = constant<1.0>()\n  %v: f32 = binary<mul>(%a, %o)\n" + store("%v"),
        {"binary": 0},
    ),
    Case(
        "adding zero changes -0.0",
        "  %z: f32 = constant<0.0>()\n  %v: f32 = binary<add>(%a, %z)\n" + store("%v"),
        {"binary": 1},
    ),
    Case(
        "multiplying by zero keeps NaN and the sign",
        "  %z: f32 = constant<0.0>()\n  %v: f32 = binary<mul>(%a, %z)\n" + store("%v"),
        {"binary": 1},
    ),
    Case(
        "a number minus itself may be NaN",
        "  %v: f32 = binary<sub>(%a, %a)\n" + store("%v"),
        {"binary": 1},
    ),
    Case(
        "zero minus a number is not its negation",
        "  %z: f32 = constant<0.0>()\n  %v: f32 = binary<sub>(%z, %a)\n" + store("%v"),
        {"binary": 1},
    ),
    Case(
        "squares of a difference and of its negation are the same",
        "  %h: f32 = constant<0.3>()\n  %d: f32 = binary<sub>(%a, %h)\n"
        "  %e: f32 = binary<sub>(%h, %a)\n  %p: f32 = binary<mul>(%d, %d)\n"
        "  %q: f32 = binary<mul>(%e, %e)\n  %r: f32 = fma(%d, %d, %p)\n"
        "  %s: f32 = fma(%e, %e, %q)\n  %t: f32 = binary<mul>(%r, %e)\n"
        "  %v: f32 = fma(%s, %d, %t)\n" + store("%v"),
        {"binary": 4, "fma": 2},
    ),
    Case(
        "a difference is not its negation",
        "  %h: f32 = constant<1.5>()\n  %d: f32 = binary<sub>(%a, %h)\n"
        "  %e: f32 = binary<sub>(%h, %a)\n  %v: f32 = binary<div>(%d, %e)\n" + store("%v"),
        {"binary": 3},
    ),
    Case(
        "a quotient by itself may be NaN",
        "  %v: f32 = binary<div>(%a, %a)\n" + store("%v"),
        {"binary": 1},
    ),
    Case(
        "a NaN is unequal to itself",
        "  %c: u1 = compare<eq>(%a, %a)\n  %v: i32 = cast(%c)\n" + store("%v", "n"),
        {"compare": 1},
    ),
    Case(
        "float sums are not reassociated",
        "  %o: f32 = constant<1e10>()\n  %p: f32 = constant<-1e10>()\n"
        "  %s: f32 = binary<add>(%a, %o)\n  %v: f32 = binary<add>(%s, %p)\n" + store("%v"),
        {"binary": 2},
    ),
    Case(
        "dividing a product gives the factor only without wrapping",
        "  %p: i32 = binary<mul>(%i, %three)\n  %v: i32 = binary<floordiv>(%p, %three)\n"
        + store("%v", "n"),
        {"binary": 2},
    ),
    Case(
        "a branch that is known is taken",
        "  %c: u1 = constant<True>()\n  %v: f32 = if(%c) {\n    yield(%a)\n  } {\n"
        "    %b: f32 = unary<exp>(%a)\n    yield(%b)\n  }\n" + store("%v"),
        {"if": 0, "unary": 0},
    ),
]

NUMBERING = [
    Case(
        "equal operations are one",
        "  %s: f32 = unary<sin>(%a)\n  %t: f32 = unary<sin>(%a)\n  %v: f32 = binary<mul>(%s, %t)\n"
        + store("%v"),
        {"unary": 1},
    ),
    Case(
        "an operation of a dominating block",
        "  %s: f32 = unary<sin>(%a)\n  %c: u1 = compare<lt>(%i, %1)\n  if(%c) {\n"
        "    %t: f32 = unary<sin>(%a)\n    store<@y, primal>(%t, %1)\n    yield()\n  } {\n"
        "    yield()\n  }\n" + store("%s"),
        {"unary": 1},
    ),
    Case(
        "other types are other operations",
        "  %s: i32 = binary<shl>(%i, %1)\n  %u: u32 = cast(%i)\n  %w: u32 = constant<1>()\n"
        "  %t: u32 = binary<shl>(%u, %w)\n  %b: i32 = cast(%t)\n  %v: i32 = binary<sub>(%s, %b)\n"
        + store("%v", "n"),
        {"binary": 3},
    ),
    Case(
        "the order of operands counts",
        "  %b: f32 = load<@x, primal>(%1)\n  %s: f32 = binary<sub>(%a, %b)\n"
        "  %t: f32 = binary<sub>(%b, %a)\n  %v: f32 = binary<mul>(%s, %t)\n" + store("%v"),
        {"binary": 3},
    ),
    Case(
        "0.0 and -0.0 are two constants",
        "  %p: f32 = constant<0.0>()\n  %q: f32 = constant<-0.0>()\n"
        "  store<@y, primal>(%p, %0)\n  store<@y, primal>(%q, %1)\n",
        {"store": 2},
    ),
    Case(
        "updates are effects",
        "  %s: f32 = atomic<add, @y, primal>(%a, %0)\n"
        "  %t: f32 = atomic<add, @y, primal>(%a, %0)\n",
        {"atomic": 2},
    ),
]

LOOP = "  for(%0, %three) {{ (%j: i32):\n{}    yield()\n  }}\n"
COUNTED = "  for(%0, %i) {{ (%j: i32):\n{}    yield()\n  }}\n"


class Moved(NamedTuple):
    """A loop, and how many operations of some kinds stay in it."""

    name: str
    body: str
    inside: dict[str, int]


MOTION = [
    Moved(
        "arithmetic leaves",
        LOOP.format("    %s: f32 = unary<sin>(%a)\n    store<@y, primal>(%s, %j)\n"),
        {"unary": 0},
    ),
    Moved(
        "a load of what the loop does not write leaves",
        "  %v: f32 = for(%0, %three, %a) { (%j: i32, %s: f32):\n"
        "    %p: f32 = load<@g, primal>(%1)\n    %t: f32 = binary<add>(%s, %p)\n"
        "    yield(%t)\n  }\n" + store("%v"),
        {"load": 0, "binary": 1},
    ),
    Moved(
        "a load of an exported field stays where an ndarray is written",
        LOOP.format("    %s: f32 = load<@h, primal>(%1)\n    store<@y, primal>(%s, %j)\n"),
        {"load": 1},
    ),
    Moved(
        "a load of a field of its own goes out where an ndarray is written",
        LOOP.format("    %s: f32 = load<@g, primal>(%1)\n    store<@y, primal>(%s, %j)\n"),
        {"load": 0},
    ),
    Moved(
        "a load stays where another name may be written",
        LOOP.format(
            "    %s: f32 = load<@x, primal>(%1)\n    %t: f32 = binary<add>(%s, %s)\n"
            "    store<@y, primal>(%t, %1)\n"
        ),
        {"load": 1},
    ),
    Moved(
        "a load stays behind an assertion that guards it",
        LOOP.format(
            "    %c: u1 = compare<lt>(%j, %three)\n    assert<assert, 'no'>(%c)\n"
            "    %s: f32 = load<@g, primal>(%1)\n    store<@y, primal>(%s, %j)\n"
        ),
        {"load": 1, "assert": 1},
    ),
    Moved(
        "what depends on the counter stays",
        LOOP.format("    %s: f32 = cast(%j)\n    store<@y, primal>(%s, %j)\n"),
        {"cast": 1},
    ),
    Moved(
        "updates stay",
        LOOP.format("    %s: f32 = atomic<add, @y, primal>(%a, %0)\n"),
        {"atomic": 1},
    ),
    Moved(
        "arithmetic leaves a loop that may not run",
        COUNTED.format("    %s: f32 = unary<sin>(%a)\n    store<@y, primal>(%s, %0)\n"),
        {"unary": 0, "store": 1},
    ),
]

FORWARDING = [
    Case(
        "a load behind a store reads the stored value",
        store("%a") + "  %v: f32 = load<@y, primal>(%0)\n  store<@y, primal>(%v, %1)\n",
        {"load": 1},  # that of %a: %i is not used
    ),
    Case(
        "a second load reads the first one's value",
        "  %p: f32 = load<@g, primal>(%1)\n  %q: f32 = load<@g, primal>(%1)\n"
        "  %v: f32 = binary<mul>(%p, %q)\n" + store("%v"),
        {"load": 1},
    ),
    Case(
        "a store elsewhere in the array does not matter if the indices differ",
        "  store<@g, primal>(%a, %0)\n  %two: f32 = constant<2.0>()\n"
        "  store<@g, primal>(%two, %1)\n  %v: f32 = load<@g, primal>(%0)\n" + store("%v"),
        {"load": 1},
    ),
    Case(
        "a store at an unknown index does",
        "  store<@g, primal>(%a, %0)\n  %three2: i32 = binary<and>(%i, %three)\n"
        "  %two: f32 = constant<2.0>()\n  store<@g, primal>(%two, %three2)\n"
        "  %v: f32 = load<@g, primal>(%0)\n" + store("%v"),
        {"load": 3},
    ),
    Case(
        "two ndarrays may be one",
        "  store<@x, primal>(%a, %1)\n  %two: f32 = constant<2.0>()\n"
        "  store<@y, primal>(%two, %1)\n  %v: f32 = load<@x, primal>(%1)\n" + store("%v"),
        {"load": 2},
    ),
    Case(
        "an update writes",
        "  store<@g, primal>(%a, %0)\n  %u: f32 = atomic<add, @g, primal>(%a, %0)\n"
        "  %v: f32 = load<@g, primal>(%0)\n" + store("%v"),
        {"load": 2},
    ),
    Case(
        "a store in one branch is not known behind it",
        "  store<@g, primal>(%a, %0)\n  %c: u1 = compare<lt>(%i, %1)\n  if(%c) {\n"
        "    %two: f32 = constant<2.0>()\n    store<@g, primal>(%two, %0)\n    yield()\n  } {\n"
        "    yield()\n  }\n  %v: f32 = load<@g, primal>(%0)\n" + store("%v"),
        {"load": 3},
    ),
    Case(
        "a store to a local vector goes if it is overwritten before it is read",
        "  store<@l, primal>(%a, %0)\n  %u: f32 = load<@l, primal>(%0)\n"
        "  store<@l, primal>(%a, %1)\n  %v: f32 = binary<add>(%u, %a)\n"
        "  store<@l, primal>(%v, %0)\n  %k: i32 = binary<and>(%i, %1)\n"
        "  %w: f32 = load<@l, primal>(%k)\n" + store("%w"),
        {"store": 3},
    ),
    Case(
        "a store that may be read stays",
        "  store<@l, primal>(%a, %0)\n  store<@l, primal>(%a, %1)\n"
        "  %k: i32 = binary<and>(%i, %1)\n  %u: f32 = load<@l, primal>(%k)\n"
        "  %v: f32 = binary<add>(%u, %a)\n  store<@l, primal>(%v, %0)\n"
        "  %w: f32 = load<@l, primal>(%k)\n" + store("%w"),
        {"store": 4},
    ),
    Case(
        "a store that a branch or a loop may read stays",
        "  store<@l, primal>(%a, %0)\n  store<@l, primal>(%a, %1)\n"
        "  %k: i32 = binary<and>(%i, %1)\n  %c: u1 = compare<lt>(%i, %1)\n"
        "  if(%c) {\n    %u: f32 = load<@l, primal>(%k)\n  " + store("%u") + "    yield()\n  } {\n"
        "    yield()\n  }\n  store<@l, primal>(%a, %0)\n  store<@l, primal>(%a, %1)\n"
        "  for(%0, %1) { (%p: i32):\n    %v: f32 = load<@l, primal>(%p)\n"
        "    store<@y, primal>(%v, %1)\n    yield()\n  }\n  store<@l, primal>(%a, %0)\n"
        "  %w: f32 = load<@l, primal>(%k)\n  store<@y, primal>(%w, %three)\n",
        {"store": 8},
    ),
    Case(
        "a store that others may see stays",
        "  %two: f32 = constant<2.0>()\n  store<@g, primal>(%two, %0)\n"
        "  store<@g, primal>(%a, %0)\n",
        {"store": 2},
    ),
]


def memory(number: float, integer: int, *, one_array: bool) -> dict[str, np.ndarray]:
    x = np.array([number, 2.5, -3.0, 4.0], np.float32)
    y = x if one_array else np.arange(4, dtype=np.float32)
    n = np.array([integer, 5, 6, 7], np.int32)
    return {
        "x": x,
        "y": y,
        "g": np.ones(4, np.float32),
        "h": np.ones(4, np.float32),
        "n": n,
        "m": np.ones(4, np.uint8),
    }


def check_results(text: str) -> str:
    """Compare the bits that the text leaves, before and after; the operations that remain."""
    module = parse(text)
    verify(module)
    simpler = copy_module(module)
    simplify(simpler)
    verify(simpler)
    for number in FLOATS:
        for integer in INTEGERS if "%i" in text.split(HEAD)[1] else (2,):
            if "for(%0, %i)" in text and integer > 100:
                continue
            for one_array in (False, True):
                before, after = (memory(number, integer, one_array=one_array) for _ in range(2))
                run(module, before)
                run(simpler, after)
                for name, found in after.items():
                    assert found.tobytes() == before[name].tobytes(), (number, integer, name)
    return "\n".join(
        f"{op.NAME} {len(list(loops))}"
        for task in simpler.tasks
        for op, loops in ((op, _loops_of(task.body, op)) for op in task.body.walk())
    )


def _loops_of(block: object, op: object) -> list[object]:
    """The loops around an operation."""
    for each in block.ops:  # type: ignore[attr-defined]
        if each is op:
            return []
        for region in each.regions:
            if any(inner is op for inner in region.walk()):
                return ([each] if each.NAME == "for" else []) + _loops_of(region, op)
    return []


@pytest.mark.parametrize("case", [*FOLDING, *NUMBERING, *FORWARDING], ids=lambda case: case.name)
def test_rewrite(case: Case) -> None:
    found = Counter(line.split()[0] for line in check_results(HEAD + case.body + TAIL).split("\n"))
    assert {name: found[name] for name in case.remain} == case.remain


@pytest.mark.parametrize("case", MOTION, ids=lambda case: case.name)
def test_motion(case: Moved) -> None:
    lines = check_results(HEAD + case.body + TAIL).split("\n")
    found = Counter(line.split()[0] for line in lines if not line.endswith(" 0"))
    assert {name: found[name] for name in case.inside} == case.inside
