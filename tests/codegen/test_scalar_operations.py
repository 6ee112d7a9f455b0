"""Every scalar operation on every type it has, against `ir.scalar_semantics`, in one module per
type."""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from octants.ir import ops, scalar_semantics
from octants.ir.core import InvalidIR, Module, Operation, Value
from octants.ir.ops import arithmetic as fns
from octants.target import Target
from octants.types import scalars
from octants.types.scalars import DType, convert, f16, f32, f64, i32, integer_range, u1
from tests.codegen.compiled import TARGET, Compiled, ndarray, parallel

INTEGERS = [dtype for dtype in scalars.ALL if dtype.is_integer]
FLOATS = [f16, f32, f64]
PLAIN = replace(TARGET, cpu="x86-64", features="")  # without instructions for f16 and rounding
TARGETS = [TARGET, PLAIN] if TARGET.triple.startswith("x86_64") else [TARGET]
both_targets = pytest.mark.parametrize("target", TARGETS, ids=["host", "plain"][: len(TARGETS)])

LIBRARY = (fns.FLOAT_FUNCTIONS | {"pow", "atan2"}) - {"sqrt", "rsqrt"}


def samples(dtype: DType) -> list[Any]:
    """Values at the edges and some in between."""
    if dtype is u1:
        return [False, True]
    if dtype.is_float:
        info = np.finfo(dtype.numpy)
        numbers = [0.0, 1.0, 0.5, 1.5, 2.5, 3.0, 1e-3, 7.25, 100.5, 1000.0, 0.1]
        numbers += [float(info.max), float(info.tiny), float(info.smallest_subnormal)]
        numbers += [math.inf, float(info.eps), 1.0 + float(info.eps)]
        numbers = [convert(x, dtype) for x in numbers]
        return [*numbers, *(-x for x in numbers), math.nan]
    low, high = integer_range(dtype)
    near = [low, low + 1, high, high - 1, high // 2, low // 2, 0, 1, 2, 3, 5, 7, 8, 10, 31, 63, 100]
    near += [-x for x in near] if low else []
    return sorted({convert(x, dtype) for x in near})


def functions(dtype: DType) -> tuple[list[str], list[str], list[str]]:
    """The unary and binary functions and comparisons of a type that are exact or nearly so."""
    compare = sorted(fns.COMPARE)
    if dtype is u1:
        return ["not"], sorted(fns.BITWISE), compare
    if dtype.is_float:
        unary = [*fns.ROUNDINGS, "neg", "abs", "sign", "sqrt", "rsqrt"]
        return unary, sorted(fns.ARITHMETIC - {"pow"} | {"div", "mul_error"}), compare
    unary = [*fns.ROUNDINGS, *fns.BIT_COUNTS, "neg", "abs", "sign", "not"]
    return unary, sorted(fns.ARITHMETIC | fns.BITWISE | fns.SHIFTS), compare


@pytest.mark.parametrize("dtype", scalars.ALL, ids=str)
def test_the_verifier_accepts_what_can_be_compiled(dtype: DType) -> None:
    unary, binary, _ = functions(dtype)
    library = fns.FLOAT_FUNCTIONS | fns.SLOPES | {"pow", "atan2"} if dtype.is_float else set()
    found = {
        fn for fn in fns.UNARY if accepted(ops.Unary(fn, Value(dtype), results=[Value(dtype)]))
    }
    assert found == (library & fns.UNARY) | set(unary)
    pair = Value(dtype), Value(dtype)
    found = {fn for fn in fns.BINARY if accepted(ops.Binary(fn, *pair, results=[Value(dtype)]))}
    assert found == (library & fns.BINARY) | set(binary)


def accepted(op: Operation) -> bool:
    try:
        op.verify()
    except InvalidIR:
        return False
    return True


def same(found: Any, wanted: Any) -> bool:
    """Bit for bit, except that one NaN is as good as another."""
    if isinstance(wanted, float):
        if math.isnan(wanted):
            return math.isnan(found)
        return struct.pack("<d", found) == struct.pack("<d", wanted)
    return bool(found == wanted)


def check(out: dict[Any, Any], wanted: dict[Any, Any]) -> None:
    wrong = [
        f"{key} of {operands}: {found!r} instead of {expected!r}"
        for key, cases in wanted.items()
        for found, (operands, expected) in zip(out[key].tolist(), cases, strict=True)
        if not same(found, expected)
    ]
    assert not wrong, "\n".join(wrong[:20]) + f"\n... {len(wrong)} in all"


def output(name: str, dtype: DType, arrays: list[Any]) -> Any:
    array = ndarray(name, dtype)
    arrays.append(array)
    return array


def run_functions(
    dtype: DType,
    unary: list[str],
    binary: list[str],
    compare: list[str],
    target: Target = TARGET,
    opt_level: int = 2,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What compiled code gives for all pairs of samples, and the pairs."""
    pairs = list(itertools.product(samples(dtype), repeat=2))
    a, b = ndarray("a", dtype), ndarray("b", dtype)
    arrays = [a, b]

    def body(build: Any, i: Any) -> None:
        x, y = build.load(a, [i]), build.load(b, [i])
        for fn in unary:
            build.store(output(fn, dtype, arrays), [i], build.unary(fn, x))
        for fn in binary:
            build.store(output(fn, dtype, arrays), [i], build.binary(fn, x, y))
        for fn in compare:
            build.store(output(fn, u1, arrays), [i], build.compare(fn, x, y))

    task = parallel("all", lambda build: (build.index(0), build.shape(a, 0)), body)
    kernel = Compiled(Module("scalars", arrays, tasks=[task]), target=target, opt_level=opt_level)
    data = {array.name: np.zeros(len(pairs), array.dtype.numpy) for array in arrays}
    data["a"][:], data["b"][:] = zip(*pairs, strict=True)
    kernel.run(data)
    return data, {"pairs": pairs}


@pytest.mark.parametrize("opt_level", [0, 2])
@both_targets
@pytest.mark.parametrize("dtype", scalars.ALL, ids=str)
def test_exact_functions_give_the_defined_bits(
    dtype: DType, target: Target, opt_level: int
) -> None:
    unary, binary, compare = functions(dtype)
    out, facts = run_functions(dtype, unary, binary, compare, target, opt_level)
    pairs = facts["pairs"]
    wanted = {fn: [(x, scalar_semantics.evaluate(fn, dtype, x)) for x, _ in pairs] for fn in unary}
    for fn in (*binary, *compare):
        wanted[fn] = [(pair, scalar_semantics.evaluate(fn, dtype, *pair)) for pair in pairs]
    check(out, wanted)


@both_targets
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_a_product_and_a_sum_rounded_once(dtype: DType, target: Target) -> None:
    rng = np.random.default_rng(7)
    near = [float(x) for x in rng.uniform(-2, 2, 12).astype(dtype.numpy)]
    numbers = [*near, *samples(dtype)]
    triples = [tuple(rng.choice(numbers, 3).tolist()) for _ in range(2000)]
    with np.errstate(all="ignore"):  # what cancels leaves the rounding error of the product
        triples += [(x, y, -convert(x * y, dtype)) for x, y, _ in triples[:500]]
    arrays = [ndarray(name, dtype) for name in "xyz"] + [ndarray("out", dtype)]

    def body(build: Any, i: Any) -> None:
        x, y, z = (build.load(array, [i]) for array in arrays[:3])
        build.store(arrays[3], [i], build.fma(x, y, z))

    task = parallel("all", lambda build: (build.index(0), build.shape(arrays[0], 0)), body)
    columns = [np.array(column, dtype.numpy) for column in zip(*triples, strict=True)]
    data = dict(zip("xyz", columns, strict=True)) | {"out": np.zeros(len(triples), dtype.numpy)}
    Compiled(Module("fma", arrays, tasks=[task]), target=target).run(data)
    exact = [(triple, scalar_semantics.fma(dtype, *triple)) for triple in triples]
    check({"fma": data["out"]}, {"fma": exact})


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_division_and_power_by_constants(dtype: DType) -> None:
    divisors = [convert(x, dtype) for x in (0, 1, -1, 2, 3, 7, 8, 64, -3, -8)]
    divisors += [integer_range(dtype)[0], integer_range(dtype)[1]]
    names = ("floordiv", "mod", "truncdiv", "truncmod", "pow", "shl", "shr", "ushr", "mul")
    a, numbers, arrays = ndarray("a", dtype), samples(dtype), []
    arrays.append(a)

    def body(build: Any, i: Any) -> None:
        x = build.load(a, [i])
        for fn, divisor in itertools.product(names, dict.fromkeys(divisors)):
            result = build.binary(fn, x, build.constant(divisor, dtype))
            build.store(output(f"{fn} {divisor}", dtype, arrays), [i], result)

    task = parallel("all", lambda build: (build.index(0), build.shape(a, 0)), body)
    kernel = Compiled(Module("divisions", arrays, tasks=[task]))
    data = {array.name: np.zeros(len(numbers), array.dtype.numpy) for array in arrays}
    data["a"][:] = numbers
    kernel.run(data)
    check(
        data,
        {
            f"{fn} {divisor}": [
                ((x, divisor), scalar_semantics.evaluate(fn, dtype, x, divisor)) for x in numbers
            ]
            for fn, divisor in itertools.product(names, dict.fromkeys(divisors))
        },
    )


CAST_SAMPLES = {
    f64: [65519.99, 65520.0, 2049.0, 2049.0000001, 5.96e-8, 2.98e-8, 2.9802322387695312e-08,
          2.980232238769532e-08, 1e300, 1e-300, 3e9, -3e9, 2.0**63, 2.0**64, 255.5, -0.5, 1e-40,
          1.00048828125, 1.000488281250001, 1.0004882812499999, 65504.0, 65536.0],
    f32: [65519.996, 65520.0, 2049.0, 2147483520.0, 2147483648.0, 4294967296.0, 1.8446744e19],
    scalars.i64: [2**53 + 1, 2**60 + 2**36 + 1, -(2**60) - 2**36 - 1, 16777217, 65520, 65519],
    scalars.u64: [2**64 - 1, 2**63 + 2**39 + 1, 2**53 + 1],
}  # fmt: skip


@both_targets
@pytest.mark.parametrize("source", scalars.ALL, ids=str)
def test_casts(source: DType, target: Target) -> None:
    numbers = samples(source) + [convert(x, source) for x in CAST_SAMPLES.get(source, [])]
    a = ndarray("a", source)
    arrays = [a]

    def body(build: Any, i: Any) -> None:
        x = build.load(a, [i])
        for dtype in scalars.ALL:
            build.store(output(f"to {dtype}", dtype, arrays), [i], build.cast(x, dtype))
            if dtype.bits == source.bits:
                place = output(f"as {dtype}", dtype, arrays)
                build.store(place, [i], build.bitcast(x, dtype))

    task = parallel("all", lambda build: (build.index(0), build.shape(a, 0)), body)
    kernel = Compiled(Module("casts", arrays, tasks=[task]), target=target)
    data = {array.name: np.zeros(len(numbers), array.dtype.numpy) for array in arrays}
    data["a"][:] = numbers
    kernel.run(data)
    wanted: dict[str, Any] = {}
    for dtype in scalars.ALL:
        wanted[f"to {dtype}"] = [(x, convert(x, dtype)) for x in numbers]
        if dtype.bits == source.bits:
            wanted[f"as {dtype}"] = [
                (x, scalar_semantics.bitcast(x, source, dtype)) for x in numbers
            ]
    check(data, wanted)


@both_targets
def test_every_half_is_read_and_rounded_alike(target: Target) -> None:
    """All f16 as f32, and the f32 around each and around each midpoint as f16."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    exact = halves.astype(np.float32)
    finite = exact[np.isfinite(exact)]
    with np.errstate(all="ignore"):
        middles = (finite + np.nextafter(halves[np.isfinite(exact)], np.float16(np.inf))) / 2
    around = np.concatenate([finite, middles.astype(np.float32)])
    with np.errstate(all="ignore"):
        floats = np.concatenate(
            [exact, around, np.nextafter(around, np.float32(np.inf)),
             np.nextafter(around, np.float32(-np.inf))]
        )  # fmt: skip
    a, b, c, d = ndarray("a", f16), ndarray("b", f32), ndarray("c", f32), ndarray("d", f16)

    def body(build: Any, i: Any) -> None:
        build.store(b, [i], build.cast(build.load(a, [i]), f32))

    def back(build: Any, i: Any) -> None:
        build.store(d, [i], build.cast(build.load(c, [i]), f16))

    def domain(array: Any) -> Any:
        return lambda build: (build.index(0), build.shape(array, 0))

    tasks = [parallel("widen", domain(a), body), parallel("narrow", domain(c), back)]
    data = {
        "a": halves,
        "b": np.zeros(len(halves), np.float32),
        "c": floats,
        "d": np.zeros(len(floats), np.float16),
    }
    Compiled(Module("halves", [a, b, c, d], tasks=tasks), target=target).run(data)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(data["b"], exact)
        np.testing.assert_array_equal(data["d"], floats.astype(np.float16))


# -- functions of the library -------------------------------------------------------------------

NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh"}
NUMPY |= {"acosh": "arccosh", "atanh": "arctanh", "pow": "power", "atan2": "arctan2"}


def precise(fn: str, *operands: float) -> Any:
    """The value in the widest type that numpy has."""
    if fn == "erf":
        return np.longdouble(math.erf(operands[0]))
    with np.errstate(all="ignore"):
        return getattr(np, NUMPY.get(fn, fn))(*map(np.longdouble, operands))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_library_functions_are_within_two_units(dtype: DType) -> None:
    unary, binary = sorted(LIBRARY - {"pow", "atan2"}), ["pow", "atan2"]
    out, facts = run_functions(dtype, unary, binary, [])
    info = np.finfo(dtype.numpy)
    compared = 0
    for fn in (*unary, *binary):
        for found, pair in zip(out[fn].tolist(), facts["pairs"], strict=True):
            operands = pair[:1] if fn in unary else pair
            value = precise(fn, *operands)
            if np.isnan(value):
                assert math.isnan(found), (fn, operands, found)
            elif abs(value) < float(info.max) / 2 and (value == 0 or abs(value) >= info.tiny):
                unit = float(np.spacing(dtype.numpy.type(abs(value))))
                assert abs(found - value) <= 2 * unit, (fn, operands, found, value)
                compared += 1
    assert compared > 1000


def test_results_are_the_same_in_every_lane_and_for_every_count() -> None:
    """A vectorised loop and its remainder give the same bits."""
    a, b = ndarray("a", f32), ndarray("b", f32)

    def body(build: Any, i: Any) -> None:
        x = build.load(a, [i])
        for fn in ("sqrt", "rsqrt", "round", "sign"):
            x = build.binary("add", build.unary(fn, build.unary("abs", x)), x)
        x = build.binary("mod", x, build.constant(0.7, f32))
        build.store(b, [i], build.binary("min", build.binary("div", x, build.load(a, [i])), x))

    task = parallel("all", lambda build: (build.index(0), build.shape(a, 0)), body)
    kernel = Compiled(Module("lanes", [a, b], tasks=[task]))
    x = np.random.default_rng(1).normal(size=67).astype(np.float32)
    whole = np.zeros_like(x)
    kernel.run({"a": x, "b": whole})
    for position in range(len(x)):
        one = np.zeros(1, np.float32)
        kernel.run({"a": x[position : position + 1].copy(), "b": one})
        assert one[0] == whole[position]


def test_index_of_i64() -> None:
    a = ndarray("a", scalars.i64)

    def body(build: Any, i: Any) -> None:
        build.store(a, [build.binary("sub", i, build.constant(5, i.type))], i)

    task = parallel(
        "all",
        lambda build: (build.offset(5), build.offset(9)),
        body,
        scalars.i64,
    )
    data = {"a": np.zeros(4, np.int64)}
    Compiled(Module("wide", [a], tasks=[task])).run(data)
    assert data["a"].tolist() == [5, 6, 7, 8]
    assert i32.bits == 32
