"""Write the loop over a task's work items in tiles: a work item in each lane."""

from __future__ import annotations

from octants.codegen.llvm.lanes.function_text import LaneText
from octants.codegen.llvm.work_item_loop import write_loop
from octants.ir.core import Task


def write_whole_tiles(f: LaneText, task: Task, rest: str) -> None:
    """Write tiles over [begin, end), then call the function ``rest`` for the remainder."""
    count = f.assign("sub i64 %end, %begin")
    whole = f.assign(f"and i64 {count}, {-f.lanes}")
    last = f.assign(f"add i64 %begin, {whole}")
    has_rest = f.assign(f"icmp slt i64 {last}, %end")
    f.branch_if(f.assign(f"icmp ne i64 {whole}, 0"), "tiles", "rest")
    f.start("tiles")
    write_loop(f, task, last, "rest")
    f.start("rest")
    f.branch_if(has_rest, "some", "return")
    f.start("some")
    arguments = "ptr %parameters, ptr %context, ptr %worker"
    f.emit(f"call void @{rest}({arguments}, i64 {last}, i64 %end)")
    f.branch("return")
