"""Read components of vectors of constants at a run-time index, from tables."""

from __future__ import annotations

from octants.codegen.llvm.function_text import FunctionText
from octants.ir import ops


def extract(f: FunctionText, op: ops.Extract) -> None:
    """Load a component, or the first one if the index is out of range."""
    element = f.type(op.result.type)
    table = f.text.constants(element, [f.use(value) for value in op.components])
    address = f"getelementptr inbounds {element}, ptr {table}, i64 {position(f, op)}"
    f.bind(op.result, f.assign(f"load {element}, ptr {f.assign(address)}"))


def position(f: FunctionText, op: ops.Extract) -> str:
    """Return the number of the component to read, i64."""
    register, index = f.type(op.index.type), f.use(op.index)
    is_inside = f.apply("icmp ult", register, index, len(op.components))
    index = f.choose(is_inside, register, index, 0)
    return f.convert("zext", register, index, "i64") if op.index.type.bits < 64 else index
