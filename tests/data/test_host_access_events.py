"""What a tape relies on: every host write is announced, and arrays can be saved and put back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from octants.data import axes as ax
from octants.data import host_access_events
from octants.data.field_factories import field, make_field
from octants.data.host_access_events import HostWrite
from octants.data.ndarray import make_ndarray
from octants.data.tape_array_protocol import StoredArray
from octants.data.tree_roots import root
from octants.types.companions import Companion
from octants.types.matrix_types import vector
from octants.types.scalars import f32, f64, i32
from octants.types.structs import Struct
from tests.devices import DISCRETE


@pytest.fixture
def writes() -> Iterator[list[HostWrite]]:
    seen: list[HostWrite] = []
    host_access_events.host_writes.observe(seen.append)
    yield seen
    host_access_events.forget(seen.append)


both = pytest.mark.parametrize("make", [make_field, make_ndarray])


@both
def test_every_write_is_announced(make: Any, writes: list[HostWrite]) -> None:
    x, v, m = (
        make(f32, (3, 4)),
        make(f32, 5, element_shape=(3,)),
        make(f64, (), element_shape=(2, 2)),
    )
    other = make(f64, (3, 4))
    cases: list[tuple[Any, Any, list[tuple[int, ...]], Any]] = [
        (x, lambda: x.__setitem__((1, 2), 3), [(1, 2)], None),
        (x, lambda: x.fill(1), [()], None),
        (x, lambda: x.from_numpy(np.zeros((3, 4))), [()], None),
        (x, lambda: x.from_dlpack(np.zeros((3, 4))), [()], None),
        (x, lambda: x.copy_from(other), [()], other),
        (v, lambda: v.__setitem__(4, [1, 2, 3]), [(4,)], None),
        (v, lambda: v[4].__setitem__(1, 2), [(4, 1)], None),
        (v, lambda: setattr(v[4], "zx", [1, 2]), [(4, 2), (4, 0)], None),
        (v, lambda: v[0].fill(1), [(0, 0), (0, 1), (0, 2)], None),
        (m, lambda: m[None].__setitem__((1, 0), 2), [(1, 0)], None),
        (m, lambda: m[None].__setitem__((slice(None), 1), 2), [(0, 1), (1, 1)], None),
    ]
    for array, write, regions, source in cases:
        writes.clear()
        write()
        assert [each.region for each in writes] == regions
        assert all(each.array is array and each.source is source for each in writes)


def test_writes_to_structs_and_companions(writes: list[HostWrite]) -> None:
    s = Struct.field({"a": f32, "v": vector(2, f32)}, shape=4, needs_grad=True)
    s[2] = {"a": 1, "v": [1, 2]}
    s[3].v[1] = 2
    s.grad[1].a = 3
    expected = [(s.a, (2,)), (s.v, (2,)), (s.v, (3, 1)), (s.a.grad, (1,))]
    assert [(each.array, each.region) for each in writes] == expected
    assert writes[-1].array.companion is Companion.ADJOINT
    assert writes[-1].array.primal is s.a


def test_offsets_do_not_show_in_regions(writes: list[HostWrite]) -> None:
    x = field(f32, (4, 3), offset=(10, -1))
    x[11, 0] = 1
    assert [each.region for each in writes] == [(1, 1)]


def test_a_write_is_announced_before_it_happens() -> None:
    x = field(f32, 3)
    x.fill(5)
    before: list[float] = []

    def observer(write: HostWrite) -> None:
        before.append(write.array.read()[0])

    host_access_events.host_writes.observe(observer)
    x[0] = 7
    x.fill(8)
    host_access_events.forget(observer)
    x.fill(9)
    assert before == [5, 7]


def test_an_observer_that_raises_prevents_the_write() -> None:
    x = field(f32, 3)

    def refuse(write: HostWrite) -> None:
        raise RuntimeError("no")

    host_access_events.host_writes.observe(refuse)
    try:
        for write in (lambda: x.fill(1), lambda: x.__setitem__(0, 1)):
            with pytest.raises(RuntimeError, match="no"):
                write()
    finally:
        host_access_events.forget(refuse)
    assert not x.to_numpy().any()
    assert x.version == 0


def test_wrong_writes_are_not_announced(writes: list[HostWrite]) -> None:
    x, v = field(f32, 3), make_field(f32, 3, element_shape=(2,))
    for wrong in (
        lambda: x.__setitem__(3, 1),
        lambda: x.__setitem__(0, "a"),
        lambda: x.fill(None),
        lambda: x.from_numpy(np.zeros(4)),
        lambda: x.copy_from(field(f32, 4)),
        lambda: v[0].__setitem__(2, 1),
        lambda: v[0].__setitem__(slice(None), [1, 2, 3]),
    ):
        with pytest.raises(Exception, match="OCT5"):
            wrong()
    assert not writes


def test_every_read_is_announced() -> None:
    seen: list[Any] = []
    host_access_events.host_reads.observe(seen.append)
    x, v = field(f32, 3), make_field(f32, 3, element_shape=(2,))
    element = v[0]
    reads = [
        lambda: x[0],
        lambda: x.to_numpy(),
        lambda: np.asarray(x),
        lambda: field(f32, 3).copy_from(x),
    ]
    if not DISCRETE:
        reads += [lambda: x.to_dlpack(), lambda: x.to_numpy(copy=False)]
    seen.clear()
    for count, read in enumerate(reads, 1):
        read()
        assert seen == [x] * count
    seen.clear()
    element[1]
    assert seen == [v]
    host_access_events.forget(seen.append)


@both
def test_versions(make: Any) -> None:
    x = make(f32, 3, element_shape=(2,), needs_grad=True)
    versions = [x.version]
    for write in (
        lambda: x.fill(1),
        lambda: x.__setitem__(0, [1, 2]),
        lambda: x[1].__setitem__(0, 1),
        lambda: x.from_numpy(np.zeros((3, 2))),
        x.mark_written,
    ):
        write()
        versions.append(x.version)
    assert versions == sorted(set(versions))
    x[0], x.to_numpy(), x[0][1]
    assert x.version == versions[-1]
    assert x.grad.version == 0


def test_identities() -> None:
    x, y = field(f32, 3, needs_grad=True), make_ndarray(f32, 3, needs_grad=True)
    arrays = [x, x.grad, y, y.grad, field(f32, 3)]
    assert len({each.identity for each in arrays}) == 5
    assert all(isinstance(each, StoredArray) for each in arrays)
    assert x.grad.identity == x.grad.identity
    assert x.companion_array(Companion.PRIMAL) is x
    assert y.companion_array(Companion.ADJOINT) is y.grad


def test_save_and_restore_of_interleaved_arrays() -> None:
    x, y, v = field(f32), field(f64), make_field(i32, element_shape=(2,))
    outer = root.dense(ax.i, 3).place(field(i32))
    outer.dense(ax.ij, (2, 2)).place(x, x.grad, y, v)
    arrays = [x, x.grad, y, v]
    rng = np.random.default_rng(1)
    first = {
        each: rng.integers(0, 100, each.window().shape).astype(each.dtype.numpy) for each in arrays
    }
    for each, values in first.items():
        each.from_numpy(values)
    saved = {each: each.snapshot() for each in arrays}
    for chosen in arrays:
        for each in arrays:
            each.fill(7)
        chosen.restore(saved[chosen])
        assert np.array_equal(chosen.read(), first[chosen])
        assert all((each.read() == 7).all() for each in arrays if each is not chosen)
        chosen.clear()
        assert not chosen.read().any()
        assert all((each.read() == 7).all() for each in arrays if each is not chosen)
    assert v.nbytes == 6 * 2 * 2 * 4
    assert DISCRETE or saved[x].flags.owndata or saved[x].base is not x.window().storage.bytes


@both
def test_regions(make: Any) -> None:
    v = make(f32, (2, 3), element_shape=(2,))
    v.fill(1)
    v.clear((0, 1))
    v.clear((1, 2, 0))
    expected = np.ones((2, 3, 2))
    expected[0, 1] = expected[1, 2, 0] = 0
    assert np.array_equal(v.read(), expected)
    assert v.read((1, 2)).tolist() == [0, 1]
    v.add(np.full((2, 3, 2), 2.0))
    v.add([1, 2], (0, 0))
    expected += 2
    expected[0, 0] += [1, 2]
    assert np.array_equal(v.read(), expected)
    assert v.version == 1


def test_tapes_writes_are_not_announced(writes: list[HostWrite]) -> None:
    x = field(f32, 3)
    saved = x.snapshot()
    x.clear()
    x.add(1)
    x.restore(saved)
    assert not writes


def test_allocations_are_announced_when_fields_can_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pending: list[Any] = []

    def fill() -> None:
        waiting, pending[:] = list(pending), []
        for each in waiting:
            each.fill(7)

    monkeypatch.setattr(host_access_events.after_allocation, "observers", {})
    host_access_events.after_allocation.observe(fill)
    x, y = field(f32, ()), field(i32, ())
    pending.append(x)
    x2 = field(f32, 3)
    assert x2[0] == 0  # the tree gets its memory, and then is x filled
    pending.append(field(f32, ()))
    assert (x[None], y[None]) == (7, 0)
    assert field(f32, 2)[1] == 0
    assert not pending
