"""Kernels as differentiable functions of JAX."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.ad.array_function_kernels import (
    lengths,
    powers,
    returned_well,
    scaled_squares,
    turned,
)
from tests.devices import ARCH, shares_memory

jax = pytest.importorskip("jax")
jnp: Any = pytest.importorskip("jax.numpy")

X = jnp.array([0.5, 2.0, -1.5], jnp.float32)


def squares(x: Any, factor: Any = 2.0) -> Any:
    function = qd.jax.function(scaled_squares, out={"y": "x"})
    return function(x, factor, x.shape[0])


def test_values_and_gradients_compiled_and_not() -> None:
    def loss(x: Any, factor: Any) -> Any:
        return (squares(x, factor) * jnp.arange(3.0)).sum()

    for transform in (lambda function: function, jax.jit):
        assert transform(squares)(X).tolist() == (2 * X**2).tolist()
        by_x, by_factor = transform(jax.grad(loss, (0, 1)))(X, 3.0)
        assert by_x.tolist() == (6 * X * jnp.arange(3.0)).tolist()
        assert by_factor == pytest.approx((X**2 * jnp.arange(3.0)).sum())


def test_batches() -> None:
    batch = jnp.stack([X, 2 * X])
    assert jax.vmap(squares)(batch).tolist() == (2 * batch**2).tolist()
    gradient = jax.vmap(jax.grad(lambda x: squares(x).sum()))
    assert gradient(batch).tolist() == (4 * batch).tolist()
    assert jax.jacrev(squares)(X).tolist() == jnp.diag(4 * X).tolist()


def test_forward_mode() -> None:
    values, tangents = jax.jvp(squares, (X, 3.0), (jnp.ones(3), 2.0))
    assert values.tolist() == (3 * X**2).tolist()
    assert tangents.tolist() == (6 * X + 2 * X**2).tolist()
    assert jax.jit(jax.jacfwd(squares))(X).tolist() == jnp.diag(4 * X).tolist()
    well = qd.jax.function(returned_well)
    value, tangent = jax.jvp(lambda x: well(x, 2.0), (X,), (jnp.ones(3),))
    assert value.shape == tangent.shape == ()
    np.testing.assert_allclose(tangent, jnp.sum(8 * X * (X**2 - 1)), rtol=1e-6)


def test_numbers_of_python_as_tangents_and_kept_for_a_gradient() -> None:
    """JAX passes them on as they are, without the methods of arrays."""

    def by_factor(factor: Any) -> Any:
        return jax.jvp(lambda given: squares(X, given).sum(), (factor,), (0.5,))

    for transform in (lambda function: function, jax.jit):
        _, tangent = transform(by_factor)(3.0)
        assert float(tangent) == 0.5 * float((X**2).sum())
    again = jax.grad(lambda x: jax.checkpoint(squares)(2.0 * x, 3.0).sum())
    assert again(X).tolist() == (24 * X).tolist()


def test_matrices_and_vectors_as_arguments() -> None:
    turn = qd.jax.function(turned, out={"y": "x"})

    def turn_in_jax(x: Any, matrix: Any, vector: Any, scale: Any) -> Any:
        w = (matrix @ vector)[None, :] * x[:, None]
        return jnp.sin(w[:, 0]) * w[:, 1] * scale + jnp.linalg.det(matrix)

    jax.config.update("jax_enable_x64", True)
    try:
        arguments = [jnp.array([0.3, 0.7]), jnp.array([[1.0, 0.4], [-0.2, 0.8]])]
        arguments += [jnp.array([0.5, 1.5]), jnp.array(1.2)]
        np.testing.assert_allclose(turn(*arguments), turn_in_jax(*arguments))

        def of_vector(vector: Any) -> Any:
            return turn_in_jax(arguments[0], arguments[1], vector, 1.2).sum()

        for transform in (jax.jacrev, jax.jacfwd):
            found = jax.jit(transform(turn, (0, 1, 2, 3)))(*arguments)
            expected = transform(turn_in_jax, (0, 1, 2, 3))(*arguments)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9)
        column = jax.grad(lambda v: turn(*arguments[:2], v, 1.2).sum())(arguments[2][:, None])
        np.testing.assert_allclose(column[:, 0], jax.grad(of_vector)(arguments[2]), rtol=1e-9)
    finally:
        jax.config.update("jax_enable_x64", False)


def test_dtypes_that_kernels_do_not_have() -> None:
    for transform in (lambda function: function, jax.jit):
        with pytest.raises(qd.OctantsCallError, match="OCT352.*`x` has dtype bfloat16.*float32"):
            transform(squares)(X.astype(jnp.bfloat16))


@qd.kernel
def wide(
    x: qd.types.ndarray(qd.f32, 1), y: qd.types.ndarray(qd.f64, 1), n: qd.types.ndarray(qd.i64, 1)
) -> qd.f64:
    total = qd.f64(0.0)
    for i in x:
        y[i] = qd.f64(x[i]) * 1.5
        n[i] = 3 * i - 1
        total += x[i]
    return total


def test_results_of_types_that_programs_of_32_bits_lack() -> None:
    function = qd.jax.function(
        wide, out={"y": lambda x: (x.shape, np.float64), "n": lambda x: (x.shape, np.int64)}
    )
    for transform in (lambda function: function, jax.jit):
        y, n, total = transform(function)(X)
        assert (y.dtype, n.dtype, total.dtype) == (np.float32, np.int32, np.float32)
        assert y.tolist() == (1.5 * X).tolist()
        assert n.tolist() == [-1, 2, 5]
        assert total == X.sum()
        gradient = transform(jax.grad(lambda x: function(x)[0].sum() + function(x)[2]))(X)
        assert gradient.tolist() == [2.5] * 3
        rows = transform(jax.jacrev(lambda x: function(x)[0]))(X)
        assert rows.tolist() == (1.5 * jnp.eye(3)).tolist()
        columns = transform(jax.jacfwd(lambda x: function(x)[0]))(X)
        assert columns.tolist() == (1.5 * jnp.eye(3)).tolist()


def test_what_is_updated_or_returned() -> None:
    eighth = qd.jax.function(powers, inout="x")
    np.testing.assert_allclose(eighth(X, 3), X**8, rtol=1e-6)
    gradient = jax.grad(lambda x: eighth(x, 3).sum())(X)
    np.testing.assert_allclose(gradient, 8 * X**7, rtol=1e-6)
    loss, gradient = jax.value_and_grad(qd.jax.function(returned_well))(X, 2.0)
    assert loss.shape == ()
    np.testing.assert_allclose(gradient, 8 * X * (X**2 - 1), rtol=1e-6)


def test_outputs_of_integers_and_of_vectors() -> None:
    jax.config.update("jax_enable_x64", True)
    try:
        function = qd.jax.function(lengths, out={"n": lambda v: v.shape[:1], "far": 2})
        v = jnp.array([[3.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
        n, far = jax.jit(function)(v)
        assert n.tolist() == [5, 1]
        assert far.tolist() == [1, 0]
        assert far.dtype == np.int32
        gradient = jax.grad(lambda v: function(v)[0][0])(v)
        np.testing.assert_allclose(gradient, [[0.6, 0.8, 0.0], [0, 0, 0]], rtol=1e-15)
    finally:
        jax.config.update("jax_enable_x64", False)


def cubes(x: Any, factor: Any) -> Any:
    """What `own` computes, with kernels: ``factor * x ** 4``, squared twice."""
    return squares(squares(x, 1.0), factor)


def own(x: Any, factor: Any) -> Any:
    return factor * x**4


@pytest.mark.parametrize("how", ["hessian", "reverse over reverse", "jvp of grad", "mixed"])
def test_second_derivatives_are_those_of_jax(how: str) -> None:
    def derive(function: Any) -> Any:
        def loss(x: Any, factor: Any) -> Any:
            return jnp.sin(function(x, factor) * jnp.arange(1.0, 4.0)).sum() * factor

        if how == "hessian":
            return jax.jit(jax.hessian(loss, (0, 1)))(X, 0.3)
        if how == "reverse over reverse":
            return jax.jacrev(jax.grad(loss, (0, 1)), (0, 1))(X, 0.3)
        if how == "jvp of grad":
            return jax.jvp(jax.grad(loss), (X, 0.3), (jnp.ones(3), 1.0))
        return jax.vmap(jax.grad(lambda x: jax.grad(loss, 1)(x, 0.3)))(jnp.stack([X, 2 * X]))

    for found, expected in zip(
        jax.tree.leaves(derive(cubes)), jax.tree.leaves(derive(own)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-3)


def test_second_derivatives_of_returned_numbers_and_vectors() -> None:
    well = qd.jax.function(returned_well)
    hessian = jax.hessian(lambda x: well(x, 2.0))(X)
    np.testing.assert_allclose(hessian, jnp.diag(2 * (12 * X**2 - 4)), rtol=1e-5)


def test_third_derivatives_are_errors() -> None:
    def loss(x: Any) -> Any:
        return squares(x).sum()

    for derive in (jax.jacrev(jax.hessian(loss)), jax.jacfwd(jax.jacfwd(loss))):
        with pytest.raises(qd.OctantsRuntimeError, match="OCT363"):
            derive(X)


def test_calls_of_no_program_compile_none(monkeypatch: pytest.MonkeyPatch) -> None:
    import octants.jax as ours

    monkeypatch.setattr(ours, "_call_back", None)
    assert squares(X).tolist() == (2 * X**2).tolist()
    assert jax.grad(lambda x: squares(x).sum())(X).tolist() == (4 * X).tolist()
    (device,) = jax.devices()[:1]
    assert squares(jax.device_put(X, device)).committed


# -- calls by pointers -----------------------------------------------------------------------------

by_pointers = pytest.mark.skipif(
    getattr(jax, "__version_info__", (0,)) < (0, 10), reason="this JAX takes `pure_callback`"
)


@by_pointers
@shares_memory
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="JAX on a GPU takes `pure_callback`")
def test_compiled_programs_pass_their_memory() -> None:
    seen = []

    def look(x: Any, y: Any) -> None:
        seen[:] = x, y
        scaled_squares(x, y, 1.0, 2)

    function = jax.jit(qd.jax.function(look, out={"y": "x"}))
    text = function.lower(X).as_text()
    assert "octants_step" in text
    assert "callback" not in text
    result = function(X)
    assert result.tolist() == [0.25, 4.0, 0.0]
    x, y = seen
    assert isinstance(x, np.ndarray)
    assert not x.flags.owndata
    assert not x.flags.writeable
    assert y.ctypes.data == result.unsafe_buffer_pointer()


@by_pointers
def test_what_is_updated_is_a_copy_in_compiled_programs() -> None:
    @qd.kernel
    def double(x: qd.types.ndarray(ndim=1)):
        for i in x:
            x[i] *= 2.0

    function = qd.jax.function(double, inout="x")
    both = jax.jit(lambda x: (function(x), x + 0.0, function(function(x))))
    for _ in range(3):
        once, same, twice = both(X)
        assert once.tolist() == (2 * X).tolist()
        assert same.tolist() == X.tolist() == [0.5, 2.0, -1.5]
        assert twice.tolist() == (4 * X).tolist()


@by_pointers
@pytest.mark.skipif(
    jax.default_backend() == "cpu" or ARCH != "cuda", reason="it is about memory on a GPU"
)
def test_programs_on_a_gpu_pass_their_memory() -> None:
    seen = []

    def look(x: Any, y: Any) -> None:
        seen.append(x.window().address)
        scaled_squares(x, y, 2.0, 3)

    function = qd.jax.function(look, out={"y": "x"})
    assert "callback" not in jax.jit(function).lower(X).as_text()
    for call in (function, jax.jit(function)):
        for _ in range(3):
            assert call(X).tolist() == (2 * X**2).tolist()
    assert seen == [X.unsafe_buffer_pointer()] * 6


@by_pointers
def test_an_error_in_a_compiled_program_says_what_it_was() -> None:
    def fail(x: Any, y: Any) -> None:
        raise ValueError("no such thing")

    function = jax.jit(qd.jax.function(fail, out={"y": "x"}))
    for _ in range(2):
        with pytest.raises(Exception, match="no such thing"):
            function(X).block_until_ready()


@by_pointers
@pytest.mark.skipif(
    jax.default_backend() != "cpu" and ARCH != "cuda", reason="JAX on a GPU takes `pure_callback`"
)
def test_calls_live_as_long_as_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    from octants.runtime.interop import xla_calls

    monkeypatch.setattr(xla_calls, "_MOST_DROPPED", 0)
    before = set(xla_calls._calls)
    compiled = jax.jit(lambda x: squares(x)).lower(X).compile()
    gc.collect()
    (made,) = set(xla_calls._calls) - before
    assert compiled(X).tolist() == (2 * X**2).tolist()
    del compiled
    jax.clear_caches()
    gc.collect()
    assert made not in xla_calls._calls


@by_pointers
def test_empty_arrays_and_results_of_integers() -> None:
    vec = qd.types.ndarray(qd.f32, 1)

    @qd.kernel
    def count(
        x: qd.types.ndarray(qd.f32, 1),
        y: qd.types.ndarray(qd.f32, 1),
        n: qd.types.ndarray(qd.i32, 0),
    ):
        for i in x:
            y[i] = 2.0 * x[i]
            n[None] += 1

    function = jax.jit(qd.jax.function(count, out={"y": "x", "n": ((), np.int32)}))
    for size in (0, 4):
        y, n = function(jnp.ones(size, jnp.float32))
        assert y.tolist() == [2.0] * size
        assert n == size


def test_gradients_of_a_kernel_take_no_tape(monkeypatch: Any) -> None:
    """One launch of the reverse kernel is enough, if it needs nothing that is overwritten."""
    monkeypatch.setattr("octants.ad.functions.array_function.Tape", None)
    gradient = jax.jit(jax.grad(lambda x: (squares(x, 3.0) * jnp.arange(3.0)).sum()))
    assert gradient(X).tolist() == (6 * X * jnp.arange(3.0)).tolist()
    _, pullback = jax.vjp(squares, X)
    assert pullback(jnp.ones(3))[0].tolist() == (4 * X).tolist()


def test_gradients_that_need_a_tape() -> None:
    """The same array twice, what is overwritten, fields, and numbers to differentiate by."""

    @qd.kernel
    def products(a: qd.types.ndarray(ndim=1), b: qd.types.ndarray(ndim=1), y: qd.types.ndarray()):
        for i in a:
            y[i] = a[i] * a[i] * b[i]

    product = qd.jax.function(products, out={"y": "a"})
    both = jax.grad(lambda a, b: product(a, b).sum(), (0, 1))
    for by_a, by_b in (both(X, X), jax.jit(both)(X, X)):
        np.testing.assert_allclose(by_a, 2 * X * X)
        np.testing.assert_allclose(by_b, X * X)

    @qd.kernel
    def repeated(x: qd.types.ndarray(ndim=1)):
        for i in x:
            x[i] = x[i] * x[i]
        for i in x:
            x[i] = x[i] * x[i]

    again = qd.jax.function(repeated, inout="x")
    np.testing.assert_allclose(jax.grad(lambda x: again(x).sum())(X), 4 * X**3, rtol=1e-6)
    scale = qd.field(qd.f32, (), needs_grad=True)
    scale[None] = 2.0

    @qd.kernel
    def scaled(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
        for i in x:
            y[i] = x[i] * scale[None]

    found = qd.jax.function(scaled, out={"y": "x"})
    assert jax.grad(lambda x: found(x).sum())(X).tolist() == [2.0] * 3
    scale[None] = 4.0
    assert jax.grad(lambda x: found(x).sum())(X).tolist() == [4.0] * 3


def test_what_a_reversed_kernel_prints(capfd: Any) -> None:
    @qd.kernel
    def speaking(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
        for i in x:
            y[i] = x[i] * x[i]
            if i == 0:
                print("run")

    function = qd.jax.function(speaking, out={"y": "x"})
    gradient = jax.grad(lambda x: function(x).sum())(X)
    qd.sync()
    assert gradient.tolist() == (2 * X).tolist()
    assert capfd.readouterr().out.count("run") == 2


def test_a_result_that_the_reverse_reads() -> None:
    @qd.kernel
    def exponential(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(), z: qd.types.ndarray()):
        for i in x:
            y[i] = qd.exp(x[i])
        for i in x:
            z[i] = y[i] * y[i]

    function = qd.jax.function(exponential, out={"y": "x", "z": "x"})
    gradient = jax.jit(jax.grad(lambda x: function(x)[1].sum()))
    np.testing.assert_allclose(gradient(X), 2 * np.exp(2 * X), rtol=1e-5)


def test_derivatives_of_kernels_that_draw_random_numbers_are_errors() -> None:
    """A program of JAX may run a value and its derivative apart, or run a value twice."""

    @qd.kernel
    def noisy(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
        for i in x:
            y[i] += qd.random() * x[i]

    def noisy_twice(x: Any, y: Any) -> None:
        noisy(x, y)
        noisy(x, y)

    for launches in (noisy, noisy_twice):
        function = qd.jax.function(launches, out={"y": "x"})
        assert ((function(jnp.ones(3)) > 0) & (function(jnp.ones(3)) < 2)).all()
        for derive in (
            jax.grad(lambda x: function(x).sum()),  # noqa: B023
            lambda x: jax.jvp(function, (x,), (x,)),  # noqa: B023
            jax.jacrev(function),
        ):
            with pytest.raises(qd.OctantsRuntimeError, match="OCT369.*`noisy"):
                derive(X)
            with pytest.raises(Exception, match="OCT369.*`noisy"):
                jax.block_until_ready(jax.jit(derive)(X))
    assert squares(X).tolist() == (2 * X**2).tolist()


def test_numbers_of_python_for_arrays_without_axes() -> None:
    @qd.kernel
    def product(
        a: qd.types.ndarray(qd.f32, 0), b: qd.types.ndarray(qd.f32, 0), y: qd.types.ndarray()
    ):
        y[None] = a[None] * b[None]

    function = qd.jax.function(product, out={"y": ((), qd.f32)})
    assert function(2.0, 3.0) == 6.0
    assert jax.grad(function)(2.0, 3.0) == 3.0


def test_a_compiled_program_sees_a_list_that_has_changed() -> None:
    @qd.kernel
    def scaled(x: qd.types.ndarray(ndim=1), factors: qd.template(), y: qd.types.ndarray(ndim=1)):
        for i in x:
            y[i] = factors[0] * x[i]

    factors = [0.0]
    function = qd.jax.function(scaled, out={"y": "x"})
    program = jax.jit(jax.value_and_grad(lambda x: function(x, factors).sum()))
    for factor in 2.0, 3.0, 2.0, 5.0:
        factors[0] = factor
        value, gradient = program(jnp.ones(3))
        assert value == 3 * factor
        assert gradient.tolist() == [factor] * 3


def test_calls_that_are_errors() -> None:
    with pytest.raises(qd.OctantsCallError, match="OCT352.*`x` is no array, but of type dict"):
        qd.jax.function(scaled_squares, out={"y": "x"})({"a": X}, 2.0, 3)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT363.*not known to be linear"):
        jax.linear_transpose(squares, X)(X)


def test_functions_without_a_result_are_errors() -> None:
    with pytest.raises(qd.OctantsTypeError, match="OCT351.*`out` names no result"):
        qd.jax.function(scaled_squares)(jnp.ones(3), jnp.zeros(3), 2.0, 3)


def test_calls_within_a_shard_map() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    part, whole = jax.sharding.PartitionSpec("i"), jax.sharding.PartitionSpec()
    mapped = jax.shard_map(squares, mesh=mesh, in_specs=(part, whole), out_specs=part)
    assert jax.jit(mapped)(X, 3.0).tolist() == (3 * X**2).tolist()
    gradients = jax.jit(jax.grad(lambda x, factor: mapped(x, factor).sum(), (0, 1)))(X, 3.0)
    assert gradients[0].tolist() == (6 * X).tolist()
    assert gradients[1] == pytest.approx((X**2).sum())


def test_keys_of_random_numbers_are_no_arguments() -> None:
    with pytest.raises(qd.OctantsCallError, match="OCT352.*`x` has dtype key"):
        squares(jax.random.split(jax.random.key(0), 3))


@pytest.mark.parametrize("how", ["eager", "compiled", "linearize", "alone", "unrelated"])
@pytest.mark.parametrize("launches", [1, 2])
def test_fields_that_change_between_call_and_derivative(how: str, launches: int) -> None:
    """A derivative reads fields again, so it is an error if they have changed since the value."""
    qd.init(arch=qd.cpu)
    factor, other = (qd.field(qd.f32, shape=3) for _ in range(2))

    @qd.kernel
    def add_scaled(x: qd.types.ndarray(qd.f32, 1), y: qd.types.ndarray(qd.f32, 1)):
        for i in x:
            y[i] += factor[i] * x[i] * x[i]

    @qd.kernel
    def double(array: qd.template()):
        for i in array:
            array[i] *= 2.0

    def add_several(x: Any, y: Any) -> None:
        for _ in range(launches):
            add_scaled(x, y)

    function = qd.jax.function(add_scaled if launches == 1 else add_several, out={"y": "x"})
    x, ones = jnp.array([1.0, 2.0, 3.0]), jnp.ones(3)
    right = [2.0 * launches, 4.0 * launches, 6.0 * launches]
    for change in (lambda: None, lambda: factor.fill(5.0), lambda: double(factor)):
        factor.fill(1.0)
        if how == "compiled":
            _, pullback = jax.block_until_ready(jax.jit(lambda x: jax.vjp(function, x))(x))
            derivative = lambda: jax.jit(lambda pullback, a: pullback(a))(pullback, ones)[0]  # noqa: B023,E731
        elif how == "linearize":
            _, pushforward = jax.linearize(function, x)
            derivative = lambda: pushforward(ones)  # noqa: B023,E731
        elif how == "alone":  # the value and the derivative are of one program
            change()
            factor.fill(1.0)
            derivative = lambda: jax.jit(jax.grad(lambda x: function(x).sum()))(x)  # noqa: E731
        else:
            _, pullback = jax.vjp(function, x)
            derivative = lambda: pullback(ones)[0]  # noqa: B023,E731
        if how == "unrelated":
            double(other)
        elif how != "alone":
            change()
        if how in ("alone", "unrelated") or factor[0] == 1.0:
            assert derivative().tolist() == right
        else:
            with pytest.raises(Exception, match="OCT371: `factor`"):
                jax.block_until_ready(derivative())


@shares_memory
def test_compiled_gradients_without_fields_take_no_time_of_their_value() -> None:
    gradient = jax.jit(jax.grad(lambda x: squares(x).sum()))
    text = gradient.lower(X).compile().as_text()
    assert text.count('custom_call_target="octants_step"') == 1


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
@pytest.mark.parametrize("first", [True, False])
def test_fields_that_a_call_reads_and_updates(transform: Any, first: bool) -> None:
    qd.init(arch=qd.cpu)
    state = qd.field(qd.f32, shape=3)

    @qd.kernel
    def update(x: qd.types.ndarray(qd.f32, 1), y: qd.types.ndarray(qd.f32, 1)):
        if qd.static(first):
            for i in state:
                state[i] += 1.0
        for i in x:
            y[i] = state[i] * x[i]
        if qd.static(not first):
            for i in state:
                state[i] += 1.0

    function = qd.jax.function(update, out={"y": "x"})
    with pytest.raises(Exception, match="OCT375: `update` reads `state`"):
        jax.block_until_ready(transform(jax.value_and_grad(lambda x: function(x).sum()))(X))


TRANSFORMED: dict[str, Any] = {
    "scan": lambda f: jax.grad(
        lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, 2)[0].sum()
    ),
    "checkpointed scan": lambda f: jax.grad(
        lambda x: jax.lax.scan(jax.checkpoint(lambda c, _: (f(c), None)), x, None, 2)[0].sum()
    ),
    "cond": lambda f: jax.vmap(lambda x: jax.lax.cond(x.sum() > 0, f, jnp.sin, x)),
    "while": lambda f: (
        lambda x: jax.jvp(
            lambda x: jax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, f(c[1])), (0, x))[
                1
            ],
            (x,),
            (x,),
        )
    ),
    "empty": lambda f: jax.grad(lambda x: f(x[:0]).sum()),
    "view": lambda f: jax.grad(lambda x: f(x.T[0]).sum()),
    "transposed": lambda f: lambda x: jax.linear_transpose(jax.linearize(f, x)[1], x)(x),
    "donated": lambda f: lambda x: jax.jit(f, donate_argnums=0)(x + 0.0),
    "reduced": lambda f: jax.vmap(lambda x: jax.lax.psum(f(x), "i"), axis_name="i"),
    "no program": lambda f: jax.grad(lambda x: jax.jit(f)(x).sum()),
    "batch of derivatives": lambda f: jax.vmap(jax.hessian(lambda x: f(x).sum())),
    "auxiliary": lambda f: jax.value_and_grad(lambda x: (f(x).sum(), f(x)), has_aux=True),
}


@pytest.mark.parametrize("how", TRANSFORMED)
def test_transformations_are_those_of_jax(how: str) -> None:
    of_rows = how in ("cond", "view", "reduced", "batch of derivatives")
    x = jnp.stack([X, X + 1.0, 0.5 - X]) if of_rows else X
    with jax.disable_jit(how == "no program"):
        found, right = (TRANSFORMED[how](f)(x) for f in (squares, lambda x: 2.0 * x**2))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5)
