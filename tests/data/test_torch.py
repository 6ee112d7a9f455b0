"""Arrays to and from torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from octants.data.field_factories import field, make_field  # noqa: E402
from octants.data.ndarray import make_ndarray, ndarray  # noqa: E402
from octants.diagnostics.exceptions import OctantsRuntimeTypeError, OctantsValueError  # noqa: E402
from octants.types.enums import Layout  # noqa: E402
from octants.types.matrix_types import vector  # noqa: E402
from octants.types.scalars import ALL, f32, f64, i32  # noqa: E402
from octants.types.structs import Struct  # noqa: E402
from tests.devices import shares_memory  # noqa: E402

MAKERS = [
    pytest.param(make_field, id="field"),
    pytest.param(make_ndarray, id="ndarray"),
    pytest.param(lambda *args, **named: make_field(*args, layout=Layout.SOA, **named), id="soa"),
]
every_kind = pytest.mark.parametrize("make", MAKERS)


@every_kind
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_type(make: Any, dtype: Any) -> None:
    x, y = make(dtype, (2, 3)), make(dtype, (2, 3))
    x.from_numpy(np.arange(6).reshape(2, 3))
    tensor = x.to_torch()
    assert tensor.tolist() == x.to_numpy().tolist()
    y.from_torch(tensor)
    assert np.array_equal(y.to_numpy(), x.to_numpy())


@every_kind
def test_vectors(make: Any) -> None:
    v = make(f32, 4, element_shape=(3,))
    values = torch.arange(12.0).reshape(4, 3)
    for given in (
        values,
        values.double(),
        values.T.contiguous().T,
        values[..., None],
        values.clone().requires_grad_(),
    ):
        v.fill(0)
        v.from_torch(given)
        assert v.to_torch().tolist() == values.tolist()
    assert v.to_torch(device="cpu").dtype is torch.float32


def test_keep_dims() -> None:
    assert make_field(f32, 4, element_shape=(3,)).to_torch(keep_dims=True).shape == (4, 3, 1)  # type: ignore[call-arg]


@shares_memory
@every_kind
def test_shared(make: Any) -> None:
    x = make(f32, (2, 3))
    x.to_torch()[0, 0] = 5
    assert x[0, 0] == 0
    shared = x.to_torch(copy=False)
    shared[1, 2] = 7
    assert x[1, 2] == 7
    x[0, 1] = 8
    assert shared[0, 1] == 8
    other = torch.from_dlpack(x)
    assert other.data_ptr() == shared.data_ptr()
    assert torch.utils.dlpack.from_dlpack(x.to_dlpack())[1, 2] == 7
    del x
    assert shared[1, 2] == 7


@every_kind
def test_wrong_tensors(make: Any) -> None:
    x = make(f32, (2, 3))
    with pytest.raises(OctantsValueError, match=r"shape \(2, 3\) is needed"):
        x.from_torch(torch.zeros(3, 2))
    for given in (np.zeros((2, 3)), [[1.0]], None):
        with pytest.raises(OctantsRuntimeTypeError, match="takes a torch tensor"):
            x.from_torch(given)
    for given in (torch.zeros(2, 3, dtype=torch.bfloat16), torch.eye(2, 3).to_sparse()):
        with pytest.raises(OctantsRuntimeTypeError, match="dense tensor of numbers"):
            x.from_torch(given)
    with pytest.raises(OctantsRuntimeTypeError, match="array of numbers"):
        x.from_torch(torch.zeros(2, 3, dtype=torch.complex64))
    with pytest.raises(OctantsRuntimeTypeError, match="from_torch"):
        x.from_numpy(torch.zeros(2, 3))
    assert x.version == 0


def test_from_dlpack() -> None:
    x = field(f64, (2, 3))
    x.from_dlpack(torch.ones(2, 3))
    assert (x.to_numpy() == 1).all()
    x.from_dlpack(torch.full((2, 3), 2.0, requires_grad=True))
    assert (x.to_numpy() == 2).all()


def test_conjugate_and_negative_views() -> None:
    x = ndarray(f32, 2)
    imaginary = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert imaginary.is_neg()
    x.from_torch(imaginary)
    assert x.to_numpy().tolist() == [-2, 4]


def test_numbers() -> None:
    x, n = field(f32, 2), field(i32, 2)
    x[0], n[0] = torch.tensor(1.5), torch.tensor(3)
    assert (x[0], n[0]) == (1.5, 3)
    v = make_field(f32, 2, element_shape=(2,))
    v[0] = torch.tensor([1.0, 2.0])
    assert v[0].to_list() == [1, 2]


def test_structs() -> None:
    s = Struct.field({"a": f32, "v": vector(2, f32)}, shape=3)
    tensors = s.to_torch(device="cpu")
    tensors["v"][2, 1] = 5
    s.from_torch(tensors)
    assert s[2].v.y == 5
