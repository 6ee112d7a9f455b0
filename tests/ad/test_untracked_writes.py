"""Arrays that other code writes while a tape records: through torch, numpy, pointers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import shares_memory
from tests.golden_files import check_golden


@pytest.fixture(params=["field", "ndarray", "strided"])
def xy(request: Any) -> Any:
    if request.param == "strided":
        x, y, z = (qd.field(qd.f64, needs_grad=True) for _ in range(3))
        qd.root.dense(qd.i, 3).place(x, y, z)
        qd.root.dense(qd.i, 3).place(x.grad, y.grad, z.grad)
    else:
        maker = qd.field if request.param == "field" else qd.ndarray
        x, y = (maker(qd.f64, 3, needs_grad=True) for _ in range(2))
    x.from_numpy(np.array([1.0, 2.0, 3.0]))
    return x, y


@pytest.fixture
def loss() -> Any:
    return qd.field(qd.f64, (), needs_grad=True)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@qd.kernel
def square(x: qd.Tensor, y: qd.Tensor):
    for i in range(3):
        y[i] = x[i] * x[i]


@qd.kernel
def triple(x: qd.Tensor, y: qd.Tensor):
    for i in range(3):
        y[i] = 3 * x[i]


@qd.kernel
def total(y: qd.Tensor, loss: qd.Tensor):
    for i in range(3):
        loss[None] += y[i]


# -- torch counts its writes ----------------------------------------------------------------------

IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "other memory": lambda torch, t: setattr(t, "data", torch.full((2, 3), 9.0)),
    "memory of another tensor": lambda torch, t: t.set_(torch.full((2, 3), 9.0)),
    "another order of axes": lambda torch, t: t.t_(),  # noqa: ARG005
    "one more axis": lambda torch, t: t.unsqueeze_(0),  # noqa: ARG005
    "other strides": lambda torch, t: t.as_strided_((2, 3), (1, 2)),  # noqa: ARG005
}


@pytest.mark.parametrize("has_gradient", [True, False])
@pytest.mark.parametrize("how", IN_PLACE)
def test_a_tensor_that_gets_other_memory_or_another_shape_is_an_error(
    torch: Any, how: str, has_gradient: bool
) -> None:
    @qd.kernel
    def weigh(w: qd.types.ndarray(), x: qd.types.ndarray(), loss: qd.types.ndarray()):
        for i, j in x:
            loss[None] += w[i, j] * x[i, j] ** 2

    w = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=has_gradient)
    x, loss = torch.ones(2, 3, requires_grad=True), torch.zeros((), requires_grad=True)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT329.*`w`.*`weigh`") as caught:
        with torch.no_grad(), qd.ad.Tape(loss=loss):
            weigh(w, x, loss)
            IN_PLACE[how](torch, w)
    check_golden("errors/OCT329_tensor_replaced", str(caught.value))
    with torch.no_grad():
        w.set_(torch.full((2, 3), 3.0))
        loss.zero_()
    with qd.ad.Tape(loss=loss):
        weigh(w, x, loss)
    assert x.grad.tolist() == [[6.0] * 3] * 2


TORCH: dict[str, Callable[[Any, Any], Any]] = {
    "in place": lambda torch, t: t.mul_(2),
    "one element": lambda torch, t: t.__setitem__(1, 9),
    "a view of it": lambda torch, t: t[1:].view(2, 1).add_(1),
    "the result of an operation": lambda torch, t: torch.exp(t, out=t),
    "one that is gone": lambda torch, t: t[:2].zero_(),
}


@shares_memory
@pytest.mark.parametrize("how", TORCH)
def test_what_is_needed_is_restored_after_a_write_by_torch(
    xy: Any, loss: Any, torch: Any, how: str
) -> None:
    x, y = xy
    with qd.ad.Tape(loss=loss):
        square(x, y)
        TORCH[how](torch, x.to_torch(copy=False))
        total(y, loss)
    assert x.grad.to_numpy().tolist() == [2, 4, 6]
    with qd.ad.Tape(loss=loss):
        TORCH[how](torch, x.to_torch(copy=False))
        square(x, y)
        total(y, loss)
    assert x.grad.to_numpy() == pytest.approx(2 * x.to_numpy())


@shares_memory
def test_one_tensor_made_before_and_others_that_share_its_count(
    xy: Any, loss: Any, torch: Any
) -> None:
    x, y = xy
    first, second = x.to_torch(copy=False), x.to_torch(copy=False)
    assert first.data_ptr() == second.data_ptr()
    with pytest.raises(qd.OctantsRuntimeError, match="OCT320"), qd.ad.Tape(loss=loss):
        square(x, y)
        second.add_(1)
        square(x, y)
        total(y, loss)
    assert first.tolist() == [2, 3, 4]


@shares_memory
def test_reading_by_torch_is_no_write(xy: Any, loss: Any, torch: Any) -> None:
    x, y = xy
    with qd.ad.Tape(loss=loss):
        square(x, y)
        assert float(x.to_torch(copy=False).sum()) == 6
        x.to_torch().zero_()
        x.from_torch(2 * x.to_torch(copy=False))
        square(x, y)
        total(y, loss)
    assert x.grad.to_numpy().tolist() == [0, 0, 0]
    assert y.to_numpy().tolist() == [4, 16, 36]


@shares_memory
def test_a_write_by_torch_to_what_is_not_needed(xy: Any, loss: Any, torch: Any) -> None:
    """What a launch wrote is lost, and with it where the adjoint would go: an error, too."""
    x, y = xy
    with qd.ad.Tape(loss=loss):
        triple(x, y)
        total(y, loss)
        y.to_torch(copy=False).zero_()
    assert x.grad.to_numpy().tolist() == [3, 3, 3]
    with pytest.raises(qd.OctantsRuntimeError, match="OCT320: `y`"), qd.ad.Tape(loss=loss):
        triple(x, y)
        y.to_torch(copy=False)[1] = 0
        total(y, loss)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT320"), qd.ad.Tape(loss=loss):
        triple(x, y)
        y.to_torch(copy=False)[1] = 0
        y[0] = 3


@shares_memory
def test_vectors_with_a_column(torch: Any, loss: Any) -> None:
    v = qd.Vector.field(3, qd.f64, 2, needs_grad=True)
    m = qd.Matrix.field(2, 1, qd.f64, 2)
    assert v.to_torch(keep_dims=True, copy=False).shape == (2, 3, 1)
    assert m.to_torch(copy=False).shape == (2, 2)
    assert m.to_torch(keep_dims=True, copy=False).shape == (2, 2, 1)

    @qd.kernel
    def norms():
        for i in v:
            loss[None] += v[i].norm_sqr()

    v.fill(1.0)
    with qd.ad.Tape(loss=loss):
        norms()
        v.to_torch(keep_dims=True, copy=False)[0, 1, 0] = 5
    assert v.grad.to_numpy().tolist() == [[2, 2, 2]] * 2
    assert list(v[0]) == [1, 5, 1]


@shares_memory
def test_tensors_outlive_their_array(torch: Any) -> None:
    x = qd.field(qd.f64, 3)
    tensor = x.to_torch(copy=False)
    qd.init(arch=qd.cpu)
    tensor.add_(1)
    assert tensor.tolist() == [1, 1, 1]
    with pytest.raises(qd.OctantsRuntimeError):
        x.to_torch(copy=False)


def test_arguments_with_gradients_that_torch_writes(torch: Any, loss: Any) -> None:
    x = torch.ones(3, dtype=torch.float64)
    y = torch.zeros(3, dtype=torch.float64)
    for tensor in (x, y):
        tensor.grad = torch.zeros_like(tensor)

    @qd.kernel
    def triple(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(3):
            y[i] = 3 * x[i]

    @qd.kernel
    def total(y: qd.types.ndarray()):
        for i in range(3):
            loss[None] += y[i]

    with pytest.raises(qd.OctantsRuntimeError, match="OCT320: `y`"), qd.ad.Tape(loss=loss):
        triple(x, y)
        y[0] = 0
        total(y)
    with qd.ad.Tape(loss=loss):
        triple(x, y)
        total(y)
    assert x.grad.tolist() == [3, 3, 3]


# -- nothing counts the writes --------------------------------------------------------------------

EXPORTS: dict[str, Callable[[Any], Any]] = {
    "to_numpy": lambda x: x.to_numpy(copy=False),
    "array": lambda x: np.array(x, copy=False),
    "dlpack": np.from_dlpack,
    "torch": lambda x: pytest.importorskip("torch").from_dlpack(x),
    "capsule": lambda x: pytest.importorskip("torch").from_dlpack(x.to_dlpack()),
    "to_torch": lambda x: _tensor(x),
    "data": lambda x: _tensor(x).data,
    "numpy": lambda x: _tensor(x).numpy(),
}


def _tensor(x: Any) -> Any:
    pytest.importorskip("torch")
    return x.to_torch(copy=False)


@shares_memory
@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("how", EXPORTS)
def test_what_is_needed_is_restored_after_a_write_to_a_view(
    xy: Any, loss: Any, how: str, is_early: bool
) -> None:
    x, y = xy
    early = EXPORTS[how](x) if is_early else None
    for _ in range(2):
        with qd.ad.Tape(loss=loss):
            square(x, y)
            view = EXPORTS[how](x) if early is None else early
            view[1] = 7
            total(y, loss)
        assert x.grad.to_numpy().tolist() == [2, 4, 6]
        assert x.to_numpy().tolist() == [1, 7, 3]
        view[1] = 2


@shares_memory
@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("how", EXPORTS)
def test_a_write_to_a_view_through_which_an_adjoint_passes_is_an_error(
    xy: Any, loss: Any, how: str, is_early: bool
) -> None:
    x, y = xy
    early = EXPORTS[how](y) if is_early else None
    for _ in range(2):
        with pytest.raises(qd.OctantsRuntimeError, match="OCT320: `y`"), qd.ad.Tape(loss=loss):
            square(x, y)
            view = EXPORTS[how](y) if early is None else early
            view[1] += 7
            total(y, loss)


@shares_memory
def test_memory_of_numpy_that_numpy_writes(loss: Any) -> None:
    values, weights = np.array([1.0, 2.0, 3.0]), np.ones(3)
    x = qd.from_dlpack(values, needs_grad=True)
    weights.flags.writeable = False
    constant = qd.from_dlpack(weights)
    weights.flags.writeable = True
    y = qd.ndarray(qd.f64, 3, needs_grad=True)

    @qd.kernel
    def weigh(weights: qd.types.ndarray(), x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in range(3):
            y[i] += weights[i] * x[i] ** 2

    with qd.ad.Tape(loss=loss):
        for step in range(3):
            weights[:] = step
            weigh(constant, x, y)
        values[:] = 9
        total(y, loss)
    assert x.grad.to_numpy().tolist() == [6, 12, 18]
    assert (weights.tolist(), values.tolist()) == ([2] * 3, [9] * 3)


@shares_memory
def test_tracked_writes_to_a_view_are_no_error(xy: Any, loss: Any) -> None:
    x, y = xy
    y.to_numpy(copy=False)
    with qd.ad.Tape(loss=loss):
        triple(x, y)
        y[1] = 5  # the host
        qd.ad.no_grad(triple)(y, x)
        y[2] = 1
        square(x, y)
        y[0] = 7
        total(y, loss)
    assert x.grad.to_numpy().tolist() == [0, 30, 54]
    assert y.to_numpy().tolist() == [7, 225, 729]


@shares_memory
def test_a_view_is_written_beside_what_the_host_writes(xy: Any, loss: Any) -> None:
    x, y = xy
    view = y.to_numpy(copy=False)

    def run(index: int) -> None:
        with qd.ad.Tape(loss=loss):
            triple(x, y)
            y[1] = 5
            view[index] = 8
            total(y, loss)

    run(1)
    assert x.grad.to_numpy().tolist() == [3, 0, 3]
    with pytest.raises(qd.OctantsRuntimeError, match="OCT320: `y`"):
        run(2)


@shares_memory
def test_a_view_that_is_written_in_forward_mode() -> None:
    x, y, z = (qd.field(qd.f64, 3, needs_dual=True) for _ in range(3))
    view = y.to_numpy(copy=False)
    with qd.ad.FwdMode(loss=z, param=x, seed=[1.0, 1.0, 1.0]):
        triple(x, y)
        qd.ad.no_grad(triple)(x, y)
        triple(y, z)
    assert z.dual.to_numpy().tolist() == [9, 9, 9]
    with pytest.raises(qd.OctantsRuntimeError, match="OCT320"):
        with qd.ad.FwdMode(loss=z, param=x, seed=[1.0, 1.0, 1.0]):
            triple(x, y)
            view[1] = 7
            triple(y, z)


@shares_memory
@pytest.mark.parametrize("is_early", [True, False])
def test_a_view_that_is_written_between_launches_with_tangents(is_early: bool) -> None:
    Array = qd.types.ndarray(qd.f64, ndim=1)
    y = qd.ndarray(qd.f64, 3, needs_grad=True)
    view = y.to_numpy(copy=False) if is_early else None
    writes = [0]

    def run(x: Array, z: Array) -> None:  # type: ignore[valid-type]
        triple(x, y)
        if writes:
            (y.to_numpy(copy=False) if view is None else view)[1] = 7
        triple(y, z)

    tangents = qd.ad.jvp(run, out={"z": "x"})
    given = np.ones(3)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT320"):
        tangents(given, tangents={"x": given})
    writes.clear()
    assert tangents(given, tangents={"x": given})[1].tolist() == [9, 9, 9]


@shares_memory
def test_a_view_that_is_exported_and_written_in_forward_mode() -> None:
    x, y, z = (qd.field(qd.f64, 3, needs_dual=True) for _ in range(3))
    with pytest.raises(qd.OctantsRuntimeError, match="OCT320"):
        with qd.ad.FwdMode(loss=z, param=x, seed=[1.0, 1.0, 1.0]):
            triple(x, y)
            y.to_numpy(copy=False)[1] = 7
            triple(y, z)


def copy(x: Any, y: Any) -> None:
    y.copy_from(x)


def launch_unrecorded(x: Any, y: Any) -> None:
    triple(x, y)
    qd.ad.no_grad(square)(x, y)


@qd.ad.grad_replaced
def replaced(x: Any, y: Any) -> None:
    triple(x, y)


@qd.ad.grad_for(replaced)
def _(x: Any, y: Any) -> None:
    triple.grad(x, y)


@shares_memory
@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("write", [copy, launch_unrecorded, replaced])
@pytest.mark.parametrize("read", [triple, copy, replaced])
def test_a_view_that_is_written_between_other_events(
    xy: Any, loss: Any, write: Any, read: Any, is_early: bool
) -> None:
    x, y = xy
    z = qd.ndarray(qd.f64, 3, needs_grad=True)
    early = y.to_numpy(copy=False) if is_early else None

    def run(writes: bool) -> None:
        with qd.ad.Tape(loss=loss):
            write(x, y)
            if writes:
                (y.to_numpy(copy=False) if early is None else early)[1] += 7
            read(y, z)
            total(z, loss)

    with pytest.raises(qd.OctantsRuntimeError, match="OCT320"):
        run(writes=True)
    run(writes=False)
    factors = {triple: 3, replaced: 3, copy: 1, launch_unrecorded: 3}
    assert x.grad.to_numpy().tolist() == [factors[write] * factors[read]] * 3


@shares_memory
@pytest.mark.parametrize("kind", ["x", "y"])
def test_a_view_of_an_array_with_a_gradient_that_checkpointed_steps_write(
    xy: Any, loss: Any, kind: str
) -> None:
    x, y = xy
    view = (x if kind == "x" else y).to_numpy(copy=False)

    def run(writes: bool) -> None:
        def step(i: int) -> None:
            if writes:
                view[1] = i
            triple(x, y)
            triple(y, x)

        with qd.ad.Tape(loss=loss):
            qd.ad.checkpointed(step, 4, slots=2)
            total(y, loss)

    with pytest.raises(qd.OctantsRuntimeError, match="OCT320"):
        run(writes=True)
    run(writes=False)
    assert x.grad.to_numpy().tolist() == [3.0**7] * 3


@shares_memory
def test_a_view_that_checkpointed_steps_write(xy: Any, loss: Any) -> None:
    x, y = xy
    weights = qd.ndarray(qd.f64, 3)
    view = weights.to_numpy(copy=False)

    @qd.kernel
    def weigh(weights: qd.types.ndarray()):
        for i in range(3):
            y[i] += weights[i] * x[i] ** 2

    def step(i: int) -> None:
        view[:] = i
        weigh(weights)

    with qd.ad.Tape(loss=loss):
        qd.ad.checkpointed(step, 6, slots=2)
        total(y, loss)
    assert x.grad.to_numpy().tolist() == [30, 60, 90]

    def grow(i: int) -> None:
        view[:] += 1
        weigh(weights)

    with pytest.raises(qd.OctantsRuntimeError, match="OCT331(.|\n)*`weights` with other contents"):
        with qd.ad.Tape(loss=loss):
            qd.ad.checkpointed(grow, 6, slots=2)
            total(y, loss)


@shares_memory
def test_copies_for_a_view_count(xy: Any, loss: Any) -> None:
    x, y = xy
    with qd.ad.Tape() as tape:
        square(x, y)
        assert tape.snapshot_bytes == 0
        view = x.to_numpy(copy=False)
        assert tape.snapshot_bytes == 24
        square(x, y)
        assert tape.snapshot_bytes == 24
        view[:] = view  # no change
        square(x, y)
        assert tape.snapshot_bytes == 24


# -- others say so --------------------------------------------------------------------------------


def by_pointer(x: Any) -> None:
    view = x.to_numpy(copy=False)
    address = view.__array_interface__["data"][0] + view.strides[0]
    ctypes.c_double.from_address(address).value = 7.0


def by_numpy(x: Any) -> None:
    x.to_numpy(copy=False)[1] = 7.0


OTHERS = {"numpy": by_numpy, "pointer": by_pointer}


@shares_memory
@pytest.mark.parametrize("how", OTHERS)
def test_what_is_needed_is_restored_if_the_write_is_marked(xy: Any, loss: Any, how: str) -> None:
    x, y = xy
    with qd.ad.Tape(loss=loss):
        square(x, y)
        OTHERS[how](x)
        x.mark_written()
        total(y, loss)
    assert x.grad.to_numpy().tolist() == [2, 4, 6]
    assert x.to_numpy().tolist() == [1, 7, 3]


@shares_memory
@pytest.mark.parametrize("how", OTHERS)
def test_a_marked_write_ends_adjoints_like_any_write_of_the_host(
    xy: Any, loss: Any, how: str
) -> None:
    x, y = xy
    for region, wanted in (((), [0, 0, 0]), (1, [3, 0, 3]), ((1,), [3, 0, 3])):
        with qd.ad.Tape(loss=loss):
            triple(x, y)
            OTHERS[how](y)
            y.mark_written(region)
            total(y, loss)
        assert loss[None] == 3 + 7 + 9
        assert x.grad.to_numpy().tolist() == wanted


@shares_memory
def test_a_marked_write_clears_the_dual() -> None:
    x, y = (qd.field(qd.f64, 3, needs_dual=True) for _ in range(2))
    with qd.ad.FwdMode(loss=y, param=x, seed=[1.0, 1.0, 1.0]):
        triple(x, y)
        by_numpy(y)
        y.mark_written(1)
    assert y.dual.to_numpy().tolist() == [3, 0, 3]


@shares_memory
def test_a_write_by_torch_may_be_marked(xy: Any, loss: Any, torch: Any) -> None:
    x, y = xy
    with qd.ad.Tape(loss=loss):
        triple(x, y)
        y.to_torch(copy=False)[2] = 0
        y.mark_written(2)
        total(y, loss)
    assert x.grad.to_numpy().tolist() == [3, 3, 0]


def test_numpy_arguments_need_no_mark(loss: Any) -> None:
    x = qd.field(qd.f64, 3, needs_grad=True)
    weights = np.ones(3)

    @qd.kernel
    def weigh(weights: qd.types.ndarray()):
        for i in range(3):
            loss[None] += weights[i] * x[i]

    with qd.ad.Tape(loss=loss):
        for step in range(3):
            weights[:] = step
            weigh(weights)
    assert x.grad.to_numpy().tolist() == [3, 3, 3]
    assert weights.tolist() == [2, 2, 2]
