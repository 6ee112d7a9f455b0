"""The text of each error of work items that work together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.diagnostics import cooperation_errors
from octants.diagnostics.errors import UserError
from octants.frontend.build import build
from octants.target import Blocks
from tests.golden_files import check_golden, codes_of, without_lines
from tests.simt.kernels import type_of

CASES: dict[str, Callable[..., Any]] = {}

block, subgroup = qd.simt.block, qd.simt.subgroup


def case(function: Callable[..., Any]) -> Callable[..., Any]:
    CASES[function.__name__] = function
    return function


@case
def serial_code(x: qd.types.ndarray):
    block.sync()


@case
def a_serial_loop(x: qd.types.ndarray):
    qd.loop_config(serialize=True)
    for i in x:
        x[i] = subgroup.reduce_add(x[i])


@case
def an_array_in_serial_code(x: qd.types.ndarray):
    pad = block.SharedArray(8, qd.f32)
    pad[0] = 1.0


@case
def a_loop_that_depends_on_itself(x: qd.types.ndarray):
    last = 0.0
    for i in x:
        last = x[i] - last
        block.sync()
    x[0] = last


@case
def a_branch_by_thread(x: qd.types.ndarray):
    for _i in x:
        if block.thread_idx() < 16:
            block.sync()


@case
def a_branch_by_work_item(x: qd.types.ndarray):
    for i in range(100):
        if i >= 10:
            x[i] = 1.0
            block.sync()


@case
def an_early_end(x: qd.types.ndarray):
    for i in x:
        if i == 0:
            continue
        block.sync()


@case
def a_loop_by_thread(x: qd.types.ndarray):
    for _i in x:
        for _k in range(block.thread_idx()):
            block.sync()


@case
def a_branch_by_lane(x: qd.types.ndarray):
    for i in x:
        if subgroup.elect():
            x[i] = subgroup.reduce_max(x[i])


@case
def a_shuffle_by_lane(x: qd.types.ndarray):
    for i in x:
        if subgroup.invocation_id() % 2 == 1:
            x[i] = subgroup.shuffle_down(x[i], 1)


@case
def a_sum_of_booleans(x: qd.types.ndarray):
    for i in x:
        x[i] = subgroup.reduce_add(x[i] > 1)


@case
def bits_of_a_float(x: qd.types.ndarray):
    for i in x:
        x[i] = subgroup.inclusive_xor(x[i])


@case
def a_lane_that_is_a_float(x: qd.types.ndarray):
    for i in x:
        x[i] = subgroup.shuffle(x[i], x[i])


@case
def too_many_lanes(x: qd.types.ndarray):
    for i in x:
        x[i] = subgroup.reduce_add_tiled(x[i], 6)


@case
def a_vote_of_vectors(x: qd.types.ndarray):
    for i in x:
        x[i] = subgroup.any_true(qd.Vector([x[i], x[i]]))


@case
def no_such_function(x: qd.types.ndarray):
    for i in x:
        x[i] = subgroup.identity("plus", x[i])


@case
def an_extent_at_run_time(x: qd.types.ndarray):
    for _i in x:
        pad = block.SharedArray(x.shape[0], qd.f32)
        pad[0] = 1.0


@case
def no_extent(x: qd.types.ndarray):
    for _i in x:
        pad = block.SharedArray((8, 0), qd.f32)
        pad[0, 0] = 1.0


@case
def no_type(x: qd.types.ndarray):
    for _i in x:
        pad = block.SharedArray(8, "floats")
        pad[0] = 1.0


@case
def too_large(x: qd.types.ndarray):
    for _i in x:
        first = block.SharedArray(4096, qd.f64)
        second = block.SharedArray((64, 64), qd.types.vector(2, qd.f64))
        first[0], second[0, 0] = 1.0, qd.Vector([1.0, 2.0])


@case
def a_large_block(x: qd.types.ndarray):
    qd.loop_config(block_dim=2048)
    for _i in x:
        block.sync()


@case
def another_block_dim(x: qd.types.ndarray):
    qd.loop_config(block_dim=64)
    for i in x:
        x[i] = block.reduce_add(x[i], 32, qd.f64)


@case
def a_part_of_a_warp(x: qd.types.ndarray):
    for i in x:
        x[i] = qd.simt.warp.shfl_down_f32(0xFFFF, x[i], 1)


@case
def an_upper_triangle(x: qd.types.ndarray):
    for i in x:
        tile = qd.simt.Tile32x32.eye(dtype=qd.f32)
        tile.solve_triangular_(tile, lower=False)
        x[i] = 0


@case
def a_radix_rank(x: qd.types.ndarray):
    for i in x:
        x[i] = block.radix_rank_match_atomic_or(i, 128, 4, 0)


@pytest.mark.parametrize("name", CASES)
def test_text(name: str) -> None:
    with pytest.raises(qd.OctantsError) as raised:
        build(CASES[name], [type_of(np.zeros(3))], default_float=qd.f64, blocks=Blocks())
    _check(name, raised.value)


def _check(name: str, error: qd.OctantsError) -> None:
    assert error.diagnostic is not None
    check_golden(f"simt/{error.diagnostic.code}_{name}", without_lines(str(error)))


@pytest.fixture
def runtime() -> Iterator[None]:
    yield
    qd.reset()


def waits_in_vain(x: qd.types.ndarray):
    for i in x:
        if x[i] > 1:
            block.sync()


def shared_maximum(x: qd.types.ndarray):
    for _i in x:
        block.sync()
        qd.atomic_mul(x[0], 2.0)


def no_blocks_here(x: qd.types.ndarray):
    for i in x:
        x[i] = subgroup.reduce_add(x[i])


RUNNING: dict[str, tuple[Any, dict[str, Any]]] = {
    "waits_in_vain": (waits_in_vain, {"arch": qd.python}),
    "shared_maximum": (shared_maximum, {"arch": qd.python, "deterministic": True}),
}


@pytest.mark.parametrize("name", RUNNING)
def test_text_when_running(name: str, runtime: None) -> None:
    function, options = RUNNING[name]
    qd.init(log_level="error", offline_cache=False, **options)
    kernel = qd.kernel(function)
    with pytest.raises(qd.OctantsError) as raised:
        kernel(np.array([1.0, 2.0, 3.0], np.float32))
    _check(name, raised.value)


def test_text_without_blocks() -> None:
    with pytest.raises(qd.OctantsError) as raised:
        build(no_blocks_here, [type_of(np.zeros(3))])
    _check("no_blocks_here", raised.value)


def test_every_error_has_a_text() -> None:
    declared = {
        x.code
        for x in vars(cooperation_errors).values()
        if isinstance(x, type) and x is not UserError and issubclass(x, UserError)
    }
    assert declared <= codes_of("simt", [*CASES, *RUNNING, "no_blocks_here"])


@pytest.mark.parametrize("size", [0, -3, 1.5, True, "many"])
def test_blocks_have_a_size_that_is_positive(size: Any) -> None:
    def kernel(x: qd.types.ndarray):
        qd.loop_config(block_dim=qd.static(size))
        for i in x:
            x[i] = 1.0

    with pytest.raises(qd.OctantsError, match=r"OCT108.*`block_dim` cannot be"):
        build(kernel, [type_of(np.zeros(3))])


@pytest.mark.parametrize("function", [block.sync, subgroup.group_size, block.dim])
def test_they_are_for_kernels(function: Any) -> None:
    with pytest.raises(qd.OctantsError, match="OCT2"):
        function()
