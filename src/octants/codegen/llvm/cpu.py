"""Compile kernels for CPUs: one object file, whose entry function runs the tasks in order.

    void entry(ptr parameters, ptr context)     domains, serial tasks, `parallel_for` for the others
    void task(ptr parameters, ptr context, ptr worker, i64 begin, i64 end)    items of [begin, end)

`octants.abi` defines the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from octants import abi
from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.cost_model import UNINTERRUPTED
from octants.analysis.floats.subnormals import may_flush, normal_roots
from octants.analysis.lanes.boundaries import Boundaries
from octants.analysis.lanes.choose_loops import LaneChoice, choose
from octants.analysis.sums.privatisation import PrivatisedSums, find_sums
from octants.analysis.sums.reductions import find_reductions
from octants.analysis.sums.sliding_windows import SlidingWindow
from octants.artifact import Artifact
from octants.codegen.llvm import llvmlite_driver, local_arrays, privatised_sums, work_item_loop
from octants.codegen.llvm.function_text import FunctionText, Machine
from octants.codegen.llvm.instruction_writer import LlvmCode
from octants.codegen.llvm.lanes import work_item_loop as lane_items
from octants.codegen.llvm.lanes.function_text import LaneText
from octants.codegen.llvm.lanes.grouped_additions import find_grouped
from octants.codegen.llvm.lanes.interior_tiles import FREE_MASKS, InteriorTiles
from octants.codegen.llvm.lanes.operations import TABLE as LANE_TABLE
from octants.codegen.llvm.lanes.segments import Segments
from octants.codegen.llvm.lanes.sliding_sums import SlidingSums, find_sliding
from octants.codegen.llvm.lanes.vector_capabilities import lanes_of_target, vectors_of
from octants.codegen.llvm.llvmlite_driver import has_fused, is_x64
from octants.codegen.llvm.llvmlite_driver import host_target as host_target
from octants.codegen.llvm.module_text import KernelText, ModuleText
from octants.codegen.llvm.operations import TABLE
from octants.codegen.llvm.privatised_sums import SumLoop
from octants.codegen.llvm.rsqrt_estimates import estimate_of
from octants.codegen.llvm.types_and_literals import identifier
from octants.codegen.llvm.worker_record_buffer import WorkerRecordBuffer
from octants.codegen.recording_facts import pushes_in_reserve, restartable
from octants.compile_profile import stage
from octants.ir import ops
from octants.ir.core import Module, Task, Value
from octants.target import NEVER, Target

_LONG_ROW = 4096  # work items
_REST, _SINGLE = "_rest", "_single"  # suffixes of the names of a task's functions


class Cpu(Machine):
    """x64 and arm64."""

    def __init__(self, target: Target) -> None:
        self.has_mxcsr = is_x64(target)
        self.has_half = not is_x64(target) or "+f16c" in target.features.split(",")
        self.has_fused = has_fused(target)
        self.vector_bits = 32 * lanes_of_target(target)
        self.reciprocal_root = estimate_of(target)

    def poll(self, f: FunctionText) -> None:
        flag = f.context(abi.CONTEXT_INTERRUPTED)
        interrupted = f.assign(f"load atomic i32, ptr {flag} monotonic, align 4")
        further = f.fresh_label("further")
        f.branch_if(f.assign(f"icmp eq i32 {interrupted}, 0"), further, f.exit, likely=True)
        f.start(further)

    def code(self, f: FunctionText) -> LlvmCode:
        return LlvmCode(f)

    def record_buffer(self, f: FunctionText) -> WorkerRecordBuffer:
        return WorkerRecordBuffer(f)


def compile_module(
    module: Module,
    target: Target,
    *,
    fast_math: bool = False,
    opt_level: int = 2,
    simd: str = NEVER,
) -> Artifact:
    """Compile a module with tasks to machine code.

    Args:
        module: The lowered module, divided into tasks.
        target: The CPU to generate code for.
        fast_math: Allow less exact versions of some mathematical functions, the same ones in each
            copy of an operation. Contraction is not affected: it is explicit in the module.
        opt_level: LLVM's optimisation level, 0 to 3.
        simd: Which loops run in lanes: `NEVER`, `AUTO` or `ALWAYS`.

    Returns:
        The artifact: an object file and its entry points.
    """
    (artifact,) = compile_modules(
        [module], target, fast_math=fast_math, opt_level=opt_level, simd=simd
    )
    return artifact


def compile_modules(
    modules: Sequence[Module],
    target: Target,
    *,
    fast_math: bool = False,
    opt_level: int = 2,
    simd: str = NEVER,
) -> list[Artifact]:
    """Compile several kernels into one object, which is much faster for small kernels."""
    with stage("LLVM text"):
        text, kernels = _write(modules, target, simd, fast_math)
        written = text.finish()
    module, machine = _run_passes(text, written, target, opt_level)
    with stage("LLVM emit") as note:
        code = machine.emit_object(module)
        note.gives(code.__len__, "bytes")
    entries = [_entry_name(module, number) for number, module in enumerate(modules)]
    facts = (("entries", tuple(entries)),)
    return [
        kernel.artifact(target.triple, code, entry=entries[number], metadata=facts)
        for number, kernel in enumerate(kernels)
    ]


# -- for inspection -----------------------------------------------------------------------------


def llvm_text(module: Module, target: Target, *, simd: str = NEVER, fast_math: bool = False) -> str:
    """Return the LLVM IR of a module as it is generated."""
    return _write([module], target, simd, fast_math)[0].finish()


def optimised_llvm_text(
    module: Module, target: Target, *, opt_level: int = 2, **choices: Any
) -> str:
    """Return the LLVM IR of a module after LLVM's passes; `llvm_text` has the other choices."""
    return str(_optimised(module, target, opt_level, **choices)[0])


def assembly_text(module: Module, target: Target, *, opt_level: int = 2, **choices: Any) -> str:
    """Return the assembly of a module; `llvm_text` has the other choices."""
    optimised, machine = _optimised(module, target, opt_level, **choices)
    assembly: str = machine.emit_assembly(optimised)
    return assembly


def _optimised(
    module: Module, target: Target, level: int, *, simd: str = NEVER, fast_math: bool = False
) -> tuple[Any, Any]:
    text, _ = _write([module], target, simd, fast_math)
    return _run_passes(text, text.finish(), target, level)


def _run_passes(text: ModuleText, written: str, target: Target, level: int) -> tuple[Any, Any]:
    return llvmlite_driver.optimised(
        written,
        target,
        level,
        by_function=not text.has_module_passes,
        unswitches=text.unswitches,
    )


# -- functions ----------------------------------------------------------------------------------


def _write(
    modules: Sequence[Module], target: Target, simd: str, fast_math: bool
) -> tuple[ModuleText, list[KernelText]]:
    """Write the LLVM IR of kernels into one module of text.

    Args:
        modules: The kernels.
        target: What the code is for.
        simd: The option `simd`.
        fast_math: Whether operations may be fused and reassociated.
    """
    text = ModuleText(fast_math=fast_math and has_fused(target))
    machine = Cpu(target)
    kernels = []
    for number, module in enumerate(modules):
        kernel = KernelText(text, module)
        vectors = vectors_of(target, simd)
        kernel.choices = [choose(task, vectors, module.noalias) for task in module.tasks]
        kernel.sums = [sums_of(task, module.noalias) for task in module.tasks]
        name = _entry_name(module, number)
        _write_entry(FunctionText(kernel, machine, TABLE, 0), name)
        for position in range(len(module.tasks)):
            _write_task(kernel, machine, position, _task_name(name, position))
            _write_combines(kernel, machine, position, _task_name(name, position))
        kernels.append(kernel)
    return text, kernels


def sums_of(task: Task, noalias: bool) -> PrivatisedSums:
    """Return the sums to which workers add plainly, except those collected in registers."""
    if not any(isinstance(op, ops.Atomic) for op in task.body.walk()):
        return PrivatisedSums()
    if task.options.get("fixed_order"):  # even those need an order there
        return find_sums(task, noalias)
    collected = {op for found in find_reductions(task, noalias) for op in found.atomics}
    return find_sums(task, noalias, collected)


def _entry_name(module: Module, number: int) -> str:
    return f"octants_{identifier(module.name)}_{number}"


def _task_name(entry: str, position: int) -> str:
    return f"{entry}_task_{position}"


def _parameters(f: FunctionText) -> str:
    """Return the parameter block as an argument; it does not change during a launch."""
    return f"ptr noalias nonnull readonly align 8 dereferenceable({f.kernel.size}) %parameters"


def _finish(f: FunctionText, head: str) -> None:
    """Assemble a function's text; its code begins in the block `start`."""
    body = ["entry:", *f.entry, "  br label %start", *f.lines, "  ret void"]
    f.text.add_function("\n".join([head + " {", *body, "}\n"]))


_FLUSH_TO_ZERO = 0x8000
"""The bit of MXCSR, the control register of SSE, that makes subnormal results zero."""


def _finish_task(f: FunctionText, name: str, attributes: str = "") -> None:
    """Assemble the function of a task, in which subnormal results are zero if they may be so.

    Otherwise each takes some processors more than a hundred cycles, and adjoints of long loops
    become that small. The function that computes is not inlined into the one that sets the mode, so
    that LLVM moves no code out of it.
    """
    head = f"({_arguments(f)}) nounwind {attributes}"
    flushes = f.text.fast_math and f.machine.has_mxcsr
    if not (flushes and may_flush(f.kernel.module.tasks[f.task])):
        _finish(f, f"define internal void @{name}{head}")
        return
    _finish(f, f"define internal void @{name}_flushing{head} noinline")
    for intrinsic in ("stmxcsr", "ldmxcsr"):
        f.text.declare(f"@llvm.x86.sse.{intrinsic}", "void", "ptr")
    f.text.add_function(f"""\
define internal void @{name}{head} {{
  %before = alloca i32, align 4
  %inside = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %before)
  %mode = load i32, ptr %before, align 4
  %flushing = or i32 %mode, {_FLUSH_TO_ZERO}
  store i32 %flushing, ptr %inside, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %inside)
  call void @{name}_flushing({_arguments(f)})
  call void @llvm.x86.sse.ldmxcsr(ptr %before)
  ret void
}}
""")


def _write_task(kernel: KernelText, machine: Machine, position: int, name: str) -> None:
    """Write the functions of a task: one, and others for tiles of work items."""
    task, choice = kernel.module.tasks[position], kernel.choices[position]
    if choice.lanes:
        needs_single = _write_tiles(kernel, machine, position, name)
        name += _SINGLE
        if not (choice.fewest or needs_single):
            return
    if choice.fewest or not choice.lanes:
        noalias = kernel.module.noalias
        kernel.text.has_module_passes |= work_item_loop.may_vectorise(task, kernel.costs, noalias)
    f = FunctionText(kernel, machine, TABLE, position)
    f.restartable = restartable(task.body)
    f.reserved, f.normal_roots = pushes_in_reserve(task.body), _normal_roots(kernel, task)
    f.start("start")
    privatised_sums.begin(f, kernel.sums[position])
    local_arrays.begin(f, task)
    if task.is_parallel:
        work_item_loop.write_items(f, task)
    else:
        f.outside_loops = work_item_loop.outside_loops(task.body)
        f.block(task.body)
        f.enter("return")
    _finish_task(f, name, "noinline" if choice.lanes else "")


_ALIGNED = "alignstack(64)"
"""Alignment of the stack, where spilled vectors should not cross cache lines.

LLVM aligns it only if it knows in advance that it must.
"""


def _write_tiles(kernel: KernelText, machine: Machine, position: int, name: str) -> bool:
    """Write a function for all items, or one for whole tiles and one for the rest.

    Returns:
        Whether it calls the function of single items.
    """
    task, choice = kernel.module.tasks[position], kernel.choices[position]
    facts = choice.facts
    if facts is None:
        facts = Uniformity(task.body, () if choice.rows is None else choice.rows.numbers)

    roots = _normal_roots(kernel, task)
    sums, noalias = kernel.sums[position], kernel.module.noalias
    groups = find_grouped(task, sums, facts, choice.lanes, noalias)
    is_small, boundaries, windows = InteriorTiles.may_be_in(task), None, list[SlidingWindow]()
    if is_small:
        boundaries = Boundaries(task, facts, choice.rows)
        windows = find_sliding(task, sums, facts, choice.rows, choice.lanes, noalias, boundaries)
    is_stencil = bool(boundaries or windows)
    splits = is_small and machine.vector_bits < FREE_MASKS and bool(boundaries or not choice.even)
    needs_single = bool(windows and (boundaries or not splits))
    has_rest = choice.splits and not choice.even and not is_stencil

    def write(function: str, rest: str, *, overhangs: bool) -> None:
        f = LaneText(kernel, machine, LANE_TABLE, position, choice.lanes, facts, TABLE)
        f.overhangs, f.rows = overhangs, choice.rows
        if is_stencil or (choice.rows is not None and overhangs):
            sliding = SlidingSums(windows, set(task.body.ops))
            single = name + _SINGLE if needs_single else ""
            f.segments = Segments(boundaries, sliding.distances(), single)
            f.interior = InteriorTiles(sliding, splits=splits, in_all=bool(single))
        f.restartable, f.reserved = restartable(task.body), pushes_in_reserve(task.body)
        f.used = task.body.used()
        f.update_groups, f.normal_roots = groups, roots
        f.start("start")
        privatised_sums.begin(f, sums)
        local_arrays.begin(f, task, choice.lanes)
        for op in choice.rows.rematerialised if choice.rows is not None else ():
            f.table[type(op)](f, op)
        loop = partial(lane_items.write_whole_tiles, rest=rest) if rest else None
        work_item_loop.write_items(f, task, loop)
        _finish_task(f, function, _ALIGNED)

    if has_rest:
        write(name, name + _REST, overhangs=False)
        write(name + _REST, "", overhangs=True)
    else:
        write(name, "", overhangs=bool(boundaries) or not choice.even)
    return needs_single


def _normal_roots(kernel: KernelText, task: Task) -> set[Value]:
    """Return the roots of a task that are estimated without a slow path."""
    return normal_roots(task) if kernel.text.fast_math else set()


def _write_combines(kernel: KernelText, machine: Machine, position: int, name: str) -> None:
    """Write, for each privatised target, a function that adds the workers' copies to it."""
    for number in range(len(kernel.sums[position].private_copies)):
        f = FunctionText(kernel, machine, TABLE, position)
        f.start("start")
        privatised_sums.write_combine(f, kernel.sums[position], number)
        _finish(f, f"define internal void @{name}_combine_{number}({_arguments(f)}) nounwind")


def _arguments(f: FunctionText) -> str:
    return f"{_parameters(f)}, ptr %context, ptr %worker, i64 %begin, i64 %end"


def _write_entry(f: FunctionText, name: str) -> None:
    """Write the function that a launch calls: it runs the tasks in order."""
    module = f.kernel.module
    f.start("start")
    for position, task in enumerate(module.tasks):
        f.task = position
        if position and _can_stop(module):
            _stop_if_failed(f)
        if task.domain is None:
            _run_serial(f, _task_name(name, position), task)
        else:
            _run_parallel(f, _task_name(name, position), task)
    f.enter("return")
    _finish(f, f"define void @{name}({_parameters(f)}, ptr %context) nounwind")


def _run_serial(f: FunctionText, name: str, task: Task) -> None:
    if any(isinstance(op, ops.RecordPush) for op in task.body.walk()):
        run = f.assign(f"load ptr, ptr {f.context(abi.CONTEXT_SERIAL)}, align 8")
        f.emit(f"call void {run}(ptr %context, ptr @{name}, ptr %parameters)")
        return
    if f.kernel.costs.of(task.body) > UNINTERRUPTED:
        guard = f.assign(f"load ptr, ptr {f.context(abi.CONTEXT_GUARD)}, align 8")
        f.emit(f"call void {guard}(ptr %context)")
    worker = f.assign(f"load ptr, ptr {f.context(abi.CONTEXT_WORKER)}, align 8")
    f.emit(f"call void @{name}(ptr %parameters, ptr %context, ptr {worker}, i64 0, i64 1)")


def _run_parallel(f: FunctionText, name: str, task: Task) -> None:
    """Call the thread pool for a parallel task, with lanes unless it has few work items.

    Args:
        f: The kernel's entry function.
        name: The name of the task's function.
        task: The task.
    """
    assert task.domain is not None
    f.block(task.domain)
    lower, upper = map(f.wide, task.domain.yielded)
    choice, grain = f.kernel.choices[f.task], f.kernel.costs.grain(task.body)
    run, tile = f"@{name}", "1"
    if choice.lanes:
        grain = int(grain * choice.gain) if grain > 1 else 1
        length = _row_length(f, choice)
        tile = _tile(f, choice, length)
    if choice.fewest:
        count = f.apply("sub", "i64", upper, lower)
        is_few = f.apply("icmp slt", "i64", count, choice.fewest)
        if length:
            is_short = f.apply("icmp slt", "i64", length, choice.lanes // 2)
            is_few = f.apply("or", "i1", is_few, is_short)
        run = f.choose(is_few, "ptr", run + _SINGLE, run)
        tile = f.choose(is_few, "i64", "1", tile)
    if f.kernel.sums[f.task]:
        privatised_sums.run(f, task, SumLoop(run, lower, upper, grain, tile), name)
        return
    function = f.assign(f"load ptr, ptr {f.context(abi.CONTEXT_PARALLEL_FOR)}, align 8")
    f.emit(
        f"call void {function}(ptr %context, ptr {run}, ptr %parameters,"
        f" i64 {lower}, i64 {upper}, i64 {grain}, i64 {tile})"
    )


def _row_length(f: FunctionText, choice: LaneChoice) -> str:
    """Return the work items of a row (i64), if tiles end with rows."""
    if choice.rows is None:
        return ""
    for op in choice.rows.rematerialised:
        f.table[type(op)](f, op)
    return f.wide(choice.rows.rematerialised[-1].results[0])


def _tile(f: FunctionText, choice: LaneChoice, length: str) -> str:
    """Return the granularity of chunks: a tile, or a row unless it is long."""
    if not length:
        return str(choice.lanes)
    is_short = f.apply("icmp ult", "i64", length, _LONG_ROW)
    return f.choose(is_short, "i64", length, str(choice.lanes))


def _stop_if_failed(f: FunctionText) -> None:
    """Skip the rest of the launch if a task failed or was interrupted."""
    address = f.assign(
        f"getelementptr i8, ptr {f.system('messages', 'ptr')}, i64 {abi.MESSAGES_FAILED}"
    )
    failed = f.assign(f"load atomic i32, ptr {address} monotonic, align 4")
    further = f.fresh_label("further")
    f.branch_if(f.assign(f"icmp eq i32 {failed}, 0"), further, "return", likely=True)
    f.start(further)
    f.machine.poll(f)


def _can_stop(module: Module) -> bool:
    """Return whether a task of the module can fail, or run long enough to be interrupted."""
    stopping = (ops.Assert, ops.RecordPush, ops.RecordCheck, ops.While, ops.For)
    return any(task.is_parallel for task in module.tasks) or any(
        isinstance(op, stopping) for op in module.walk()
    )
