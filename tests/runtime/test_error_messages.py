"""The texts of what goes wrong while a kernel runs, as golden files."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.kernel_run_time_errors import UntrackedWrite
from octants.diagnostics.span import Span
from octants.ir import ops
from octants.ir.core import Module, Record
from octants.runtime.cpu import CpuDevice
from octants.target import NEVER
from octants.types.scalars import f32, i32
from tests.codegen.compiled import Compiled, for_, ndarray, parallel
from tests.golden_files import check_golden

SOURCE = """\
@qd.kernel
def step(x: qd.types.ndarray(), n: qd.i32):
    for i in x:
        assert x[i] < 2.0, "too large"
        for k in range(n):
            x[i] *= x[i + 1]
"""


@pytest.fixture(autouse=True)
def program() -> Any:
    lines = SOURCE.splitlines(keepends=True)
    linecache.cache["program.py"] = (len(SOURCE), None, lines, "program.py")
    yield
    del linecache.cache["program.py"]


def fail(build: Any, kind: str, i: Any) -> None:
    """What a kernel does in work item 7."""
    if kind == "memory":
        record = Record("r", [f32], Span("program.py", 5, 8, 5, 26, "step"))

        def turn(build: Any, k: Any, _: Any) -> Any:
            base, value = build.offset(0), build.constant(0.5, f32)
            build.append(ops.RecordPush(record, base, build.cast(k, base.type), [value]))
            return []

        last = build.select(build.compare("eq", i, build.index(7)), build.index(10**6), i)
        for_(build, build.index(0), last, [], turn)
        return
    holds = build.compare("ne", i, build.index(7))
    if kind == "bounds":
        build.location = Span("program.py", 6, 20, 6, 28, "step")
        message = "index {} is out of bounds for axis 0 of `x`, whose extent is {}"
        build.assert_(kind, message, holds, [i, build.index(7)])
    else:
        build.location = Span("program.py", 4, 8, 4, 39, "step")
        build.assert_(kind, "too large", holds)


@pytest.mark.parametrize(
    ("code", "kind"), [("OCT420", "assertion"), ("OCT421", "bounds"), ("OCT422", "memory")]
)
def test_text(code: str, kind: str) -> None:
    x = ndarray("x", i32)

    def body(build: Any, i: Any) -> None:
        fail(build, kind, i)
        build.store(x, [i], i)

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    kernel = Compiled(
        Module("step", [x], tasks=[task]), CpuDevice(1, record_buffer_limit=1 << 20), simd=NEVER
    )
    with pytest.raises(OctantsError) as caught:
        kernel.run({"x": np.zeros(20, np.int32)})
    check_golden(f"errors/{code}_{kind}", str(caught.value))


def test_text_of_an_unseen_write() -> None:
    check_golden("errors/OCT425_untracked_write", str(UntrackedWrite("kernel `step`").at()))
