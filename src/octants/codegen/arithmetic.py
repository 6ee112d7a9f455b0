"""Write scalar operations, by an instruction of the target or by the block that `lowering` gives.

A register holds an f16 as an f32 with the same value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from octants.codegen.function_emitter import FunctionEmitter
from octants.codegen.instruction_writer import Code, Operand, register
from octants.ir import ops
from octants.ir.core import Block
from octants.ir.ops.arithmetic import COMPARE
from octants.lazy_dataclass import dataclass
from octants.lowering import replacement_blocks
from octants.mathlib.function_registry import ALL
from octants.types.scalars import DType, f16, f32, u32

_CODE = {"lsl": "shl", "lsr": "ushr", "asr": "shr"}
"""The names that `Code` uses for these functions."""


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A call of a `mathlib` function, with its name and the type of its first operand.

    The function's table of operations has a handler for it.
    """

    fn: str
    dtype: DType
    operands: list[Operand]


def constant(f: FunctionEmitter, op: ops.Constant) -> None:
    """Bind the constant; it takes no instruction where it is used."""
    f.bind(op.result, f.code.constant(op.value, register(op.result.type)))


def unary(f: FunctionEmitter, op: ops.Unary) -> None:
    """Write a unary function; see `combine`."""
    f.bind(op.result, combine(f, op.fn, op.x.type, f.use(op.x)))


def binary(f: FunctionEmitter, op: ops.Binary | ops.Compare) -> None:
    """Write a binary function or a comparison; see `combine`."""
    f.bind(op.result, combine(f, op.fn, op.lhs.type, f.use(op.lhs), f.use(op.rhs)))


def combine(f: FunctionEmitter, fn: str, dtype: DType, *operands: Operand) -> Operand:
    """Compute a unary or binary function, or a comparison."""
    write = f.writers.get((fn, dtype))
    if write is None:
        write = f.writers[fn, dtype] = _writer(f, fn, dtype, len(operands))
    return write(*operands)


def _writer(f: FunctionEmitter, fn: str, dtype: DType, count: int) -> Callable[..., Operand]:
    """Return the writer of a function for an operand count and a type."""
    code = f.code
    if (fn, dtype) in code.legal.functions:
        if fn in COMPARE:
            return code.comparison(fn, register(dtype))
        if fn in ALL and dtype.is_float:
            return functools.partial(call_library, f, fn, dtype)
        return code.instruction(_CODE.get(fn, fn), register(dtype))
    if fn in replacement_blocks.BY_CONSTANT and dtype.is_integer:
        return lambda a, b: _lowered(
            f, replacement_blocks.function(code.legal, fn, dtype, 2, code.known(b)), a, b
        )
    return functools.partial(_lowered, f, replacement_blocks.function(code.legal, fn, dtype, count))


def _lowered(f: FunctionEmitter, block: Block, *operands: Operand) -> Operand:
    """Inline the block that an operation is lowered to."""
    return f.inlined(block, operands)[0]


def fma(f: FunctionEmitter, op: ops.Fma) -> None:
    """Write a fused multiply-add: one instruction where the machine has it."""
    dtype, operands = op.result.type, [f.use(value) for value in op.operands]
    if dtype in f.code.legal.fma:
        f.bind(op.result, f.code.apply("fma", dtype, *operands))
    else:
        f.bind(op.result, _lowered(f, replacement_blocks.fma(f.code.legal, dtype), *operands))


def select(f: FunctionEmitter, op: ops.Select) -> None:
    """Write a select without a branch."""
    choices = f.use(op.on_true), f.use(op.on_false)
    f.bind(op.result, f.code.choose(f.use(op.condition), register(op.result.type), *choices))


def extract(f: FunctionEmitter, op: ops.Extract) -> None:
    """Choose a component by selects."""
    components = [f.use(value) for value in op.components]
    dtype = register(op.result.type)
    f.bind(op.result, chosen(f.code, dtype, components, f.use(op.index), op.index.type))


def chosen(
    code: Code, dtype: DType, choices: Sequence[Operand], number: Operand, counter: DType
) -> Operand:
    """Return the choice with a number, which is of the type `counter`; the first one if none is."""
    found, *others = choices
    for position, other in enumerate(others, start=1):
        is_it = code.compare("eq", counter, number, code.constant(position, counter))
        found = code.choose(is_it, dtype, other, found)
    return found


# -- conversions --------------------------------------------------------------------------------


def cast(f: FunctionEmitter, op: ops.Cast) -> None:
    """Convert a number. An f16 is converted through its bits."""
    source, target, x = op.x.type, op.result.type, f.use(op.x)
    if register(source) is register(target):
        found = f.code.round_half(x) if target is f16 and source is f32 else x
    elif (source, target) in f.code.legal.casts:
        found = f.code.convert(x, source, target)
    else:
        found = _lowered(f, replacement_blocks.cast(f.code.legal, source, target), x)
    f.bind(op.result, found)


def float_to_int(f: FunctionEmitter, op: ops.FloatToInt) -> None:
    """Convert a float that fits the integer type, which is what machines convert."""
    f.bind(op.result, f.code.convert(f.use(op.x), op.x.type, op.result.type))


def bitcast(f: FunctionEmitter, op: ops.Bitcast) -> None:
    """Reinterpret bits. An f16 goes through its 16 bits, because its register has 32."""
    x, source, target, code = f.use(op.x), op.x.type, op.result.type, f.code
    if source is f16 and target is not f16:
        x = code.convert(code.half_bits(x), u32, target)
    elif target is f16 and source is not f16:
        wide = code.apply("and", u32, code.convert(x, source, u32), code.constant(0xFFFF, u32))
        x = code.half_value(wide)
    elif source is not target:
        x = code.bitcast(x, source, target)
    f.bind(op.result, x)


# -- functions ----------------------------------------------------------------------------------


def call(f: FunctionEmitter, op: ops.Call) -> None:
    """Call a function of the library."""
    given = [f.use(value) for value in op.given]
    f.bind(op.result, call_library(f, op.fn, op.given[0].type, *given))


def call_library(f: FunctionEmitter, fn: str, dtype: DType, *operands: Operand) -> Operand:
    """Compute a function of the library."""
    return f.table[LibraryCall](f, LibraryCall(fn, dtype, list(operands)))


def random_stream(f: FunctionEmitter, op: ops.RandomStream) -> None:
    """Compute the stream's key from the launch and the work item."""
    block = replacement_blocks.random_stream(f.code.legal, op.task, op.item.type)
    f.bind(op.result, _lowered(f, block, f.use(op.item)))


def random(f: FunctionEmitter, op: ops.Random) -> None:
    """Compute a random number from the stream and the number of the draw."""
    block = replacement_blocks.random(f.code.legal, op.result.type)
    f.bind(op.result, _lowered(f, block, f.use(op.stream), f.use(op.draw)))


def launch_constant(f: FunctionEmitter, op: ops.LaunchConstant) -> None:
    """Read the seed, or the launch number, from the parameter block."""
    f.bind(op.result, f.launch_constant(op.name))


TABLE: dict[type[Any], Callable[[Any, Any], Any]] = {
    ops.Constant: constant,
    ops.Unary: unary,
    ops.Binary: binary,
    ops.Compare: binary,
    ops.Fma: fma,
    ops.Select: select,
    ops.Extract: extract,
    ops.Cast: cast,
    ops.FloatToInt: float_to_int,
    ops.Bitcast: bitcast,
    ops.Random: random,
    ops.RandomStream: random_stream,
    ops.Call: call,
    ops.LaunchConstant: launch_constant,
}
