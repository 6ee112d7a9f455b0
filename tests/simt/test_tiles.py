"""Tiles: matrices of which each lane has a row, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsError
from octants.lang.directives import loop_config, static, template
from octants.lang.linear_algebra import outer
from octants.lang.scalar_functions import min as smaller
from octants.lang.simt import Tile16x16, Tile32x32, block
from octants.target import Blocks
from octants.types.parameter_annotations import NdarrayAnnotation as Array
from octants.types.scalars import f32, f64
from tests.devices import on_cpu
from tests.frontend.frontend_programs import func
from tests.simt.kernels import compile_kernel, run

rng = np.random.default_rng(8)


def moves(x: Array, y: Array, z: Array, first: int, last: int):
    loop_config(block_dim=16)
    for _ in range(16):
        tile = Tile16x16.eye(dtype=f64)
        tile[:] = x[1, first:last, 2:5]
        tile[:] = x[0, 0:1, 8:20]
        y[0:16, 0:16] = tile
        tile.r[3] += 10.0
        y[last:40, 17:19] = tile
        tile.eye_()
        z[1:40, 0:3] = tile


@pytest.mark.parametrize(("first", "last"), [(2, 7), (0, 30), (5, 5)])
def test_slices_move_what_fits(first, last):
    x = rng.random((2, 12, 10))
    y, z = np.zeros((20, 18)), np.zeros((9, 5), np.float32)
    run(moves, x, y, z, first, last)
    tile, wanted = np.eye(16), np.zeros((20, 18))
    rows = min(last, 12) - first
    tile[:rows, :3] = x[1, first : min(last, 12), 2:5]
    tile[0, :2] = x[0, 0, 8:10]
    wanted[:16, :16] = tile
    tile[:, 3] += 10
    left = max(0, min(16, 20 - last))
    wanted[last : last + left, 17] = tile[:left, 0]
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(z[1:], np.eye(16)[:8, :5] * (np.arange(5) < 3))
    assert not z[0].any()


@func
def factor(matrix, kind: template, size: template, count):
    """A Cholesky factor in place, by tiles, the last of which may be smaller."""
    for k in range((count + size - 1) // size):
        low, high = k * size, smaller(k * size + size, count)
        diagonal = kind.eye(dtype=f64)
        diagonal[:] = matrix[low:high, low:high]
        for j in range(low):
            column = matrix[low:high, j]
            diagonal -= outer(column, column)
        diagonal.cholesky_(1e-30)
        for i in range(k + 1, (count + size - 1) // size):
            start, end = i * size, smaller(i * size + size, count)
            tile = kind.zeros(dtype=f64)
            tile[:] = matrix[start:end, low:high]
            for j in range(low):
                tile -= outer(matrix[start:end, j], matrix[low:high, j])
            diagonal.solve_triangular_(tile)
            matrix[start:end, low:high] = tile
        matrix[low:high, low:high] = diagonal


def factors(x: Array, y: Array, kind: template):
    size = static(kind.SIZE)
    loop_config(block_dim=kind.SIZE)
    for i in range(size * x.shape[0]):
        pad = block.SharedArray((20, 20), f64)
        for k in range(20):
            for j in static(range(0, 20, 16)):
                if i % size + j < smaller(20, j + 16):
                    pad[k, i % size + j] = x[i // size, k, i % size + j]
        block.sync()
        factor(pad, kind, kind.SIZE, 20)
        block.sync()
        for k in range(20):
            for j in static(range(0, 20, 16)):
                if i % size + j < smaller(20, j + 16):
                    y[i // size, k, i % size + j] = pad[k, i % size + j]


def test_a_blocked_factorisation():
    x = rng.random((2, 20, 20))
    x = x @ x.transpose(0, 2, 1) + np.eye(20)
    y = np.zeros_like(x)
    run(factors, x, y, Tile16x16)
    np.testing.assert_allclose(np.tril(y), np.linalg.cholesky(x), atol=1e-13)


def floors(x: Array, y: Array):
    loop_config(block_dim=32)
    for i in range(32):
        tile = Tile32x32.zeros(dtype=f64)
        tile[:] = x[0:32, 0:32]
        tile.cholesky_(0.125 * (i + 1))
        y[0:32, 0:32] = tile


def test_pivots_are_no_less_than_the_floor_of_their_lane():
    y = np.zeros((32, 32))
    run(floors, np.diag(np.full(32, 2.0)), y)
    np.testing.assert_allclose(np.diag(y) ** 2, np.maximum(2.0, 0.125 * np.arange(1, 33)))


def default_types(y: Array):
    loop_config(block_dim=32)
    for _ in range(32):
        tile = Tile32x32.zeros()
        tile.r[1] = 0.1
        single = Tile32x32.zeros(f32)
        single.r[0] = 0.1
        y[0:32, 0:2] = single
        y[0:32, 1:2] = tile
        tile.r[0] = tile.r[1]
        y[0:32, 1:2] = tile


def test_elements_have_a_type():
    y = np.zeros((32, 2))
    run(default_types, y)
    np.testing.assert_array_equal(y, [[np.float32(0.1), 0.1]] * 32)


def test_a_tile_has_no_more_rows_than_a_subgroup_has_lanes():
    with pytest.raises(OctantsError, match="OCT243.*32 rows"):
        compile_kernel(default_types, np.zeros((32, 2)), blocks=Blocks(subgroup_size=16))


@on_cpu
def test_tiles_on_the_cpu():
    qd.init(arch=qd.cpu, log_level="error")
    x = qd.ndarray(qd.f64, shape=(17, 16))

    @qd.kernel
    def kernel(x: qd.types.ndarray(dtype=qd.f64, ndim=2)):
        qd.loop_config(block_dim=16)
        for _ in range(16):
            tile = qd.simt.Tile16x16.eye(dtype=qd.f64)
            v = x[0:16, 3]
            tile -= qd.outer(v, x[1:17, 3])
            x[0:16, 0:16] = tile

    given = rng.random((17, 16))
    x.from_numpy(given)
    kernel(x)
    wanted = np.eye(16) - np.outer(given[:16, 3], given[1:, 3])
    np.testing.assert_allclose(x.to_numpy()[:16], wanted, rtol=1e-14)
    qd.reset()
