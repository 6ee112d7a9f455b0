"""Write the mathematical functions for all lanes, from the code that scalars use."""

from __future__ import annotations

import functools
from collections.abc import Callable

from octants.analysis.control_flow.uniformity import Uniformity
from octants.codegen.llvm import math_functions
from octants.codegen.llvm.function_text import Phi
from octants.codegen.llvm.lanes import control_flow
from octants.codegen.llvm.lanes.atomics import halves
from octants.codegen.llvm.lanes.function_text import LaneText
from octants.codegen.llvm.math_functions import ATTRIBUTES, MathCall, captured, finished
from octants.ir import ops
from octants.ir.core import Block, Value
from octants.mathlib.function_registry import HELPERS, MathFunction
from octants.types.scalars import f32, f64, u1

_LONG = 16
"""The most operations of a slow path that stay inline."""

_SLOW_LANES = 8
"""The lanes of a slow path at a time: it mostly computes in 64-bit integers."""


def call(f: LaneText, op: MathCall) -> str:
    """Call a function of vectors; on uniform operands it is computed once."""
    if not f.is_vector(*op.operands):
        return math_functions.call_scalar(f, op)
    name = f.text.helper(f"{op.name}.x{f.lanes}", lambda _, name: _text(f, op, name))
    f.text.has_module_passes |= op.function.name in HELPERS
    block = op.function.block
    given = [(f.type(arg.type), x) for arg, x in zip(block.args, op.operands, strict=True)]
    return f.call_vector(name, f.type(block.yielded[0].type), given, op.attribute)


def _text(caller: LaneText, op: MathCall, name: str) -> str:
    """Return the definition of a function of vectors."""
    block = op.function.block
    f = _inner(caller, _uniformity(op.function))
    f.makers = {value: each for each in block.ops for value in each.results}
    parameters = _bind_parameters(f, block.args)
    f.start("start")
    (result,) = f.block(block)
    vector = f.vector(f.type(block.yielded[0].type))
    result = f.fit(block.yielded[0], result)
    head = f"define internal {vector} {name}({parameters}) {ATTRIBUTES}"
    return finished(f, head, f"ret {vector} {result}")


@functools.cache
def _uniformity(function: MathFunction) -> Uniformity:
    """Return the uniformity of a function's values, cached for the process."""
    return Uniformity(function.block)


def _inner(caller: LaneText, uniformity: Uniformity) -> LaneText:
    """Return the text of a function that is called if any lane is active."""
    table = {**caller.table, ops.If: if_}
    scalar = caller.scalar_table
    return LaneText(caller.kernel, caller.machine, table, 0, caller.lanes, uniformity, scalar)


def _bind_parameters(f: LaneText, values: list[Value]) -> str:
    for number, value in enumerate(values):
        if f.varies(value):
            f.vectors.add(f"%x{number}")
        f.bind(value, f"%x{number}")
    return ", ".join(f"{f.shape(value)} {f.use(value)}" for value in values)


def if_(f: LaneText, op: ops.If) -> None:
    """Run the fast path for all lanes, and the slow path if any lane takes it."""
    condition = f.use(op.condition)
    if not f.is_vector(condition):
        control_flow.if_(f, op)
        return
    usual = [f.fit(r, v) for r, v in zip(op.results, f.block(op.orelse), strict=True)]
    rare, merge = f.fresh_label("rare"), f.fresh_label("merge")
    before = f.label
    f.branch_if(_is_none(f, op.condition), merge, rare, likely=True)
    f.start(rare)
    is_long = sum(1 for _ in op.then.walk()) > _LONG
    found = _call_slow_path(f, op.then) if is_long else f.block(op.then)
    merged = [
        f.choose(condition, f.type(result.type), value, other)
        for result, value, other in zip(op.results, found, usual, strict=True)
    ]
    end = f.label
    f.enter(merge)
    f.bind_joined(op.results, (merged, end), (usual, before))


def _is_none(f: LaneText, condition: Value) -> str:
    """Return whether a condition holds in no lane.

    Where a tile has several vectors, and the condition is that a size is beyond a limit, the
    largest size of all vectors is compared once. Sizes compare as their bits do, also with NaN.
    """
    found, bits = _size_and_limit(f, condition), 0
    if found is not None:
        size, limit = found
        bits = size.type.bits
    if found is None or f.lanes * bits <= f.machine.vector_bits:
        return f.assign(f"icmp eq i{f.lanes} {f.bits(f.use(condition))}, 0")
    register = f"i{bits}"
    largest = f.convert("bitcast", f.type(size.type), f.use(size), register)
    word = f.convert("bitcast", f.type(size.type), f.use(limit), register)
    lanes = f.lanes
    while lanes * bits > f.machine.vector_bits:
        both = halves(f, register, largest, lanes)
        lanes //= 2
        with f.of_lanes(lanes):
            largest = f.intrinsic("umax", register, [(register, each) for each in both])
    with f.of_lanes(lanes):
        beyond = f.apply("icmp ugt", register, largest, word)
        return f.assign(f"icmp eq i{lanes} {f.bits(beyond)}, 0")


def _size_and_limit(f: LaneText, condition: Value) -> tuple[Value, Value] | None:
    """Return a size and its limit, a constant, if a condition is that it is beyond this, or NaN."""
    negated = f.makers.get(condition)
    test = f.makers.get(negated.x) if isinstance(negated, ops.Unary) else None
    if not isinstance(negated, ops.Unary) or negated.fn != "not":
        return None
    if not isinstance(test, ops.Compare) or test.fn != "le" or not f.varies(test.lhs):
        return None
    size, limit = f.makers.get(test.lhs), f.makers.get(test.rhs)
    if isinstance(size, ops.Unary) and size.fn == "abs" and isinstance(limit, ops.Constant):
        return (test.lhs, test.rhs) if limit.value > 0 and test.lhs.type in (f32, f64) else None
    return None


def _call_slow_path(f: LaneText, block: Block) -> list[str]:
    """Call a slow path as a function, and return the values that its block yields."""
    needed = captured(block)
    types, name = _function(f, block, needed)
    if _few(f, block) < f.lanes:
        types, name = _in_segments(f, block, needed, types, name)
    arguments = ", ".join(f"{f.shape(value)} {f.use(value)}" for value in needed)
    result = f.assign(f"call {_struct(types)} {name}({arguments})")
    found = []
    for position, value in enumerate(block.yielded):
        take = f"extractvalue {_struct(types)} {result}, {position}"
        found.append(f.assign_vector(take) if f.varies(value) else f.assign(take))
    return found


def _few(f: LaneText, block: Block) -> int:
    """Return the lanes of a slow path's function: one for all lanes would be most of a module."""
    vectors = [value for value in captured(block) if f.varies(value)] + block.yielded
    can_be_cut = all(f.varies(value) and value.type is not u1 for value in vectors)
    return _SLOW_LANES if can_be_cut and f.lanes % _SLOW_LANES == 0 else f.lanes


def _function(f: LaneText, block: Block, needed: list[Value]) -> tuple[list[str], str]:
    """Return the result types and the name of a slow path's function for a few lanes."""
    inner = _inner(f, f.uniformity)
    inner.lanes = _few(f, block)
    parameters = _bind_parameters(inner, needed)
    inner.start("start")
    given = inner.block(block)
    values = [inner.fit(value, x) for value, x in zip(block.yielded, given, strict=True)]
    types = [inner.shape(value) for value in block.yielded]
    result = _collected(inner, types, values)
    name = math_functions.slow_path_name(parameters, inner)
    _define(f, inner, name, parameters, result)
    return types, name


def _in_segments(
    f: LaneText, block: Block, needed: list[Value], parts: list[str], name_of_segment: str
) -> tuple[list[str], str]:
    """Return such a function for all lanes, which calls the one for a few in a loop."""
    inner, name = _inner(f, f.uniformity), f"{name_of_segment}.x{f.lanes}"
    parameters = _bind_parameters(inner, needed)
    types = [inner.shape(value) for value in block.yielded]
    buffers = [inner.once(k, f"alloca {each}, align 64") for k, each in enumerate(types)]
    inner.start("start")
    arguments = [_argument(inner, value) for value in needed]
    segment, again = _begin_segments(inner)
    given = ", ".join(argument(segment.name) for argument in arguments)
    found = inner.assign(f"call {_struct(parts)} {name_of_segment}({given})")
    for position, (part, buffer) in enumerate(zip(parts, buffers, strict=True)):
        taken = inner.assign(f"extractvalue {_struct(parts)} {found}, {position}")
        address = inner.assign(f"getelementptr {part}, ptr {buffer}, i64 {segment.name}")
        inner.emit(f"store {part} {taken}, ptr {address}")
    _end_segments(inner, segment, again)
    values = [
        inner.assign(f"load {t}, ptr {buffer}") for t, buffer in zip(types, buffers, strict=True)
    ]
    _define(f, inner, name, parameters, _collected(inner, types, values), " optsize")
    return types, name


def _argument(inner: LaneText, value: Value) -> Callable[[str], str]:
    """Return a function that extracts an iteration's segment of an argument."""
    register = inner.type(value.type)
    if not inner.varies(value):
        return lambda _: f"{register} {inner.use(value)}"
    shape, part = inner.shape(value), f"<{_SLOW_LANES} x {register}>"
    buffer = inner.once(value, f"alloca {shape}, align 64")
    inner.emit(f"store {shape} {inner.use(value)}, ptr {buffer}")

    def take(segment: str) -> str:
        address = inner.assign(f"getelementptr {part}, ptr {buffer}, i64 {segment}")
        return f"{part} {inner.assign(f'load {part}, ptr {address}')}"

    return take


def _begin_segments(inner: LaneText) -> tuple[Phi, str]:
    """Begin a loop over segments of the lanes; return its counter and its label."""
    before, again = inner.label, inner.fresh_label("segment")
    inner.enter(again)
    return inner.open_phi("i64", ("0", before)), again


def _end_segments(inner: LaneText, segment: Phi, again: str) -> None:
    following = inner.apply("add", "i64", segment.name, 1)
    inner.close_phi(segment, (following, inner.label))
    more = inner.apply("icmp ult", "i64", following, inner.lanes // _SLOW_LANES)
    done = inner.fresh_label("done")
    inner.branch_if(more, again, done)
    inner.start(done)


def _struct(types: list[str]) -> str:
    return f"{{ {', '.join(types)} }}"


def _collected(inner: LaneText, types: list[str], values: list[str]) -> str:
    """Return values as one of a structure type."""
    results = "poison"
    for position, (shape, value) in enumerate(zip(types, values, strict=True)):
        put = f"insertvalue {_struct(types)} {results}, {shape} {value}, {position}"
        results = inner.assign(put)
    return f"{_struct(types)} {results}"


def _define(
    f: LaneText, inner: LaneText, name: str, parameters: str, result: str, how: str = ""
) -> None:
    """Add the function of a slow path to the module, once."""
    head = f"define internal {result.rpartition(' ')[0]} {name}({parameters})"
    text = finished(inner, f"{head} cold noinline{how} {ATTRIBUTES}", f"ret {result}")
    f.text.helper(name, lambda *_: text)
