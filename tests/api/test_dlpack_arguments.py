"""Arrays of libraries that kernels know by DLPack only, such as JAX on the CPU, as arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import shares_memory


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


class Exported:
    """An array of a library of its own."""

    def __init__(self, values: Any) -> None:
        self.values = np.array(values, np.float32)

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.values.__dlpack_device__()


class Fixed(Exported):
    """A read-only array."""

    def __init__(self, values: Any) -> None:
        super().__init__(values)
        self.values.flags.writeable = False


@pytest.fixture(params=["exported", "fixed", "jax"])
def make(request: Any) -> Any:
    if request.param != "jax":
        return Exported if request.param == "exported" else Fixed
    jax = pytest.importorskip("jax")
    cpu = jax.devices("cpu")[0]  # where JAX has a GPU, arrays are there by default
    return lambda values: jax.device_put(np.array(values, np.float32), cpu)


@qd.kernel
def total(x: qd.types.ndarray(qd.f32, 1)) -> qd.f32:
    s = 0.0
    for i in x:
        s += x[i]
    return s


@qd.kernel
def double(x: qd.types.ndarray()):
    for i in x:
        x[i] *= 2


@dataclasses.dataclass
class Pair:
    x: qd.types.ndarray(qd.f32, 1)
    y: qd.types.ndarray(qd.f32, 1)


def test_lent_arrays_are_read(make: Any) -> None:
    assert total(make([1.0, 2.0])) == 3
    assert total(np.ones(3, np.float32)) == 3
    assert total(make([1.0, 2.0, 4.0])) == 7

    @qd.kernel
    def last(pair: Pair) -> qd.f32:
        return pair.x[1] + pair.y[0]

    assert last(Pair(make([1.0, 2.0]), np.full(1, 0.5, np.float32))) == 2.5


def test_lent_arrays_are_constants_of_gradients(make: Any) -> None:
    z = qd.ndarray(qd.f32, 3, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def dot(x: qd.types.ndarray(), z: qd.types.ndarray()):
        for i in z:
            loss[None] += x[i] * z[i]

    with qd.ad.Tape(loss):
        dot(make([1.0, 2.0, 3.0]), z)
    assert z.grad.to_numpy().tolist() == [1, 2, 3]
    z.grad.fill(0)
    dot.grad(make([4.0, 5.0, 6.0]), z)
    assert z.grad.to_numpy().tolist() == [4, 5, 6]


@shares_memory
def test_lent_arrays_are_written_in_place() -> None:
    x = Exported([1.0, 2.0])
    if not np.from_dlpack(x).flags.writeable:  # numpy before 2.0 has read-only arrays only
        pytest.skip("this numpy imports for reading only")
    double(x)
    assert x.values.tolist() == [2, 4]


def test_what_is_read_only_is_not_written() -> None:
    fixed = Fixed([1.0, 2.0])
    with pytest.raises(qd.OctantsArgumentError, match="read-only"):
        double(fixed)
    assert fixed.values.tolist() == [1, 2]


def test_what_cannot_be_shared_says_so() -> None:
    class Refusing(Exported):
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("not now")

    with pytest.raises(qd.OctantsArgumentError, match="cannot be shared: not now"):
        total(Refusing([1.0]))


@shares_memory
def test_arrays_of_another_device_say_how_to_move_them() -> None:
    class OnGPU(Exported):
        shape = (2,)
        dtype = np.dtype(np.float32)
        device = "cuda:1"

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 1

    with pytest.raises(qd.OctantsArgumentError, match="OCT414") as caught:
        total(OnGPU([1.0, 2.0]))
    assert "the OnGPU is on cuda:1, where kernels do not run" in str(caught.value)
    assert 'pass `jax.device_put(x, jax.devices("cpu")[0])`' in str(caught.value)
