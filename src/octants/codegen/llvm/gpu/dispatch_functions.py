"""Write the functions of a kernel's dispatches: grid-stride loops over work items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from octants.analysis.control_flow.trip_count_keys import TripCountKey, find_key
from octants.analysis.cost_model import CHEAP
from octants.analysis.floats.subnormals import normal_roots
from octants.analysis.memory.concurrent_tasks import concurrent_groups
from octants.analysis.sums.reductions import Collect, find_reductions, find_scattered, find_shared
from octants.artifact import Dispatch
from octants.codegen import block_shared_copies, cooperation, sorted_work_items
from octants.codegen.dispatch_prologue import is_wanted, record_fields, stop_if_failed, write_bounds
from octants.codegen.llvm.control_flow import interleaving
from octants.codegen.llvm.function_text import HandlerTable
from octants.codegen.llvm.gpu import approximations, held_loads, reductions, vector_loads
from octants.codegen.llvm.gpu.cooperation import begin_item, begin_task, end_item
from octants.codegen.llvm.gpu.function_text import Gpu, ThreadText
from octants.codegen.llvm.module_text import KernelText, ModuleText
from octants.codegen.llvm.operations import TABLE
from octants.codegen.llvm.types_and_literals import identifier
from octants.codegen.recording_facts import (
    records_iterations,
    reserved_pushes,
    restartable,
)
from octants.codegen.vector_loads import load
from octants.codegen.work_item_bounds_on_host import host_bounds
from octants.ir import ops
from octants.ir.cooperative_tasks import ALL_REGISTERS, LEAST_BLOCKS, cooperates
from octants.ir.core import Module, Operation, Task
from octants.lazy_dataclass import dataclass

_DEVICE = "device"
_LARGEST = 1024
"""The most threads in a block."""
_SHORT = 40
"""The most operations of a work item for which a thread runs several items at a time."""
_PLAIN = (
    *(ops.Constant, ops.Cast, ops.Compare, ops.Select, ops.Fma),
    *(ops.Shape, ops.Load, ops.Store, ops.If, ops.Yield),
)
_SORTING = 2
"""The blocks that sort work items of which a multiprocessor should run so many side by side."""
_WAVES = 4
"""Dispatched threads per resident one: blocks end at different times."""

_TABLE: HandlerTable = {
    **TABLE,
    **cooperation.TABLE,
    ops.Atomic: reductions.atomic,
    ops.For: vector_loads.for_,
    ops.If: held_loads.if_,
    ops.Load: load,
    ops.Unary: approximations.unary,
}


@dataclass(frozen=True)
class WrittenKernel:
    """The text of a kernel, and the dispatches of its functions."""

    text: ModuleText
    kernel: KernelText
    dispatches: tuple[Dispatch, ...]


def write(module: Module, machine: Gpu, *, fast_math: bool = False) -> WrittenKernel:
    """Write the text of a module with tasks."""
    text = ModuleText(fast_math=fast_math, constant_space=machine.constant_space)
    kernel = KernelText(text, module)
    writer = _Writer(kernel, machine)
    writer.write()
    return WrittenKernel(text, kernel, tuple(writer.dispatches))


class _Writer:
    """Writes the functions of a kernel, and collects their dispatches in order."""

    def __init__(self, kernel: KernelText, machine: Gpu) -> None:
        self._kernel, self._machine = kernel, machine
        self._name = f"octants_{identifier(kernel.module.name)}"
        self._groups = concurrent_groups(kernel.module)
        self.dispatches: list[Dispatch] = []

    def write(self) -> None:
        for position, task in enumerate(self._kernel.module.tasks):
            name = f"{self._name}_task_{position}"
            bounds = self._write_bounds(position, task, f"{name}_bounds")
            self._write_task(position, task, name, bounds)

    def _write_bounds(self, position: int, task: Task, name: str) -> str:
        """Return the host's expression for a task's bounds; "" after writing a device function."""
        if task.domain is None:
            return ""
        module = self._kernel.module
        known = host_bounds(task.domain, module.arrays, self._kernel.parameters)
        if known is not None:
            return known
        f = ThreadText(self._kernel, self._machine, _TABLE, position)
        self._begin(f)
        write_bounds(f, task.domain, module)
        f.enter("return")
        self._finish(f, name, Dispatch(name, position))
        return _DEVICE

    def _write_task(self, position: int, task: Task, name: str, bounds: str) -> None:
        """Write the functions of a task, and append its dispatch.

        Args:
            position: The position of the task in the module.
            task: The task.
            name: The name of its function.
            bounds: Its `Dispatch.bounds`.
        """
        module = self._kernel.module
        key = find_key(task, module.noalias) if self._machine.has_blocks else None
        block = self._block_size(task, key)
        f = ThreadText(
            self._kernel,
            self._machine,
            _TABLE,
            position,
            device_bounds=bounds == _DEVICE,
            block_size=block,
        )
        f.restartable = restartable(task.body)
        f.reserved |= reserved_pushes(task.body)
        f.least_blocks = task.options.get(LEAST_BLOCKS, _SORTING * (key is not None))
        f.all_registers = task.options.get(ALL_REGISTERS, False)
        f.interleaved_loops = vector_loads.interleaved_loops(task)
        f.holding = held_loads.find_holding(task)
        if self._machine.normal_root and f.text.fast_math:
            f.normal_roots = normal_roots(task)
        if task.is_parallel and not task.options.get("fixed_order"):
            if self._machine.shares_updates:
                f.shared_updates = find_shared(task.body)
            if self._machine.matches_addresses:
                f.scattered_updates = find_scattered(task)
        self._begin(f)
        records = record_fields(task, module, self._kernel.parameters)
        asks = records[0]
        if cooperates(task):
            _write_blocks(f, task)
        elif task.is_parallel:
            _write_items(f, task, key, again=asks)
        else:
            f.block(task.body)
            f.enter("return")
        threads = 1 if task.options.get("fixed_order") or not task.is_parallel else 0
        # Each thread has its own record buffer, and its own sum to add at the end.
        is_free = task.is_parallel and not (asks or threads or f.adds_up or cooperates(task))
        self._finish(
            f,
            name,
            Dispatch(
                name,
                position,
                bounds,
                block,
                threads,
                *records,
                0 if asks else self._groups[position],  # the record buffers are those of a stream
                _WAVES if is_free else 1,
                f.adds_up,
                records_iterations=records_iterations(task.body),
            ),
        )

    def _block_size(self, task: Task, key: TripCountKey | None) -> int:
        """Return the threads of a block that sorts, or of one of which a number was requested.

        Blocks are whole subgroups where work items do not cooperate: all lanes reduce at the end.
        """
        if key is not None:
            return sorted_work_items.THREADS
        asked = int(task.options.get("block_dim", 0))
        if cooperates(task):
            return asked
        subgroup = self._machine.subgroup
        return min(-(-asked // subgroup) * subgroup, _LARGEST)

    def _begin(self, f: ThreadText) -> None:
        """Write the checks that may skip the whole dispatch."""
        f.start("start")
        f.exit, leave = "end", f.exit
        stop_if_failed(f, self._kernel.module)
        f.exit = leave

    def _finish(self, f: ThreadText, name: str, dispatch: Dispatch) -> None:
        f.enter("end")
        body = [
            "entry:",
            *self._machine.prologue(f),
            *f.entry,
            "  br label %start",
            *f.lines,
            "  ret void",
        ]
        head = f"define {self._machine.head(f, name)}"
        f.text.add_function("\n".join([head + " {", *body, "}\n"]))
        self.dispatches.append(replace(dispatch, starts_early=self._machine.starts_early))


def _write_items(f: ThreadText, task: Task, key: TripCountKey | None, *, again: bool) -> None:
    """Write the thread's loop over items; with ``again`` it runs only those that are retried."""
    is_alone = bool(task.options.get("fixed_order"))  # a thread has no lanes to reduce with
    found = [] if is_alone else find_reductions(task, f.kernel.module.noalias)
    for reduction in found:
        f.table[Collect](f, Collect(reduction))
    has_copies = f.gpu.has_blocks and not is_alone
    nbytes = f.gpu.shared_bytes
    nbytes -= sorted_work_items.SHARED_BYTES * (key is not None)
    if has_copies:
        cooperation.find_groups(f, task, f.shared_updates)
    copies = block_shared_copies.choose(f, task, nbytes) if has_copies else []
    block_shared_copies.begin(f, copies, lambda: f.apply("sub", "i64", f.upper(), f.first_item()))

    def begin(item: str) -> None:
        if again:
            run = f.fresh_label("run")
            number = f.apply("sub", "i64", item, f.first_item())
            f.branch_if(is_wanted(f.code, number), run, "done")
            f.start(run)

    def end() -> None:
        f.enter("done")

    if key is None:
        _write_loop(f, task, begin, end, "done")
    else:
        run = partial(_write_item, f, task, begin, end, "done")
        sorted_work_items.write(f, task, key, (f.first_item(), f.upper()), run)
    block_shared_copies.end(f, copies)
    reductions.deliver(f, found)
    f.adds_up = bool(found or copies)


def _write_blocks(f: ThreadText, task: Task) -> None:
    """Write the thread's loop over items in a task whose blocks cooperate.

    A thread that has no item, or that fails, ends: barriers do not wait for it.
    """
    begin_task(f, task)

    def begin(item: str) -> None:
        begin_item(f, task, item)

    _write_loop(f, task, begin, partial(end_item, f), "return")


def _write_loop(
    f: ThreadText,
    task: Task,
    begin: Callable[[str], None],
    end: Callable[[], None],
    leave: str,
) -> None:
    """Write a task's body for each item of the thread, between ``begin`` and ``end``.

    An item that ends early branches to the block ``leave``. Afterwards the block "return" is open.
    """
    first = f.assign(f"add i64 {f.first_item()}, {f.code.thread()}")
    upper = f.upper()
    before = f.label
    f.branch_if(f.apply("icmp slt", "i64", first, upper), "item", "return")
    f.start("item")
    item = f.open_phi("i64", (first, before))
    _write_item(f, task, begin, end, leave, item.name)
    following = f.apply("add nsw", "i64", item.name, f.code.threads())
    f.close_phi(item, (following, f.label))
    hint = interleaving(f) if f.collected and _is_short(f, task) else ""
    goes_on = f.apply("icmp slt", "i64", following, upper)
    f.branch_if(goes_on, "item", "return", hint=hint)
    f.start("return")


def _write_item(
    f: ThreadText,
    task: Task,
    begin: Callable[[str], None],
    end: Callable[[], None],
    leave: str,
    item: str,
) -> None:
    """Write a task's body for the item with this number (i64), between ``begin`` and ``end``."""
    begin(item)
    (index,) = task.body.args
    register = f.item_type = f.type(index.type)
    f.item = item if register == "i64" else f.convert("trunc", "i64", item, register)
    f.exit = leave
    f.bind(index, f.item)
    f.block(task.body)
    end()


def _is_short(f: ThreadText, task: Task) -> bool:
    """Return whether a thread that reduces would mostly wait for memory, one item at a time.

    LLVM warns where it cannot interleave as it is asked to, so only simple bodies qualify.
    """
    body = list(task.body.walk())
    return len(body) <= _SHORT and all(
        isinstance(op, _PLAIN) or op in f.collected or _is_quick(op) for op in body
    )


def _is_quick(op: Operation) -> bool:
    if isinstance(op, ops.Unary):
        return op.fn in CHEAP
    return isinstance(op, ops.Binary) and op.fn not in ("pow", "atan2", "fmod")
