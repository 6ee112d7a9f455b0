"""The functions by name, and their code: built once for each type."""

from __future__ import annotations

import functools
from collections.abc import Callable

from octants.ir.builder import Builder
from octants.ir.cloning import copy_operation
from octants.ir.core import Block, Operation, Value
from octants.ir.ops import If, Yield
from octants.ir.ops.arithmetic import BOUNDED
from octants.ir.slices import backward_slice
from octants.lazy_dataclass import dataclass
from octants.mathlib import (
    cube_root,
    error_function,
    exponential,
    f16,
    fast_by_estimates,
    fast_with_fma,
    fast_without_fma,
    fmod,
    hyperbolic,
    inverse_trigonometric,
    logarithm,
    power,
    random_stream,
    trigonometric,
)
from octants.mathlib.ir_number import Number
from octants.types.scalars import DType, f32, u32, u64

Formula = Callable[..., Number]

UNARY: dict[str, Formula] = {
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "tan": trigonometric.tan,
    "asin": inverse_trigonometric.asin,
    "acos": inverse_trigonometric.acos,
    "atan": inverse_trigonometric.atan,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "tanh": hyperbolic.tanh,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "log": logarithm.log,
    "log2": logarithm.log2,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "cbrt": cube_root.cbrt,
    "erf": error_function.erf,
}

BINARY: dict[str, Formula] = {"pow": power.pow, "atan2": inverse_trigonometric.atan2}

FUNCTIONS = UNARY | BINARY

SLOPES: dict[str, Formula] = {"cos_beside_sin": trigonometric.cos}
"""Functions that derivatives are made of."""

FAST: dict[tuple[str, DType], Formula] = {
    ("sin", f32): fast_with_fma.sin,
    ("cos", f32): fast_with_fma.cos,
    ("exp", f32): fast_with_fma.exp,
    ("log", f32): fast_with_fma.log,
}
"""The replacements of functions where ``fast_math`` allows them."""

PLAIN: dict[tuple[str, DType], Formula] = {
    ("sin", f32): fast_without_fma.sin,
    ("cos", f32): fast_without_fma.cos,
    ("exp", f32): fast_without_fma.exp,
    ("log", f32): fast_without_fma.log,
}
"""The same on machines that need not have a fused operation."""

ESTIMATED: dict[tuple[str, DType], Formula] = {
    ("sin", f32): fast_by_estimates.sin,
    ("cos", f32): fast_by_estimates.cos,
    ("cos_beside_sin", f32): fast_by_estimates.cos,
    ("exp", f32): fast_by_estimates.exp,
    ("exp2", f32): fast_by_estimates.exp2,
    ("tanh", f32): fast_by_estimates.tanh,
}
"""The replacements on machines with instructions for `ir.ops.arithmetic.ESTIMATES`."""

UNFLUSHED: dict[tuple[str, DType], Formula] = {
    ("exp", f32): functools.partial(fast_by_estimates.exp, flushes=False),
    ("exp2", f32): functools.partial(fast_by_estimates.exp2, flushes=False),
    ("tanh", f32): functools.partial(fast_by_estimates.tanh, flushes=False),
}
"""Those on machines whose estimates and fused sums may be subnormal."""

_SHORT = {
    "fused": FAST | {("cos_beside_sin", f32): fast_with_fma.cos_beside_sin},
    "plain": PLAIN | {("cos_beside_sin", f32): fast_without_fma.cos_beside_sin},
    "estimating": PLAIN | ESTIMATED,
    "unflushed": UNFLUSHED,
}
ALL = FUNCTIONS | SLOPES
ALL |= {name: ALL[fn] for name, fn in BOUNDED.items()}
"""All functions; those of bounded angles are without the branch that has the slow path."""

HELPERS: dict[str, tuple[Formula, tuple[DType | None, ...]]] = {
    "half_bits": (f16.bits, (f32,)),
    "half_value": (f16.value, (u32,)),
    "random_stream": (random_stream.random_stream, (u64,) * 4),
    "remainder": (fmod.remainder, (None, None)),
    "integer_power": (power.integer_power, (None, None)),
}
"""Functions that `octants.lowering` calls, and the types of parameters; None: any one type."""


@dataclass(frozen=True, eq=False)
class MathFunction:
    """A function's code: the arguments of the block are its parameters, it yields the result.

    `dtype` is the type of the first parameter.
    """

    name: str
    dtype: DType
    block: Block
    is_fast: bool = False


@functools.cache
def function(
    name: str, dtype: DType, allow_fast: bool = False, machine: str = "fused"
) -> MathFunction:
    """The code of a function of f32 or f64, or of one of `HELPERS`. Callers must not change it.

    The ``machine`` is "fused" if it has a fused operation, else "plain", or "estimating" if it has
    instructions for `ir.ops.arithmetic.ESTIMATES`, too. "unflushed" stands for `UNFLUSHED` alone.
    """
    short = _SHORT[machine]
    whole = BOUNDED.get(name, name)
    is_fast = allow_fast and (whole, dtype) in short
    types: tuple[DType | None, ...] = (dtype,) * (2 if name in BINARY else 1)
    formula, types = HELPERS[name] if name in HELPERS else (ALL[name], types)
    formula = short[whole, dtype] if is_fast else formula
    block = Block([Value(each or dtype) for each in types])
    build = Builder(block)
    result = formula(*(Number(build, arg) for arg in block.args))
    build.yield_([result.value])
    block = block if name == whole else _without_slow_path(block)
    return MathFunction(name, dtype, block, is_fast)


def _without_slow_path(block: Block) -> Block:
    """A function's code with the second blocks of branches in their places."""
    values: dict[Value, Value] = {}
    copies: list[Operation] = []

    def copy(inside: Block) -> None:
        for op in inside.ops[:-1]:
            if isinstance(op, If):
                copy(op.orelse)
                found = (values.get(value, value) for value in op.orelse.yielded)
                values.update(zip(op.results, found, strict=True))
            else:
                copies.append(copy_operation(op, values))

    copy(block)
    results = [values[value] for value in block.yielded]
    needed = backward_slice(results, {value: op for op in copies for value in op.results})
    return Block(block.args, [*needed, Yield(results)])
