"""Write privatised sums: workers add plainly, to disjoint targets or each to its private copy.

A private segment holds copies of the targets that need one, each at a multiple of 64 bytes.
`analysis.sums.privatisation` chooses the targets, `runtime.cpu.native.privatised_sums` decides at
launch whether there are copies: the worker passes the address of its segment to the task::

    task:     base = %part > 0 ? %part + offset : target;  load, add, store at base + ...
    entry:    parallel_sums(task), then for each target  parallel_for(combine)
    combine:  target[k] += part[k] for each segment that was used
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from octants import abi
from octants.analysis.cost_model import GRAIN
from octants.analysis.sums.privatisation import AlternatingChunks, PrivatisedSums
from octants.codegen.llvm.function_text import FunctionText
from octants.codegen.llvm.types_and_literals import known
from octants.ir import ops
from octants.ir.core import ArrayRef, Block, Operation, Space, Task, Value
from octants.lazy_dataclass import dataclass
from octants.types.layouts import Layout

_WORTH = 32  # bytes of copies that are worth one addition that is not atomic
_WORTH_IN_ORDER = 256  # the same where one thread would make all additions otherwise
_TRIPS = 16  # of a loop whose trip count is unknown
_AT_ONCE = 32  # numbers of a copy
_NEVER = 1 << 40  # a length that no chunk has
_FIXED, _WRAPS = 1, 2


# -- sizes -------------------------------------------------------------------------------------


def _count(f: FunctionText, target: ArrayRef) -> str:
    """Return the number of a target's elements, i64."""
    array, companion = target
    layout = array.layouts[companion]
    if isinstance(layout, Layout):
        return str(math.prod((*layout.shape, *array.element_shape)))
    count = str(math.prod(array.element_shape))
    if array.space is Space.NDARRAY:
        for axis in range(array.rank):
            count = _times(f, count, f.extent(array, axis))
    return count


def _times(f: FunctionText, one: str, other: str) -> str:
    numbers = known(one), known(other)
    if None not in numbers:
        return str(int(one) * int(other))
    return other if one == "1" else f.assign(f"mul i64 {one}, {other}")


def _bytes(f: FunctionText, target: ArrayRef) -> str:
    """Return the bytes of a target in a segment."""
    nbytes = _times(f, _count(f, target), str(target[0].dtype.size))
    if known(nbytes) is not None:
        return str(-(-int(nbytes) // abi.PART_ALIGNMENT) * abi.PART_ALIGNMENT)
    raised = f.assign(f"add i64 {nbytes}, {abi.PART_ALIGNMENT - 1}")
    return f.assign(f"and i64 {raised}, {-abi.PART_ALIGNMENT}")


def _offsets(f: FunctionText, sums: PrivatisedSums) -> Iterator[str]:
    """Yield the offset of each target in a segment, and at last the segment's size."""
    offset = "0"
    yield offset
    for target in sums.private_copies:
        size = _bytes(f, target)
        if known(offset) is not None and known(size) is not None:
            offset = str(int(offset) + int(size))
        else:
            offset = f.assign(f"add i64 {offset}, {size}")
        yield offset


# -- in the task -------------------------------------------------------------------------------


def begin(f: FunctionText, sums: PrivatisedSums) -> None:
    """Compute the addresses of the worker's copies, at the start of a task."""
    if not sums:
        return
    f.sums = sums
    address = f.assign(f"getelementptr i8, ptr %worker, i64 {abi.WORKER_PART}")
    part = f.assign(f"load i64, ptr {address}, align 8")
    f.shared = f.assign(f"icmp eq i64 {part}, {abi.PART_SHARED}")
    if not sums.private_copies:
        return
    has_part = f.assign(f"icmp sgt i64 {part}, 0")
    memory = f.assign(f"inttoptr i64 {part} to ptr")
    for target, offset in zip(sums.private_copies, _offsets(f, sums), strict=False):
        own = f.assign(f"getelementptr i8, ptr {memory}, i64 {offset}")
        original = f.pointer(*target)
        f.parts[target] = f.assign(f"select i1 {has_part}, ptr {own}, ptr {original}")


# -- in the entry ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SumLoop:
    """A task to run: its function, its work items, and the least size of a chunk."""

    function: str
    lower: str
    upper: str
    grain: int
    tile: str


def run(f: FunctionText, task: Task, loop: SumLoop, name: str) -> None:
    """Run a task with sums, and add the private copies to their targets."""
    sums = f.kernel.sums[f.task]
    *_, size = _offsets(f, sums)
    is_fixed = bool(task.options.get("fixed_order"))
    each = _additions(f, task.body, sums) * (_WORTH_IN_ORDER if is_fixed else _WORTH)
    count = f.assign(f"sub i64 {loop.upper}, {loop.lower}")
    worth = f.assign(f"mul i64 {count}, {each}")
    wraps = any(alternating.wraps for alternating in sums.alternating.values())
    flags, width = _FIXED * is_fixed + _WRAPS * wraps, _width(f, sums)
    function = f.assign(f"load ptr, ptr {f.context(abi.CONTEXT_PARALLEL_SUMS)}, align 8")
    f.emit(
        f"call void {function}(ptr %context, ptr {loop.function}, ptr %parameters,"
        f" i64 {loop.lower}, i64 {loop.upper}, i64 {loop.grain}, i64 {loop.tile},"
        f" i64 {size}, i64 {worth}, i64 {width}, i32 {flags})"
    )
    if sums.private_copies:
        _combine(f, name, sums)


def _additions(f: FunctionText, body: Block, sums: PrivatisedSums) -> int:
    """Estimate the number of additions to copies that a work item makes."""
    count = 0
    for op in body.ops:
        if isinstance(op, ops.Atomic):
            count += op.ref in sums.private_copies
        trips = _TRIPS if isinstance(op, ops.While) else 1
        if isinstance(op, ops.For):
            trips = min(1 << 20, f.kernel.costs.trips(op) or _TRIPS)
        count += trips * sum(_additions(f, region, sums) for region in op.regions)
    return min(count, 1 << 20)


def _width(f: FunctionText, sums: PrivatisedSums) -> str:
    """Return the least size of a chunk."""
    width = "0"
    for alternating in sums.alternating.values():
        wanted = _length(f, alternating)
        width = wanted if width == "0" else f.intrinsic("smax", "i64", _wide(width, wanted))
    return width


def _length(f: FunctionText, alternating: AlternatingChunks) -> str:
    """Return the work items of so many rows; without rows, of all."""
    for op in alternating.rematerialised:
        _write_once(f, op)
    items = "1"
    for divisor in alternating.divisors:
        items = _times(f, items, _magnitude(f, divisor))
    if known(items) is not None:
        return str(int(items) * alternating.rows or _NEVER)
    is_none = f.assign(f"icmp eq i64 {items}, 0")
    length = _times(f, items, str(alternating.rows))
    return f.assign(f"select i1 {is_none}, i64 {_NEVER}, i64 {length}")


def _write_once(f: FunctionText, op: Operation) -> None:
    if not all(map(f.has, op.results)):
        f.table[type(op)](f, op)


def _magnitude(f: FunctionText, value: Value) -> str:
    operand = f.use(value)
    if known(operand) is not None:
        return str(abs(int(operand)))
    if value.type.bits != 64:
        operand = f.assign(f"sext {f.type(value.type)} {operand} to i64")
    return f.intrinsic("abs", "i64", [("i64", operand)], flag=True)


def _wide(*operands: str) -> list[tuple[str, str]]:
    return [("i64", operand) for operand in operands]


def _combine(f: FunctionText, name: str, sums: PrivatisedSums) -> None:
    """Add the workers' copies of each target to it, in parallel, if any worker made one."""
    count = f.assign(f"load i64, ptr {f.context(abi.CONTEXT_PART_COUNT)}, align 8")
    some, further = f.fresh_label("combine"), f.fresh_label("further")
    f.branch_if(f.assign(f"icmp eq i64 {count}, 0"), further, some)
    f.start(some)
    function = f.assign(f"load ptr, ptr {f.context(abi.CONTEXT_PARALLEL_FOR)}, align 8")
    for number, target in enumerate(sums.private_copies):
        f.emit(
            f"call void {function}(ptr %context, ptr @{name}_combine_{number}, ptr %parameters,"
            f" i64 0, i64 {_count(f, target)}, i64 {GRAIN // 4}, i64 1)"
        )
    f.enter(further)


# -- private copies -----------------------------------------------------------------------------


def write_combine(f: FunctionText, sums: PrivatisedSums, number: int) -> None:
    """Write a function that adds [begin, end) of the private copies to a target."""
    target = sums.private_copies[number]
    offset = list(_offsets(f, sums))[number]
    parts, flags = (
        f.assign(f"load ptr, ptr {f.context(field)}, align 8")
        for field in (abi.CONTEXT_PARTS, abi.CONTEXT_PART_FLAGS)
    )
    count, size = (
        f.assign(f"load i64, ptr {f.context(field)}, align 8")
        for field in (abi.CONTEXT_PART_COUNT, abi.CONTEXT_PART_BYTES)
    )
    original = f.pointer(*target)
    f.enter("part")
    part = f.open_phi("i64", ("0", "start"))
    flag = f.assign(f"getelementptr i8, ptr {flags}, i64 {part.name}")
    is_used = f.assign(f"icmp ne i8 {f.assign(f'load i8, ptr {flag}, align 1')}, 0")
    displacement = f.assign(f"mul i64 {part.name}, {size}")
    displacement = f.assign(f"add i64 {displacement}, {offset}")
    base = f.assign(f"getelementptr i8, ptr {parts}, i64 {displacement}")
    f.branch_if(is_used, "numbers", "next")
    _add_numbers(f, target, original, base)
    following = f.assign(f"add i64 {part.name}, 1")
    f.close_phi(part, (following, "next"))
    f.branch_if(f.assign(f"icmp slt i64 {following}, {count}"), "part", "return")
    f.start("return")


def _add_numbers(f: FunctionText, target: ArrayRef, original: str, base: str) -> None:
    """Add a range of numbers of one copy to the target, in vectors, up to the label "next".

    Args:
        f: The combining function, whose parameters are the bounds of the range.
        target: The array reference that is added to.
        original: The address of the target.
        base: The address of the copy.
    """
    dtype = target[0].dtype
    register, add = f.type(dtype), "fadd" if dtype.is_float else "add"
    f.start("numbers")
    whole = f.apply("and", "i64", f.apply("sub", "i64", "%end", "%begin"), -_AT_ONCE)
    middle = f.apply("add", "i64", "%begin", whole)
    vector = f"<{_AT_ONCE} x {register}>"
    for kind, step, first, bound, name, after in (
        (vector, _AT_ONCE, "%begin", middle, "vector", "others"),
        (register, 1, middle, "%end", "number", "next"),
    ):
        before = f.label
        f.branch_if(f.apply("icmp slt", "i64", first, bound), name, after)
        f.start(name)
        number = f.open_phi("i64", (first, before))
        to, source = (
            f.assign(f"getelementptr {register}, ptr {start}, i64 {number.name}")
            for start in (original, base)
        )
        old, more = (f.assign(f"load {kind}, ptr {x}, align {dtype.size}") for x in (to, source))
        f.emit(f"store {kind} {f.apply(add, kind, old, more)}, ptr {to}, align {dtype.size}")
        following = f.apply("add", "i64", number.name, step)
        f.close_phi(number, (following, name))
        f.branch_if(f.apply("icmp slt", "i64", following, bound), name, after)
        f.start(after)
