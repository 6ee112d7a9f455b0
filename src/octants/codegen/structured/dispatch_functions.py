"""Write the functions of a kernel, one for each dispatch: the work of its threads (see `abi`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from octants import abi
from octants.analysis.control_flow.trip_count_keys import TripCountKey, find_key
from octants.analysis.cost_model import UNKNOWN, Costs
from octants.analysis.sums.reductions import Collect, Reduction, find_reductions, find_shared
from octants.analysis.sums.sums_of_products import ProductFinder
from octants.artifact import Dispatch
from octants.codegen import (
    block_shared_copies,
    cooperation,
    per_thread_reductions,
    sorted_work_items,
)
from octants.codegen.block_shared_candidates import BlockCopy, find_copies
from octants.codegen.dispatch_prologue import (
    has_records,
    is_wanted,
    record_fields,
    stop_if_failed,
    write_bounds,
)
from octants.codegen.instruction_writer import MutableSlot, Operand, ThreadCode
from octants.codegen.recording_facts import reserved_pushes, restartable
from octants.codegen.structured import reductions
from octants.codegen.structured.control_flow import is_less
from octants.codegen.structured.cooperation_limits import check
from octants.codegen.structured.cooperative_blocks import BarrierFunction
from octants.codegen.structured.early_exits import EarlyExitFunction, can_end
from octants.codegen.structured.function_emitter import StructuredFunction, StructuredKernel
from octants.codegen.structured.operations import TABLE
from octants.codegen.work_item_bounds_on_host import host_bounds
from octants.ir import ops
from octants.ir.cooperative_tasks import cooperates, has_barriers, shared_array_refs, sizes
from octants.ir.core import Task
from octants.ir.ops.cooperation import Barrier, Fence, Subgroup
from octants.lazy_dataclass import dataclass
from octants.target import Blocks
from octants.types.scalars import i64, u1, u32

_MOST_IN_BLOCK = 128  # that any device supports
_LONG = 1 << 10
"""The cost of a work item from which it takes longer than to start its block."""
_FEW = 1 << 14
"""Work items that do not fill a large GPU: in small blocks they are on all its multiprocessors."""


@dataclass(frozen=True, slots=True)
class DispatchEmitter:
    """A dispatch, the writer of its threads' code, and the number of threads of a block.

    A block is whole subgroups, although a block of work items may be smaller. With `has_lanes` work
    items are lanes of subgroups in the order of their numbers.
    """

    dispatch: Dispatch
    write: Callable[[ThreadCode], None]
    threads: int = 1
    has_lanes: bool = False


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """The threads of a block of tasks that write records, of those that reduce, and of others.

    Of both latter kinds, those with `long` work items have blocks of so many threads, and those
    with `few` long ones of so many. Of the threads of a `serial` task, one runs it. Where subgroups
    exchange factors of products, a block needs `factor_bytes` of shared memory for that.
    """

    recording: int
    reducing: int
    plain: int
    long: int
    few: int
    serial: int = 1
    factor_bytes: int = 0


def functions(
    kernel: StructuredKernel, threads: BlockSizes, blocks: Blocks | None, most: int
) -> list[DispatchEmitter]:
    """Return the functions of a kernel, in the order of their dispatches.

    Args:
        kernel: The kernel.
        threads: The threads of a block.
        blocks: The machine's limits for cooperative tasks; None if it has no such blocks.
        most: The threads that are enough for tasks that reduce or sort; 0 for any number.

    Returns:
        A list with one emitter for each dispatch.
    """
    found: list[DispatchEmitter] = []
    costs = Costs(kernel.module)
    for position, task in enumerate(kernel.module.tasks):
        name, records = f"task_{position}", record_fields(task, kernel.module, kernel.parameters)
        if task.domain is None:
            dispatch = Dispatch(name, position, "", 1, 1, *records)
            write = partial(_write_serial, kernel, position, threads.serial)
            found.append(DispatchEmitter(dispatch, write, threads.serial))
            continue
        bounds = host_bounds(task.domain, kernel.module.arrays, kernel.parameters)
        if not bounds:
            dispatch = Dispatch(f"domain_{position}", position, block=1, threads=1)
            found.append(DispatchEmitter(dispatch, partial(_write_domain, kernel, position)))
        is_gpu = threads.reducing > threads.recording
        collected = _collects(kernel, task)
        nbytes = blocks.shared_bytes if blocks is not None and is_gpu else 0
        nbytes = max(0, nbytes - reductions.most_bytes(collected, threads.reducing))
        key = find_key(task, kernel.module.noalias) if _may_sort(nbytes, blocks) else None
        nbytes -= sorted_work_items.SHARED_BYTES * (key is not None)
        nbytes -= min(nbytes, threads.factor_bytes) * _adds_products(task)
        copies = _copies(kernel, task, collected, nbytes) if nbytes else []
        sums = bool(copies or collected)
        is_long = _LONG <= costs.of(task.body) < UNKNOWN
        few = ops.has_few_items(task, _FEW)
        usual = (threads.few if few else threads.long) if is_long else threads.plain
        if sums:
            lanes = 1 if blocks is None else blocks.subgroup_size
            most_threads = usual if is_long else threads.reducing
            usual = reductions.most_threads(collected, most_threads, lanes)
        elif has_records(task):
            usual = threads.recording
        items = _items(task, usual, blocks) if key is None else sorted_work_items.THREADS
        limit = _threads(task, most if sums or key is not None else 0)
        dispatch = Dispatch(name, position, bounds or "device", items, limit, *records)
        if not cooperates(task):
            arguments = kernel, position, items, copies, key
            write = partial(_write_items, *arguments, is_known=bool(bounds))
            found.append(DispatchEmitter(dispatch, write, items))
            continue
        assert blocks is not None, "the frontend refuses"
        check(task, blocks)
        whole = -(-items // blocks.subgroup_size) * blocks.subgroup_size
        write = partial(_write_blocks, kernel, position, whole, is_known=bool(bounds))
        found.append(DispatchEmitter(dispatch, write, whole, _has_lanes(task)))
    return found


def _adds_products(task: Task) -> bool:
    """Return whether work items add products to elements that they may share."""
    finder = ProductFinder(task)
    sums = (op for op in find_shared(task.body) if isinstance(op, ops.Atomic))
    return any(finder.factors([op]) for op in sums)


def _items(task: Task, block: int, blocks: Blocks | None) -> int:
    """Return the threads of a block: whole subgroups, all of which reduce at the end."""
    if task.options.get("fixed_order"):
        return 1
    if cooperates(task):
        return sizes(task)[0]
    asked = int(task.options.get("block_dim", 0)) or block
    if blocks is None:
        return min(asked, _MOST_IN_BLOCK)
    lanes = blocks.subgroup_size
    return min(-(-asked // lanes) * lanes, blocks.most_items)


def _may_sort(nbytes: int, blocks: Blocks | None) -> bool:
    """Return whether the blocks of a machine are large enough to sort work items."""
    needed = 2 * sorted_work_items.SHARED_BYTES
    return (
        blocks is not None and blocks.most_items >= sorted_work_items.THREADS and nbytes >= needed
    )


def _threads(task: Task, most: int) -> int:
    """Return the most threads that a task can use; 0 for any number."""
    return 1 if task.options.get("fixed_order") else most


def _collects(kernel: StructuredKernel, task: Task) -> list[Reduction]:
    """Return the reductions that each thread makes in registers.

    There are none if records may end a work item: then items are functions of their own, without
    access to the thread's variables.
    """
    if task.options.get("fixed_order") or cooperates(task) or has_records(task):
        return []
    return find_reductions(task, kernel.module.noalias)


def _copies(
    kernel: StructuredKernel, task: Task, collected: list[Reduction], shared_bytes: int
) -> list[BlockCopy]:
    """Return the copies of arrays to which each block adds, besides what it collects."""
    if task.options.get("fixed_order") or cooperates(task) or has_records(task):
        return []
    updates = {op for each in collected for op in each.atomics}
    found = find_copies(task, kernel.module.noalias, updates, shared_bytes)
    return [copy for copy in found if copy.target.array.dtype.bits == 32]


def _body(kernel: StructuredKernel, code: ThreadCode, position: int) -> StructuredFunction:
    return StructuredFunction(kernel, code, TABLE, position)


def _begun(kernel: StructuredKernel, code: ThreadCode, position: int) -> StructuredFunction:
    """Return the function of a dispatch, after the checks that may skip it."""
    body = _body(kernel, code, position)
    stop_if_failed(body, kernel.module)
    return body


def _write_serial(kernel: StructuredKernel, position: int, threads: int, code: ThreadCode) -> None:
    body, task = _begun(kernel, code, position), kernel.module.tasks[position]
    body.restartable, body.reserved = restartable(task.body), reserved_pushes(task.body)
    if threads == 1:
        body.block(task.body)
        return
    is_first = code.compare("lt", i64, code.thread(), code.constant(1, i64))
    code.branch(is_first, lambda: body.block(task.body))


def _write_domain(kernel: StructuredKernel, position: int, code: ThreadCode) -> None:
    body, task = _begun(kernel, code, position), kernel.module.tasks[position]
    assert task.domain is not None
    write_bounds(body, task.domain, kernel.module)


def _bounds(code: ThreadCode, *, is_known: bool) -> tuple[Operand, Operand]:
    if is_known:
        return code.launch_word(abi.LAUNCH_LOWER), code.launch_word(abi.LAUNCH_UPPER)

    def bound(number: int) -> Operand:
        return code.load(code.at(code.launch_word(abi.LAUNCH_BOUNDS), 8 * number), i64)

    return code.hoisted("lower", lambda: bound(0)), code.hoisted("upper", lambda: bound(1))


def _write_items(
    kernel: StructuredKernel,
    position: int,
    threads: int,
    copies: list[BlockCopy],
    key: TripCountKey | None,
    code: ThreadCode,
    *,
    is_known: bool,
) -> None:
    """Write a grid-stride loop over work items.

    A block has so many ``threads``, and ``copies`` of arrays. It sorts its work items by the
    ``key``, if there is one.
    """
    body, task = _begun(kernel, code, position), kernel.module.tasks[position]
    lower, upper = _bounds(code, is_known=is_known)
    collected = _collects(kernel, task)
    for reduction in collected:
        per_thread_reductions.collect(body, Collect(reduction))
    block_shared_copies.begin(body, copies, lambda: code.apply("sub", i64, upper, lower))
    run = _item(kernel, position, task, body, is_known=is_known)

    def run_wanted(number: Operand) -> None:
        if has_records(task):
            wanted = is_wanted(code, code.apply("sub", i64, number, lower))
            code.branch(wanted, lambda: run(number))
        else:
            run(number)

    if key is None:
        _each_item(code, lower, upper, run_wanted)
    else:
        sorted_work_items.write(body, task, key, (lower, upper), run_wanted)
    block_shared_copies.end(body, copies)
    reductions.deliver(body, collected, threads)


def _each_item(
    code: ThreadCode, lower: Operand, upper: Operand, run: Callable[[Operand], None]
) -> None:
    """Write a loop over the thread's work items, from ``lower`` to ``upper``."""
    item = code.variable(i64)
    code.write(item, code.apply("add", i64, lower, code.thread()))

    def iterate() -> None:
        number = code.read(item)
        run(number)
        code.write(item, code.apply("add", i64, number, code.threads()))

    _loop_until(code, item, upper, iterate)


def _loop_until(
    code: ThreadCode, item: MutableSlot, upper: Operand, iterate: Callable[[], None]
) -> None:
    """Write a loop that runs while a variable, which it changes, is below a number."""
    code.loop(
        lambda: code.compare("lt", i64, code.read(item), upper),
        iterate,
        lambda: is_less(code, i64, code.read(item), upper),
    )


def _item(
    kernel: StructuredKernel, position: int, task: Task, body: StructuredFunction, *, is_known: bool
) -> Callable[[Operand], None]:
    """Return the writer of a work item: inline, or as a function if the item may end early.

    The items of threads that reduce in registers are inline.
    """
    ends = any(map(can_end, task.body.walk()))

    def write(code: ThreadCode, given: list[Operand]) -> None:
        if code is not body.code:
            inner = _body(kernel, code, position)
        else:
            inner = EarlyExitFunction(kernel, code, TABLE, position) if ends else body
        inner.item = given[0]
        inner.lower, upper = _bounds(code, is_known=is_known)
        inner.restartable, inner.reserved = restartable(task.body), reserved_pushes(task.body)
        inner.collected, inner.shared_arrays = body.collected, body.shared_arrays
        inner.uses_copy = body.uses_copy
        if task.is_parallel and not task.options.get("fixed_order"):
            inner.shared_updates = find_shared(task.body) if code.gathers else set()
            cooperation.find_groups(inner, task, inner.shared_updates)
        if isinstance(inner, EarlyExitFunction):
            inner.begin(task.body, code.constant(True, u1))
        if _needs_lanes(task):
            inner.lanes = cooperation.find_lanes(code, task, inner.item, upper)
        (index,) = task.body.args
        inner.bind(index, code.convert(inner.item, i64, index.type))
        inner.block(task.body)

    if not ends or body.collected or body.shared_arrays:
        return lambda number: write(body.code, [number])
    name = f"item.{position}"
    return lambda number: body.code.call(name, [i64], None, write, [number])


def _needs_lanes(task: Task) -> bool:
    return any(isinstance(op, Subgroup) for op in task.body.walk())


def _has_lanes(task: Task) -> bool:
    """Return whether it matters which work items are in a subgroup."""
    return _needs_lanes(task) or any(
        isinstance(op, (Barrier, Fence)) and op.scope == "subgroup" for op in task.body.walk()
    )


def _write_blocks(
    kernel: StructuredKernel, position: int, threads: int, code: ThreadCode, *, is_known: bool
) -> None:
    """Write a grid-stride loop over blocks of work items; all threads of a block run it in step.

    There are ``threads`` of them, the last of which may only complete a subgroup.
    """
    body, task = _begun(kernel, code, position), kernel.module.tasks[position]
    lower, upper = _bounds(code, is_known=is_known)
    count, first = code.constant(sizes(task)[0], i64), code.variable(i64)
    thread = code.convert(code.thread_in_block(), u32, i64)
    start = code.apply("mul", i64, code.block(), count)
    code.write(first, code.apply("add", i64, lower, start))
    step = code.apply("mul", i64, code.blocks(), count)
    run = _item(kernel, position, task, body, is_known=is_known)

    def iterate() -> None:
        item = code.apply("add", i64, code.read(first), thread)
        has_item = code.compare("lt", i64, item, upper)
        is_exact = threads == sizes(task)[0]
        if not is_exact:
            is_in = code.compare("lt", i64, thread, count)
            has_item = code.apply("and", u1, has_item, is_in)
        if has_barriers(task.body):
            end = code.apply("add", i64, code.read(first), count)
            whole = code.compare("le", i64, end, upper) if is_exact else None
            _write_together(kernel, position, code, (item, upper), has_item, whole)
        else:
            code.branch(has_item, lambda: run(item))
        if shared_array_refs(task):  # other threads may still read what the next block overwrites
            code.barrier("block")
        code.write(first, code.apply("add", i64, code.read(first), step))

    _loop_until(code, first, upper, iterate)


def _write_together(
    kernel: StructuredKernel,
    position: int,
    code: ThreadCode,
    numbers: tuple[Operand, Operand],
    has_item: Operand,
    whole: Operand | None,
) -> None:
    """Write a work item with barriers, given its number and the end of the range."""
    task = kernel.module.tasks[position]
    body = BarrierFunction(kernel, code, TABLE, position)
    body.item, upper = numbers
    if _needs_lanes(task):
        body.lanes = cooperation.find_lanes(code, task, body.item, upper)
    (index,) = task.body.args
    body.bind(index, code.convert(body.item, i64, index.type))
    ends = any(map(can_end, task.body.walk()))
    body.begin_block(task.body, has_item, None if ends else whole)
    body.steps(task.body)
