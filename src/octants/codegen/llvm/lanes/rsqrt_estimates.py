"""Compute 1 / sqrt(x) of all lanes, by estimates for vectors of the machine's length."""

from __future__ import annotations

from octants.codegen.llvm import rsqrt_estimates
from octants.codegen.llvm.lanes.function_text import LaneText
from octants.codegen.llvm.rsqrt_estimates import SHORTEST, ReciprocalRoot


def reciprocal_root(f: LaneText, op: ReciprocalRoot) -> str:
    """Compute the root of a vector, or of a number that all lanes share."""
    if not f.is_vector(op.operand):
        return rsqrt_estimates.root_of_one(f, op)
    rough = _estimated(f, op)
    better, is_usual = rsqrt_estimates.refined(f, op, rough)
    if op.normal:
        return better
    if op.estimate.total:
        return f.choose(is_usual, "float", better, rough)
    all_usual = f.all(is_usual)

    def rare() -> str:
        return f.choose(is_usual, "float", better, rsqrt_estimates.quotient(f, op.operand))

    root = rsqrt_estimates.unless_slow(f, better, all_usual, rare, f.vector("float"))
    f.vectors.add(root)
    return root


def _estimated(f: LaneText, op: ReciprocalRoot) -> str:
    """Estimate all lanes, piece by piece."""
    length = max(SHORTEST, min(f.lanes, op.estimate.longest))
    pieces = [
        op.estimate.write(f, length, _taken(f, op.operand, f.lanes, range(k, k + length)))
        for k in range(0, f.lanes, length)
    ]
    while len(pieces) > 1:
        length *= 2
        pairs = zip(pieces[::2], pieces[1::2], strict=True)
        pieces = [_joined(f, length, *pair) for pair in pairs]
    whole = pieces[0] if length == f.lanes else _taken(f, pieces[0], length, range(f.lanes))
    f.vectors.add(whole)
    return whole


def _taken(f: LaneText, operand: str, lanes: int, positions: range) -> str:
    """Return some lanes of a vector; lanes beyond it are undefined."""
    vector = f"<{lanes} x float>"
    order = ", ".join(f"i32 {lane}" if lane < lanes else "i32 poison" for lane in positions)
    return f.assign(
        f"shufflevector {vector} {operand}, {vector} poison, <{len(positions)} x i32> <{order}>"
    )


def _joined(f: LaneText, lanes: int, first: str, second: str) -> str:
    """Concatenate two vectors."""
    half, order = f"<{lanes // 2} x float>", ", ".join(f"i32 {k}" for k in range(lanes))
    return f.assign(f"shufflevector {half} {first}, {half} {second}, <{lanes} x i32> <{order}>")
