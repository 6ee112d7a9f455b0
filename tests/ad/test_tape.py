"""Reverse mode over several launches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import DISCRETE
from tests.golden_files import check_golden


class World:
    """A few fields, and kernels over them."""

    def __init__(self, n: int = 3) -> None:
        self.x = qd.field(qd.f64, n, needs_grad=True)
        self.y = qd.field(qd.f64, n, needs_grad=True)
        self.plain = qd.field(qd.f64, n)
        self.loss = qd.field(qd.f64, (), needs_grad=True)
        self.x.from_numpy(np.linspace(0.5, 1.5, n))

    @qd.kernel
    def square(self):
        for i in self.x:
            self.y[i] = self.x[i] * self.x[i]

    @qd.kernel
    def square_in_place(self):
        for i in self.x:
            self.x[i] = self.x[i] * self.x[i]

    @qd.kernel
    def total(self, field: qd.template()):
        for i in field:
            self.loss[None] += field[i]

    @qd.kernel
    def several_tasks(self):
        for i in self.x:
            self.x[i] = self.x[i] * self.x[i]
        scale = self.x[0]
        for i in self.x:
            self.x[i] = qd.sin(self.x[i]) * scale
        for i in self.x:
            self.loss[None] += self.x[i]


def difference(body: Callable[[np.ndarray[Any, Any]], float], at: np.ndarray[Any, Any]) -> Any:
    """Central differences of a function of a vector."""
    h = 1e-6
    return [(body(at + h * e) - body(at - h * e)) / (2 * h) for e in np.eye(len(at))]


# -- the contract of Quadrants --------------------------------------------------------------------


def test_loss_and_gradients_are_cleared_before_the_body() -> None:
    w = World()
    w.loss[None] = 7
    for _ in range(2):
        with qd.ad.Tape(loss=w.loss):
            assert w.loss[None] == 0
            assert w.loss.grad[None] == 0
            w.square()
            w.total(w.y)
        assert w.x.grad.to_numpy() == pytest.approx(2 * w.x.to_numpy())
        assert w.loss.grad[None] == 1


def test_gradients_accumulate_without_clearing() -> None:
    w = World()
    w.x.grad.fill(5)
    with qd.ad.Tape(loss=w.loss, clear_gradients=False):
        w.square()
        w.total(w.y)
    assert w.x.grad.to_numpy() == pytest.approx(5 + 2 * w.x.to_numpy())


def test_bare_gradient_uses_the_adjoints_that_are_there() -> None:
    w = World()
    w.square()
    w.y.grad.from_numpy(np.array([1.0, 10.0, 100.0]))
    w.square.grad()
    assert w.x.grad.to_numpy() == pytest.approx([1, 2 * 10, 1.5 * 2 * 100])
    assert w.y.grad.to_numpy().tolist() == [0, 0, 0]


def test_ndarrays_of_ours_are_cleared_too() -> None:
    @qd.kernel
    def f(x: qd.types.ndarray(), loss: qd.types.ndarray()):
        for i in x:
            loss[None] += x[i] ** 2

    x, loss = qd.ndarray(qd.f64, 2, needs_grad=True), qd.ndarray(qd.f64, (), needs_grad=True)
    x.fill(3)
    for _ in range(2):
        with qd.ad.Tape(loss=loss):
            f(x, loss)
        assert x.grad.to_numpy().tolist() == [6, 6]


def test_a_body_that_raises_is_not_reversed() -> None:
    w = World()
    with pytest.raises(KeyError), qd.ad.Tape(loss=w.loss):
        w.square()
        raise KeyError
    assert w.x.grad.to_numpy().tolist() == [0, 0, 0]
    with qd.ad.Tape(loss=w.loss):
        w.square()
        w.total(w.y)
    assert w.x.grad.to_numpy() == pytest.approx(2 * w.x.to_numpy())


def test_explicit_grad_ends_the_tape() -> None:
    w = World()
    with qd.ad.Tape(loss=w.loss) as tape:
        w.square()
        w.total(w.y)
        tape.grad()
        w.total(w.y)
    assert w.x.grad.to_numpy() == pytest.approx(2 * w.x.to_numpy())


def test_without_a_loss_the_adjoints_of_the_body_are_propagated() -> None:
    w = World()
    with qd.ad.Tape():
        w.square()
        w.y.grad[1] = 2
    assert w.x.grad.to_numpy().tolist() == [0, 4, 0]


def test_several_losses() -> None:
    w = World()
    other = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def add_first():
        other[None] = w.x[0] * 3

    with qd.ad.Tape(loss=[w.loss, other]):
        w.total(w.x)
        add_first()
    assert w.x.grad.to_numpy().tolist() == [4, 1, 1]


def test_the_loss_can_be_what_a_kernel_returns() -> None:
    w = World()

    @qd.kernel
    def norm() -> qd.f64:
        s = 0.0
        for i in w.x:
            s += w.x[i] ** 2
        return s

    with qd.ad.Tape(loss=norm):
        w.square_in_place()
        value = norm()
    start = np.linspace(0.5, 1.5, 3)
    assert value == pytest.approx((start**4).sum())
    assert w.x.grad.to_numpy() == pytest.approx(4 * start**3)


# -- overwritten arrays ---------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2, 5])
def test_in_place_updates(times: int) -> None:
    w = World()
    start = w.x.to_numpy()
    with qd.ad.Tape(loss=w.loss):
        for _ in range(times):
            w.square_in_place()
        w.total(w.x)
    power = 2**times
    assert w.x.grad.to_numpy() == pytest.approx(power * start ** (power - 1))
    assert w.x.to_numpy() == pytest.approx(start**power)


def test_a_kernel_of_several_tasks_that_overwrites() -> None:
    w = World()
    start = w.x.to_numpy()

    def value(x: np.ndarray[Any, Any]) -> float:
        total = 0.0
        for _ in range(2):
            x = x * x
            x = np.sin(x) * x[0]
            total += x.sum()
        return total

    with qd.ad.Tape(loss=w.loss):
        w.several_tasks()
        w.several_tasks()
    assert w.loss[None] == pytest.approx(value(start))
    assert w.x.grad.to_numpy() == pytest.approx(difference(value, start), rel=1e-6)


def test_arrays_end_as_the_body_left_them_even_if_the_backward_pass_raises() -> None:
    w = World()

    @qd.ad.grad_replaced
    def call():
        w.total(w.x)

    @qd.ad.grad_for(call)
    def gradient():
        raise ZeroDivisionError

    start = w.x.to_numpy()
    with pytest.raises(ZeroDivisionError), qd.ad.Tape(loss=w.loss):
        call()
        w.square_in_place()
        w.square_in_place()
    assert w.x.to_numpy() == pytest.approx(start**4)
    with qd.ad.Tape(loss=w.loss):
        w.total(w.x)


def test_host_writes_end_adjoints() -> None:
    w = World()
    with qd.ad.Tape(loss=w.loss):
        w.square()
        w.total(w.y)
        w.x[1] = 10
        w.square()
        w.total(w.y)
    start = np.linspace(0.5, 1.5, 3)
    assert w.x.grad.to_numpy() == pytest.approx([4 * start[0], 2 * start[1], 4 * start[2]])


@pytest.mark.parametrize("how", ["fill", "from_numpy", "kernel"])
def test_a_whole_write_ends_all_adjoints(how: str) -> None:
    w = World()

    @qd.kernel
    def reset():
        for i in w.x:
            w.x[i] = 2

    writes = {
        "fill": lambda: w.x.fill(2),
        "from_numpy": lambda: w.x.from_numpy(np.full(3, 2.0)),
        "kernel": reset,
    }
    start = w.x.to_numpy()
    with qd.ad.Tape(loss=w.loss):
        w.square()
        w.total(w.y)
        writes[how]()
        w.square()
        w.total(w.y)
    assert w.x.grad.to_numpy() == pytest.approx(2 * start)


def test_an_input_that_the_body_writes_first_has_a_gradient() -> None:
    w = World()
    with qd.ad.Tape(loss=w.loss):
        w.x.fill(5)
        w.square()
        w.total(w.y)
    assert w.x.grad.to_numpy().tolist() == [10, 10, 10]


def test_copy_from_routes_the_adjoint() -> None:
    w = World()
    start = w.x.to_numpy()
    with qd.ad.Tape(loss=w.loss):
        w.square()
        w.x.copy_from(w.y)
        w.square()
        w.total(w.y)
    assert w.x.grad.to_numpy() == pytest.approx(4 * start**3)


def test_copy_of_an_array_from_before_the_body_routes_the_adjoint() -> None:
    w = World()
    w.y.fill(3)
    with qd.ad.Tape(loss=w.loss):
        w.x.copy_from(w.y)
        w.total(w.x)
    assert w.y.grad.to_numpy().tolist() == [1, 1, 1]


def test_numpy_arguments_may_be_refilled() -> None:
    w = World()

    @qd.kernel
    def weighted(weights: qd.types.ndarray()):
        for i in w.x:
            w.loss[None] += weights[i] * w.x[i]

    buffer = np.zeros(3)
    with qd.ad.Tape(loss=w.loss):
        for step in range(3):
            buffer[:] = step + 1
            weighted(buffer)
    assert w.x.grad.to_numpy().tolist() == [6, 6, 6]
    assert buffer.tolist() == [3, 3, 3]


def test_scalars_vectors_and_structs_are_those_of_the_launch() -> None:
    w = World()
    kind = qd.types.struct(a=qd.f64, b=qd.types.vector(2, qd.f64))

    @qd.kernel
    def weighted(s: kind, v: qd.types.vector(2, qd.f64), c: qd.f64):
        w.loss[None] += w.x[0] * (s.a + s.b[1] + v[0] + c)

    s, v = kind(1.0, [2, 3]), [4.0, 5.0]
    with qd.ad.Tape(loss=w.loss):
        weighted(s, v, 6.0)
        s.a, v[0] = 100.0, 100.0
        s.b = [100, 100]
    assert w.x.grad[0] == 1 + 3 + 4 + 6


# -- one memory, several names --------------------------------------------------------------------


@qd.kernel
def squares(source: qd.types.ndarray(), target: qd.types.ndarray()):
    for i in source:
        target[i] = source[i] * source[i]


@qd.kernel
def add_up(x: qd.types.ndarray(), loss: qd.types.ndarray()):
    for i in x:
        loss[None] += x[i]


def pair(n: int = 3) -> tuple[Any, Any]:
    x, loss = qd.ndarray(qd.f64, n, needs_grad=True), qd.ndarray(qd.f64, (), needs_grad=True)
    x.from_numpy(np.linspace(0.5, 1.5, n))
    return x, loss


def test_the_same_array_twice() -> None:
    x, loss = pair()
    start = x.to_numpy()
    with qd.ad.Tape(loss=loss):
        squares(x, x)
        squares(x, x)
        add_up(x, loss)
    assert x.grad.to_numpy() == pytest.approx(4 * start**3)
    with pytest.raises(qd.OctantsCompilationError, match="OCT301"):
        squares.grad(x, x)


def test_the_same_array_twice_read_only() -> None:
    x, loss = pair()
    y = qd.ndarray(qd.f64, 3, needs_grad=True)

    @qd.kernel
    def product(a: qd.types.ndarray(), b: qd.types.ndarray(), c: qd.types.ndarray()):
        for i in a:
            c[i] = a[i] * b[i]

    with qd.ad.Tape(loss=loss):
        product(x, x, y)
        add_up(y, loss)
    assert x.grad.to_numpy() == pytest.approx(2 * x.to_numpy())


def test_a_field_as_an_argument_and_by_its_name() -> None:
    w = World()

    @qd.kernel
    def multiply(target: qd.template()):
        for i in w.x:
            target[i] = target[i] * w.x[i]

    start = w.x.to_numpy()
    with qd.ad.Tape(loss=w.loss):
        multiply(w.x)
        w.total(w.x)
    assert w.x.grad.to_numpy() == pytest.approx(2 * start)


def test_views_that_overlap_in_part() -> None:
    x, loss = pair()
    base = np.arange(6.0)
    with pytest.raises(qd.OctantsRuntimeError) as caught, qd.ad.Tape(loss=loss):
        squares(base[:4], base[2:])
    check_golden("errors/OCT315_partial_overlap", str(caught.value))


@pytest.mark.filterwarnings("ignore:the gradient ends")
def test_views_of_one_array_in_different_launches() -> None:
    w = World(4)

    @qd.kernel
    def weighted(weights: qd.types.ndarray(), first: qd.i32):
        for i in range(weights.shape[0]):
            w.loss[None] += weights[i] * w.x[first + i]
            weights[i] = -1.0

    base = np.array([1.0, 2.0, 3.0, 4.0])
    with qd.ad.Tape(loss=w.loss):
        weighted(base[:2], 0)
        weighted(base, 0)
        weighted(base[2:], 2)
    assert w.x.grad.to_numpy().tolist() == [1 - 1, 2 - 1, 3 - 1, 4 - 1]
    assert base.tolist() == [-1, -1, -1, -1]


# -- parts that are not recorded ------------------------------------------------------------------


def test_no_grad() -> None:
    w = World()

    @qd.ad.no_grad
    def untracked():
        w.square()
        w.total(w.y)

    with qd.ad.Tape(loss=w.loss):
        untracked()
        w.total(w.x)
    assert w.x.grad.to_numpy().tolist() == [1, 1, 1]
    untracked.grad()  # type: ignore[attr-defined]


def test_what_no_grad_overwrites_is_saved() -> None:
    w = World()
    overwrite = qd.ad.no_grad(w.square_in_place)
    start = w.x.to_numpy()
    with qd.ad.Tape(loss=w.loss):
        w.square()
        w.total(w.y)
        overwrite()
    assert w.x.grad.to_numpy() == pytest.approx(2 * start)
    assert w.x.to_numpy() == pytest.approx(start**2)


def test_a_gradient_of_ones_own_sees_memory_as_its_call_left_it() -> None:
    w = World()
    seen = []

    @qd.ad.grad_replaced
    def call(factor: float) -> str:
        w.square()
        w.total(w.y)
        return f"{factor}"

    @qd.ad.grad_for(call)
    def gradient(factor: float) -> None:
        seen.append((factor, w.x.to_numpy()))
        w.total.grad(w.y)
        w.square.grad()

    start = w.x.to_numpy()
    with qd.ad.Tape(loss=w.loss):
        assert call(2.0) == "2.0"
        w.square_in_place()
        call(3.0)
    assert [factor for factor, _ in seen] == [3.0, 2.0]
    assert seen[0][1] == pytest.approx(start**2)
    assert seen[1][1] == pytest.approx(start)
    assert w.x.grad.to_numpy() == pytest.approx(2 * start + 4 * start**3)


def test_gradients_of_ones_own_may_run_the_kernels_again() -> None:
    """Checkpointing by hand: the gradient computes its states again, over those of others."""
    w = World()
    start = w.x.to_numpy()

    @qd.ad.grad_replaced
    def twice() -> None:
        w.square_in_place()
        w.square_in_place()

    @qd.ad.grad_for(twice)
    def gradient() -> None:
        adjoint = w.x.grad.to_numpy()
        w.x.from_numpy(start)
        w.square_in_place()
        middle = w.x.to_numpy()
        w.x.grad.from_numpy(adjoint * 2 * middle * 2 * start)

    with qd.ad.Tape(loss=w.loss):
        twice()
        w.square()
        w.total(w.y)
    assert w.x.grad.to_numpy() == pytest.approx(8 * start**7)
    assert w.x.to_numpy() == pytest.approx(start**4)


def test_methods_with_gradients_of_their_own() -> None:
    class Model(World):
        @qd.ad.grad_replaced
        def forward(self, factor: float) -> None:
            self.total(self.x)

        @qd.ad.grad_for(forward)
        def backward(self, factor: float) -> None:
            for i in range(3):
                self.x.grad[i] = factor

    model = Model()
    with qd.ad.Tape(loss=model.loss):
        model.forward(5.0)
    assert model.x.grad.to_numpy().tolist() == [5, 5, 5]


def test_launches_of_other_threads_are_not_recorded() -> None:
    w = World()
    with qd.ad.Tape(loss=w.loss):
        w.total(w.x)
        thread = threading.Thread(target=w.total, args=(w.x,))
        thread.start()
        thread.join()
    assert w.x.grad.to_numpy().tolist() == [1, 1, 1]


def test_stop_grad() -> None:
    w = World()

    @qd.kernel
    def f():
        for i in w.x:
            w.loss[None] += qd.stop_grad(w.x[i]) * w.x[i]

    with qd.ad.Tape(loss=w.loss):
        f()
    assert w.x.grad.to_numpy() == pytest.approx(w.x.to_numpy())


def test_random_draws_are_those_of_the_launch() -> None:
    w = World(64)
    w.x.fill(1)

    @qd.kernel
    def noisy():
        for i in w.x:
            w.y[i] = w.x[i] * qd.random(qd.f64)

    with qd.ad.Tape(loss=w.loss):
        noisy()
        w.total(w.y)
        first = w.y.to_numpy()
        noisy()
        w.total(w.y)
    assert (first != w.y.to_numpy()).any()
    assert w.x.grad.to_numpy() == pytest.approx(first + w.y.to_numpy())


# -- errors ---------------------------------------------------------------------------------------


def enter_twice(w: World) -> None:
    tape = qd.ad.Tape(loss=w.loss)
    with tape:
        pass
    with tape:
        pass


def nested(w: World) -> None:
    with qd.ad.Tape(loss=w.loss), qd.ad.Tape(loss=w.loss):
        pass


def overwrite(w: World) -> None:
    with qd.ad.Tape(loss=w.loss, on_overwrite="error"):
        w.square()
        w.x.fill(1)


def untracked(w: World) -> None:
    with qd.ad.Tape(loss=w.loss):
        w.total(w.x)
        w.x.to_numpy(copy=False)[0] = 3
        w.total(w.x)


def kernel_twice(w: World) -> None:
    @qd.kernel
    def value() -> qd.f64:
        return w.x[0]

    with qd.ad.Tape(loss=value):
        value()
        value()


def kernel_of_integer(w: World) -> None:
    @qd.kernel
    def value() -> qd.i32:
        return 1

    with qd.ad.Tape(loss=value):
        value()


def without_gradient(w: World) -> None:
    @qd.ad.grad_replaced
    def call() -> None: ...

    with qd.ad.Tape(loss=w.loss):
        call()


ERRORS: dict[str, Callable[[World], Any]] = {
    "OCT310_nested": nested,
    "OCT311_used_tape": enter_twice,
    "OCT367_not_entered": lambda w: qd.ad.Tape(loss=w.loss).grad(),
    "OCT312_shape": lambda w: qd.ad.Tape(loss=w.x),
    "OCT312_no_gradient": lambda w: qd.ad.Tape(loss=qd.field(qd.f64, ())),
    "OCT312_integer": lambda w: qd.ad.Tape(loss=qd.field(qd.i32, ())),
    "OCT312_number": lambda w: qd.ad.Tape(loss=1.0),
    "OCT312_kernel": kernel_of_integer,
    "OCT313_kernel_twice": kernel_twice,
    "OCT314_overwritten": overwrite,
    "OCT321_no_gradient": without_gradient,
    "OCT319_not_replaced": lambda w: qd.ad.grad_for(nested),
    "OCT320_untracked_change": untracked,
}
if DISCRETE:  # where only Octants can write
    del ERRORS["OCT320_untracked_change"]


@pytest.mark.parametrize("name", ERRORS)
def test_error(name: str) -> None:
    w = World()
    with pytest.raises(qd.OctantsRuntimeError) as caught:
        ERRORS[name](w)
        if name.startswith("OCT319_not"):
            qd.ad.grad_for(nested)(nested)
    check_golden(f"errors/{name}", str(caught.value))
    with qd.ad.Tape(loss=w.loss):
        w.total(w.x)
    assert w.x.grad.to_numpy().tolist() == [1, 1, 1]


def test_a_bare_gradient_of_a_kernel_that_overwrites_names_both_lines() -> None:
    w = World()
    with pytest.raises(qd.OctantsCompilationError) as caught:
        w.square_in_place.grad()
    assert caught.value.diagnostic is not None
    read, write = caught.value.diagnostic.labels
    assert (
        read.span.line
        == write.span.line
        == World.square_in_place.function.__code__.co_firstlineno + 3
    )


def test_kernels_over_gradients_are_not_differentiable() -> None:
    w = World()

    @qd.kernel
    def descend(rate: qd.f64):
        for i in w.x:
            w.x[i] -= rate * w.x.grad[i]

    start = w.x.to_numpy()
    with qd.ad.Tape(loss=w.loss):
        w.total(w.x)
    descend(0.1)
    assert w.x.to_numpy() == pytest.approx(start - 0.1)
    with pytest.raises(qd.OctantsCompilationError, match=r"OCT302: a kernel .* `x.grad`"):
        with qd.ad.Tape(loss=w.loss):
            descend(0.1)
    with qd.ad.Tape(loss=w.loss):
        qd.ad.no_grad(descend)(0.1)
        w.total(w.x)
    assert w.x.grad.to_numpy().tolist() == [1, 1, 1]


def test_wrong_on_overwrite() -> None:
    with pytest.raises(ValueError, match="on_overwrite"):
        qd.ad.Tape(on_overwrite="ignore")


# -- warnings -------------------------------------------------------------------------------------


def test_a_gradient_that_ends_at_an_array_without_one_is_told() -> None:
    w = World()

    @qd.kernel
    def through(array: qd.template()):
        for i in w.x:
            array[i] = w.x[i] * 2

    with pytest.warns(
        qd.OctantsWarning, match="the gradient ends at `array`.*kernel `total`"
    ) as warned:
        with qd.ad.Tape(loss=w.loss):
            through(w.plain)
            w.total(w.plain)
    assert warned[0].filename == __file__
    assert w.x.grad.to_numpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize("make", [qd.field, qd.ndarray])
def test_a_bare_gradient_that_ends_is_told(make: Any) -> None:
    x, y = make(qd.f64, 3, needs_grad=True), make(qd.f64, 3)
    z = make(qd.f64, 3, needs_grad=True)

    @qd.kernel
    def double(x: qd.Tensor, y: qd.Tensor):
        for i in range(3):
            y[i] = 2 * x[i]

    @qd.kernel
    def through(x: qd.Tensor, y: qd.Tensor, z: qd.Tensor):
        for i in range(3):
            y[i] = 2 * x[i]
            z[i] = y[i] + x[i]

    double(x, y)
    with pytest.warns(
        qd.OctantsWarning, match="the gradient ends at `y`.*kernel `double` writes nothing that has"
    ) as warned:
        double.grad(x, y)
    assert [each.filename for each in warned] == [__file__]
    through(x, y, z)
    z.grad.fill(1.0)
    with pytest.warns(qd.OctantsWarning, match="the gradient ends at `y`.*kernel `through`"):
        through.grad(x, y, z)
    assert x.grad.to_numpy().tolist() == [1, 1, 1]


@pytest.mark.filterwarnings("error")
def test_no_warning_of_a_bare_gradient_where_nothing_is_lost() -> None:
    x, y, plain = (qd.ndarray(qd.f64, 3, needs_grad=needed) for needed in (True, True, False))

    @qd.kernel
    def double(x: qd.Tensor, y: qd.Tensor, plain: qd.Tensor):
        for i in range(3):
            y[i] = 2 * x[i]
            plain[i] = x[i]

    @qd.kernel
    def first(x: qd.Tensor, plain: qd.Tensor) -> qd.f64:
        for i in range(3):
            plain[i] = x[i]
        return x[0]

    double(x, y, plain)
    double.grad(x, y, plain)
    first(x, plain)
    first.grad(x, plain)
    assert x.grad.to_numpy().tolist() == [1, 0, 0]


@pytest.mark.filterwarnings("error")
def test_no_warning_where_nothing_is_lost() -> None:
    w = World()

    @qd.kernel
    def through(array: qd.template()):
        for i in w.x:
            array[i] = w.x[i] * 2

    with qd.ad.Tape(loss=w.loss):
        through(w.y)
        w.total(w.y)
        w.total(w.plain)
        qd.ad.no_grad(through)(w.plain)
        w.total(w.plain)
        through(w.plain)
        w.plain.fill(0)
        w.total(w.plain)


@pytest.mark.parametrize("form", ["multiplied", "added", "filled"])
def test_a_loss_that_the_host_writes_last_is_reported(form: str) -> None:
    w = World()
    with pytest.warns(qd.OctantsWarning, match="the host has written the loss"):  # noqa: SIM117
        with qd.ad.Tape(loss=w.loss):
            w.total(w.x)
            if form == "multiplied":
                w.loss[None] = 2.0 * w.loss[None]
            elif form == "added":
                w.loss[None] += 1.0
            else:
                w.loss.fill(1.0)
    assert not w.x.grad.to_numpy().any()


@qd.kernel
def sum_of(a: qd.template()) -> qd.f64:
    total = 0.0
    for i in a:
        total += a[i] ** 2
    return total


def test_a_loss_that_no_kernel_names_is_reported() -> None:
    w = World()
    with pytest.warns(qd.OctantsWarning, match="no kernel that the tape has recorded"):  # noqa: SIM117
        with qd.ad.Tape(loss=w.loss):
            w.loss[None] = sum_of(w.x)
    assert not w.x.grad.to_numpy().any()
    with qd.ad.Tape(loss=sum_of):
        sum_of(w.x)
    assert w.x.grad.to_numpy().any()


@pytest.mark.filterwarnings("error")
def test_losses_of_which_a_kernel_names_one_are_not() -> None:
    w = World()
    other = qd.field(qd.f64, (), needs_grad=True)
    with qd.ad.Tape(loss=[other, w.loss]):
        w.total(w.x)
    with qd.ad.Tape(loss=w.loss):
        """No launch at all: gradients are zero, as the body says."""
    with qd.ad.Tape(loss=other):
        w.total(w.x)
        other.copy_from(w.loss)


def test_a_loss_that_a_kernel_writes_last_is_not(recwarn: pytest.WarningsRecorder) -> None:
    w = World()
    with qd.ad.Tape(loss=w.loss):
        w.loss[None] = 3.0
        w.total(w.x)
        w.loss.fill(0.0)
        w.total(w.x)
    assert w.x.grad.to_numpy().tolist() == [1, 1, 1]
    assert not recwarn.list


@pytest.mark.parametrize("form", ["custom", "copied"])
def test_a_loss_that_another_event_writes_last_is_not(
    form: str, recwarn: pytest.WarningsRecorder
) -> None:
    w = World()
    other = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def total(array: qd.template()):
        for i in w.x:
            array[None] += w.x[i]

    @qd.ad.grad_replaced
    def custom():
        total(w.loss)

    @qd.ad.grad_for(custom)
    def custom_gradient():
        total.grad(w.loss)

    with qd.ad.Tape(loss=w.loss):
        total(w.loss)
        w.loss.fill(0.0)
        if form == "custom":
            custom()
        else:
            total(other)
            w.loss.copy_from(other)
    assert w.x.grad.to_numpy().tolist() == [1, 1, 1]
    assert not recwarn.list


def test_a_loss_that_the_host_writes_within_a_custom_call_is_not(
    recwarn: pytest.WarningsRecorder,
) -> None:
    w = World()

    @qd.ad.grad_replaced
    def custom():
        w.loss.fill(2.0)

    @qd.ad.grad_for(custom)
    def custom_gradient():
        w.loss.grad.fill(0.0)

    with qd.ad.Tape(loss=w.loss):
        w.total(w.x)
        w.loss.fill(0.0)
        custom()
    assert not w.x.grad.to_numpy().any()
    assert not recwarn.list
