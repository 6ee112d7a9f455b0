"""Bounds that the host computes are those that the device would."""

from __future__ import annotations

import numpy as np
import pytest

from octants.artifact import Slot, parameters_of
from octants.codegen.work_item_bounds_on_host import host_bounds
from octants.interpreter import run
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cloning import emit
from octants.ir.core import Block, Module, Task
from octants.passes.sums.split_sums import split_sums
from octants.types.scalars import i64
from tests.codegen.compiled import ndarray
from tests.ir.parser import parse

SUM = """\
kernel @k
array @n: i32, 0, argument, () [primal]
array @m: i32, 0, argument, () [primal]
array @x: f32, 1, ndarray, () [primal]
array @y: f32, 1, ndarray, () [primal]
parallel @k_0 {
  %0: i32 = constant<-3>()
  %1: i32 = load<@n, primal>()
  yield(%0, %1)
} { (%2: i32):
  %3: i32 = constant<2>()
  %4: i32 = load<@m, primal>()
  %5: f32 = constant<0.0>()
  %6: f32 = for(%3, %4, %5) { (%7: i32, %8: f32):
    %9: f32 = load<@x, primal>(%7)
    %10: f32 = binary<add>(%8, %9)
    yield(%10)
  }
  store<@y, primal>(%6, %2)
  yield()
}
"""


def on_the_device(module: Module, sizes: dict[str, int]) -> list[int]:
    """The domain of the first task, run as a kernel that stores it."""
    found, builder = ndarray("found", i64), Builder(Block())
    domain = module.tasks[0].domain
    assert domain is not None
    values = {}
    for op in domain.ops[:-1]:
        emit(builder, op, values)
    for at, value in enumerate(domain.yielded):
        builder.store(found, [builder.constant(at, i64)], values[value])
    builder.yield_()
    alone = Module("bounds", [*module.arrays, found], None, [Task("t", builder.block)])
    arrays = {name: np.array(size, np.int32) for name, size in sizes.items()}
    arrays |= {"x": np.zeros(1, np.float32), "y": np.zeros(1, np.float32)}
    arrays["found"] = np.zeros(2, np.int64)
    run(alone, arrays)
    return list(arrays["found"])


@pytest.mark.parametrize("fills", [1, 1000, 1 << 18])
def test_of_tasks_whose_items_are_shared(fills: int) -> None:
    module = parse(SUM)
    split_sums(module, True, fills)
    domain, parameters = module.tasks[0].domain, parameters_of(module)
    assert domain is not None
    text = host_bounds(domain, module.arrays, parameters)
    assert text is not None
    assert any(isinstance(op, ops.Binary) and op.fn == "shl" for op in domain.ops)
    places = [parameters.position(Slot("scalar", array=number, index=0)) for number in (0, 1)]
    some = set()
    for n in (-7, -3, -2, 5, 100, 4000, 1 << 30):
        for m in (-1, 2, 3, 60, 5000, (1 << 31) - 1):
            slots = [0] * 64
            for place, size in zip(places, (n, m), strict=True):
                slots[place] = size & 0xFFFFFFFF
            found = eval(text, {"slots": slots})
            assert list(found) == on_the_device(module, {"n": n, "m": m})
            some.add(found)
    assert len(some) > 3


@pytest.mark.parametrize(
    ("n", "m", "sharers"),
    [(16384, 16384, 16), (10000, 10000, 64), (50000, 50000, 8), (200000, 2000, 2), (300, 90, 8)],
)
def test_blocks_end_together(n: int, m: int, sharers: int) -> None:
    """A GPU of 132 multiprocessors has as many blocks on each of them, or one more of many."""
    begins = SUM.replace("constant<-3>", "constant<0>").replace("constant<2>", "constant<0>")
    module = parse(begins)
    split_sums(module, True, 132 * 4096)
    _, threads = on_the_device(module, {"n": n, "m": m})
    assert threads % 512 == 0
    items = 2 * 512 // sharers  # of a block: a thread has two
    assert threads // 512 == -(-n // items)
