"""What drivers do not do as they should is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.ir.core import Module
from octants.types.scalars import i32, i64
from tests.codegen.compiled import for_, ndarray, parallel, while_
from tests.vulkan import compiled


def counting(by_while: bool) -> Module:
    """Each work item adds up the turns of a loop within a loop."""
    n, out = ndarray("n", i32), ndarray("out", i64)

    def body(build: Any, i: Any) -> None:
        count = build.load(n, [i])

        def inner(build: Any, k: Any, carried: Any) -> Any:
            return [build.binary("add", carried[0], build.offset(1))]

        def outer(build: Any, k: Any, carried: Any) -> Any:
            return for_(build, build.index(0), build.index(10), carried, inner)

        def turn(build: Any, carried: Any) -> Any:
            (total,) = outer(build, carried[0], carried[1:])
            return [build.binary("add", carried[0], build.index(1)), total]

        if by_while:
            start = [build.index(0), build.offset(0)]
            _, total = while_(build, start, lambda b, c: b.compare("lt", c[0], count), turn)
        else:
            (total,) = for_(build, build.index(0), count, [build.offset(0)], outer)
        build.store(out, [i], total)

    task = parallel("t", lambda build: (build.index(0), build.shape(n, 0)), body)
    return Module("counting", [n, out], tasks=[task])


@pytest.mark.parametrize("by_while", [False, True])
def test_a_loop_is_counted_to_its_end_or_that_it_was_cut_is_told(by_while: bool) -> None:
    compiled.device()
    kernel = compiled.OnVulkan(counting(by_while))
    for most in (5, 100, 5000, 5900, 6000, 20_000):
        n = np.arange(100, dtype=np.int32) * most // 99
        data = {"n": n, "out": np.zeros(100, np.int64)}
        try:
            kernel.run(data)
        except OctantsRuntimeError as error:
            assert "OCT457" in str(error)
            assert most > 5900
            continue
        assert data["out"].tolist() == (10 * n).tolist()
