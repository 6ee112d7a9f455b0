"""The loop over the work items of a parallel task in tiles: a work item in each lane.

What is left in the end, less than a tile, is a tile of which some lanes are never active; it is a
function of its own.
"""

from __future__ import annotations

from octants.codegen.llvm.items import assume_natural, is_natural, narrow
from octants.codegen.llvm.lanes import atomics
from octants.codegen.llvm.lanes.text import LaneText, Line
from octants.codegen.llvm.reductions import Reduction, find_reductions
from octants.ir.core import Task


def write_items(f: LaneText, task: Task, rest: str) -> None:
    """Tiles of [begin, end), then a call of the function ``rest`` for the other items."""
    reductions = _collect(f, task)
    count = f.assign("sub i64 %end, %begin")
    whole = f.assign(f"and i64 {count}, {-f.lanes}")
    last = f.assign(f"add i64 %begin, {whole}")
    has_rest = f.assign(f"icmp slt i64 {last}, %end")
    f.branch_if(f.assign(f"icmp ne i64 {whole}, 0"), "tiles", "rest")
    f.start("tiles")
    _write_tiles(f, task, last)
    f.start("rest")
    f.branch_if(has_rest, "some", "return")
    f.start("some")
    arguments = "ptr %parameters, ptr %context, ptr %worker"
    f.emit(f"call void @{rest}({arguments}, i64 {last}, i64 %end)")
    f.branch("return")
    f.start("return")
    for reduction in reductions:
        atomics.deliver(f, reduction)


def write_rest(f: LaneText, task: Task) -> None:
    """The items of [begin, end), at least one and less than there are lanes."""
    reductions = _collect(f, task)
    (index,) = task.body.args
    register = f.item_type = f.type(index.type)
    f.item, end = (narrow(f, bound, register) for bound in ("%begin", "%end"))
    if is_natural(task):
        assume_natural(f, register, f.item)
    f.exit = "return"
    _bind_items(f, task)
    f.mask = f.apply("icmp slt", register, f.use(index), end)
    f.block(task.body)
    f.branch("return")
    f.start("return")
    f.mask = None
    for reduction in reductions:
        atomics.deliver(f, reduction)


def _collect(f: LaneText, task: Task) -> list[Reduction]:
    reductions = find_reductions(task, f.kernel.module.apart)
    for reduction in reductions:
        atomics.collect(f, reduction)
    f.used = {value for op in task.body.walk() for value in op.operands}
    return reductions


def _bind_items(f: LaneText, task: Task) -> None:
    """The index in each lane, from the first lane's."""
    (index,) = task.body.args
    register = f.item_type
    numbers = ", ".join(f"{register} {lane}" for lane in range(f.lanes))
    first = f.spread(register, f.item)
    lanes = f.assign_vector(f"add {f.vector(register)} {first}, <{numbers}>")
    f.lines_of[lanes] = Line(f.item, 1)
    f.bind(index, lanes)


def _write_tiles(f: LaneText, task: Task, last: str) -> None:
    (index,) = task.body.args
    register = f.item_type = f.type(index.type)
    begin, end = narrow(f, "%begin", register), narrow(f, last, register)
    if is_natural(task):
        assume_natural(f, register, begin)
    f.branch("tile")
    f.start("tile")
    item = f.open_phi(register)
    item.incoming.append((begin, "tiles"))
    f.item, f.exit = item.name, "done"
    _bind_items(f, task)
    f.block(task.body)
    if f.kernel.costs.grain(task.body) == 1:
        f.exit = "return"
        f.machine.poll(f)
    f.branch("done")
    f.start("done")
    following = f.assign(f"add nsw {register} {item.name}, {f.lanes}")
    item.incoming.append((following, "done"))
    f.close_phi(item)
    f.branch_if(f.assign(f"icmp slt {register} {following}, {end}"), "tile", "rest")
