"""Sparse blocks: what becomes active, what loops visit, lists, deactivation, and gradients."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.diagnostics import sparse_block_errors
from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import OctantsAssertionError, OctantsError
from octants.runtime.parameter_blocks import pool
from tests.golden_files import check_golden, codes_of

Index = tuple[int, ...]


@pytest.fixture(autouse=True)
def initialised() -> None:
    qd.init(arch=qd.cpu)


# -- a model in Python, and random trees -----------------------------------------------------------


class Model:
    """A sparse field as dictionaries: the active cells of each level, and values."""

    def __init__(self, levels: list[tuple[str, Index, Index]], shape: Index) -> None:
        self.levels, self.shape = levels, shape
        self.active: list[set[Index]] = [set() for _ in levels]
        self.values: dict[Index, int] = {}

    def cell(self, level: int, index: Index) -> Index:
        cells = self.levels[level][1]
        return tuple(k * n // m for k, n, m in zip(index, cells, self.shape, strict=True))

    def activate(self, level: int, cell: Index) -> None:
        """Activate a cell of a level, and those around it; a list gets all cells before, too."""
        kind, cells, block = self.levels[level]
        self.active[level].add(cell)
        if kind == "dynamic":
            own = cell[1] % block[1]
            self.active[level] |= {(cell[0], cell[1] - k) for k in range(own + 1)}
        if level:
            above = self.levels[level - 1][1]
            outer = tuple(k * n // m for k, n, m in zip(cell, above, cells, strict=True))
            self.activate(level - 1, outer)

    def write(self, index: Index, value: int) -> None:
        self.activate(len(self.levels) - 1, self.cell(len(self.levels) - 1, index))
        self.values[index] = value

    def deactivate(self, level: int, cell: Index) -> None:
        """Deactivate a cell, and all in it; the whole list of a cell."""
        kind, cells, block = self.levels[level]
        if kind == "dynamic":
            cells = tuple(n // m for n, m in zip(cells, block, strict=True))
            cell = tuple(k // m for k, m in zip(cell, block, strict=True))
        inside = lambda index, extents: (  # noqa: E731
            tuple(k * n // m for k, n, m in zip(index, cells, extents, strict=True)) == cell
        )
        for below in range(level, len(self.levels)):
            extents = self.levels[below][1]
            self.active[below] = {c for c in self.active[below] if not inside(c, extents)}
        self.values = {k: v for k, v in self.values.items() if not inside(k, self.shape)}

    def elements(self) -> list[Index]:
        last = len(self.levels) - 1
        every = itertools.product(*map(range, self.shape))
        return [index for index in every if self.cell(last, index) in self.active[last]]

    def array(self) -> np.ndarray[Any, Any]:
        values = np.zeros(self.shape, np.int32)
        for index, value in self.values.items():
            values[index] = value
        return values


def make_tree(draw: random.Random) -> tuple[Any, list[Any], Model]:
    """A field of two axes in a random tree with one to three sparse blocks, and its model."""
    x, block, cells = qd.field(qd.i32), qd.root, (1, 1)
    levels: list[tuple[str, Index, Index]] = []
    nodes = []
    for depth in range(draw.randint(1, 3)):
        if depth or draw.random() < 0.3:
            extents = (draw.randint(1, 2), draw.randint(1, 3))
            block, cells = block.dense(qd.ij, extents), _times(cells, extents)
        kind = draw.choice(("pointer", "bitmasked"))
        extents = (draw.randint(1, 3), draw.randint(1, 3))
        block, cells = getattr(block, kind)(qd.ij, extents), _times(cells, extents)
        levels.append((kind, cells, extents))
        nodes.append(block)
    if draw.random() < 0.5:
        size = draw.randint(2, 4)
        block, cells = block.dynamic(qd.j, size), _times(cells, (1, size))
        levels.append(("dynamic", cells, (1, size)))
        nodes.append(block)
    elif draw.random() < 0.6:
        extents = (draw.randint(1, 3), draw.randint(1, 2))
        block, cells = block.dense(qd.ij, extents), _times(cells, extents)
    block.place(x)
    return x, nodes, Model(levels, cells)


def _times(one: Index, other: Index) -> Index:
    return one[0] * other[0], one[1] * other[1]


def make_kernels(x: Any, seen: Any, nodes: list[Any]) -> dict[str, Callable[..., Any]]:
    @qd.kernel
    def write(i: int, j: int, value: int):
        x[i, j] = value

    @qd.kernel
    def add(i: int, j: int, value: int):
        for _ in range(3):
            x[i, j] += value

    @qd.kernel
    def activate(i: int, j: int, node: qd.template()):
        qd.activate(node, [i, j])

    @qd.kernel
    def deactivate(i: int, j: int, node: qd.template()):
        qd.deactivate(node, [i, j])

    @qd.kernel
    def is_active(i: int, j: int, node: qd.template()) -> int:
        return qd.is_active(node, [i, j])

    @qd.kernel
    def visit():
        for i, j in x:
            seen[i, j] += 1
        for I in qd.grouped(x):
            x[I] += 1

    @qd.kernel
    def visit_cells(node: qd.template(), cells: qd.types.ndarray()):
        for i, j in node:
            cells[i, j] += 1

    kernels = (write, add, activate, deactivate, is_active, visit, visit_cells)
    return {kernel.__name__: kernel for kernel in kernels}


def run(seed: int, steps: int) -> None:
    """Do the same at random to a tree and to its model, and compare."""
    draw = random.Random(seed)
    x, nodes, model = make_tree(draw)
    seen = qd.field(qd.i32, shape=model.shape)
    kernels = make_kernels(x, seen, nodes)
    for step in range(steps):
        index = tuple(draw.randrange(n) for n in model.shape)
        level = draw.randrange(len(nodes))
        node, (kind, cells, block) = nodes[level], model.levels[level]
        cell = tuple(draw.randrange(n) for n in cells)
        what = draw.choice(("write", "add", "host", "activate", "deactivate", "visit"))
        if what == "add":
            kernels["add"](*index, step)
            model.write(index, model.values.get(index, 0) + 3 * step)
        elif what in ("write", "host"):
            if what == "write":
                kernels["write"](*index, step)
            else:
                x[index] = step
            model.write(index, step)
        elif what == "activate":
            kernels["activate"](*cell, node)
            model.activate(level, cell)
        elif what == "deactivate":
            given = tuple(k // m for k, m in zip(cell, block, strict=True))
            kernels["deactivate"](*(given if kind == "dynamic" else cell), node)
            model.deactivate(level, cell)
        else:
            kernels["visit"]()
            for each in model.elements():
                model.values[each] = model.values.get(each, 0) + 1
        np.testing.assert_array_equal(x.to_numpy(), model.array(), f"{what} of step {step}")
        assert kernels["is_active"](*cell, node) == (cell in model.active[level])
    seen.fill(0)
    kernels["visit"]()
    visited = [tuple(index) for index in np.argwhere(seen.to_numpy() == 1).tolist()]
    assert visited == model.elements() and seen.to_numpy().max(initial=0) <= 1
    for level, node in enumerate(nodes):
        cells = np.zeros(model.levels[level][1], np.int32)
        kernels["visit_cells"](node, cells)
        assert {tuple(c) for c in np.argwhere(cells == 1).tolist()} == model.active[level]
    nodes[0].deactivate_all()
    assert not x.to_numpy().any()


@pytest.mark.parametrize("seed", range(4))
def test_random_trees(seed: int) -> None:
    run(seed, 12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 60))
def test_many_random_trees(seed: int) -> None:
    run(seed, 40)


# -- writes ----------------------------------------------------------------------------------------


def test_fields_in_one_leaf_share_their_cells() -> None:
    x, y, v = qd.field(qd.f32), qd.field(qd.i32), qd.Vector.field(2, qd.f32)
    block = qd.root.pointer(qd.i, 4)
    block.dense(qd.i, 2).place(x, v)
    block.dense(qd.i, 4).place(y)

    @qd.kernel
    def write():
        for k in range(2):
            v[k + 2].y += 1.0

    @qd.kernel
    def visit():
        for i in y:
            y[i] = i
        for i in x:
            x[i] = v[i].y + 1.0

    write()
    visit()
    assert x.to_numpy().tolist() == [0, 0, 2, 2, 0, 0, 0, 0]
    assert y.to_numpy().tolist() == [0] * 4 + [4, 5, 6, 7] + [0] * 8


def test_the_host_writes_to_what_is_active() -> None:
    x = qd.field(qd.i32)
    qd.root.pointer(qd.i, 4).dense(qd.i, 2).place(x)
    x[3] = 7
    x.from_numpy(np.arange(8, dtype=np.int32) + 1)
    assert x.to_numpy().tolist() == [0, 0, 3, 4, 0, 0, 0, 0]
    x.fill(5)
    assert x.to_numpy().tolist() == [0, 0, 5, 5, 0, 0, 0, 0]
    other = qd.field(qd.i32, shape=8)
    other.fill(9)
    x.copy_from(other)
    assert x.to_numpy().tolist() == [0, 0, 9, 9, 0, 0, 0, 0]
    x.parent(2).deactivate_all()
    assert not x.to_numpy().any()


def test_launches_zero_no_lists_of_active_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lists have space for all cells, of which few are active."""
    sizes: list[int] = []
    make = pool._aligned
    monkeypatch.setattr(pool, "_aligned", lambda size: sizes.append(size) or make(size))
    x = qd.field(qd.i32)
    qd.root.pointer(qd.i, 4096).bitmasked(qd.i, 64).place(x)

    @qd.kernel
    def total() -> qd.i32:
        found = 0
        for i in x:
            found += x[i]
        return found

    for index in (4096 * 64 - 1, 0, 70):
        x[index] = 7
    assert total() == 21 and total() == 21
    assert 0 < max(sizes) < 1 << 14


def test_offsets() -> None:
    x = qd.field(qd.i32)
    block = qd.root.bitmasked(qd.ij, (2, 2))
    block.dense(qd.ij, (2, 2)).place(x, offset=(-2, -2))

    @qd.kernel
    def write():
        x[-2, 1] = 3

    @qd.kernel
    def double():
        for i, j in x:
            x[i, j] = x[i, j] * 10 + i * 100 + j

    @qd.kernel
    def clear():
        qd.deactivate(block, [0, 1])

    write()
    double()
    assert x.to_numpy().tolist() == [
        [0, 0, -200, -169],
        [0, 0, -100, -99],
        [0, 0, 0, 0],
        [0, 0, 0, 0],
    ]
    clear()
    assert not x.to_numpy().any()


def test_a_loop_that_deactivates_and_writes() -> None:
    x = qd.field(qd.i32)
    block = qd.root.bitmasked(qd.i, 8)
    block.place(x)

    @qd.kernel
    def write():
        for i in range(8):
            x[i] = i

    @qd.kernel
    def sieve():
        for i in x:
            if x[i] % 2 == 0:
                qd.deactivate(block, [i])
            if i == 4:
                x[i] = 40

    @qd.kernel
    def count() -> int:
        total = 0
        for _ in x:
            total += 1
        return total

    write()
    sieve()
    assert x.to_numpy().tolist() == [0, 1, 0, 3, 40, 5, 0, 7]
    assert count() == 5
    qd.deactivate_all_snodes()
    assert count() == 0


def test_a_serial_loop_that_deactivates_and_writes() -> None:
    x = qd.field(qd.i32)
    block = qd.root.bitmasked(qd.i, 8)
    block.place(x)

    @qd.kernel
    def write():
        for i in range(8):
            x[i] = i

    @qd.kernel
    def serial() -> int:
        last, active = 0, 0
        for i in x:
            last = last * 2 + x[i]
            qd.deactivate(block, [i])
            if i == 4:
                x[i] = last
        for i in x:
            active += i
        return active

    write()
    assert serial() == 4
    assert x.to_numpy().tolist() == [0, 0, 0, 0, 26, 0, 0, 0]


def test_structs_and_the_sparse_grid() -> None:
    grid = qd.sparse.grid({"pos": qd.math.vec2, "mass": qd.f32}, shape=(4, 5))

    @qd.kernel
    def write():
        grid[1, 2].mass = 2.0
        grid[3, 4].pos = [1.0, 2.0]

    @qd.kernel
    def visit():
        for i, j in grid:
            grid[i, j].mass += 1.0

    write()
    assert qd.sparse.usage(grid) == pytest.approx(0.1)
    visit()
    assert grid.mass[1, 2] == 3 and grid.mass[3, 4] == 1 and grid.mass.to_numpy().sum() == 4


def test_the_parent_of_a_field_and_rescaled_indices() -> None:
    x = qd.field(qd.i32)
    block = qd.root.pointer(qd.ij, (2, 4))
    block.bitmasked(qd.ij, (3, 2)).place(x)

    @qd.kernel
    def activate(i: int, j: int):
        qd.activate(x.parent(2), qd.rescale_index(x, block, [i, j]))

    @qd.kernel
    def counts() -> qd.math.ivec2:
        found = qd.Vector([0, 0])
        for i, j in block:
            found[0] += 10 * i + j
        for _i, _j in x:
            found[1] += 1
        return found

    activate(4, 5)
    assert counts().to_list() == [12, 0]
    x[5, 4] = 1
    assert counts().to_list() == [12, 1]


def test_an_index_out_of_bounds_is_that_of_the_field() -> None:
    qd.init(arch=qd.cpu, debug=True)
    x = qd.field(qd.i32, name="x")
    qd.root.pointer(qd.i, 4).dense(qd.i, 4).place(x)

    @qd.kernel
    def write(i: int):
        x[i] += 1

    write(15)
    with pytest.raises(OctantsError, match="index 100 is out of bounds for axis 0 of `x`"):
        write(100)
        qd.sync()


@pytest.mark.parametrize("function", ["is_active", "activate", "deactivate"])
@pytest.mark.parametrize(("i", "j", "axis"), [(1, 5, 1), (4, 0, 0), (-1, 4, 0), (2, -1, 1)])
def test_a_cell_out_of_bounds_is_no_other_cell(function: str, i: int, j: int, axis: int) -> None:
    """In row-major order, (1, 5) of 4 x 4 cells would be (2, 1)."""
    qd.init(arch=qd.cpu, debug=True)
    x = qd.field(qd.i32)
    block = qd.root.pointer(qd.ij, (4, 4))
    block.dense(qd.ij, (2, 2)).place(x)
    call = getattr(qd, function)

    @qd.kernel
    def change(i: int, j: int):
        call(block, [i, j])

    change(1, 3)
    index = (i, j)[axis]
    with pytest.raises(OctantsError, match=f"index {index} is out of bounds for axis {axis} of"):
        change(i, j)
        qd.sync()


def test_a_list_out_of_bounds() -> None:
    qd.init(arch=qd.cpu, debug=True)
    x = qd.field(qd.i32)
    lists = qd.root.dense(qd.ij, (2, 3)).dynamic(qd.k, 4)
    lists.place(x)

    @qd.kernel
    def append(i: int, j: int):
        qd.append(lists, [i, j], 1)

    @qd.kernel
    def length(i: int, j: int) -> int:
        return qd.length(lists, [i, j])

    append(1, 2)
    assert length(1, 2) == 1
    for kernel in (append, length):
        with pytest.raises(OctantsError, match="index 3 is out of bounds for axis 1 of"):
            kernel(0, 3)
            qd.sync()


# -- lists -----------------------------------------------------------------------------------------


def test_lists() -> None:
    x = qd.field(qd.i32)
    cells = qd.root.pointer(qd.i, 3)
    lists = cells.dynamic(qd.j, 4, chunk_size=2)
    lists.place(x)

    @qd.kernel
    def append(i: int, value: int) -> int:
        return qd.append(x.parent(), [i], value)

    @qd.kernel
    def append_by_field(i: int, value: int) -> int:
        return x[i].append(value)

    @qd.kernel
    def length(i: int) -> int:
        return qd.length(lists, i) + 10 * x[i].length()

    @qd.kernel
    def clear(i: int):
        x[i].deactivate()

    @qd.kernel
    def visit() -> int:
        total = 0
        for i, j in x:
            total += x[i, j] * (10 * i + j)
        return total

    assert (append(2, 5), append_by_field(2, 6), append(1, 7)) == (0, 1, 0)
    assert [length(i) for i in range(3)] == [0, 11, 22]
    assert visit() == 5 * 20 + 6 * 21 + 7 * 10
    x[0, 2] = 1
    assert length(0) == 33
    clear(2)
    assert length(2) == 0 and x.to_numpy()[2].tolist() == [0, 0, 0, 0]
    assert append(2, 8) == 0
    cells.deactivate_all()
    assert visit() == 0 and length(2) == 0


def test_lists_in_cells_that_are_one_on_their_axis() -> None:
    x = qd.field(qd.i32)
    lists = qd.root.bitmasked(qd.ij, (2, 1)).dynamic(qd.j, 3)
    lists.place(x)

    @qd.kernel
    def run() -> int:
        qd.append(lists, [1, 0], 5)
        qd.append(lists, [1, 0], 6)
        qd.append(lists, [0, 0], 7)
        qd.deactivate(lists, [0, 0])
        return qd.length(lists, [1, 0]) + 10 * qd.length(lists, [0, 0])

    assert run() == 2
    assert x.to_numpy().tolist() == [[0, 0, 0], [5, 6, 0]]


def test_a_list_that_is_full_is_an_error() -> None:
    x = qd.field(qd.i32)
    qd.root.dynamic(qd.i, 4).place(x)

    @qd.kernel
    def fill(n: int):
        for k in range(n):
            qd.append(x.parent(), [], k)

    @qd.kernel
    def length() -> int:
        return qd.length(x.parent(), [])

    fill(4)
    assert sorted(x.to_numpy().tolist()) == [0, 1, 2, 3]
    with pytest.raises(OctantsAssertionError, match="has 4 elements already"):
        fill(1)
        qd.sync()
    assert length() == 4
    assert sorted(x.to_numpy().tolist()) == [0, 1, 2, 3]
    qd.root.deactivate_all()
    assert length() == 0


# -- gradients -------------------------------------------------------------------------------------


def scattered(values: np.ndarray[Any, Any]) -> float:
    """The loss of the programs below, in numpy."""
    x = np.zeros(32)
    for k, value in enumerate(values):
        x[k * 7 % 32] += value**2
    active = np.repeat([bool(x[4 * c : 4 * c + 4].any()) for c in range(8)], 4)
    y = np.where(active, np.sin(x), 0) * 2
    return float((y**2 * x * 3).sum())


def test_gradients() -> None:
    x, y = qd.field(qd.f64), qd.field(qd.f64)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    block = qd.root.pointer(qd.i, 8)
    block.dense(qd.i, 4).place(x)
    block.bitmasked(qd.i, 4).place(y)
    qd.root.lazy_grad()
    p = qd.field(qd.f64, shape=10, needs_grad=True)

    @qd.kernel
    def scatter():
        for k in p:
            x[(k * 7) % 32] += p[k] * p[k]

    @qd.kernel
    def step():
        for i in x:
            y[i] += qd.sin(x[i])

    @qd.kernel
    def scale():
        for i in y:
            y[i] = y[i] * 2.0
        for i in x:
            x[i] = x[i] * 3.0

    @qd.kernel
    def total():
        for i in y:
            loss[None] += y[i] ** 2 * x[i]

    values = np.linspace(0.1, 1.0, 10)
    p.from_numpy(values)
    expected = [
        (scattered(values + 1e-6 * unit) - scattered(values - 1e-6 * unit)) / 2e-6
        for unit in np.eye(10)
    ]
    for _ in range(2):
        qd.deactivate_all_snodes()
        with qd.ad.Tape(loss):
            scatter()
            step()
            scale()
            total()
        assert loss[None] == pytest.approx(scattered(values))
        np.testing.assert_allclose(p.grad.to_numpy(), expected, rtol=1e-5)


def test_gradients_end_where_a_cell_is_deactivated() -> None:
    x = qd.field(qd.f64, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    p = qd.field(qd.f64, shape=8, needs_grad=True)
    block = qd.root.pointer(qd.i, 4)
    block.dense(qd.i, 2).place(x)

    @qd.kernel
    def write():
        for i in p:
            x[i] = 2.0 * p[i]

    @qd.kernel
    def clear():
        qd.deactivate(block, [1])

    @qd.kernel
    def total():
        for i in x:
            loss[None] += x[i] ** 2

    p.fill(1.5)
    with qd.ad.Tape(loss):
        write()
        clear()
        total()
    assert p.grad.to_numpy().tolist() == [12.0, 12.0, 0.0, 0.0, 12.0, 12.0, 12.0, 12.0]


def test_the_reverse_visits_what_the_loop_has_visited() -> None:
    x = qd.field(qd.f64, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    p = qd.field(qd.f64, shape=8, needs_grad=True)
    block = qd.root.bitmasked(qd.i, 8)
    block.place(x)

    @qd.kernel
    def write(first: int, last: int):
        for i in range(first, last):
            x[i] = 3.0 * p[i]

    @qd.kernel
    def clear(first: int, last: int):
        for i in range(first, last):
            qd.deactivate(block, [i])

    @qd.kernel
    def count():
        for _ in x:
            loss[None] += p[0]

    @qd.kernel
    def total():
        for i in x:
            loss[None] += x[i] * p[i]

    p.fill(1.0)
    with qd.ad.Tape(loss):
        write(0, 4)
        count()
        total()
        write(4, 8)
        clear(0, 2)
        count()
        total()
        clear(2, 8)
    assert loss[None] == 4 + 12 + 6 + 18
    assert p.grad.to_numpy().tolist() == [16.0, 6.0, 12.0, 12.0, 6.0, 6.0, 6.0, 6.0]


def test_a_gradient_without_a_tape() -> None:
    x = qd.field(qd.f64, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    qd.root.pointer(qd.i, 4).bitmasked(qd.i, 2).place(x)

    @qd.kernel
    def total():
        for i in x:
            loss[None] += x[i] ** 2

    x[3] = 2.0
    x[4] = 3.0
    total()
    total()
    loss.grad[None] = 1.0
    total.grad()
    assert x.grad.to_numpy().tolist() == [0, 0, 0, 4, 6, 0, 0, 0]


def test_gradients_of_inactive_elements_do_not_stay() -> None:
    x = qd.field(qd.f64, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    qd.root.bitmasked(qd.i, 4).place(x)

    @qd.kernel
    def total():
        for i in range(4):
            loss[None] += (i + 1) * x[i]

    x[2] = 1.0
    total()
    for _ in range(2):
        x.grad.fill(0.0)
        loss.grad[None] = 1.0
        total.grad()
        assert x.grad.to_numpy().tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("write", ["fill", "from_numpy", "copy_from"])
def test_a_host_write_to_active_elements_ends_their_adjoints_only(write: str) -> None:
    x = qd.Vector.field(2, qd.f64, needs_grad=True)
    other = qd.Vector.field(2, qd.f64, shape=4, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    qd.root.bitmasked(qd.i, 4).place(x, x.grad)

    @qd.kernel
    def total():
        for i in range(4):
            loss[None] += (i + 1) * x[i].sum()

    given = {"fill": 2.0, "from_numpy": np.full((4, 2), 2.0), "copy_from": other}[write]
    other.fill(2.0)
    x[2] = 1.0
    with qd.ad.Tape(loss):
        total()
        getattr(x, write)(given)
        total()
        x[1] = 5.0  # active now, and was not when all were written
    assert loss[None] == 6 + 12
    assert x.grad.to_numpy()[:, 1].tolist() == [2, 4, 3, 8]
    assert other.grad.to_numpy()[:, 0].tolist() == (
        [0, 0, 3, 0] if write == "copy_from" else [0] * 4
    )


# -- errors ----------------------------------------------------------------------------------------

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


def _field(kind: str = "pointer") -> tuple[Any, Any]:
    x = qd.field(qd.f32)
    block = getattr(qd.root, kind)(qd.i, 4)
    block.dense(qd.i, 2).place(x)
    return x, block


@case
def wrong_block() -> None:
    x, _ = _field()

    @qd.kernel
    def kernel():
        qd.activate(x.parent(), [0])

    kernel()


@case
def wrong_block_list() -> None:
    _, block = _field()

    @qd.kernel
    def kernel():
        qd.append(block, [], 1.0)

    kernel()


@case
def wrong_cell() -> None:
    _, block = _field()

    @qd.kernel
    def kernel():
        qd.deactivate(block, [0, 1])

    kernel()


@case
def wrong_cell_float() -> None:
    _, block = _field()

    @qd.kernel
    def kernel():
        qd.is_active(block, 1.5)

    kernel()


@case
def nested_sparse_loop() -> None:
    x, _ = _field()

    @qd.kernel
    def kernel(n: int):
        for k in range(n):
            for i in x:
                x[i] += k

    kernel(2)


@case
def too_many_cells() -> None:
    qd.root.pointer(qd.ijk, 1024)


@case
def sparse_companion() -> None:
    x = qd.field(qd.f32)
    qd.root.dense(qd.i, 4).place(x)
    qd.root.pointer(qd.i, 4).place(x.grad)
    x[0] = 1.0


@case
def sparse_memory() -> None:
    x, _ = _field()
    x.to_numpy(copy=False)


@pytest.mark.parametrize("name", CASES)
def test_error_messages(name: str) -> None:
    with pytest.raises(OctantsError) as caught:
        CASES[name]()
    diagnostic = caught.value.diagnostic
    assert diagnostic is not None
    lines = [line for line in str(caught.value).splitlines() if "-->" not in line]
    text = "\n".join(line.split("|", 1)[-1] if line[:1].isdigit() else line for line in lines)
    check_golden(f"errors/{diagnostic.code}_{name}", text)


def test_all_errors_have_a_golden_file() -> None:
    found = {
        each.code
        for each in vars(sparse_block_errors).values()
        if isinstance(each, type) and issubclass(each, UserError) and each is not UserError
    }
    assert codes_of("errors", CASES) == found


def test_quantised_fields_in_sparse_blocks_are_refused() -> None:
    x = qd.field(qd.types.quant.int(4))
    qd.root.pointer(qd.i, 4).quant_array(qd.i, 8, max_num_bits=32).place(x)
    with pytest.raises(OctantsError, match="sparse, of quantised fields,"):
        x[0] = 1

    @qd.kernel
    def write():
        x[1] = 2

    with pytest.raises(OctantsError, match="sparse, of quantised fields,"):
        write()


def test_lists_that_cannot_be_are_refused() -> None:
    x, y = qd.field(qd.f32), qd.field(qd.f32)
    lists = qd.root.dynamic(qd.i, 4)
    lists.place(x, y)

    @qd.kernel
    def kernel():
        qd.append(lists, [], 1.0)

    with pytest.raises(OctantsError, match="2 fields are placed in the list"):
        kernel()
    with pytest.raises(OctantsError, match="single axis"):
        qd.root.dynamic(qd.ij, 4)


def test_a_field_in_one_list_needs_no_index() -> None:
    x = qd.field(qd.i32)
    qd.root.dynamic(qd.i, 64).place(x)

    @qd.kernel
    def append() -> qd.i32:
        for i in range(20):
            if i % 3 == 0:
                x.append(i)
        return x.length()

    @qd.kernel
    def empty() -> qd.i32:
        x.deactivate()
        return x.length()

    assert append() == 7
    assert sorted(x.to_numpy()[:7].tolist()) == [0, 3, 6, 9, 12, 15, 18]
    assert empty() == 0
