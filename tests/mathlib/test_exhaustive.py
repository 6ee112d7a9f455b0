"""Every f32 there is: `python -m pytest tests/mathlib -m exhaustive`, a minute for each function.

The references are the library's functions of f64 (which other tests hold against mpmath), and
numpy's for one number in 61. What was found is stored in bench/results/mathlib-exhaustive.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octants.ir.core import Module
from octants.mathlib.function_registry import FAST, UNARY
from octants.mathlib.ir_number import Number, select
from octants.runtime.cpu import CpuDevice
from octants.types.scalars import f32, f64, u32, u64
from tests.codegen.compiled import Compiled, ndarray, parallel
from tests.mathlib.bounds import bound
from tests.mathlib.compiled_functions import bits, compiled, units
from tests.mathlib.samples import EVEN, ODD

CHUNK = 1 << 16
STRIDE = 61
RESULTS = Path(__file__).parents[2] / "bench" / "results" / "mathlib-exhaustive.json"
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh"}
NUMPY |= {"acosh": "arccosh", "atanh": "arctanh"}


def independent(fn: str, x: Any) -> Any:
    """The values in f64 by other means."""
    if fn == "erf":
        special: Any = pytest.importorskip("scipy.special")
        return special.erf(x.astype(np.float64))
    with np.errstate(all="ignore"):
        return getattr(np, NUMPY.get(fn, fn))(x.astype(np.float64))


def _error(found: Number, exact: Number) -> Number:
    """As `units`, but infinite wherever a special value stands in place of another."""
    rounded = exact.to(f32)
    exponent = ((rounded.read_as(u32) >> 23) & 255).to(u64)
    exponent = select(exponent.equals(0), exponent.lift(1), exponent)
    scale = ((1023 + 150 - exponent) << 52).read_as(f64)
    error = (abs(found.to(f64) - exact) * scale).to(f32)
    is_special = ~(abs(found) < np.inf) | ~(abs(rounded) < np.inf)
    same = found.equals(rounded) | (found.is_nan & rounded.is_nan)
    return select(is_special, select(same, found.lift(0.0), np.inf), error)


def errors_of(fn: str, fast_math: bool) -> Callable[[int], Any]:
    """The errors for the f32 whose bits are a chunk of words, by compiled code."""
    base, result = ndarray("base", u32), ndarray("result", f32)

    def body(build: Any, i: Any) -> None:
        start = Number(build, build.load(base, [build.index(0)]))
        x = (start + Number(build, build.cast(i, u32))).read_as(f32)
        found = Number(build, build.unary(fn, x.value))
        exact = Number(build, build.unary(fn, x.to(f64).value))
        build.store(result, [i], _error(found, exact).value)

    domain = parallel("all", lambda build: (build.index(0), build.shape(result, 0)), body)
    module = Module(fn, [base, result], tasks=[domain])
    kernel = Compiled(module, CpuDevice(max_threads=1), fast_math=fast_math)
    errors = np.empty(CHUNK, np.float32)

    def run(begin: int) -> Any:
        kernel.run({"base": np.array([begin], np.uint32), "result": errors})
        return errors

    return run


def sweep(fn: str, fast_math: bool = False) -> dict[str, Any]:
    """The greatest error over all f32, where it is, and how many are rounded correctly.

    Odd and even functions are computed from the size of a number: one sign tells of both.
    """
    run = errors_of(fn, fast_math)
    worst, place, exact = 0.0, 0, 0
    count = 1 << (31 if fn in (*ODD, *EVEN) else 32)
    for begin in range(0, count, CHUNK):
        errors = run(begin)
        exact += int(np.count_nonzero(errors <= 0.5))
        if errors.max() > worst:
            position = int(errors.argmax())
            worst, place = float(errors[position]), begin + position
    at = float(np.uint32(place).view(np.float32))
    return {"ulp": round(worst, 4), "at": at.hex(), "rounded correctly": exact / count}


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("fn", "fast_math"),
    [*((fn, False) for fn in (*UNARY, "rsqrt")),
     *((fn, True) for fn in (*(fn for fn, _ in FAST), "rsqrt"))],
)  # fmt: skip
def test_all_f32(fn: str, fast_math: bool) -> None:
    found = sweep(fn, fast_math)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known["fast " * fast_math + fn] = found
    RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    assert found["ulp"] <= bound(fn, f32, fast_math), found


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fn", UNARY)
def test_one_in_many_f32_by_other_means(fn: str) -> None:
    run = compiled(fn, f32)
    for begin in range(0, 1 << 32, CHUNK * STRIDE):
        words = np.arange(begin, min(begin + CHUNK * STRIDE, 1 << 32), STRIDE)
        x = words.astype(np.uint32).view(np.float32)
        found = run(x)
        errors = units(found, independent(fn, x))
        assert errors.max() <= bound(fn, f32), x[errors.argmax()]
        if fn in (*ODD, *EVEN):
            mirrored = -found if fn in ODD else found
            assert np.array_equal(bits(run(-x)), bits(mirrored))
