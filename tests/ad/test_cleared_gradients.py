"""A tape sets all gradients to zero that are there when it begins, whatever was there before."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.data import current_runtime
from tests.codegen.on_emulated_gpu import emulated_gpu

MAKERS: dict[str, Callable[..., Any]] = {
    "fields": lambda *shape: qd.field(qd.f32, shape, needs_grad=True),
    "ndarrays": lambda *shape: qd.ndarray(qd.f32, shape or (1,), needs_grad=True),
}
make = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
REPEATED = 20  # tapes, so that a GPU's clears are a graph


@pytest.fixture(params=["here", "on a GPU"], autouse=True)
def machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """The arch of the tests, and a GPU that the CPU emulates."""
    if request.param == "here":
        qd.init(log_level="error")
        yield
        return
    with emulated_gpu():
        qd.init(arch=qd.cuda, log_level="error")
        yield


def tape(loss: Any) -> None:
    with qd.ad.Tape(loss=loss):
        pass


def repeat(loss: Any) -> None:
    for _ in range(REPEATED):
        tape(loss)


@make
def test_what_was_written_between_tapes(make: Callable[..., Any]) -> None:
    x, loss = make(3), make()
    for number in range(REPEATED):
        x.grad.fill(number + 1)
        tape(loss)
        assert not x.grad.to_numpy().any()
        assert loss.grad.to_numpy().item() == 1


@make
def test_arrays_that_are_made_later(make: Callable[..., Any]) -> None:
    x, loss = make(3), make()
    repeat(loss)
    y = make(5)
    y.grad.fill(7)
    x.grad.fill(7)
    tape(loss)
    assert not x.grad.to_numpy().any()
    assert not y.grad.to_numpy().any()


def test_fields_that_get_memory_later() -> None:
    loss, y = MAKERS["fields"](), MAKERS["fields"](5)
    loss.fill(0)
    z = MAKERS["fields"](4)
    repeat(loss)
    for late in (y, z):
        late.grad.fill(3)
    tape(loss)
    assert not y.grad.to_numpy().any()
    assert not z.grad.to_numpy().any()


@make
def test_arrays_that_have_ended(make: Callable[..., Any]) -> None:
    x, loss = make(3), make()
    repeat(loss)
    del x
    gc.collect()
    others = [qd.ndarray(qd.f32, 3) for _ in range(4)]  # one may get the memory of the gradient
    for other in others:
        other.fill(5)
    tape(loss)
    assert all((other.to_numpy() == 5).all() for other in others)


def test_a_tree_that_is_destroyed() -> None:
    loss = MAKERS["ndarrays"]()
    builder = qd.FieldsBuilder()
    x = qd.field(qd.f32)
    builder.dense(qd.i, 8).place(x, x.grad)
    tree = builder.finalize()
    x.grad.fill(1)
    repeat(loss)
    tree.destroy()
    others = [qd.ndarray(qd.f32, 8) for _ in range(4)]
    for other in others:
        other.fill(5)
    tape(loss)
    assert all((other.to_numpy() == 5).all() for other in others)


@make
def test_losses_in_turns(make: Callable[..., Any]) -> None:
    losses = [make() for _ in range(3)]
    for _ in range(REPEATED):
        for loss in losses:
            loss.fill(4)
            tape(loss)
            assert loss.to_numpy().item() == 0
            assert [each.grad.to_numpy().item() for each in losses] == [
                float(each is loss) for each in losses
            ]


@make
def test_gradients_that_are_not_cleared(make: Callable[..., Any]) -> None:
    x, loss = make(3), make()
    repeat(loss)
    x.grad.fill(2)
    loss.fill(4)
    with qd.ad.Tape(loss=loss, clear_gradients=False):
        pass
    assert np.array_equal(x.grad.to_numpy(), [2, 2, 2])
    assert loss.to_numpy().item() == 0


@make
def test_arrays_that_end_while_they_are_cleared(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = make()
    kept, known = [make(4)], current_runtime.Runtime.version_of
    repeat(loss)
    alive = weakref.ref(kept[0].grad)
    seen: list[bool] = []

    def drop_all(runtime: Any, companions: Any) -> Any:
        version = known(runtime, companions)
        kept.clear()
        gc.collect()
        seen.append(alive() is not None)
        return version

    monkeypatch.setattr(current_runtime.Runtime, "version_of", drop_all)
    tape(loss)
    assert seen[0]  # so the memory was not freed before it was set to zero
    monkeypatch.undo()
    gc.collect()
    assert alive() is None


def test_arrays_of_all_sizes_and_nothing_beside_them() -> None:
    generator = np.random.default_rng(0)
    kinds = [(qd.f16, 1), (qd.f16, 3), (qd.f32, 1), (qd.f64, 7), (qd.f32, 20_000)]
    kinds += [(qd.f32, int(generator.integers(1, 70))) for _ in range(70)]
    arrays = [qd.ndarray(dtype, count, needs_grad=True) for dtype, count in kinds]
    loss = qd.ndarray(qd.f32, 1, needs_grad=True)
    for number in range(REPEATED):
        for array in arrays:
            array.fill(number + 1)
            array.grad.fill(number + 2)
        tape(loss)
        for array in arrays:
            assert (array.to_numpy() == number + 1).all()
            assert not array.grad.to_numpy().any()
