"""The functions of a kernel, one for each dispatch: what a thread of it does (see `abi`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from octants import abi
from octants.artifact import Dispatch
from octants.codegen.bounds import host_bounds
from octants.codegen.recording import asks_for_room, can_fail, can_run_again, restartable
from octants.codegen.structured import messages, records
from octants.codegen.structured.body import Body, Kernel
from octants.codegen.structured.code import Code, Operand
from octants.codegen.structured.operations import TABLE
from octants.ir import ops
from octants.ir.core import Task
from octants.lazy_dataclass import dataclass
from octants.types.scalars import i64, u1, u32

_LEAVING = (ops.Assert, ops.RecordCheck, ops.RecordPush, ops.RecordReserve)
_MOST_IN_BLOCK = 128  # that any device takes


@dataclass(frozen=True, slots=True)
class Function:
    """A dispatch, and what writes the code of its threads."""

    dispatch: Dispatch
    write: Callable[[Code], None]


def functions(kernel: Kernel, block: int) -> list[Function]:
    """The functions of a kernel, in the order of their dispatches, of ``block`` threads each."""
    found: list[Function] = []
    for position, task in enumerate(kernel.module.tasks):
        name, needs_tape = f"task_{position}", has_records(task)
        if task.domain is None:
            dispatch = Dispatch(name, position, "", 1, 1, needs_tape, can_run_again(task.body))
            found.append(Function(dispatch, partial(_write_serial, kernel, position)))
            continue
        bounds = host_bounds(task.domain, kernel.module.arrays, kernel.parameters)
        if not bounds:
            dispatch = Dispatch(f"domain_{position}", position, block=1, threads=1)
            found.append(Function(dispatch, partial(_write_domain, kernel, position)))
        write = partial(_write_items, kernel, position, is_known=bool(bounds))
        tape = needs_tape, can_run_again(task.body)
        dispatch = Dispatch(name, position, bounds or "device", *_threads(task, block), *tape)
        found.append(Function(dispatch, write))
    return found


def _threads(task: Task, block: int) -> tuple[int, int]:
    """How many threads there are in a block, and at most at all; 0 stands for any number."""
    if task.options.get("fixed_order"):
        return 1, 1
    return min(int(task.options.get("block_dim", 0)) or block, _MOST_IN_BLOCK), 0


def has_records(task: Task) -> bool:
    """Whether a task writes to tapes."""
    return any(map(asks_for_room, task.body.walk()))


def _body(kernel: Kernel, code: Code, position: int) -> Body:
    return Body(kernel, code, TABLE, position)


def _stop_if_failed(body: Body) -> None:
    """A task that failed is the last one of its launch; other work items of it go on."""
    if not body.task or not can_fail(body.kernel.module):
        return
    code, buffer = body.code, body.system("messages")
    failed = code.load(messages.at(code, buffer, abi.MESSAGES_FAILED), u32)
    task = code.load(messages.at(code, buffer, abi.MESSAGES_FAILURE_TASK), u32)
    has_failed = code.compare("ne", u32, failed, code.constant(0, u32))
    is_earlier = code.compare("lt", u32, task, code.constant(body.task, u32))
    code.branch(code.apply("and", u1, has_failed, is_earlier), code.leave)


def _write_serial(kernel: Kernel, position: int, code: Code) -> None:
    body, task = _body(kernel, code, position), kernel.module.tasks[position]
    body.restartable = restartable(task.body)
    _stop_if_failed(body)
    body.block(task.body)


def _write_domain(kernel: Kernel, position: int, code: Code) -> None:
    """The bounds, for the dispatch that follows; no work items where they cannot be told."""
    body, task = _body(kernel, code, position), kernel.module.tasks[position]
    assert task.domain is not None
    place = code.launch_word(abi.LAUNCH_BOUNDS)
    places = [messages.at(code, place, 8 * number) for number in (0, 1)]
    for bound in places:
        code.store(bound, i64, code.constant(0, i64))
    _stop_if_failed(body)
    body.block(task.domain)
    for bound, value in zip(places, task.domain.yielded, strict=True):
        code.store(bound, i64, body.wide(value))


def _bounds(code: Code, *, is_known: bool) -> tuple[Operand, Operand]:
    if is_known:
        return code.launch_word(abi.LAUNCH_LOWER), code.launch_word(abi.LAUNCH_UPPER)

    def bound(number: int) -> Operand:
        return code.load(messages.at(code, code.launch_word(abi.LAUNCH_BOUNDS), 8 * number), i64)

    return code.hoisted("lower", lambda: bound(0)), code.hoisted("upper", lambda: bound(1))


def _write_items(kernel: Kernel, position: int, code: Code, *, is_known: bool) -> None:
    """Every so many-th work item, from the one of the thread's own number on."""
    body, task = _body(kernel, code, position), kernel.module.tasks[position]
    _stop_if_failed(body)
    lower, upper = _bounds(code, is_known=is_known)
    item = code.variable(i64)
    code.write(item, code.apply("add", i64, lower, code.thread()))
    run = _item(kernel, position, task, body, is_known=is_known)

    def turn() -> None:
        number = code.read(item)
        if has_records(task):
            _run_unless_done(code, lower, number, run)
        else:
            run(number)
        code.write(item, code.apply("add", i64, number, code.threads()))

    code.loop(lambda: code.compare("lt", i64, code.read(item), upper), turn)


def _item(
    kernel: Kernel, position: int, task: Task, body: Body, *, is_known: bool
) -> Callable[[Operand], None]:
    """What writes a work item: in line, or as a function if something may end it early."""

    def write(code: Code, given: list[Operand]) -> None:
        inner = body if code is body.code else _body(kernel, code, position)
        inner.item, inner.lower = given[0], _bounds(code, is_known=is_known)[0]
        inner.restartable = restartable(task.body)
        (index,) = task.body.args
        inner.bind(index, code.convert(inner.item, i64, index.type))
        inner.block(task.body)

    if not any(isinstance(op, _LEAVING) for op in task.body.walk()):
        return lambda number: write(body.code, [number])
    name = f"item.{position}"
    return lambda number: body.code.call(name, [i64], None, write, [number])


def _run_unless_done(
    code: Code, lower: Operand, number: Operand, run: Callable[[Operand], None]
) -> None:
    """Of a launch that is run again only the work items that were refused, each of them once."""
    wanted, zero = code.variable(u1), code.constant(0, i64)
    code.write(wanted, code.constant(True, u1))

    def look() -> None:
        place = code.launch_word(abi.LAUNCH_REFUSED)
        word, bit = records.refused_bit(code, place, code.apply("sub", i64, number, lower))
        before = code.atomic("and", u32, word, code.apply("not", u32, bit))
        found = code.apply("and", u32, before, bit)
        code.write(wanted, code.compare("ne", u32, found, code.constant(0, u32)))

    again = code.compare("ne", i64, code.launch_word(abi.LAUNCH_AGAIN), zero)
    code.branch(again, look)
    code.branch(code.read(wanted), lambda: run(number))
