"""Write the prologue of a dispatch on a GPU, and describe the record buffer that it needs.

`abi` defines the launch words. Targets write the loops over work items themselves.
"""

from __future__ import annotations

from octants import abi
from octants.artifact import ParameterLayout, RecordBufferSizeInputs
from octants.codegen.function_emitter import ThreadFunction
from octants.codegen.instruction_writer import Operand, ThreadCode
from octants.codegen.interleaved_record_buffer import retry_bit
from octants.codegen.record_buffer_size_inputs import find_domain_inputs, find_size_inputs
from octants.codegen.recording_facts import can_fail, can_retry, may_exceed_record_buffer
from octants.ir.core import Block, Module, Task
from octants.types.scalars import i64, u1, u32


def has_records(task: Task) -> bool:
    """Return whether a task writes to record buffers."""
    return any(map(may_exceed_record_buffer, task.body.walk()))


def record_fields(
    task: Task, module: Module, parameters: ParameterLayout
) -> tuple[bool, bool, RecordBufferSizeInputs | None, RecordBufferSizeInputs | None]:
    """Return the record buffer fields of an `artifact.Dispatch`, from `records` on."""
    is_repeatable = can_retry(task.body)
    if not has_records(task):
        return False, is_repeatable, None, None
    known = task, module, parameters
    return True, is_repeatable, find_size_inputs(*known), find_domain_inputs(*known)


def stop_if_failed(f: ThreadFunction, module: Module) -> None:
    """Skip the task if an earlier one of the launch failed.

    A failure of this task ends no other work item: threads that start late would miss lower ones
    that fail, and threads of a block would not agree.
    """
    if not f.task or not can_fail(module):
        return
    code, buffer = f.code, f.messages()

    def check_task() -> None:
        code.fence()
        task = code.atomic_load(code.at(buffer, abi.MESSAGES_FAILURE_TASK), u32)
        is_earlier = code.compare("lt", u32, task, code.constant(f.task, u32))
        code.branch(is_earlier, f.leave)

    failed = code.atomic_load(code.at(buffer, abi.MESSAGES_FAILED), u32)
    code.branch(code.compare("ne", u32, failed, code.constant(0, u32)), check_task, rare=True)


def write_bounds(f: ThreadFunction, domain: Block, module: Module) -> None:
    """Write the bounds of work items to memory, for the dispatch that follows.

    The range is empty if an assertion fails before the bounds are known.
    """
    code = f.code
    start = code.launch_address(abi.LAUNCH_BOUNDS)
    addresses = [code.at(start, 8 * number) for number in (0, 1)]
    if can_fail(module):
        for bound in addresses:
            code.store(bound, i64, code.constant(0, i64))
    f.inlined(domain, [])
    for bound, value in zip(addresses, domain.yielded, strict=True):
        code.store(bound, i64, f.wide(value))


def is_wanted(code: ThreadCode, number: Operand) -> Operand:
    """Return whether this launch runs the work item with this number.

    A launch that is retried runs each work item whose record buffer was full, and no other.
    """
    wanted = code.variable(u1)
    code.write(wanted, code.constant(True, u1))

    def check_bit() -> None:
        word, bit = retry_bit(code, code.launch_address(abi.LAUNCH_FAILURES), number)
        found = code.apply("and", u32, code.atomic_load(word, u32), bit)
        code.write(wanted, code.compare("ne", u32, found, code.constant(0, u32)))
        others = code.apply("not", u32, bit)
        code.branch(code.read(wanted), lambda: code.atomic("and", u32, word, others))

    again = code.launch_word(abi.LAUNCH_RETRY)
    code.branch(code.compare("ne", i64, again, code.constant(0, i64)), check_bit)
    return code.read(wanted)
