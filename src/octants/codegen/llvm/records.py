"""The tape of a work item: records on the worker's stack, which grows when it must.

A loop that pushes in each turn, and whose trips are known when it begins, reserves for all of them
there; its pushes then need no check.
"""

from __future__ import annotations

from octants.codegen.llvm import integers, memory, messages
from octants.codegen.llvm.function import FunctionText
from octants.ir import ops
from octants.ir.core import Operation, Record, Value
from octants.types.scalars import i64

_MOST_TURNS = 1 << 40


def push(f: FunctionText, op: ops.RecordPush) -> None:
    """Write an iteration; first make room, unless the loop has done it."""
    offsets, stride = op.record.offsets()
    if not offsets:
        return
    start = _position(f, f.use(op.base), _wide(f, op.index), stride)
    if op not in f.reserved:
        _make_room(f, op.record, f.assign(f"add i64 {start}, {stride}"))
    base = _address(f, start)
    suffix = f.kernel.scopes.suffix(None)
    for value, offset in zip(op.values, offsets, strict=True):
        stored = memory.to_memory(f, value.type, f.use(value))
        place = f.assign(f"getelementptr i8, ptr {base}, i64 {offset}")
        stored_type = memory.memory_type(f, value.type)
        f.emit(f"store {stored_type} {stored}, ptr {place}, align 1{suffix}")


def pop(f: FunctionText, op: ops.RecordPop) -> None:
    """Read an iteration back."""
    offsets, stride = op.record.offsets()
    if not offsets:
        return
    base = _address(f, _position(f, f.use(op.base), _wide(f, op.index), stride))
    suffix = f.kernel.scopes.suffix(None)
    for result, offset in zip(op.results, offsets, strict=True):
        place = f.assign(f"getelementptr i8, ptr {base}, i64 {offset}")
        stored_type = memory.memory_type(f, result.type)
        stored = f.assign(f"load {stored_type}, ptr {place}, align 1{suffix}")
        f.bind(result, memory.from_memory(f, result.type, stored))


def end(f: FunctionText, op: ops.RecordEnd) -> None:
    """The position after so many iterations."""
    _, stride = op.record.offsets()
    f.bind(op.result, _position(f, f.use(op.base), _wide(f, op.count), stride))


def reserve(f: FunctionText, loop: ops.For) -> None:
    """Make room for what a loop pushes in all its turns, where a push is for the turn itself."""
    counting = {loop.body.args[0]: False}  # values that count turns; True: from zero
    for op in loop.body.ops:
        if _is_cast(op) and op.operands[0] in counting:
            counting[op.results[0]] = counting[op.operands[0]]
        elif _is_difference(op, loop):
            counting[op.results[0]] = True
        elif isinstance(op, ops.RecordPush) and op.index in counting and f.has(op.base):
            offsets, stride = op.record.offsets()
            if not offsets:
                continue
            bound = _bound(f, loop, from_zero=counting[op.index])
            _make_room(f, op.record, _position(f, f.use(op.base), bound, stride))
            f.reserved.add(op)


def _bound(f: FunctionText, loop: ops.For, *, from_zero: bool) -> str:
    """What the index of a loop's pushes stays below: its upper bound, or its turns.

    It is a number that memory is refused for where it cannot be counted in the counter's type, or
    would overflow a position.
    """
    bound = _wide(f, loop.upper)
    if from_zero:
        bound = f.assign(f"sub i64 {bound}, {_wide(f, loop.lower)}")
    most = _MOST_TURNS if loop.lower.type is i64 else 2**31 - 1
    overflow = f.assign(f"icmp ugt i64 {bound}, {most}")
    return f.assign(f"select i1 {overflow}, i64 {_MOST_TURNS}, i64 {bound}")


def _is_cast(op: Operation) -> bool:
    return isinstance(op, ops.Cast) and op.result.type is i64


def _is_difference(op: Operation, loop: ops.For) -> bool:
    """Whether an operation is ``counter - lower``."""
    if not isinstance(op, ops.Binary) or op.fn != "sub":
        return False
    return op.lhs is loop.body.args[0] and op.rhs is loop.lower


def _wide(f: FunctionText, value: Value) -> str:
    """An i32 or i64 as i64."""
    operand = f.use(value)
    if value.type.bits == 64 or integers.known(operand) is not None:
        return operand
    return f.assign(f"sext {f.type(value.type)} {operand} to i64")


def _position(f: FunctionText, base: str, index: str, stride: int) -> str:
    if stride == 0 or index == "0":
        return base
    product = f.assign(f"mul i64 {index}, {stride}")
    return product if base == "0" else f.assign(f"add i64 {base}, {product}")


def _address(f: FunctionText, position: str) -> str:
    tape, _ = f.tape()
    start = f.assign(f"load ptr, ptr {tape}, align 8")
    return f.assign(f"getelementptr i8, ptr {start}, i64 {position}")


def _make_room(f: FunctionText, record: Record, nbytes: str) -> None:
    """Let the tape grow if it holds less; a position gone wrong counts as a very large one."""
    tape, capacity = f.tape()
    room, grow, grown, refused = (
        f.fresh_label(hint) for hint in ("room", "grow", "grown", "refused")
    )
    held = f.assign(f"load i64, ptr {capacity}, align 8")
    enough = f.assign(f"icmp ule i64 {nbytes}, {held}")
    f.branch_if(enough, room, grow, likely=True)
    f.start(grow)
    new = f.machine.grow(f, nbytes)
    f.branch_if(f.assign(f"icmp ne ptr {new}, null"), grown, refused, likely=True)
    f.start(refused)
    messages.fail(f, messages.memory_message(record.location), [nbytes])
    f.start(grown)
    f.lines += f.reload_tape(tape, capacity)
    f.branch(room)
    f.start(room)
