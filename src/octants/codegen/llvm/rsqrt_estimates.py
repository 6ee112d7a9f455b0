"""Compute 1 / sqrt(x) of f32 by a machine's estimate, refined by Newton's method.

`fast_math` allows it. An estimate has the same bits in each lane of a vector and alone, so all
copies of an operation have the same result. With t = x r and e = 1 - t r a better estimate than r
is r + r e / 2, with twice as many right digits, or r + r (e / 2 + 3 e**2 / 8), with three times as
many. For zero, infinity, NaN and negative numbers t is not below infinity: there the unrefined
estimate is the result. If it is not valid for subnormal numbers either, a division takes its place
in all these cases, unless no number is subnormal: then e is 1 wherever it would be NaN, which makes
zero and infinity of infinity and zero.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen import arithmetic
from octants.codegen.llvm.function_text import FunctionText, RootEstimate
from octants.codegen.llvm.llvmlite_driver import is_x64
from octants.codegen.llvm.types_and_literals import float_literal
from octants.ir import ops
from octants.lazy_dataclass import dataclass
from octants.target import Target

SHORTEST = 4
"""The lanes of the shortest vectors with an estimate."""

_HALF, _ONE = float_literal(0.5), float_literal(1.0)
_INFINITY = float_literal(float("inf"))


@dataclass(frozen=True, slots=True)
class ReciprocalRoot:
    """1 / sqrt of an f32 operand, which may be `normal`: the handler table has its writer."""

    operand: str
    estimate: RootEstimate
    normal: bool = False


def unary(f: FunctionText, op: ops.Unary) -> None:
    """Write a unary function. A root of a number that is never subnormal has no slow path."""
    estimate = f.machine.reciprocal_root
    if estimate is None or estimate.total or op.result not in f.normal_roots:
        arithmetic.unary(f, op)
    else:
        root = ReciprocalRoot(f.use(op.x), estimate, normal=True)
        f.bind(op.result, f.table[ReciprocalRoot](f, root))


def estimate_of(target: Target) -> RootEstimate | None:
    """Return the target's estimate, if it is faster than a division."""
    features = target.features.split(",")
    if "+avx512vl" in features:
        return RootEstimate(_avx512, 16, 14, total=True)
    if "+avx2" in features:
        return RootEstimate(_avx, 8, 11, total=False)
    if "+neon" in features and not is_x64(target):
        return RootEstimate(_neon, 4, 8, total=True)
    return None


def _avx512(f: FunctionText, lanes: int, x: str) -> str:
    vector, mask = f"<{lanes} x float>", f"i{max(lanes, 8)}"
    name = f"@llvm.x86.avx512.rsqrt14.ps.{32 * lanes}"
    f.text.declare(name, vector, f"{vector}, {vector}, {mask}")
    return f.assign(f"call {vector} {name}({vector} {x}, {vector} zeroinitializer, {mask} -1)")


def _avx(f: FunctionText, lanes: int, x: str) -> str:
    name = "@llvm.x86.sse.rsqrt.ps" if lanes == SHORTEST else "@llvm.x86.avx.rsqrt.ps.256"
    return _plain(f, name, lanes, x)


def _neon(f: FunctionText, lanes: int, x: str) -> str:
    return _plain(f, f"@llvm.aarch64.neon.frsqrte.v{lanes}f32", lanes, x)


def _plain(f: FunctionText, name: str, lanes: int, x: str) -> str:
    vector = f"<{lanes} x float>"
    f.text.declare(name, vector, vector)
    return f.assign(f"call {vector} {name}({vector} {x})")


# -- refinement ---------------------------------------------------------------------------------


def refined(f: FunctionText, op: ReciprocalRoot, rough: str) -> tuple[str, str]:
    """Return the root from its estimate, and whether it is valid: see the module's docstring."""
    bits = op.estimate.bits
    product, better = _step(f, op, rough, bits)
    if 3 * bits < 24 + 2:
        _, better = _step(f, op, better, 3 * bits)
    if op.normal:
        return better, "true"
    return better, f.apply("fcmp olt", "float", product, _INFINITY)


def _step(f: FunctionText, op: ReciprocalRoot, r: str, bits: int) -> tuple[str, str]:
    """Return x r and a better root than r; two terms suffice if r has half of the bits."""
    product = f.apply("fmul", "float", op.operand, r)
    error = _fma(f, f.apply("fneg", "float", product), r, _ONE)
    if op.normal:
        error = f.choose(f.apply("fcmp olt", "float", error, _ONE), "float", error, _ONE)
    if 2 * bits >= 24 + 2:
        return product, _fma(f, f.apply("fmul", "float", r, _HALF), error, r)
    series = _fma(f, error, float_literal(0.375), _HALF)
    return product, _fma(f, f.apply("fmul", "float", r, error), series, r)


def _fma(f: FunctionText, *operands: str) -> str:
    return f.intrinsic("fma", "float", [("float", x) for x in operands])


def quotient(f: FunctionText, x: str) -> str:
    """Compute 1 / sqrt(x), rounded twice."""
    return f.apply("fdiv", "float", _ONE, f.intrinsic("sqrt", "float", [("float", x)]))


def root_of_one(f: FunctionText, op: ReciprocalRoot) -> str:
    """Compute the root of a number: as the first lane of a vector, if the estimate needs one."""
    if op.estimate.longest == 1:
        return op.estimate.write(f, 1, op.operand)
    vector, x = f"<{SHORTEST} x float>", op.operand
    wide = f.assign(f"insertelement {vector} zeroinitializer, float {x}, i32 0")
    rough = f.assign(f"extractelement {vector} {op.estimate.write(f, SHORTEST, wide)}, i32 0")
    better, is_usual = refined(f, op, rough)
    if op.normal:
        return better
    if op.estimate.total:
        return f.choose(is_usual, "float", better, rough)
    return unless_slow(f, better, is_usual, lambda: quotient(f, x))


def unless_slow(
    f: FunctionText, usual: str, is_usual: str, rare: Callable[[], str], type: str = "float"
) -> str:
    """Return the fast result, or the one that ``rare`` writes code for."""
    other, merge, before = f.fresh_label("rare"), f.fresh_label("merge"), f.label
    f.branch_if(is_usual, merge, other, likely=True)
    f.start(other)
    found = rare()
    f.enter(merge)
    return f.phi(type, (usual, before), (found, other))
