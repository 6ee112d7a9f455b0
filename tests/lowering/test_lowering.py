"""What each operation is lowered to gives what the operation gives, and is legal: interpreted."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from octants.codegen.llvm import instruction_writer as llvm
from octants.codegen.metal import library_text as metal
from octants.codegen.structured import legal_operations as structured
from octants.interpreter import Interpreter, run
from octants.ir import ops, random_draws, scalar_semantics
from octants.ir.core import Block, Module, Task, Value
from octants.ir.ops.arithmetic import COMPARE, FLOAT_FUNCTIONS, PARTIAL, QUOTIENTS, UNARY
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.lowering import replacement_blocks
from octants.lowering.legal_operations import Legal, casts, table
from octants.lowering.legaliser import Legaliser
from octants.lowering.math_function_bodies import _lowered
from octants.mathlib.evaluate_with_numpy import evaluate
from octants.types import scalars
from octants.types.scalars import DType, convert, f16, f32, f64, i32, i64, integer_range, u1, u32
from tests.codegen.compiled import for_, if_, ndarray, parallel
from tests.codegen.test_scalar_operations import CAST_SAMPLES, functions, same, samples
from tests.ir.parser import parse


def lower(module: Module, legal: Legal) -> Module:
    """A copy of a module with tasks that has legal operations only."""
    tasks = []
    for task in module.tasks:
        build, values = Legaliser(legal), dict[Value, Value]()
        domain = None if task.domain is None else _lowered(build, task.domain, values)
        body = _lowered(build, task.body, values)
        tasks.append(Task(task.name, body, domain, task.location, task.options))
    return Module(module.name, list(module.arrays), None, tasks, module.location, module.noalias)


BARE = Legal(
    table(
        (scalars.ALL, COMPARE),
        (structured.INTEGERS, ("add", "sub", "mul", "neg", "and", "or", "xor", "not", "quotient")),
        (structured.INTEGERS, ("lsl", "lsr", "asr", "remainder", "popcount")),
        (structured.FLOATS, ("add", "sub", "mul", "div", "neg", "abs", "floor", "ceil", "round")),
        (structured.FLOATS, ("trunc", *(FLOAT_FUNCTIONS - {"rsqrt"}), "pow", "atan2")),
        ((f16,), ("neg", "abs", "floor", "ceil", "round", "trunc")),
        ((u1,), ("and", "or", "xor", "not")),
    ),
    casts((*structured.INTEGERS, u1), (*structured.INTEGERS, *structured.FLOATS))
    | {(f32, f64), (f64, f32)},
)
TARGETS = {
    "cpu": llvm._legal(True, False),
    "plain cpu": llvm._legal(False, False),
    "vulkan": structured.legal(has_f64=True, fast_math=False),
    "mesa": structured.legal(has_f64=True, fast_math=False, rounds=False),
    "metal": metal.instructions(has_f64=False, fast_math=False),
    "bare": BARE,
}
all_targets = pytest.mark.parametrize("legal", TARGETS.values(), ids=TARGETS)


def interpreted(block: Block, *operands: Any, **launch: int) -> Any:
    values = dict(zip(block.args, operands, strict=True))
    return Interpreter({}, **launch).block(block, values)[0]


def check_legal(block: Block, legal: Legal) -> None:
    """Nothing is left but what a target has, and no call but of the library."""
    for op in block.walk():
        if isinstance(op, (ops.Unary, ops.Binary, ops.Compare)):
            assert (op.fn, op.operands[0].type) in legal.functions, op
        elif isinstance(op, ops.Cast):
            pair = op.x.type, op.result.type
            assert pair in legal.casts or set(pair) == {f16, f32}, op
        elif isinstance(op, ops.Fma):
            assert op.result.type in legal.fma
        else:
            kinds = (ops.Constant, ops.Select, ops.Bitcast, ops.Call, ops.FloatToInt)
            assert isinstance(op, (*kinds, ops.LaunchConstant, ops.Yield)), op


def edges(dtype: DType) -> list[Any]:
    """Fewer than `samples`, for what is interpreted for all pairs."""
    if dtype.is_integer:
        low, high = integer_range(dtype)
        numbers = [low, low + 1, -8, -3, -1, 0, 1, 2, 7, dtype.bits - 1, dtype.bits, high]
        return sorted({convert(x, dtype) for x in numbers})
    if dtype is u1:
        return [False, True]
    info = np.finfo(dtype.numpy)
    small, large = float(info.smallest_subnormal), float(info.max)
    numbers = [0.0, -0.0, 0.5, -0.5, 1.0, -0.7, 1.5, 2.5, -3.5, small, large, -math.inf, math.nan]
    return [convert(x, dtype) for x in numbers]


@pytest.mark.parametrize("dtype", scalars.ALL, ids=str)
def test_functions_and_comparisons(dtype: DType) -> None:
    unary, binary, compare = functions(dtype)
    binary += QUOTIENTS if dtype is f32 else []
    seen, wrong = set(), []
    for legal, fn in itertools.product(TARGETS.values(), (*unary, *binary, *compare)):
        if (fn, dtype) in legal.functions:
            continue
        count = 1 if fn in UNARY else 2
        block = replacement_blocks.function(legal, fn, dtype, count)
        check_legal(block, legal)
        if (text := (fn, written(block))) in seen:
            continue
        seen.add(text)
        for operands in itertools.product(edges(dtype), repeat=count):
            expected = scalar_semantics.evaluate(fn, dtype, *operands)
            found = interpreted(block, *operands)
            if not same(found, expected) and not _is_inexact(fn, dtype, legal, operands):
                wrong.append((fn, operands, found, expected))
    assert seen
    assert not wrong, wrong[:20]


def written(block: Block) -> str:
    """The text of a block."""
    return to_text(Module("k", tasks=[Task("t", block)]))


def _is_inexact(fn: str, dtype: DType, legal: Legal, operands: tuple[Any, ...]) -> bool:
    """Whether an error of a product is left undefined: near the ends of the range of f64."""
    has_fused = dtype is not f64 or f64 in legal.fused
    return fn == "mul_error" and not has_fused and _is_extreme(*operands)


def _is_extreme(*operands: float) -> bool:
    sizes = [*map(abs, operands), abs(operands[0] * operands[1])]
    return any(size != size or (size and not 1e-280 < size < 1e280) for size in sizes)


@pytest.mark.parametrize("units", [-2, -1, 0, 1, 2])
def test_quotients_by_estimates_of_roots(units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are right to two ulp if the roots are; zeros, infinities and NaN are as usual."""
    legal = structured.legal(has_f64=True, fast_math=True, roots=True)
    block = replacement_blocks.function(legal, "approximate_div", f32, 2)
    check_legal(block, legal)
    assert not any(isinstance(op, ops.Binary) and op.fn == "div" for op in block.walk())

    def root(x: Any) -> Any:
        exact = 1 / np.sqrt(np.float64(x))
        usual = np.isfinite(exact) and exact
        return np.float32(exact + units * float(np.spacing(np.float32(exact)))) if usual else exact

    monkeypatch.setitem(scalar_semantics.FLOAT, "rsqrt", root)
    random = np.random.default_rng(0)
    for _ in range(1000):
        sizes = np.ldexp(random.uniform(-2, 2, 2), random.integers((-25, -100), (25, 100)))
        a, b = (float(each) for each in sizes.astype(np.float32))
        error = abs(interpreted(block, a, b) - a / b)
        assert error <= 2 * float(np.spacing(np.float32(abs(a / b)))), (a, b)
    for a, b in itertools.product([0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan], repeat=2):
        expected = scalar_semantics.evaluate("div", f32, a, b)
        assert same(interpreted(block, a, b), expected) or abs(b) in (1.0, 2.0), (a, b)


@pytest.mark.parametrize("dtype", structured.INTEGERS, ids=str)
def test_where_the_second_operand_is_known(dtype: DType) -> None:
    wrong = []
    for fn, known in itertools.product(sorted(replacement_blocks.BY_CONSTANT), edges(dtype)):
        block = replacement_blocks.function(TARGETS["vulkan"], fn, dtype, 2, known)
        check_legal(block, TARGETS["vulkan"])
        for x in edges(dtype):
            expected = scalar_semantics.evaluate(fn, dtype, x, known)
            if interpreted(block, x, known) != expected:
                wrong.append((fn, x, known))
    assert not wrong, wrong[:20]


@pytest.mark.parametrize("legal", [TARGETS["cpu"], TARGETS["vulkan"]], ids=["cpu", "vulkan"])
def test_known_powers_of_two_need_no_division(legal: Legal) -> None:
    for fn, dtype in itertools.product(("floordiv", "mod"), (i32, i64)):
        (op,) = [
            op
            for op in replacement_blocks.function(legal, fn, dtype, 2, 8).ops
            if isinstance(op, ops.Binary)
        ]
        assert op.fn == {"floordiv": "asr", "mod": "and"}[fn]
    for fn in ("truncdiv", "truncmod", "floordiv", "mod"):
        found = replacement_blocks.function(legal, fn, u32, 2, 7).ops
        assert not any(isinstance(op, (ops.Compare, ops.Select)) for op in found)


@all_targets
@pytest.mark.parametrize("source", scalars.ALL, ids=str)
def test_casts(source: DType, legal: Legal) -> None:
    numbers = samples(source) + [convert(x, source) for x in CAST_SAMPLES.get(source, [])]
    for target in scalars.ALL:
        block = replacement_blocks.cast(legal, source, target)
        check_legal(block, legal)
        for x in numbers:
            found, expected = interpreted(block, x), convert(x, target)
            assert same(found, expected), (x, target, found, expected)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_products_and_sums_rounded_once(dtype: DType) -> None:
    block = replacement_blocks.fma(TARGETS["vulkan"], dtype)
    check_legal(block, TARGETS["vulkan"])
    rng = np.random.default_rng(5)
    triples = [[convert(x, dtype) for x in rng.uniform(-2, 2, 3)] for _ in range(100)]
    triples += [[x, y, -convert(x * y, dtype)] for x, y, _ in triples[:50]]
    for triple in triples:
        assert same(interpreted(block, *triple), scalar_semantics.fma(dtype, *triple)), triple


@all_targets
def test_functions_of_f16_are_those_of_f32_rounded(legal: Legal) -> None:
    for fn in sorted(FLOAT_FUNCTIONS):
        block = replacement_blocks.function(legal, fn, f16, 1)
        check_legal(block, legal)
        for x in edges(f16):
            assert same(interpreted(block, x), evaluate(fn, f16, x)), (fn, x)


@all_targets
@pytest.mark.parametrize("dtype", scalars.ALL, ids=str)
def test_draws(dtype: DType, legal: Legal) -> None:
    block = replacement_blocks.random(legal, dtype)
    check_legal(block, legal)
    for begin, number in itertools.product((0, 1, 2**63, 2**64 - 1), (0, 1, 2**31 - 1, -2)):
        assert same(interpreted(block, begin, number), random_draws.drawn(dtype, begin, number))


@all_targets
def test_random_streams(legal: Legal) -> None:
    seed, launch = 0x1234_5678_9ABC_DEF0, 2**40 + 7
    for item_type, task in ((i32, 0), (i64, -3)):
        block = replacement_blocks.random_stream(legal, task, item_type)
        check_legal(block, legal)
        for item in (0, 5, -1, 2**31 - 1):
            found = interpreted(block, item, seed=seed, launch=launch)
            assert found == random_draws.stream(seed, launch, task, item)


def test_what_is_undefined_is_an_error() -> None:
    """So the tests above see where it is asked for."""
    for fn, a, b in (("quotient", 1, 0), ("remainder", -(2**31), -1), ("lsl", 1, 32)):
        assert fn in PARTIAL
        with pytest.raises(ArithmeticError):
            scalar_semantics.evaluate(fn, i32, a, b)
    x, y = Value(f32), Value(i32)
    block = Block([x], [ops.FloatToInt(x, results=[y]), ops.Yield([y])])
    assert interpreted(block, -2.75) == -2
    with pytest.raises(ArithmeticError):
        interpreted(block, 3e9)


@all_targets
def test_a_module_does_what_it_did(legal: Legal) -> None:
    a, b, c = ndarray("a", i32), ndarray("b", f16), ndarray("c", f64)

    def body(build: Any, i: Any) -> None:
        x, y = build.load(a, [i]), build.load(b, [i])

        def turn(inner: Any, j: Any, carried: list[Any]) -> list[Any]:
            quotient = inner.binary("floordiv", carried[0], inner.binary("sub", j, x))
            return [inner.binary("xor", inner.binary("shl", quotient, j), x)]

        (z,) = for_(build, build.index(-2), build.index(4), [x], turn)
        (w,) = if_(
            build,
            build.compare("lt", y, build.constant(0.5, f16)),
            lambda inner: [inner.cast(inner.binary("mod", y, y), i32)],
            lambda inner: [inner.unary("clz", z)],
        )
        draw = build.random(f64, build.random_stream(1, i), z)
        build.store(c, [i], build.binary("add", draw, build.cast(build.binary("pow", w, x), f64)))
        build.store(a, [i], z)
        build.store(b, [i], build.unary("rsqrt", y))

    task = parallel("all", lambda build: (build.index(0), build.shape(a, 0)), body)
    module = Module("k", [a, b, c], tasks=[task])
    before, lowered = to_text(module), lower(module, legal)
    assert to_text(module) == before
    verify(lowered)
    assert to_text(parse(to_text(lowered))) == to_text(lowered)
    names = {op.fn for op in lowered.walk() if isinstance(op, (ops.Unary, ops.Binary))}
    assert not names & {"floordiv", "mod", "shl", "pow"}
    rng = np.random.default_rng(2)
    given = {
        "a": rng.integers(-5, 5, 20).astype(np.int32),
        "b": rng.uniform(0, 1, 20).astype(np.float16),
        "c": np.zeros(20),
    }
    ways = []
    for each in (module, lowered):
        data = {name: values.copy() for name, values in given.items()}
        run(each, data, seed=3, launch=5)
        ways.append(data)
    for name in given:
        np.testing.assert_array_equal(ways[0][name], ways[1][name])
