"""Random programs: all passes, all backends that can be had here, and the interpreter agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants.lang.directives import loop_config
from octants.lang.scalar_functions import sin
from octants.lang.simt import block, subgroup
from octants.passes.cooperation.sequence_work_items import sequence_work_items
from octants.pipeline import Stage, finish
from octants.target import Capabilities
from octants.types.scalars import f64, i32
from tests.codegen.compiled import Compiled
from tests.codegen.on_emulated_gpu import OnSmallGpu
from tests.frontend.frontend_programs import define
from tests.seeds import seeds
from tests.simt.kernels import compile_kernel, interpret, lowered
from tests.simt.random_programs import COLUMNS, Program

NAMES = {
    "block": block,
    "subgroup": subgroup,
    "loop_config": loop_config,
    "sin": sin,
    "f64": f64,
    "i32": i32,
}


def inputs(program: Program) -> tuple[Any, ...]:
    count = program.chance.choice([program.size, 2 * program.size, 3 * program.size - 3])
    x = np.random.default_rng(count).random(count)
    y, z = np.zeros((count, COLUMNS)), np.zeros(count)
    return x, y, z, np.zeros(4, np.int32), program.chance.randint(0, 4)


def check(seed: int) -> None:
    program = Program(seed)
    function = define(program.text, **NAMES)
    arguments = inputs(program)

    def fresh() -> tuple[Any, ...]:
        return tuple(np.array(x) for x in arguments)

    built, wanted, found = compile_kernel(function, *arguments), fresh(), fresh()
    interpret(built, function, wanted)
    module = lowered(built)
    interpret(module, function, found)
    _compare(wanted, found, exact=True)
    serial = finish(module, Stage())
    sequence_work_items(serial)
    found = fresh()
    interpret(serial, function, found)
    _compare(wanted, found, exact=True)
    names = list(function.__annotations__)
    found = fresh()
    Compiled(finish(module, Stage(Capabilities(serialises_blocks=True), verifies=True))).run(
        dict(zip(names, found, strict=True))
    )
    _compare(wanted, found)
    found = fresh()
    OnSmallGpu(module).run(dict(zip(names, found, strict=True)))
    _compare(wanted, found)


def _compare(wanted: tuple[Any, ...], found: tuple[Any, ...], exact: bool = False) -> None:
    for one, other in zip(wanted, found, strict=True):
        if exact:
            np.testing.assert_array_equal(other, one)
        else:
            np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_all_agree(seed: int) -> None:
    check(seed)
