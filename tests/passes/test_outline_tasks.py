"""Values that cross tasks."""

from __future__ import annotations

import numpy as np

from octants.interpreter import run
from octants.ir.verifier import verify
from octants.passes.tasks.outline_tasks import outline_tasks
from tests.ir.parser import parse


def test_a_value_computed_between_two_loops_from_an_argument() -> None:
    """Found by the fuzzer: the argument was loaded in a stretch before the first loop."""
    module = parse(
        """
        kernel @k
        array @x: i32, 1, ndarray, () [primal]
        array @m: i32, 0, argument, () [primal]
        body {
          %m: i32 = load<@m, primal>()
          %zero: i32 = constant<0>()
          %two: i32 = constant<2>()
          parallel_for<{}>(%zero, %two) { (%i: i32):
            yield()
          }
          %n: i32 = binary<add>(%m, %two)
          parallel_for<{}>(%zero, %two) { (%j: i32):
            store<@x, primal>(%n, %j)
            yield()
          }
          yield()
        }
        """
    )
    outline_tasks(module)
    verify(module)
    x = np.zeros(2, np.int32)
    run(module, {"x": x, "m": np.array(5, np.int32)})
    assert x.tolist() == [7, 7]
    assert [array.name for array in module.arrays] == ["x", "m"]
