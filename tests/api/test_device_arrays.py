"""Arrays of other libraries in the memory of a device that the host cannot touch."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.data.host_element_access import make_window
from octants.runtime.arguments import parameters
from octants.runtime.arguments.staging_copies import DeviceArray
from octants.runtime.memory.host import address_of, describe
from octants.types.companions import Companion
from octants.types.layouts import row_major
from tests.api import fake_torch
from tests.devices import on_cpu

pytestmark = on_cpu


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The device, which counts the bytes that cross from or to the host."""
    monkeypatch.setenv("OCTANTS_DISCRETE", "1")
    monkeypatch.setattr(parameters, "_ARRAY_KEYS", dict(parameters._ARRAY_KEYS))
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    found: Any = driver.device()
    found.crossed = 0
    read, write = found.read, found.write

    def count_read(address: int, into: Any) -> None:
        found.crossed += into.nbytes
        read(address, into)

    def count_write(address: int, values: Any) -> None:
        found.crossed += values.nbytes
        write(address, values)

    monkeypatch.setattr(found, "read", count_read)
    monkeypatch.setattr(found, "write", count_write)
    yield found
    qd.reset()


class OnDevice:
    """An array of another library that reports its address: what an index gives of values."""

    def __init__(self, values: Any, index: tuple[Any, ...] = (), dtype: Any = np.float64) -> None:
        given = np.array(values, dtype)
        self.memory = DeviceArray(driver.device(), given.shape, dtype)
        self.memory.write(given)
        first, strides = self.memory.address(Companion.PRIMAL), given.strides
        whole = describe(first, given.nbytes, given.dtype, given.shape, strides)
        part = whole[(*index, ...)]
        self.shape = part.shape
        self.described: dict[str, Any] = {
            "shape": part.shape,
            "strides": None if part.flags.c_contiguous else part.strides,
            "typestr": part.dtype.str,
            "data": (address_of(part), False),
            "version": 3,
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.described

    def tolist(self) -> Any:
        """All of its memory."""
        return self.memory.read().tolist()


class Tensor(OnDevice, fake_torch.Tensor):
    """As much of a tensor of torch on a GPU as launches touch."""

    def __init__(self, values: Any, index: tuple[Any, ...] = (), requires_grad: bool = False):
        OnDevice.__init__(self, values, index)
        self.requires_grad = requires_grad
        self.grad: Any = None
        self.device = fake_torch.Device("cuda", 0)

    @property
    def dtype(self) -> str:
        return "torch.float64"

    shape: Any = None

    def dim(self) -> int:
        return len(self.shape)

    def data_ptr(self) -> int:
        return self.described["data"][0]

    def is_contiguous(self) -> bool:
        return self.described["strides"] is None

    def stride(self) -> tuple[int, ...]:
        strides = self.described["strides"] or row_major(self.shape, 8)
        return tuple(step // 8 for step in strides)

    def element_size(self) -> int:
        return 8

    def detach(self) -> Any:
        return self

    def new_zeros(self, shape: tuple[int, ...]) -> Any:
        return Tensor(np.zeros(shape))


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=fake_torch.Tensor))


@qd.kernel
def double(x: qd.types.ndarray()):
    for i in range(x.shape[0]):
        x[i] = 2 * x[i]


# -- arrays that say of themselves what they are --------------------------------------------------


def test_an_array_is_not_copied(device: Any) -> None:
    x = OnDevice([1, 2, 3])
    double(x)
    double(x)
    assert x.tolist() == [4, 8, 12]
    crossed = device.crossed
    double(x)
    assert device.crossed == crossed


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ((slice(None, None, 2),), [2, 2, 6, 4, 10]),
        ((slice(None, None, -2),), [2, 2, 6, 4, 10]),
        ((slice(1, 1),), [1, 2, 3, 4, 5]),
    ],
)
def test_strides(index: Any, expected: list[int]) -> None:
    x = OnDevice([1, 2, 3, 4, 5], index)
    double(x)
    assert x.tolist() == expected


def test_forms_are_told_apart() -> None:
    first, second = OnDevice([1, 2, 3]), OnDevice([1, 2, 3, 4], (slice(None, None, 3),))
    whole = OnDevice([1, 2], dtype=np.int32)
    for x in (first, second, whole, qd.ndarray(qd.f64, 2), np.ones(2)):
        double(x)
    assert first.tolist() == [2, 4, 6]
    assert second.tolist() == [2, 2, 3, 8]
    assert whole.tolist() == [2, 4]


def test_mistakes() -> None:
    read_only, elsewhere, strange = OnDevice([1]), OnDevice([1]), OnDevice([1])
    read_only.described["data"] = (read_only.described["data"][0], True)
    elsewhere.described["data"] = (4096, False)
    strange.described["typestr"] = "<c8"
    for x, problem in ((read_only, "read-only"), (elsewhere, "kernels do not run")):
        with pytest.raises(qd.OctantsError, match=problem):
            double(x)
    with pytest.raises(qd.OctantsError, match="complex64 has no counterpart"):
        double(strange)
    fine = OnDevice([1])
    double(fine)
    fine.described["data"] = (4096, False)
    with pytest.raises(qd.OctantsError, match="kernels do not run"):
        double(fine)


@pytest.mark.parametrize("index", [(), (slice(None, None, 2),), (slice(None, None, -1),)])
def test_what_is_overwritten_is_put_back_for_the_reverse_run(device: Any, index: Any) -> None:
    values = [1.0, 2.0, 3.0, 4.0]
    x = OnDevice(values, index)
    count = len(np.array(values)[(*index, ...)])
    w = qd.field(qd.f64, shape=count, needs_grad=True)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    w.fill(1.0)

    @qd.kernel
    def add(x: qd.types.ndarray()):
        for i in w:
            loss[None] += x[i] * w[i]

    with qd.ad.Tape(loss=loss):
        add(x)
        double(x)
        add(x)
        before = device.crossed
    after = x.tolist()
    assert (np.array(after)[(*index, ...)] == 2 * np.array(values)[(*index, ...)]).all()
    assert w.grad.to_numpy().tolist() == (3 * np.array(values)[(*index, ...)]).tolist()
    assert before > 0


# -- tensors of torch -----------------------------------------------------------------------------


@qd.kernel
def square(x: qd.types.ndarray()) -> float:
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] ** 2
    return total


@pytest.mark.parametrize("index", [(), (slice(None, None, 2),)])
def test_gradients_of_tensors(torch: None, index: Any) -> None:
    x = Tensor([1.0, 2.0, 3.0], index, requires_grad=True)
    taken = np.array([1.0, 2.0, 3.0])[(*index, ...)]
    assert square(x) == (taken**2).sum()
    square.grad(x)
    assert (x.grad.memory.read() == 2 * taken).all()
    square.grad(x)
    assert (x.grad.memory.read() == 4 * taken).all()


def test_a_tensor_on_another_device(torch: None) -> None:
    x = Tensor([1.0, 2.0])
    x.described["data"] = (1 << 40, False)
    with pytest.raises(qd.OctantsError, match="kernels do not run"):
        square(x)


def test_a_tensor_of_the_host_is_sent(torch: None) -> None:
    x = fake_torch.Tensor(np.array([1.0, 2.0]))
    double(x)
    assert x.array.tolist() == [2, 4]
    y = fake_torch.Tensor(np.array([1.0, 2.0]), requires_grad=True)
    square(y)
    square.grad(y)
    assert y.grad is not None and y.grad.array.tolist() == [2, 4]


# -- arrays of ours -------------------------------------------------------------------------------


def test_fields_take_tensors_without_the_host(torch: None, device: Any) -> None:
    tensor = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], (slice(None), slice(None, None, 2)))
    x, y = qd.field(qd.f64), qd.field(qd.f64)
    qd.root.dense(qd.ij, (2, 2)).place(x, y)
    x.fill(0.0)
    crossed = device.crossed
    x.from_torch(tensor)
    assert device.crossed == crossed
    assert x.to_numpy().tolist() == [[1, 3], [4, 6]]
    assert not y.to_numpy().any()


def test_fields_take_tensors_of_any_strides(torch: None) -> None:
    turned = Tensor([[1.0, 2.0], [3.0, 4.0]], (slice(None), slice(None, None, -1)))
    x = qd.field(qd.f64, shape=(2, 2))
    x.from_torch(turned)
    assert x.to_numpy().tolist() == [[2, 1], [4, 3]]


def test_arrays_of_ours_say_what_they_are(monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    x, y = qd.field(qd.f32), qd.Vector.field(2, qd.f64)
    qd.root.dense(qd.i, 3).place(x, y)
    z = qd.ndarray(qd.i32, (2, 3))
    for each in (x, y, z):
        assert not hasattr(each, "__cuda_array_interface__")

    def interface_of(address: int, *described: Any) -> Any:
        return {"data": (address, False), "described": described}

    monkeypatch.setattr(device, "interface_of", interface_of)
    said = x.__cuda_array_interface__
    assert said["described"] == ((3,), (24,), "<f4")
    assert y.__cuda_array_interface__["described"] == ((3, 2), (24, 8), "<f8")
    assert z.__cuda_array_interface__["described"] == ((2, 3), (12, 4), "<i4")
    address = said["data"][0]
    values = np.array([1.5], np.float32)
    device.write(address + 24, values.view(np.uint8))
    assert x.to_numpy().tolist() == [0, 1.5, 0]
    double(x)
    assert x.to_numpy().tolist() == [0, 3, 0]


def test_copies_of_small_arrays_are_kept(device: Any) -> None:
    made: list[int] = []
    allocate = device.allocate
    device.allocate = lambda nbytes, *what: made.append(nbytes) or allocate(nbytes, *what)

    @qd.kernel
    def double(a: qd.types.NDArray[qd.f64, 1], b: qd.types.NDArray[qd.f64, 1]):
        for i in a:
            b[i] = 2.0 * a[i]

    for n in range(1, 5):
        a, b = np.full(3, float(n)), np.zeros(3)
        double(a, b)
        assert b.tolist() == [2 * n] * 3
    assert made == [128]  # both, each at a multiple of 64
    double(np.ones(4), np.zeros(4))  # of another shape
    double(np.ones(4), np.zeros(4))
    assert made == [128, 128]
    large = np.ones(1 << 18)
    for _ in range(2):
        double(large, large[::-1].copy())
    assert len(made) == 6


def test_arrays_of_other_orders_are_read_back(device: Any) -> None:
    @qd.kernel
    def count(a: qd.types.NDArray[qd.f64, 2]):
        for i, j in a:
            a[i, j] += 10.0 * i + j

    for make in (np.asfortranarray, lambda x: x[:, ::-1], lambda x: x.astype(">f8")):
        a = make(np.zeros((2, 3)))
        count(a)
        assert a.tolist() == [[0, 1, 2], [10, 11, 12]]


@pytest.mark.parametrize("errors", ["1", "late"])
@pytest.mark.parametrize("size", [4, 20_000])
def test_a_launch_that_fails_leaves_what_it_wrote_in_all_arrays(
    size: int, errors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In copies next to each other, and in large ones; where errors come late, the host reads."""
    monkeypatch.setenv("OCTANTS_DISCRETE", errors)
    qd.init(arch=qd.cpu, debug=True, log_level="error")

    @qd.kernel
    def add(a: qd.types.ndarray(qd.f32, 1), b: qd.types.ndarray(qd.f32, 1), most: qd.i32):
        for i in a:
            a[i] += 1.0
        for i in b:
            b[i] += 2.0
            assert i < most, "too far"

    one, other = (np.zeros(size, np.float32) for _ in range(2))
    with pytest.raises(qd.OctantsAssertionError, match="too far"):
        add(one, other, size - 1)
    assert (one == 1).all()
    assert (other == 2).all()
    add(one, other, size)
    assert (other == 4).all()


# -- copies within the device -------------------------------------------------------------------


@pytest.fixture
def copies(device: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each copy within the device."""
    found: list[int] = []
    copy, copy_rows = device.copy, device.copy_rows

    def count(target: int, source: int, nbytes: int) -> None:
        found.append(nbytes)
        copy(target, source, nbytes)

    def count_rows(*steps: int) -> None:
        found.append(steps[-2] * steps[-1])
        copy_rows(*steps)

    monkeypatch.setattr(device, "copy", count)
    monkeypatch.setattr(device, "copy_rows", count_rows)
    return found


@pytest.mark.parametrize("target", [qd.ndarray, qd.field])
@pytest.mark.parametrize("source", [qd.ndarray, qd.field])
def test_an_array_is_copied_once(copies: list[int], source: Any, target: Any) -> None:
    x, y = source(qd.f64, 6), target(qd.f64, 6)
    x.from_numpy(np.arange(6.0))
    y.copy_from(x)
    assert copies == [48]
    assert y.to_numpy().tolist() == [0, 1, 2, 3, 4, 5]


def test_fields_whose_elements_take_turns_in_memory(copies: list[int]) -> None:
    x, y = qd.field(qd.f64), qd.field(qd.f64)
    qd.root.dense(qd.i, 5).place(x, y)
    x.from_numpy(np.arange(5.0))
    y.from_numpy(np.full(5, 7.0))
    copies.clear()
    y.copy_from(x)
    assert copies == [40, 40]  # by way of a copy
    assert x.to_numpy().tolist() == y.to_numpy().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("shift", [-3, -1, 0, 1, 3, 4])
def test_arrays_that_have_memory_in_common(copies: list[int], shift: int) -> None:
    x, part = qd.ndarray(qd.f64, 12), qd.ndarray(qd.f64, 4)
    x.from_numpy(np.arange(12.0))
    storage, layout = x.window().storage, part.layouts()[Companion.PRIMAL]
    source, target = (make_window(storage, 8 * at, layout, qd.f64) for at in (4, 4 + shift))
    target.write(source.saved_for(target))
    assert copies == [32] * (1 if shift == 4 else 2)
    expected = np.arange(12.0)
    expected[4 + shift : 8 + shift] = np.arange(4.0, 8.0)
    assert x.to_numpy().tolist() == expected.tolist()


def test_replays_of_copies_of_arrays_that_are_gone() -> None:
    y = qd.ndarray(qd.f64, 3)

    def copied(value: float) -> None:
        x = qd.ndarray(qd.f64, 3)
        x.fill(value)
        y.copy_from(x)

    with qd.graph.capture() as graph:
        copied(4.0)
    gone = [qd.ndarray(qd.f64, 3) for _ in range(5)]
    for each in gone:
        each.fill(9.0)
    y.fill(0.0)
    graph.replay()
    assert y.to_numpy().tolist() == [4, 4, 4]
