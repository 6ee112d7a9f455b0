"""Memory exported and imported by DLPack, without a GPU: both ways, and for how long."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.runtime.interop import dlpack
from tests.devices import on_cpu

pytestmark = on_cpu


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    before = dlpack.export_count()
    yield
    qd.reset()
    gc.collect()
    assert dlpack.export_count() == before


@qd.kernel
def double(a: qd.types.ndarray()):
    for index in qd.grouped(a):
        a[index] *= 2


@qd.kernel
def total(a: qd.types.ndarray()) -> qd.f64:
    s = 0.0
    for index in qd.grouped(a):
        s += a[index]
    return s


class OldLibrary:
    """An array of a library that knows no versions."""

    def __init__(self, values: Any) -> None:
        self.values = np.array(values)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.values.__dlpack__()


# -- export ---------------------------------------------------------------------------------------


def test_the_memory_itself_is_lent() -> None:
    for x in (qd.ndarray(qd.f64, (2, 3)), qd.field(qd.f64, (2, 3))):
        x.from_numpy(np.arange(6.0).reshape(2, 3))
        shared = np.from_dlpack(x)
        assert shared.tolist() == x.to_numpy().tolist()
        double(x) if isinstance(x, qd.Ndarray) else x.fill(8.0)
        assert shared.tolist() == x.to_numpy().tolist()


def test_layouts_are_strides() -> None:
    x = qd.tensor(qd.f32, (2, 3), backend=qd.Backend.FIELD, layout=(1, 0))
    x.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
    shared = np.from_dlpack(x)
    assert shared.strides == (4, 8)
    assert shared[1].tolist() == [3, 4, 5]


@pytest.mark.parametrize("name", ["u1", "i8", "i64", "u32", "f16", "f32", "f64"])
def test_types(name: str) -> None:
    dtype = getattr(qd, name)
    x = qd.ndarray(dtype, 3)
    x.fill(1)
    assert dlpack.import_view(x).dtype == x.to_numpy().dtype
    assert np.from_dlpack(x).tolist() == [1, 1, 1]


def test_vectors_and_no_axes_and_no_elements() -> None:
    assert np.from_dlpack(qd.Vector.ndarray(3, qd.f32, (2,))).shape == (2, 3)
    assert np.from_dlpack(qd.ndarray(qd.f32, ())).shape == ()
    assert np.from_dlpack(qd.ndarray(qd.f32, (0, 3))).shape == (0, 3)


def test_lent_memory_outlives_the_array_and_the_runtime() -> None:
    x = qd.ndarray(qd.f64, 3)
    x.fill(5.0)
    shared = np.from_dlpack(x)
    del x
    qd.init(arch=qd.cpu, log_level="error")
    gc.collect()
    qd.ndarray(qd.f64, 3).fill(7.0)
    assert shared.tolist() == [5, 5, 5]
    del shared
    gc.collect()


def test_a_capsule_that_nobody_takes() -> None:
    x = qd.ndarray(qd.f64, 3)
    before = dlpack.export_count()
    for versioned in (False, True):
        capsule = x.to_dlpack(versioned)
        assert dlpack.export_count() == before + 1
        del capsule
        assert dlpack.export_count() == before


def test_a_capsule_that_is_dropped_by_an_exception() -> None:
    x = qd.ndarray(qd.f64, 3)

    def fail() -> None:
        capsule = x.__dlpack__(max_version=(1, 0))
        raise KeyError(capsule)

    for _ in range(3):
        with pytest.raises(KeyError):
            fail()


def test_an_export_after_a_kernel_that_was_not_compiled() -> None:
    """The exception keeps what was built of the kernel, as `sys.last_value` does at the prompt."""

    @qd.kernel
    def wrong() -> qd.f32:
        return no_such_name  # noqa: F821

    with pytest.raises(qd.OctantsNameError) as raised:
        wrong()
    x = qd.field(qd.f32, 3)
    x.fill(2)
    assert np.from_dlpack(x).tolist() == [2, 2, 2]
    assert raised.value.__traceback__ is not None


def test_copies() -> None:
    for x in (qd.ndarray(qd.f64, 3), qd.field(qd.f64, 3)):
        x.fill(1.0)
        copied = np.from_dlpack(x, copy=True) if np.__version__ >= "2.1" else None
        part = dlpack.import_view(x, copy=True)
        assert part.address != dlpack.import_view(x).address
        x.fill(2.0)
        if copied is not None:
            assert copied.tolist() == [1, 1, 1]


def test_the_device_that_is_wanted() -> None:
    x = qd.ndarray(qd.f64, 3)
    assert x.__dlpack_device__() == (1, 0)
    assert dlpack.import_view(x, dl_device=(1, 0)).address == x._opened.address
    with pytest.raises(ValueError, match="OCT537"):
        x.__dlpack__(dl_device=(2, 0))


def test_what_cannot_be_lent() -> None:
    x = qd.field(qd.f32)
    qd.root.dense(qd.ij, (2, 2)).dense(qd.ij, (2, 2)).place(x)
    with pytest.raises(ValueError, match="split over several blocks"):
        x.__dlpack__()


def test_fields_that_stand_side_by_side() -> None:
    z, w = qd.field(qd.i8), qd.field(qd.f64)
    qd.root.dense(qd.i, 4).place(z, w)
    w.fill(3.0)
    assert np.from_dlpack(w).strides == (16,)
    assert np.from_dlpack(w).tolist() == [3] * 4


# -- borrowing ------------------------------------------------------------------------------------


def test_memory_is_borrowed() -> None:
    values = np.arange(6.0).reshape(2, 3)
    x = qd.from_dlpack(values)
    assert (x.dtype, x.shape) == (qd.f64, (2, 3))
    double(x)
    assert values.tolist() == [[0, 2, 4], [6, 8, 10]]
    x[0, 0] = 7.0
    assert values[0, 0] == 7
    values[1, 1] = 3
    assert x[1, 1] == 3
    assert total(x) == values.sum()


def test_launches_do_not_describe_memory_for_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.array([1.0, 2.0])
    x, made = qd.from_dlpack(values, needs_grad=True), qd.ndarray(qd.f64, 2, needs_grad=True)
    with monkeypatch.context() as patch:
        patch.setattr(qd.Ndarray, "_open", None)
        for each in (x, made):
            double(each)
            total.grad(each)
            start, end = each.extent
            assert end - start == each.nbytes == 16
    assert repr(x) == "<qd.ndarray f64 (2,): [2. 4.]>"
    assert x.grad.to_numpy().tolist() == made.grad.to_numpy().tolist() == [1.0, 1.0]


def test_elements_of_vectors_and_matrices() -> None:
    x = qd.from_dlpack(np.ones((4, 3), np.float32), element_dim=1)
    assert isinstance(x, qd.VectorNdarray) and x.shape == (4,) and x.n == 3
    y = qd.from_dlpack(np.ones((2, 3), np.float32), element_dim=2)
    assert isinstance(y, qd.MatrixNdarray) and y.shape == () and (y.n, y.m) == (2, 3)


def test_borrowed_memory_stays() -> None:
    owner = OldLibrary([1.0, 2.0])
    gone = weakref.ref(owner)
    x = qd.from_dlpack(owner)
    del owner
    gc.collect()
    assert x.to_numpy().tolist() == [1, 2]
    del x
    gc.collect()
    assert gone() is None


def test_borrowed_memory_is_given_back_by_reset() -> None:
    owner = OldLibrary([1.0, 2.0])
    gone, x = weakref.ref(owner), qd.from_dlpack(owner)
    del owner
    qd.init(arch=qd.cpu, log_level="error")
    gc.collect()
    assert gone() is None
    with pytest.raises(qd.OctantsRuntimeError, match="OCT520"):
        x[0]


def test_gradients() -> None:
    values = np.array([1.0, 2.0])
    x = qd.from_dlpack(values, needs_grad=True)
    loss = qd.ndarray(qd.f64, (), needs_grad=True)

    @qd.kernel
    def squares(x: qd.types.NDArray[qd.f64, 1], loss: qd.types.NDArray[qd.f64, 0]):
        for i in x:
            loss[None] += x[i] * x[i]

    with qd.ad.Tape(loss=loss):
        squares(x, loss)
    assert x.grad.to_numpy().tolist() == [2, 4]


def test_a_gradient_of_arrays_in_one_memory() -> None:
    """That they are one is seen, as it is of arrays of numpy."""
    values = np.array([1.0, 2.0])
    loss = qd.ndarray(qd.f64, (), needs_grad=True)

    @qd.kernel
    def step(
        x: qd.types.NDArray[qd.f64, 1],
        y: qd.types.NDArray[qd.f64, 1],
        loss: qd.types.NDArray[qd.f64, 0],
    ):
        for i in range(2):
            y[i] = 3.0 * x[i]
        for i in range(2):
            loss[None] += x[i] * x[i]

    def gradient(make: Callable[[], tuple[Any, Any]]) -> Any:
        values[:] = 1.0, 2.0
        x, y = make()
        with qd.ad.Tape(loss=loss):
            step(x, y, loss)
        return loss[None]

    apart = gradient(lambda: (qd.from_dlpack(values.copy(), needs_grad=True),) * 2)
    twice = gradient(lambda: tuple(qd.from_dlpack(values) for _ in range(2)))
    assert apart == twice == 45


def test_what_is_read_only() -> None:
    values = np.ones(3)
    values.flags.writeable = False
    x = qd.from_dlpack(values)
    assert x.is_read_only
    assert total(x) == 3
    with pytest.raises(qd.OctantsRuntimeError, match="read-only"):
        double(x)
    for write in (lambda: x.fill(1), lambda: x.from_numpy(np.ones(3))):
        with pytest.raises(ValueError, match="OCT539"):
            write()
    assert not np.from_dlpack(x).flags.writeable
    double(qd.from_dlpack(np.ones(3)))
    assert total(x) == 3


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "not an array": (lambda: [1.0, 2.0], "offers `__dlpack__`"),
    "columns": (lambda: np.ones((2, 3)).T, "not row-major"),
    "gaps": (lambda: np.ones(6)[::2], "not row-major"),
    "complex": (lambda: np.ones(3, np.complex64), "type that the language has not|complex64"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_borrowed(name: str) -> None:
    make, text = WRONG[name]
    with pytest.raises((ValueError, TypeError), match=text):
        qd.from_dlpack(make())


def test_axes_of_one_element_have_any_stride() -> None:
    x = qd.from_dlpack(np.ones((4, 1, 3))[:, ::-1])
    assert x.shape == (4, 1, 3)


def test_torch_both_ways() -> None:
    torch = pytest.importorskip("torch")
    t = torch.arange(4.0, dtype=torch.float64)
    x = qd.from_dlpack(t)
    double(x)
    assert t.tolist() == [0, 2, 4, 6]
    back = torch.from_dlpack(x)
    back += 1
    assert x.to_numpy().tolist() == t.tolist() == [1, 3, 5, 7]
    needs = torch.ones(3, requires_grad=True)
    assert qd.from_dlpack(needs).dtype == qd.f32


AT_THE_END = """
import atexit, ctypes

def release():  # like JAX's GPU runtime, without a test for null
    for address, (made, *_) in dlpack._exported.items():
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(made.deleter)(address)

atexit.register(release)  # before those of Octants, and so called after them
import numpy as np, octants as qd, sys
from octants.runtime.interop import dlpack
qd.init(arch=qd.cpu, log_level="error")
x = qd.ndarray(qd.f32, 3)
sys.kept = np.from_dlpack(x), x.to_dlpack(), x.to_dlpack(versioned=True)
"""


def test_what_is_in_use_at_the_end_of_the_process() -> None:
    command = [sys.executable, "-c", AT_THE_END]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_memory_that_the_host_cannot_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTANTS_DISCRETE", "1")
    qd.init(arch=qd.cpu, log_level="error")
    x = qd.ndarray(qd.f64, 3)
    x.fill(2.0)
    with pytest.raises(ValueError, match="which the host cannot touch"):
        x.__dlpack__()
    for more in ({"copy": True}, {"copy": True, "dl_device": (1, 0)}):
        part = dlpack.import_view(x, **more)
        values = (ctypes.c_double * 3).from_address(part.address)
        assert list(values) == [2, 2, 2]
    with pytest.raises(ValueError, match="memory of the CPU, and kernels run on"):
        qd.from_dlpack(np.ones(3))
    x.from_dlpack(np.full(3, 4.0))
    assert x[2] == 4


def test_numbers_in_the_other_byte_order() -> None:
    qd.init(arch=qd.cpu)
    swapped = np.arange(4.0).astype(np.dtype(np.float64).newbyteorder())
    np.testing.assert_array_equal(qd.from_numpy(swapped).to_numpy(), np.arange(4.0))
    field = qd.field(qd.f64, 4)
    for take in (qd.from_dlpack, field.from_dlpack):
        with pytest.raises(qd.OctantsRuntimeTypeError, match="memory that DLPack describes"):
            take(swapped)
