"""Kernels as differentiable functions of torch."""

from __future__ import annotations

import functools
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.ad.array_function_kernels import (
    WELL_GRADIENT,
    X,
    dense,
    lengths,
    powers,
    returned_well,
    scaled_squares,
    turned,
    well,
)
from tests.devices import on_cpu

torch = pytest.importorskip("torch")

f64: Any = torch.float64 if hasattr(torch, "float64") else None


def tensor(values: Any, **options: Any) -> Any:
    return torch.tensor(values, dtype=f64, **{"requires_grad": True, **options})


def squares(x: Any, factor: Any = 2.0) -> Any:
    function = qd.torch.function(scaled_squares, out={"y": "x"})
    return function(x, factor, count=x.shape[0])


def test_gradients_by_tensors_and_numbers() -> None:
    x, factor = tensor(X), tensor(3.0)
    y = squares(x, factor)
    y.sum().backward()
    assert y.tolist() == (3 * X**2).tolist()
    assert x.grad.tolist() == (6 * X).tolist()
    assert factor.grad.item() == pytest.approx((X**2).sum())
    assert torch.autograd.gradcheck(squares, (x, factor))
    y = squares(x.detach(), 2.0)
    assert not y.requires_grad


def test_forward_mode_and_batches() -> None:
    x, batch = tensor(X), tensor(np.stack([X, 2 * X]))
    assert torch.autograd.gradcheck(squares, (x,), check_forward_ad=True)
    values, tangents = torch.func.jvp(squares, (x,), (torch.ones_like(x),))
    assert values.tolist() == (2 * X**2).tolist()
    assert tangents.tolist() == (4 * X).tolist()
    assert torch.vmap(squares)(batch).tolist() == [(2 * X**2).tolist(), (8 * X**2).tolist()]
    each = torch.vmap(torch.func.grad(lambda x: squares(x).sum()))(batch)
    assert each.tolist() == [(4 * X).tolist(), (8 * X).tolist()]
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        assert transform(squares)(x).tolist() == torch.diag(4 * x).tolist()


@pytest.mark.parametrize("kernel", [well, returned_well])
def test_second_derivatives(kernel: Any) -> None:
    loss = qd.torch.function(kernel, {"loss": ()} if kernel is well else None)
    x, depth = tensor(X), tensor(3.0)
    assert torch.autograd.gradgradcheck(
        lambda x, depth: (loss(x, depth) ** 2, squares(x, depth)),
        (x, depth),
        check_fwd_over_rev=True,
    )
    hessian = torch.func.hessian(lambda x: loss(x, 3.0))(x)
    torch.testing.assert_close(hessian, torch.diag(3 * (12 * torch.tensor(X) ** 2 - 4)))


def test_third_derivatives_are_errors() -> None:
    x = tensor(X)
    (gradient,) = torch.autograd.grad(squares(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), x, create_graph=True)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT363"):
        second.sum().backward()
    with pytest.raises(qd.OctantsRuntimeError, match="OCT363"):
        torch.func.jacfwd(torch.func.jacfwd(squares))(x)


@pytest.mark.parametrize("kernel", [well, returned_well])
def test_a_loss(kernel: Any) -> None:
    x, depth = tensor(X), tensor([3.0])
    loss = qd.torch.function(kernel, {"loss": ()} if kernel is well else None)(x, depth)
    (2 * loss).backward()
    assert loss.dtype == f64
    assert loss.shape == ()
    torch.testing.assert_close(x.grad, 6 * torch.tensor(WELL_GRADIENT))
    assert depth.grad.shape == (1,)


def test_arguments_that_are_updated_in_place() -> None:
    x = tensor(X)
    eighth = qd.torch.function(powers, inout="x")
    assert eighth(x, 3).tolist() == (X**8).tolist()
    assert x.tolist() == X.tolist()
    assert torch.autograd.gradcheck(lambda x: eighth(x, times=3), (x,))


def test_outputs_of_integers_and_of_vectors() -> None:
    function = qd.torch.function(lengths, out={"n": lambda v: v.shape[:1], "far": 2})
    v = tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
    n, far = function(v)
    assert n.tolist() == [5, 1]
    assert far.tolist() == [1, 0]
    assert not far.requires_grad
    n[0].backward()
    torch.testing.assert_close(v.grad, tensor([[0.6, 0.8, 0.0], [0, 0, 0]], requires_grad=False))


def turn_in_torch(x: Any, matrix: Any, vector: Any, scale: Any) -> Any:
    w = (matrix @ vector)[None, :] * x[:, None]
    return torch.sin(w[:, 0]) * w[:, 1] * scale + torch.det(matrix)


def test_matrices_and_vectors_as_arguments() -> None:
    turn = qd.torch.function(turned, out={"y": "x"})
    arguments = [tensor([0.3, 0.7]), tensor([[1.0, 0.4], [-0.2, 0.8]]), tensor([0.5, 1.5])]
    arguments.append(tensor(1.2))
    torch.testing.assert_close(turn(*arguments), turn_in_torch(*arguments))
    assert torch.autograd.gradcheck(turn, arguments, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(turn, arguments)
    plain = [each.detach() for each in arguments]
    column = tensor([[0.5], [1.5]])
    assert torch.autograd.gradcheck(turn, (*plain[:2], column, plain[3]))
    by_all = (0, 1, 2, 3)
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        found = transform(turn, argnums=by_all)(*plain)
        torch.testing.assert_close(found, transform(turn_in_torch, argnums=by_all)(*plain))
    module = qd.torch.Module(turned, out={"y": "x"}, matrix=plain[1], vector=plain[2], scale=1.0)
    module(plain[0]).sum().backward()
    assert module.matrix.grad.shape == (2, 2)
    with pytest.raises(qd.OctantsCallError, match=r"`scale` takes a number.*shape \(2,\)"):
        turn(*plain[:3], plain[2])


def test_tensors_that_are_views() -> None:
    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    squares(x[:, 1]).sum().backward()
    assert x.grad.tolist() == [[0, 8, 0], [0, 20, 0]]


@pytest.mark.parametrize("library", ["numpy", "ml_dtypes"])  # the second adds them to numpy
def test_dtypes_that_kernels_do_not_have(library: str) -> None:
    pytest.importorskip(library)
    for out in ("x", (3,)):
        function = qd.torch.function(scaled_squares, out={"y": out})
        with pytest.raises(qd.OctantsCallError, match="OCT352.*torch.bfloat16.*float32"):
            function(torch.ones(3, dtype=torch.bfloat16), 2.0, count=3)


def test_a_module_is_trained() -> None:
    torch.manual_seed(0)
    layer = qd.torch.Module(
        dense,
        out={"y": lambda x, w: (x.shape[0], w.shape[1])},
        w=torch.zeros(3, 2, dtype=f64),
    )
    x, wanted = torch.randn(8, 3, dtype=f64), torch.randn(3, 2, dtype=f64)
    optimiser = torch.optim.LBFGS(layer.parameters(), line_search_fn="strong_wolfe")

    def step() -> Any:
        optimiser.zero_grad()
        loss = (layer(x) - x @ wanted).square().sum()
        loss.backward()
        return loss

    for _ in range(5):
        optimiser.step(step)
    torch.testing.assert_close(layer.w.detach(), wanted, atol=1e-4, rtol=1e-4)
    assert set(layer.state_dict()) == {"w"}


def test_a_module_is_pickled() -> None:
    layer = qd.torch.Module(scaled_squares, out={"y": "x"}, factor=torch.tensor(3.0, dtype=f64))
    copied = pickle.loads(pickle.dumps(layer))
    assert copied(tensor(X), count=len(X)).tolist() == (3 * X**2).tolist()


def test_compiled_programs_call_it_as_it_is() -> None:
    x = tensor(X)

    @torch.compile(backend="eager")
    def loss(x: Any) -> Any:
        return squares(x + x).sum()

    loss(x).backward()
    assert x.grad.tolist() == (16 * X).tolist()


def test_numbers_that_python_takes_out_of_a_tensor_have_no_gradient_as_in_torch() -> None:
    def scaled(x, factor, y):
        scaled_squares(x, y, factor.item(), 3)

    function, x, factor = qd.torch.function(scaled, out={"y": "x"}), tensor(X), tensor(2.0)
    function(x, factor).sum().backward()
    assert x.grad.tolist() == (4 * X).tolist()
    assert factor.grad.item() == 0.0


@qd.kernel
def noisy_squares(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
    for i in x:
        y[i] += qd.random() * x[i] ** 2


def noisy_twice(x: Any, y: Any) -> None:
    noisy_squares(x, y)
    noisy_squares(x, y)


@pytest.mark.parametrize("launches", [noisy_squares, noisy_twice])
def test_derivatives_draw_the_random_numbers_of_the_value(launches: Any) -> None:
    """The function is ``n * x ** 2`` with noise n: its derivatives follow from its value."""
    noisy = qd.torch.function(launches, out={"y": "x"})
    x = torch.ones(3, requires_grad=True)
    first, y = noisy(x), noisy(x)
    assert first.tolist() != y.tolist()
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert gradient.tolist() == (2 * y).tolist()
    (second,) = torch.autograd.grad(gradient.sum(), x)
    assert second.tolist() == (2 * y).tolist()
    assert torch.autograd.grad(first.sum(), x)[0].tolist() == (2 * first).tolist()
    values, tangents = torch.func.jvp(noisy, (torch.ones(3),), (torch.ones(3),))
    assert tangents.tolist() == (2 * values).tolist()

    def with_value(x: Any) -> Any:
        y = noisy(x)
        return y, y

    rows, values = torch.func.jacrev(with_value, has_aux=True)(torch.ones(20))  # in three launches
    assert rows.diagonal().tolist() == (2 * values).tolist()

    def summed(x: Any) -> Any:
        y = noisy(x)
        return y.sum(), y

    each, values = torch.vmap(torch.func.grad(summed, has_aux=True))(torch.ones(2, 3))
    assert each.tolist() == (2 * values).tolist()
    assert values[0].tolist() != values[1].tolist()


def test_a_batch_without_elements() -> None:
    none = torch.zeros(0, 3, dtype=f64)
    assert torch.vmap(squares)(none).shape == (0, 3)
    assert torch.vmap(torch.func.grad(lambda x: squares(x).sum()))(none).shape == (0, 3)
    assert torch.func.vjp(squares, tensor(X))[0].shape == (3,)


def test_arguments_that_are_no_tensors() -> None:
    with pytest.raises(qd.OctantsCallError, match="OCT352.*`x` is no array, but of type list"):
        qd.torch.function(scaled_squares, out={"y": "x"})([1.0, 2.0], 2.0, 2)


def test_a_module_begins_with_an_integer() -> None:
    layer = qd.torch.Module(scaled_squares, out={"y": "x"}, factor=3)
    layer(tensor(X), count=len(X)).sum().backward()
    assert layer.factor.grad.item() == pytest.approx((X**2).sum())


def test_functions_without_a_result_are_errors() -> None:
    with pytest.raises(qd.OctantsTypeError, match="OCT351.*`out` names no result"):
        qd.torch.function(scaled_squares)(torch.ones(3), torch.zeros(3), 2.0, 3)


def squares_of_doubles(x: Any, y: Any) -> None:
    scaled_squares(2 * x, y, 1.0, x.shape[0])


def squares_of_part(x: Any, y: Any) -> None:
    scaled_squares(x[1:], y, 1.0, x.shape[0] - 1)


def squares_of_copy(x: Any, y: Any) -> None:
    z = torch.zeros_like(x)
    z[...] = x
    scaled_squares(z, y, 1.0, x.shape[0])


@pytest.mark.parametrize("launches", [squares_of_doubles, squares_of_part, squares_of_copy])
def test_tensors_that_torch_computes_from_arguments_are_errors(launches: Any) -> None:
    function = qd.torch.function(launches, out={"y": "x"})
    for _ in range(2):
        with pytest.raises(qd.OctantsRuntimeError, match="computed from an argument"):
            function(tensor(X)).sum().backward()
        with pytest.raises(qd.OctantsRuntimeError, match="OCT350|OCT315.*share memory"):
            torch.func.jacfwd(function)(tensor(X))


def test_constants_that_torch_computes_from_arguments() -> None:
    def scaled_by_largest(x: Any, y: Any) -> None:
        y.zero_()
        largest = x.detach().max() + torch.zeros_like(x)
        scaled_squares(x, y, largest[0].item(), x.shape[0])

    x = tensor(X)
    qd.torch.function(scaled_by_largest, out={"y": "x"})(x).sum().backward()
    assert x.grad.tolist() == pytest.approx((2 * X.max() * X).tolist())


def test_what_torch_computes_without_gradients_is_a_constant() -> None:
    def scaled_by_largest(x: Any, y: Any) -> None:
        torch.relu_(input=y)
        with torch.no_grad():
            largest = x.max()
        scaled_squares(x, y, largest, x.shape[0])

    x = tensor(X)
    qd.torch.function(scaled_by_largest, out={"y": "x"})(x).sum().backward()
    assert x.grad.tolist() == pytest.approx((2 * X.max() * X).tolist())


def test_functions_within_functions_are_errors() -> None:
    def fourth_powers(x: Any, y: Any) -> None:
        scaled_squares(squares(x, 1.0), y, 1.0, x.shape[0])

    with pytest.raises(qd.OctantsRuntimeError, match=r"OCT338|OCT350"):
        qd.torch.function(fourth_powers, out={"y": "x"})(tensor(X)).sum().backward()


def test_an_input_that_torch_overwrites_is_an_error() -> None:
    def squares_in_place(x: Any, y: Any) -> None:
        x *= 2
        scaled_squares(x, y, 1.0, x.shape[0])

    with pytest.raises(RuntimeError, match="in-place"):
        qd.torch.function(squares_in_place, out={"y": "x"})(tensor(X)).sum().backward()


def test_batched_adjoints_of_autograd() -> None:
    for vectorised in (torch.autograd.functional.jacobian, torch.autograd.functional.hessian):
        function = squares if "jacobian" in vectorised.__name__ else lambda x: squares(x).sum()
        found = vectorised(function, tensor(X), vectorize=True)
        torch.testing.assert_close(found, vectorised(function, tensor(X)))
    jacobian = torch.autograd.functional.jacobian
    found = jacobian(squares, tensor(X), vectorize=True, strategy="forward-mode")
    torch.testing.assert_close(found, torch.diag(4 * torch.tensor(X)))


def test_tensors_without_elements_in_memory() -> None:
    zeros = torch._efficientzerotensor((3,), dtype=f64)
    assert squares(zeros).tolist() == [0.0] * 3
    with torch._subclasses.FakeTensorMode():
        fake = torch.ones(3, dtype=f64)
        assert squares(fake).shape == (3,)
    y = torch.zeros(3, dtype=f64)
    scaled_squares(tensor(X, requires_grad=False), y, 2.0, 3)
    for given in (zeros, fake, torch.tensor(X).to_sparse()):
        with pytest.raises(qd.OctantsRuntimeTypeError, match="no memory|sparse"):
            scaled_squares(given, y, 2.0, 3)


def test_recorded_programs_hold_the_call() -> None:
    x, function = tensor(X), qd.torch.function(scaled_squares, out={"y": "x"})

    def loss(x: Any, factor: float = 2.0) -> Any:
        return function(x + x, factor, 3).sum()

    program = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for factor in (2.0, 3.0):  # the second is a number that changes
        (gradient,) = torch.autograd.grad(program(x, factor), x)
        assert gradient.tolist() == (8 * factor * X).tolist()
    fx = pytest.importorskip("torch.fx.experimental.proxy_tensor")
    recorded = fx.make_fx(torch.func.grad(lambda x: loss(x)))(tensor(X, requires_grad=False))
    assert recorded(2 * x.detach()).tolist() == (32 * X).tolist()
    module = torch.nn.Module()
    module.forward = loss  # type: ignore[method-assign]
    exported = torch.export.export(module, (x.detach(),)).module()
    assert exported(2 * x.detach()) == loss(2 * x.detach())
    with pytest.raises(qd.OctantsRuntimeError, match="OCT370"):
        torch.ops.octants.step("of another process", [x])


@pytest.mark.parametrize("dtype", [torch.float32, qd.f32, np.float32])
def test_dtypes_of_outputs(dtype: Any) -> None:
    for out in (((3,), dtype), lambda x, **_: (x.shape, dtype), torch.zeros(3)):
        y = qd.torch.function(scaled_squares, out={"y": out})(tensor(X), 2.0, 3)
        assert y.dtype == torch.float32


def doubled_output(x: Any, y: Any) -> None:
    scaled_squares(x, y, 1.0, x.shape[0])
    y.copy_(y * 2)


def computed_output(x: Any, y: Any) -> None:
    y[:] = x * 2


@pytest.mark.parametrize("launches", [doubled_output, computed_output])
def test_outputs_that_torch_computes_from_arguments_are_errors(launches: Any) -> None:
    function = qd.torch.function(launches, out={"y": "x"})
    assert function(tensor(X)).shape == (3,)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT350.*writes to `y`"):
        function(tensor(X)).sum().backward()
    with pytest.raises(qd.OctantsRuntimeError, match="OCT350.*writes to `y`"):
        torch.func.jvp(function, (tensor(X),), (tensor(X),))


def test_arrays_that_kernels_take_as_numbers_are_errors() -> None:
    @qd.kernel
    def scale(x: qd.types.ndarray(ndim=1), factor: qd.f32, y: qd.types.ndarray(ndim=1)):
        for i in x:
            y[i] = factor * x[i]

    function = qd.torch.function(lambda x, factor, y: scale(x, factor, y), out={"y": "x"})
    x, factor = tensor(X), tensor(2.0)
    function(x, factor.detach()).sum().backward()
    assert x.grad.tolist() == [2.0] * 3
    with pytest.raises(qd.OctantsRuntimeError, match="OCT372.*`scale`.*`factor`"):
        function(x, factor).sum().backward()
    with pytest.raises(qd.OctantsRuntimeError, match="OCT372.*`scale`.*`factor`"):
        torch.func.jvp(lambda c: function(x, c), (factor,), (factor,))


def test_inputs_that_kernels_write_are_errors_in_derivatives() -> None:
    @qd.kernel
    def advance(
        x: qd.types.ndarray(ndim=1), s: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)
    ):
        for i in x:
            y[i] = x[i] * s[i]
            s[i] += 1.0

    for launches in (advance, lambda x, s, y: advance(x, s, y)):
        function = qd.torch.function(launches, out={"y": "x"})
        x, state = tensor(X), torch.ones(3)
        assert function(x, state).tolist() == x.tolist()
        assert state.tolist() == [2.0] * 3
        with pytest.raises(qd.OctantsRuntimeError, match="OCT373.*`advance` writes `s`"):
            function(x, state).sum().backward()
        with pytest.raises(qd.OctantsRuntimeError, match="OCT373.*`advance` writes `s`"):
            torch.func.jvp(lambda x: function(x, state), (x,), (x,))
        function = qd.torch.function(launches, out={"y": "x"}, inout="s")
        function(x, state)[1].sum().backward()
        assert x.grad.tolist() == state.tolist()


def test_recorded_programs_keep_their_constants() -> None:
    fx = pytest.importorskip("torch.fx.experimental.proxy_tensor")

    @qd.kernel
    def divide(x: qd.types.ndarray(ndim=1), divisor: qd.f32, y: qd.types.ndarray(ndim=1)):
        for i in x:
            y[i] = 1.0 / divisor

    def by_type(x: Any, each: Any, y: Any) -> None:
        divide(x, 2.0 if type(each[0]) is int else 4.0, y)

    given = tensor(X, requires_grad=False)
    cases = (divide, "divisor", (0.0, -0.0)), (by_type, "each", ((1,), (1.0,), [1]))
    for launches, name, constants in cases:
        function = qd.torch.function(launches, out={"y": "x"})
        calls = [functools.partial(function, **{name: each}) for each in constants]
        recorded = [fx.make_fx(call)(given) for call in calls]
        for call, program in zip(calls, recorded, strict=True):
            assert program(given).tolist() == call(given).tolist()


def test_fields_that_change_between_call_and_derivative():
    """A derivative reads fields again, so it is an error if they have changed."""
    qd.init(arch=qd.cpu)
    factor, shift = (qd.field(qd.f64, shape=3) for _ in range(2))

    @qd.kernel
    def scale(x: qd.types.ndarray(qd.f64, 1), y: qd.types.ndarray(qd.f64, 1)):
        for i in x:
            y[i] = factor[i] * x[i] ** 2 + shift[i]

    @qd.kernel
    def double():
        for i in factor:
            factor[i] *= 2.0

    function = qd.torch.function(scale, out={"y": "x"})
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    for change, writer in ((lambda: factor.fill(5.0), "the host"), (double, "kernel `double`")):
        factor.fill(2.0)
        y = function(x)
        change()
        with pytest.raises(qd.OctantsRuntimeError, match=f"OCT371: `factor`.*{writer}.*`scale`"):
            y.sum().backward()
        function(x).sum().backward()  # of what the field holds now

    factor.fill(2.0)
    x.grad = None
    y = function(x)
    shift.fill(1.0)  # no derivative needs it
    y.sum().backward()
    assert x.grad.tolist() == [4.0, 8.0, 12.0]


@pytest.mark.parametrize("case", ["again", "other rows", "rewritten", "host", "kernel", "ndarray"])
def test_fields_that_change_under_functions_of_several_kernels(case: str) -> None:
    qd.init(arch=qd.cpu)
    rows, between = qd.field(qd.f64, shape=(3, 3)), qd.field(qd.f64, shape=3)
    own = qd.ndarray(qd.f64, 3)

    @qd.kernel
    def add_row(x: qd.types.ndarray(qd.f64, 1), t: qd.i32, y: qd.types.ndarray(qd.f64, 1)):
        for i in x:
            y[i] += rows[t, i] * x[i] * between[i]

    @qd.kernel
    def add_scaled(
        x: qd.types.ndarray(qd.f64, 1),
        by: qd.types.ndarray(qd.f64, 1),
        y: qd.types.ndarray(qd.f64, 1),
    ):
        for i in x:
            y[i] += by[i] * x[i]

    @qd.kernel
    def set_between():
        for i in between:
            between[i] = 2.0

    @qd.kernel
    def double():
        for t, i in rows:
            rows[t, i] *= 2.0

    def launches(x: Any, y: Any) -> None:
        qd.ad.no_grad(set_between)()
        add_row(x, 0, y)
        add_row(x, 1, y)
        add_scaled(x, own, y)

    function = qd.torch.function(launches, out={"y": "x"})
    x = tensor([1.0, 2.0, 3.0])
    changes: dict[str, Any] = {
        "again": lambda: function(x),
        "other rows": lambda: rows.__setitem__((2, 0), 7.0),
        "rewritten": lambda: between.fill(9.0),
        "host": lambda: rows.__setitem__((1, 0), 7.0),
        "kernel": double,
        "ndarray": lambda: own.fill(5.0),
    }
    for _ in range(3):  # later tapes are repeated
        rows.fill(1.0)
        own.fill(3.0)
        y = function(x)
        changes[case]()
        x.grad = None
        if case in ("host", "kernel", "ndarray"):
            with pytest.raises(qd.OctantsRuntimeError, match="OCT371"):
                y.sum().backward()
        else:
            y.sum().backward()
            assert x.grad.tolist() == [7.0, 7.0, 7.0]


@on_cpu  # of launches that copy tensors to a GPU the arguments are not known later
def test_other_rows_of_a_field_may_change_between_call_and_derivative():
    qd.init(arch=qd.cpu)
    rows = qd.field(qd.f64, shape=(2, 3))

    @qd.kernel
    def scale_by_row(x: qd.types.ndarray(qd.f64, 1), t: qd.i32, y: qd.types.ndarray(qd.f64, 1)):
        for i in x:
            y[i] = rows[t, i] * x[i]

    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    by_row = qd.torch.function(scale_by_row, out={"y": "x"})
    rows.fill(3.0)
    y = by_row(x, 0)
    rows[1, 0] = 7.0  # in another row
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0, 3.0]
    y = by_row(x, 1)
    rows[1, 2] = 8.0
    with pytest.raises(qd.OctantsRuntimeError, match="OCT371: `rows`"):
        y.sum().backward()


@qd.kernel
def squares_of(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
    for i in x:
        y[i] = x[i] * x[i]


@qd.kernel
def products(x: qd.types.ndarray(ndim=1), z: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
    for i in x:
        y[i] = x[i] * z[i]


def by_scratch(x: Any, y: Any) -> None:
    scratch = torch.empty_like(x)
    squares_of(x, scratch)
    squares_of(scratch, y)


def in_turns(x: Any, y: Any) -> None:
    one, other = torch.zeros_like(x), x.new_zeros(x.shape)
    squares_of(x, one)
    for _ in range(2):
        products(one, x, other)
        products(other, x, one)
    squares_of(one, y)


GLOBAL = torch.zeros(3, dtype=f64)


def by_global(x: Any, y: Any) -> None:
    squares_of(x, GLOBAL)
    products(x, GLOBAL, y)


def by_constant(x: Any, y: Any) -> None:
    weights, twice = torch.full_like(x, 2.0), torch.zeros_like(x)
    twice += weights
    squares_of(weights, weights := torch.zeros_like(x))
    products(x, twice, twice := torch.zeros_like(x))
    products(twice, weights, y)


def by_detached(x: Any, y: Any) -> None:
    scratch = torch.zeros_like(x)
    squares_of(x, scratch)
    products(x, scratch.detach(), y)


def by_paused(x: Any, y: Any) -> None:
    scratch = torch.zeros_like(x)
    qd.ad.no_grad(squares_of)(x, scratch)
    products(x, scratch, y)


def gradients_of(f: Any, x: Any) -> list[Any]:
    def total(x: Any) -> Any:
        return f(x).sum()

    return [
        f(x),
        torch.func.grad(total)(x),
        torch.func.jvp(f, (x,), (torch.cos(x),))[1],
        torch.func.jacrev(f)(x),
        torch.func.hessian(total)(x),
    ]


@pytest.mark.filterwarnings("ignore:`torch.jit.script`")
@pytest.mark.parametrize(
    ("launches", "same"),
    [
        (by_scratch, lambda x: x**4),
        (in_turns, lambda x: x**12),
        (by_global, lambda x: x**3),
        (by_constant, lambda x: 8.0 * x),
        (by_detached, lambda x: x * (x**2).detach()),
        (by_paused, lambda x: x * (x**2).detach()),
    ],
    ids=lambda each: each.__name__,
)
def test_tensors_that_functions_make_pass_derivatives_on(launches: Any, same: Any) -> None:
    function, x = qd.torch.function(launches, out={"y": "x"}), tensor([1.1, 0.5, -0.7]).detach()
    for _ in range(2):
        for found, right in zip(gradients_of(function, x), gradients_of(same, x), strict=True):
            torch.testing.assert_close(found, right)
    assert not GLOBAL.requires_grad
    assert GLOBAL.grad is None


def by_views(x: Any, y: Any) -> None:
    scratch = torch.zeros(2, 3, dtype=f64)
    squares_of(x, scratch[0])
    squares_of(scratch[0], y)


def by_ndarray(x: Any, y: Any) -> None:
    scratch = qd.ndarray(qd.f64, 3)
    squares_of(x, scratch)
    squares_of(scratch, y)


@pytest.mark.parametrize("launches", [by_views, by_ndarray])
def test_derivatives_that_end_within_functions_are_errors(launches: Any) -> None:
    function, x = qd.torch.function(launches, out={"y": "x"}), tensor([1.0, 2.0, 3.0])
    with pytest.raises(qd.OctantsRuntimeError, match="OCT374: the gradient ends at `y`"):
        function(x).sum().backward()
    with pytest.raises(qd.OctantsRuntimeError, match="OCT374"):
        torch.func.jvp(function, (x.detach(),), (torch.ones(3, dtype=f64),))


def test_a_module_passes_the_parameters_that_it_was_given() -> None:
    shape = {"y": lambda x, w: (x.shape[0], w.shape[1])}
    with pytest.raises(qd.OctantsCallError, match="there is no parameter `v`"):
        qd.torch.Module(dense, out=shape, v=torch.ones(3, 2))
    layer = qd.torch.Module(dense, out=shape, w=torch.ones(3, 2))
    layer = torch.nn.utils.parametrizations.weight_norm(layer, "w")
    x = torch.arange(12.0).reshape(4, 3)
    torch.testing.assert_close(layer(x), x @ layer.w)


def test_recorded_steps_that_are_not_used_are_forgotten(monkeypatch: Any) -> None:
    module = qd.torch
    monkeypatch.setattr(module, "_MOST_RECORDED", len(module._steps) + 2)
    before, x = len(module._steps), tensor([1.0, 2.0, 3.0], requires_grad=False)
    make_fx = torch.fx.experimental.proxy_tensor.make_fx
    used = make_fx(lambda x: squares(x, 100.0))(x)
    for factor in range(4):
        recorded = make_fx(lambda x: squares(x, float(factor)))(x)  # noqa: B023
        assert recorded(x).tolist() == [factor * 1.0, factor * 4.0, factor * 9.0]
        assert used(x).tolist() == [100.0, 400.0, 900.0]
    assert len(module._steps) == len(module._known_keys) == before + 2


VIEWS: dict[str, Any] = {
    "column": lambda x: x.reshape(2, 3)[:, 1].repeat(3),
    "every second": lambda x: x[::2],
    "flipped": lambda x: x.flip(0),
    "expanded": lambda x: x.sum().expand(4),
    "one number": lambda x: x[:1].expand(5),
    "empty": lambda x: x[:0],
    "offset": lambda x: x[2:5],
    "half": lambda x: x.half().to(f64),
    "inference": lambda x: torch.inference_mode()(lambda x: x + 1.0)(x.detach()).clone() * x,
}


@pytest.mark.parametrize("view", VIEWS)
def test_gradients_are_those_of_torch(view: str) -> None:
    made, start = VIEWS[view], tensor(np.linspace(-1.0, 1.0, 6))
    found = []
    for function in (squares, lambda x: 2.0 * x**2):
        for run in (
            lambda f, x: f(x),
            lambda f, x: torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False),
        ):
            x = start.detach().clone().requires_grad_()
            run(function, made(x)).mul(torch.tensor(3.0, dtype=f64)).sum().backward()
            found.append(x.grad)
    for each in found:
        torch.testing.assert_close(each, found[-1])


def test_gradients_in_other_threads_and_under_hooks() -> None:
    x = tensor([1.0, 2.0, 3.0])
    with torch.autograd.graph.save_on_cpu():
        y = squares(x)
    y.register_hook(lambda adjoint: adjoint * 3.0)
    thread = threading.Thread(target=y.sum().backward)
    thread.start()
    thread.join()
    assert x.grad.tolist() == [12.0, 24.0, 36.0]
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones(3, dtype=f64))
        found = torch.autograd.grad(squares(dual).sum(), x)[0]
        assert torch.autograd.forward_ad.unpack_dual(found).tangent.tolist() == [4.0] * 3


@pytest.mark.parametrize(
    "case",
    [
        *("scratch", "cleared", "filled", "rows", "counted"),
        *("updated", "reset", "i32", "counted and read", "accumulated"),
    ],
)
def test_fields_that_functions_write(case: str) -> None:
    """What a call reads and then writes, its derivative would read as the call has left it."""
    qd.init(arch=qd.cpu)
    state, rows = (qd.field(qd.f64, shape, needs_grad=True) for shape in (3, (4, 3)))
    counter = qd.field(qd.i32, ())
    array = qd.types.ndarray(qd.f64, 1)

    @qd.kernel
    def load(x: array):
        for i in x:
            state[i] = 2.0 * x[i]

    @qd.kernel
    def add(x: array):
        for i in x:
            state[i] += x[i] * 2.0

    @qd.kernel
    def update(x: array, y: array):
        for i in x:
            state[i] = state[i] * 0.5 + 1.0
        for i in x:
            y[i] = state[i] * x[i]

    @qd.kernel
    def scale(x: array, y: array):
        for i in x:
            y[i] = state[i] * x[i]

    @qd.kernel
    def clear():
        for i in state:
            state[i] = 0.0

    @qd.kernel
    def next_row(x: array, t: qd.i32):
        for i in x:
            rows[t + 1, i] = rows[t, i] * x[i]

    @qd.kernel
    def last_row(y: array):
        for i in y:
            y[i] = 2.0 * rows[2, i]

    @qd.kernel
    def count():
        counter[None] += 1

    @qd.kernel
    def scale_by_counter(x: array, y: array):
        for i in x:
            y[i] = x[i] ** 2 * counter[None]

    functions: dict[str, Any] = {
        "scratch": lambda x, y: (load(x), scale(x, y)),
        "cleared": lambda x, y: (add(x), scale(x, y), clear()),
        "filled": lambda x, y: (state.fill(0.0), add(x), scale(x, y)),
        "rows": lambda x, y: (next_row(x, 0), next_row(x, 1), last_row(y)),
        "counted": lambda x, y: (count(), load(x), scale(x, y)),
        "updated": update,
        "reset": lambda x, y: (scale(x, y), load(x)),
        "i32": lambda x, y: (scale_by_counter(x, y), count()),
        "counted and read": lambda x, y: (count(), scale_by_counter(x, y)),
        "accumulated": lambda x, y: (add(x), scale(x, y)),
    }
    rows.fill(1.0)
    counter[None] = 2
    function, x = qd.torch.function(functions[case], out={"y": "x"}), tensor([1.0, 2.0, 3.0])
    for _ in range(2):
        x.grad = None
        y = function(x)
        if case in ("updated", "reset", "i32", "counted and read", "accumulated"):
            with pytest.raises(qd.OctantsRuntimeError, match="OCT375: .* in the same call"):
                y.sum().backward()
            for forward in (function, torch.vmap(function)):
                given = x.detach() if forward is function else x.detach().repeat(2, 1)
                with pytest.raises(qd.OctantsRuntimeError, match="OCT375: .* in the same call"):
                    torch.func.jvp(forward, (given,), (torch.ones_like(given),))
        else:
            y.sum().backward()
            assert x.grad.tolist() == [4.0, 8.0, 12.0]
