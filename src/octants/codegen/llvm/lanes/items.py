"""The loop over the work items of a parallel task in tiles: a work item in each lane.

What is left in the end, less than a tile, is done one by one.
"""

from __future__ import annotations

from octants.codegen.llvm.items import assume_natural, is_natural, narrow
from octants.codegen.llvm.lanes import atomics
from octants.codegen.llvm.lanes.text import LaneText, Line
from octants.codegen.llvm.reductions import find_reductions
from octants.ir.core import Task


def write_items(f: LaneText, task: Task, rest: str) -> None:
    """Tiles of [begin, end), then a call of the function ``rest`` for the other items."""
    reductions = find_reductions(task, f.kernel.module.apart)
    for reduction in reductions:
        atomics.collect(f, reduction)
    f.used = {value for op in task.body.walk() for value in op.operands}
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
    numbers = ", ".join(f"{register} {lane}" for lane in range(f.lanes))
    first = f.spread(register, item.name)
    lanes = f.assign_vector(f"add {f.vector(register)} {first}, <{numbers}>")
    f.lines_of[lanes] = Line(item.name, 1)
    f.bind(index, lanes)
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
