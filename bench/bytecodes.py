"""Count the bytecode instructions that Octants executes: ``python bench/bytecodes.py``.

The counts are of Python alone, LLVM and kernels do not show; but they are the same however busy the
machine is. They are of the import, without numpy's; of a kernel and its gradient, which are
compiled when the compiler has been loaded; and of warm calls.
"""
# mypy: ignore-errors

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy  # noqa: F401, ICN001

CALLS = 5  # before a call is warm
total = 0


def count(function: Callable[[], Any]) -> int:
    """The instructions that a call executes."""
    global total
    total = 0
    sys.settrace(_enter)
    try:
        function()
    finally:
        sys.settrace(None)
    return total


def _enter(frame: FrameType, *_: object) -> Callable[..., Any]:
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    return _step


def _step(_: FrameType, event: str, __: object) -> Callable[..., Any]:
    global total
    total += event == "opcode"
    return _step


found = {"import": count(lambda: __import__("octants"))}

import octants as qd  # noqa: E402

qd.init(arch=qd.cpu, offline_cache=False, log_level="error")
x = qd.field(qd.f32, (16, 16), needs_grad=True)
y = qd.field(qd.f32, 16, needs_grad=True)
loss = qd.field(qd.f32, (), needs_grad=True)


@qd.kernel
def squares():
    for i in y:
        v = y[i]
        for _ in range(10):
            v = qd.sin(v) * 0.9
        loss[None] += v


@qd.kernel
def mixture():
    for i, j in x:
        v = qd.Vector([x[i, j], y[i], 0.5])
        w = qd.Matrix([[v[0], v[1], 0.1], [0.2, v[2], v[0]], [v[1], 0.3, v[2]]])
        for k in range(8):
            if v.norm() > 0.3:
                v = w @ v * 0.5 + y[(i + k) % 16]
            else:
                v += qd.exp(-v.dot(v))
        loss[None] += v.sum() + y[j] // 2.0


def array_kernel() -> Any:
    """A kernel of four arrays and a number."""
    array = qd.types.ndarray(qd.f32, ndim=1)

    def combine(a, b, c, d, s):
        for i in range(8):
            a[i] = b[i] + s * c[i] * d[i]

    combine.__annotations__ = {**dict.fromkeys("abcd", array), "s": qd.f32}
    return qd.kernel(combine)


def taped() -> None:
    """A gradient by a tape."""
    with qd.ad.Tape(loss=loss):
        squares()


def main() -> None:
    """Print the counts as JSON."""
    squares()
    squares.grad()
    found["compile a kernel"] = count(mixture)
    found["compile its gradient"] = count(mixture.grad)
    arrays = [qd.ndarray(qd.f32, shape=(8,)) for _ in range(4)]
    combine = array_kernel()
    calls = {
        "warm launch of fields": squares,
        "warm launch of arrays": lambda: combine(*arrays, 0.5),
        "warm gradient": squares.grad,
        "warm tape": taped,
    }
    for name, call in calls.items():
        for _ in range(CALLS):
            call()
        found[name] = count(call)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
