"""The text of each error of graphs, as golden files."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import octants as qd
from octants.diagnostics import graph_errors as errors
from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import OctantsError
from tests.golden_files import check_golden, codes_of, without_lines

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


@pytest.fixture(autouse=True)
def _start() -> Iterator[None]:
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@case
def read_in_a_graph() -> None:
    x = qd.field(qd.f32, 3)
    with qd.graph.capture():
        x.to_numpy()


@case
def failed_capture() -> None:
    try:
        with qd.graph.capture() as graph:
            raise ValueError("no luck")
    except ValueError:
        graph()


@case
def nested_capture() -> None:
    with qd.graph.capture(), qd.graph.capture():
        pass


@case
def graph_under_a_tape() -> None:
    with qd.graph.capture() as graph:
        pass
    with qd.ad.Tape():
        graph()


@case
def graph_that_is_over() -> None:
    with qd.graph.capture() as graph:
        pass
    qd.init(arch=qd.cpu)
    graph()


@case
def graph_argument_that_is_missing() -> None:
    @qd.kernel
    def step(x: qd.types.ndarray(), n: qd.i32):
        x[n] = 1.0

    builder = qd.graph.GraphBuilder()
    x = qd.graph.Arg(qd.graph.ArgKind.NDARRAY, "x", qd.f32, ndim=1)
    builder.dispatch(step, x, qd.graph.Arg(qd.graph.ArgKind.SCALAR, "n", qd.i32))
    builder.compile().run({"x": qd.ndarray(qd.f32, 3)})


@case
def graph_kernel_that_returns() -> None:
    @qd.kernel(graph=True)
    def answer() -> qd.i32:
        return 42

    answer()


@case
def graph_kernel_on_an_array_of_the_host() -> None:
    raise errors.HostArrayInGraph("step", "a").at()


def checkpointed(body: Callable[..., Any], *arguments: Any) -> Any:
    return qd.kernel(graph=True, checkpoints=True)(body)(*arguments)


@case
def checkpoint_with_the_label_of_another() -> None:
    def twice(x: qd.types.ndarray(), flag: qd.types.ndarray(qd.i32, 0)):
        with qd.checkpoint(1, yield_on=flag):
            for i in x:
                x[i] += 1
        with qd.checkpoint(1, yield_on=flag):
            for i in x:
                x[i] += 1

    checkpointed(twice, qd.ndarray(qd.f32, 3), qd.ndarray(qd.i32, ()))


@case
def checkpoint_with_a_computed_label() -> None:
    def labelled(x: qd.types.ndarray(), flag: qd.types.ndarray(qd.i32, 0)):
        with qd.checkpoint(x.shape[0], yield_on=flag):
            for i in x:
                x[i] += 1

    checkpointed(labelled, qd.ndarray(qd.f32, 3), qd.ndarray(qd.i32, ()))


@case
def checkpoint_with_an_array_as_flag() -> None:
    def flagged(x: qd.types.ndarray()):
        with qd.checkpoint(1, yield_on=x):
            for i in x:
                x[i] += 1

    checkpointed(flagged, qd.ndarray(qd.i32, 3))


@case
def variable_across_a_checkpoint() -> None:
    def crossed(x: qd.types.ndarray(), flag: qd.types.ndarray(qd.i32, 0)):
        first = x[0]
        with qd.checkpoint(1, yield_on=flag):
            for i in x:
                x[i] += first

    checkpointed(crossed, qd.ndarray(qd.i32, 3), qd.ndarray(qd.i32, ()))


@case
def checkpoints_that_return() -> None:
    def answer() -> qd.i32:
        return 42

    checkpointed(answer)


@case
def resumed_without_checkpoints() -> None:
    @qd.kernel(graph=True)
    def step(x: qd.types.ndarray()):
        for i in x:
            x[i] += 1

    step.resume(qd.ndarray(qd.i32, 3), from_checkpoint=1)


@case
def gradient_of_checkpoints() -> None:
    @qd.kernel(graph=True, checkpoints=True)
    def step(x: qd.types.ndarray(), flag: qd.types.ndarray(qd.i32, 0)):
        with qd.checkpoint(1, yield_on=flag):
            for i in x:
                x[i] += 1

    step.grad(qd.ndarray(qd.f32, 3, needs_grad=True), qd.ndarray(qd.i32, ()))


@case
def gradient_of_a_maximum_in_segments() -> None:
    @qd.kernel
    def step(x: qd.types.ndarray(), most: qd.types.ndarray(), left: qd.types.ndarray()):
        while qd.graph.do_while(left):
            for i in x:
                qd.atomic_max(most[None], 0.5 * x[i] + 1.0)
            left[None] -= 1

    arrays = [qd.ndarray(qd.f32, shape, needs_grad=True) for shape in (3, ())]
    step.grad(*arrays, qd.ndarray(qd.i32, ()))


@case
def gradient_of_random_numbers_in_segments() -> None:
    @qd.kernel
    def step(x: qd.types.ndarray(), y: qd.types.ndarray(), left: qd.types.ndarray()):
        left[None] = 1
        while qd.graph.do_while(left):
            for i in x:
                y[i] += x[i] * qd.random()
            left[None] -= 1

    step.grad(*(qd.ndarray(qd.f32, 3, needs_grad=True) for _ in "xy"), qd.ndarray(qd.i32, ()))


@case
def argument_gradients_of_segments() -> None:
    @qd.kernel
    def step(a: qd.f32, x: qd.types.ndarray(), left: qd.types.ndarray()):
        while qd.graph.do_while(left):
            for i in x:
                x[i] += a
            left[None] -= 1

    qd.ad.Tape(argument_gradients=step)


@pytest.mark.parametrize("name", CASES)
def test_text(name: str) -> None:
    with pytest.raises(OctantsError) as caught:
        CASES[name]()
    assert caught.value.diagnostic is not None
    text = without_lines(str(caught.value))
    check_golden(f"errors/{caught.value.diagnostic.code}_{name}", text)


def test_every_error_has_a_text() -> None:
    found = {
        kind.code
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, UserError) and kind is not UserError
    }
    assert found == codes_of("errors", CASES)
