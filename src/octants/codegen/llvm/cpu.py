"""Kernels for CPUs: one object file, whose entry runs the tasks in order.

    void entry(ptr parameters, ptr context)     domains, serial tasks, `parallel_for` for the others
    void task(ptr parameters, ptr context, ptr worker, i64 begin, i64 end)    items of [begin, end)

`octants.abi` says what the context holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from octants import abi
from octants.artifact import Artifact
from octants.codegen.llvm import atomics, backend
from octants.codegen.llvm.backend import host_target as host_target
from octants.codegen.llvm.function import FunctionText, Machine
from octants.codegen.llvm.module import KernelText, ModuleText
from octants.codegen.llvm.operations import TABLE
from octants.codegen.llvm.reductions import find_reductions
from octants.codegen.llvm.text import identifier
from octants.ir import ops
from octants.ir.core import Module, Task, Value
from octants.target import Target

_PURE = "nounwind willreturn nofree nosync memory(none)"


class Cpu(Machine):
    """x64 and arm64; the mathematical functions are those of the C library."""

    def __init__(self, target: Target) -> None:
        is_x64 = target.triple.startswith(("x86_64", "i686"))
        self.has_half = not is_x64 or "+f16c" in target.features.split(",")

    def library(self, f: FunctionText, fn: str, type: str, operands: list[str]) -> str:
        symbol = abi.LIBRARY_PREFIX + fn + ("f" if type == "float" else "")
        name = f.text.declare_symbol(symbol, type, ", ".join([type] * len(operands)), _PURE)
        return f.assign(f"call {type} {name}({', '.join(f'{type} {x}' for x in operands)})")

    def poll(self, f: FunctionText) -> None:
        flag = f.context(abi.CONTEXT_INTERRUPTED)
        interrupted = f.assign(f"load atomic i32, ptr {flag} monotonic, align 4")
        further = f.fresh_label("further")
        f.branch_if(f.assign(f"icmp eq i32 {interrupted}, 0"), further, f.exit, likely=True)
        f.start(further)

    def grow(self, f: FunctionText, nbytes: str) -> str:
        place = f.context(abi.CONTEXT_GROW)
        function = f.assign(f"load ptr, ptr {place}, align 8")
        return f.assign(f"call ptr {function}(ptr %context, ptr %worker, i64 {nbytes})")


def compile_module(
    module: Module,
    target: Target,
    *,
    fast_math: bool = True,
    debug: bool = False,
    opt_level: int = 2,
) -> Artifact:
    """The machine code of a module with tasks.

    ``fast_math`` changes nothing yet: where an operation reaches a branch or is replayed it must
    not, and which ones do not is not known here.
    """
    (artifact,) = compile_modules(
        [module], target, fast_math=fast_math, debug=debug, opt_level=opt_level
    )
    return artifact


def compile_modules(
    modules: Sequence[Module],
    target: Target,
    *,
    fast_math: bool = True,  # noqa: ARG001
    debug: bool = False,  # noqa: ARG001
    opt_level: int = 2,
) -> list[Artifact]:
    """Several kernels in one object, which is much quicker than one by one where they are small."""
    text, kernels = _write(modules, target)
    module, machine = backend.optimised(text.finish(), target, opt_level)
    code = machine.emit_object(module)
    entries = [_entry_name(module, number) for number, module in enumerate(modules)]
    facts = (("symbols", tuple(text.symbols)), ("entries", tuple(entries)))
    return [
        Artifact(
            name=kernel.module.name,
            target=target.triple,
            code=code,
            entry=entries[number],
            parameters=kernel.parameters,
            messages=tuple(kernel.messages),
            metadata=facts,
        )
        for number, kernel in enumerate(kernels)
    ]


# -- for inspection -----------------------------------------------------------------------------


def llvm_text(module: Module, target: Target) -> str:
    """The LLVM IR of a module as it is generated."""
    return _write([module], target)[0].finish()


def optimised_llvm_text(module: Module, target: Target, opt_level: int = 2) -> str:
    """The LLVM IR of a module after LLVM's passes."""
    optimised, _ = backend.optimised(llvm_text(module, target), target, opt_level)
    return str(optimised)


def assembly_text(module: Module, target: Target, opt_level: int = 2) -> str:
    """The assembly of a module."""
    optimised, machine = backend.optimised(llvm_text(module, target), target, opt_level)
    text: str = machine.emit_assembly(optimised)
    return text


# -- functions ----------------------------------------------------------------------------------


def _write(modules: Sequence[Module], target: Target) -> tuple[ModuleText, list[KernelText]]:
    text, machine = ModuleText(), Cpu(target)
    kernels = []
    for number, module in enumerate(modules):
        kernel = KernelText(text, module)
        name = _entry_name(module, number)
        _write_entry(FunctionText(kernel, machine, TABLE, 0), name)
        for position, task in enumerate(module.tasks):
            function = FunctionText(kernel, machine, TABLE, position)
            _write_task(function, _task_name(name, position), task)
        kernels.append(kernel)
    return text, kernels


def _entry_name(module: Module, number: int) -> str:
    return f"octants_{identifier(module.name)}_{number}"


def _task_name(entry: str, position: int) -> str:
    return f"{entry}_task_{position}"


def _parameters(f: FunctionText) -> str:
    """The parameter block as a function's argument: nothing of it changes during a launch."""
    return f"ptr noalias nonnull readonly align 8 dereferenceable({f.kernel.size}) %parameters"


def _finish(f: FunctionText, head: str) -> None:
    """Put a function together; its code begins in the block `start`."""
    body = ["entry:", *f.entry, "  br label %start", *f.lines, "  ret void"]
    f.text.add_function("\n".join([head + " {", *body, "}\n"]))


def _write_task(f: FunctionText, name: str, task: Task) -> None:
    f.start("start")
    if task.domain is None:
        f.block(task.body)
        f.branch("return")
        f.start("return")
    else:
        _write_items(f, task)
    arguments = f"{_parameters(f)}, ptr %context, ptr %worker, i64 %begin, i64 %end"
    _finish(f, f"define internal void @{name}({arguments}) nounwind")


def _write_items(f: FunctionText, task: Task) -> None:
    """A loop over the items of [begin, end), at least one, in the type of the index."""
    reductions = find_reductions(task)
    for reduction in reductions:
        atomics.collect(f, reduction)
    (index,) = task.body.args
    register = f.item_type = f.type(index.type)
    begin, end = (_narrow(f, bound, register) for bound in ("%begin", "%end"))
    is_natural = _is_natural(task)
    if is_natural:
        assume = f.text.declare("@llvm.assume", "void", "i1")
        f.emit(f"call void {assume}(i1 {f.assign(f'icmp sge {register} {begin}, 0')})")
    f.branch("item")
    f.start("item")
    item = f.open_phi(register)
    item.incoming.append((begin, "start"))
    f.item, f.exit = item.name, "done"
    f.bind(index, item.name)
    f.block(task.body)
    if f.kernel.costs.grain(task.body) == 1:
        f.exit = "return"
        f.machine.poll(f)
    f.branch("done")
    f.start("done")
    following = f.assign(f"add {'nuw ' if is_natural else ''}nsw {register} {item.name}, 1")
    item.incoming.append((following, "done"))
    f.close_phi(item)
    f.branch_if(f.assign(f"icmp slt {register} {following}, {end}"), "item", "return")
    f.start("return")
    for reduction in reductions:
        atomics.deliver(f, reduction)


def _narrow(f: FunctionText, bound: str, register: str) -> str:
    return bound if register == "i64" else f.assign(f"trunc i64 {bound} to {register}")


def _is_natural(task: Task) -> bool:
    """Whether no index of a parallel task is negative, as far as its domain tells."""
    assert task.domain is not None
    lower = task.domain.yielded[0]
    return any(
        isinstance(op, ops.Constant) and op.result is lower and op.value >= 0
        for op in task.domain.ops
    )


def _write_entry(f: FunctionText, name: str) -> None:
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
    f.branch("return")
    f.start("return")
    _finish(f, f"define void @{name}({_parameters(f)}, ptr %context) nounwind")


def _run_serial(f: FunctionText, name: str, task: Task) -> None:
    if any(isinstance(op, (ops.For, ops.While)) for op in task.body.walk()):
        guard = f.assign(f"load ptr, ptr {f.context(abi.CONTEXT_GUARD)}, align 8")
        f.emit(f"call void {guard}(ptr %context)")
    worker = f.assign(f"load ptr, ptr {f.context(abi.CONTEXT_WORKER)}, align 8")
    f.emit(f"call void @{name}(ptr %parameters, ptr %context, ptr {worker}, i64 0, i64 1)")


def _run_parallel(f: FunctionText, name: str, task: Task) -> None:
    assert task.domain is not None
    f.block(task.domain)
    lower, upper = (_as_i64(f, value) for value in task.domain.yielded)
    grain = f.kernel.costs.grain(task.body)
    function = f.assign(f"load ptr, ptr {f.context(abi.CONTEXT_PARALLEL_FOR)}, align 8")
    f.emit(
        f"call void {function}(ptr %context, ptr @{name}, ptr %parameters,"
        f" i64 {lower}, i64 {upper}, i64 {grain})"
    )


def _as_i64(f: FunctionText, value: Value) -> str:
    operand = f.use(value)
    if value.type.bits == 64:
        return operand
    return f.assign(f"sext {f.type(value.type)} {operand} to i64")


def _stop_if_failed(f: FunctionText) -> None:
    """A task that failed, or was interrupted, is the last one of its launch."""
    place = f.assign(
        f"getelementptr i8, ptr {f.system('messages', 'ptr')}, i64 {abi.MESSAGES_FAILED}"
    )
    failed = f.assign(f"load atomic i32, ptr {place} monotonic, align 4")
    further = f.fresh_label("further")
    f.branch_if(f.assign(f"icmp eq i32 {failed}, 0"), further, "return", likely=True)
    f.start(further)
    f.machine.poll(f)


def _can_stop(module: Module) -> bool:
    """Whether anything in a module can fail, or take long enough to be interrupted."""
    stopping = (ops.Assert, ops.RecordPush, ops.While, ops.For)
    return any(task.is_parallel for task in module.tasks) or any(
        isinstance(op, stopping) for op in module.walk()
    )
