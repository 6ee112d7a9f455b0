"""Write calls of functions that add numbers of lanes to memory.

Inline each would be twenty instructions in three blocks, in a kernel that may have thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octants.codegen.llvm.lanes.function_text import LaneText
from octants.codegen.llvm.llvmlite_driver import INLINABLE
from octants.ir import ops

_INLINED = 8
"""The calls of a module that LLVM may inline if few of its passes run."""


def call_sum(
    f: LaneText,
    op: ops.Atomic,
    kind: str,
    pointers: Sequence[str],
    values: Sequence[str],
    write: Callable[[LaneText, list[str], list[str]], None],
) -> None:
    """Call the function of a kind that adds vectors to elements.

    Args:
        f: The text of the caller.
        op: An update of one of the elements.
        kind: What the function does, for its name.
        pointers: The elements.
        values: The vectors.
        write: Writes what the function does, given the names of its pointers and vectors.
    """
    dtype = op.array.dtype
    vector = f.vector(f.type(dtype))
    scope = "".join(c for c in f.kernel.scopes.suffix(op.ref) if c.isalnum())
    name = f"@octants.{op.fn}.{kind}.{dtype}.x{f.lanes}.{scope}"

    def make(*_: object) -> str:
        own = [f"%to{k}" for k in range(len(pointers))]
        numbers = [f"%values{k}" for k in range(len(values))]
        inner = f.fresh()
        inner.shared = "%shared"
        inner.start("start")
        write(inner, own, numbers)
        body = "\n".join(["entry:", *inner.entry, "  br label %start", *inner.lines, "  ret void"])
        head = f"define internal void {name}({_typed(own, numbers, vector)}, i1 %shared) nounwind"
        return f"{head} {{\n{body}\n}}\n"

    f.text.helper(name, make)
    f.text.lane_sums += 1
    attribute = f" {INLINABLE}" if f.text.lane_sums <= _INLINED else ""
    f.emit(f"call void {name}({_typed(pointers, values, vector)}, i1 {f.shared}){attribute}")


def _typed(pointers: Sequence[str], values: Sequence[str], vector: str) -> str:
    """Return pointers and vectors with their types."""
    return ", ".join([*(f"ptr {p}" for p in pointers), *(f"{vector} {v}" for v in values)])
