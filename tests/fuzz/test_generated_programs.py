"""Random programs are what they claim, and the oracle's two modes agree with differences."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from octants.fuzz.compare import is_nonzero
from octants.fuzz.generator.build import generate
from octants.fuzz.generator.context import ArrayInfo
from octants.fuzz.generator.integer_widths import fitted
from octants.fuzz.oracle.run import run
from octants.fuzz.program import Outcome, Program
from tests.fuzz.helpers import assert_generated
from tests.seeds import counts

STEP = 1e-5
ENDS = "written float array without a gradient"  # where derivatives end, and differences do not


Pairs = list[tuple[Program, Outcome]]


@pytest.fixture(scope="module", params=counts(16, 64))
def count(request: pytest.FixtureRequest) -> int:
    """How many programs; `python -m octants.fuzz` compares as many as one likes."""
    return int(request.param)


@pytest.fixture(scope="module")
def accepted(count: int) -> Pairs:
    """Programs that are not set aside; every one of them must have a meaning."""
    programs = [generate(seed, "f64") for seed in range(count)]
    pairs = [(program, run(program)) for program in programs]
    return [(program, outcome) for program, outcome in pairs if not outcome.near]


def moved(program: Program, step: float) -> Program:
    inputs = {
        name: values + step * program.direction[name] if name in program.direction else values
        for name, values in program.inputs.items()
    }
    return Program(**{**program.__dict__, "inputs": inputs})


def test_both_modes_agree_with_central_differences(accepted: Pairs, count: int) -> None:
    compared = 0
    for program, outcome in accepted:
        if "stop_grad" in program.source or ENDS in program.features:
            continue
        products = [outcome.gradient[n].value * program.direction[n] for n in program.weights]
        reverse = sum(np.sum(product) for product in products)
        scale = sum(np.sum(np.abs(product)) for product in products) + 1e-12
        forward = sum(
            np.sum(program.weights[n] * outcome.tangent[n].value) for n in program.weights
        )
        assert abs(forward - reverse) <= 1e-10 * scale, program.seed
        ahead, behind = (run(moved(program, sign * STEP), rounding=False) for sign in (1, -1))
        smooth = run(program, rounding=False)  # rounding to f16 moves the place of the derivative
        if not ahead.path == behind.path == smooth.path:
            continue
        slope = sum(
            np.sum(smooth.gradient[n].value * program.direction[n]) for n in program.weights
        )
        change = ahead.functional(program.weights) - behind.functional(program.weights)
        assert abs(change / (2 * STEP) - slope) <= 1e-6 * scale, program.seed
        compared += 1
    assert compared >= 0.5 * count


def test_few_are_set_aside_and_few_have_zero_gradients(accepted: Pairs, count: int) -> None:
    assert len(accepted) >= 0.85 * count
    assert sum(is_nonzero(*pair) for pair in accepted) >= 0.8 * len(accepted)


def test_f32_and_f64_share_the_source() -> None:
    for seed in range(20):
        one, other = generate(seed, "f32"), generate(seed, "f64")
        assert one.source == other.source
        assert all(np.array_equal(one.inputs[name], other.inputs[name]) for name in one.inputs)


@pytest.mark.parametrize("programs", counts(8, 40))
def test_the_distance_of_f32_runs_is_within_the_bounds(programs: int) -> None:
    """The oracle in f32 is itself an implementation that rounds elsewhere than one in f64."""
    for seed in range(programs):
        program = generate(seed, "f32")
        if "random" in program.source:
            continue
        rough, exact = run(program), run(program, rounding=False)
        if rough.near or rough.path != exact.path:
            continue
        for name, estimate in rough.gradient.items():
            scale = np.max(np.abs(estimate.value), initial=1e-6)
            assert np.all(np.abs(estimate.value - exact.gradient[name].value) <= 1e-3 * scale)


WANTED = """for; for nested 2 deep; for nested 3 deep; while; while on data; while True with break;
break; continue; early return from a func; return in a loop; early return from a kernel; func; elif;
else; static for; static if; range with a step; range with a negative step; bound from constant;
bound from variable; bound from array; bound from arithmetic; bound from an outer index;
loop-carried scalar; carried vector; vector local; matrix local; run-time component index;
component assignment; matmul; cross; normalized; inverse; determinant; transpose; outer_product;
dot; norm; norm_sqr; trace; sum; max; min; elementwise product; function of a vector;
load of a field; load of a ndarray; load of a vector or matrix; store; += on an array;
*= on an array; atomic_add; atomic_min; atomic_max; atomic_mul; atomic on a vector;
result of an atomic; integer atomic_add; store of an integer; data-dependent index; clamped index;
local first assigned in branches; a local keeps its first type; annotated local; tuple assignment;
conditional expression; select; select of vectors; chained comparison; short-circuit and;
short-circuit or; comparison of floats; truth value in a local; sin; cos; tan; tanh; asin; acos;
exp; log; sqrt; rsqrt; power; atan2; float %; float //; integer %; integer //; rounding; sign;
min or max; division; bit operation; shift; cast of a float to i32; cast of an i32 to a float;
cast through i64; cast through u8; cast from another float; local of another float type;
random float; random integer; closure over a float; closure over an int; argument: qd.i32;
argument: FP; argument: qd.template(); returned value; parallel loop; serial stretch;
domain: range; domain: argument; domain: shape; domain: span; domain: ndrange; domain: struct;
domain: struct2; domain: grouped; reversed rows; serialised loop;
kernel local seen in a parallel loop; kernel local accumulated in a parallel loop;
kernel local assigned by one work item; kernel launched twice"""


def test_every_construct_is_generated() -> None:
    assert_generated(WANTED, "core", 400)


@pytest.mark.parametrize(
    ("text", "name", "is_cast"),
    [
        ("(6) << 5", "i8", True),
        ("(6) << 5", "u8", False),
        ("(((3) << 5)) << 7", "i16", False),
        ("(-(7))", "u32", True),
        ("f5.shape[0] << COUNT + 3", "i8", True),
        ("qd.select(3 > 2, qd.max(5, 300), abs(-1))", "u8", True),
        ("(t6[300 - 300])", "i8", False),
        ("qd.u64(1000)", "i8", False),
        ("(300 if o7 > 2 else 300)", "i8", False),
        ("300 // (2 - 2)", "i8", False),
    ],
)
def test_numbers_fit_the_integers_that_they_are_stored_as(
    text: str, name: str, is_cast: bool
) -> None:
    """The language refuses those that do not, whether literals or made of literals."""
    arrays = [ArrayInfo("f5", "f", (16,), (), True), ArrayInfo("t6", "w", (3,), (), True)]
    shared = SimpleNamespace(constants=[("COUNT", 4)], arrays=arrays)
    context: Any = SimpleNamespace(shared=shared, note=lambda _: None)
    assert fitted(context, text, name) == (f"qd.cast({text}, qd.{name})" if is_cast else text)
