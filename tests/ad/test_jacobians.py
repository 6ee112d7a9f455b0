"""Whole Jacobians and Hessians, dense and by colouring."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.ad.array_function_kernels import X, returned_well, well

sparse: Any = pytest.importorskip("scipy.sparse")
vec = qd.types.ndarray(qd.f64, 1)


@qd.kernel
def neighbours(x: vec, factor: qd.f64, y: vec, count: qd.types.ndarray(qd.i32, 0)):
    for i in range(x.shape[0]):
        y[i] = factor * x[i] ** 2
        if i > 0:
            y[i] += qd.sin(x[i - 1] * x[i])
        if i + 1 < x.shape[0] and x[0] > 0.0:
            y[i] += 3.0 * x[i + 1]
        count[None] += 1


@qd.kernel
def chain_energy(x: vec, loss: qd.types.ndarray(qd.f64, 0)):
    for i in range(x.shape[0] - 1):
        loss[None] += (x[i + 1] - x[i]) ** 4 + x[i] ** 3


OUT = {"y": "x", "count": ((), np.int32)}
POINT = np.linspace(0.3, 1.7, 12)


def expected_of_neighbours(x: Any, factor: float) -> Any:
    matrix = np.diag(2 * factor * x)
    for i in range(1, len(x)):
        slope = np.cos(x[i - 1] * x[i])
        matrix[i, i - 1] += slope * x[i]
        matrix[i, i] += slope * x[i - 1]
    for i in range(len(x) - 1 if x[0] > 0 else 0):
        matrix[i, i + 1] += 3.0
    return matrix


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_dense_jacobians(mode: str) -> None:
    found = qd.ad.jacobian(neighbours, out=OUT, mode=mode)(POINT, 0.5)
    np.testing.assert_allclose(found["x"], expected_of_neighbours(POINT, 0.5), rtol=1e-12)
    np.testing.assert_allclose(found["factor"], POINT**2, rtol=1e-12)


def test_shapes_of_several_results_and_arguments() -> None:
    @qd.kernel
    def both(a: qd.types.ndarray(qd.f64, 2), b: vec, sums: vec, total: qd.types.ndarray(qd.f64, 0)):
        for i, j in a:
            sums[i] += a[i, j] * b[j]
            total[None] += b[j] ** 2

    a, b = np.arange(6.0).reshape(2, 3), np.array([1.0, -1.0, 2.0])
    found = qd.ad.jacobian(both, out={"sums": 2, "total": ()})(a, b)
    np.testing.assert_allclose(found["sums"]["b"], a)
    np.testing.assert_allclose(found["sums"]["a"], np.einsum("ik,j->ikj", np.eye(2), b))
    np.testing.assert_allclose(found["total"]["b"], 4 * b)
    assert found["total"]["a"].shape == (2, 3)
    assert not found["total"]["a"].any()


class Counted:
    """How often a kernel is launched."""

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.count = kernel, 0

    def function(self, x: Any, y: Any) -> None:
        self.count += 1
        self.kernel(x, 0.5, y, qd.ndarray(qd.i32, ()))


@pytest.mark.parametrize(("mode", "runs"), [("auto", 1), ("forward", 1), ("reverse", 1 + 1)])
def test_a_band_takes_as_many_directions_as_it_is_wide(mode: str, runs: int) -> None:
    band = sparse.diags_array([1, 1, 1], offsets=[-1, 0, 1], shape=(12, 12), dtype=int)
    counted = Counted(neighbours)
    whole = qd.ad.jacobian(counted.function, out={"y": "x"}, sparsity=band, mode=mode)
    found = whole(POINT)["x"]
    assert counted.count == runs  # with the check
    np.testing.assert_allclose(found.toarray(), expected_of_neighbours(POINT, 0.5), rtol=1e-12)


def test_a_pattern_is_found_by_probing_and_grows() -> None:
    counted = Counted(neighbours)
    whole = qd.ad.jacobian(counted.function, out={"y": "x"}, sparsity="probe")
    for point, runs in ((-POINT, 2), (-2 * POINT, 1), (POINT, 3), (2 * POINT, 1)):
        counted.count = 0
        found = whole(point)["x"].toarray()
        np.testing.assert_allclose(found, expected_of_neighbours(point, 0.5), rtol=1e-12)
        assert counted.count == runs


def test_a_pattern_that_misses_an_element_is_an_error() -> None:
    band = sparse.diags_array([1, 1], offsets=[-1, 0], shape=(12, 12), dtype=int)
    whole = qd.ad.jacobian(neighbours, out=OUT, by="x", sparsity=band)
    np.testing.assert_allclose(
        whole(-POINT, 0.5)["x"].toarray(), expected_of_neighbours(-POINT, 0.5), rtol=1e-12
    )
    with pytest.raises(qd.OctantsValueError, match="OCT356: .* misses"):
        whole(POINT, 0.5)


def test_hessians() -> None:
    found = qd.ad.hessian(returned_well)(X, 3.0)
    np.testing.assert_allclose(found["x"]["x"], np.diag(3 * (12 * X**2 - 4)), rtol=1e-12)
    np.testing.assert_allclose(found["x"]["depth"], 4 * X * (X**2 - 1), rtol=1e-12)
    np.testing.assert_allclose(found["depth"]["x"], 4 * X * (X**2 - 1), rtol=1e-12)
    assert found["depth"]["depth"] == 0.0


def test_sparse_hessians() -> None:
    dense = qd.ad.hessian(chain_energy, out={"loss": ()})(POINT)["x"]["x"]
    for sparsity in ("probe", np.abs(np.subtract.outer(range(12), range(12))) < 2):
        whole = qd.ad.hessian(chain_energy, out={"loss": ()}, sparsity=sparsity)
        for _ in range(2):
            found = whole(POINT)["x"]["x"]
            assert found.nnz <= 3 * 12
            np.testing.assert_allclose(found.toarray(), dense, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: qd.ad.jacobian(well, out={"loss": ()}, mode="both"), "OCT358"),
        (lambda: qd.ad.jacobian(well, out={"loss": ()}, sparsity="guess"), "OCT356"),
        (
            lambda: qd.ad.jacobian(well, out={"loss": ()}, sparsity=np.eye(3), by="x")(X, 1.0),
            r"has the shape \(3, 3\), not \(1, 3\)",
        ),
        (lambda: qd.ad.hessian(well, out={"loss": ()}, sparsity="probe")(X, 1.0), "OCT357"),
    ],
)
def test_mistakes(make: Any, text: str) -> None:
    with pytest.raises(qd.OctantsValueError, match=text):
        make()


def test_tangents_that_end_at_an_array_without_a_gradient_are_a_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    def through(x: Any, z: Any, *, needs_grad: bool) -> None:
        y = qd.ndarray(qd.f64, 3, needs_grad=needs_grad)
        squares(x, y)
        doubled(y, z)

    def ending(x: Any, z: Any) -> None:
        through(x, z, needs_grad=False)

    def right(x: Any, z: Any) -> None:
        through(x, z, needs_grad=True)

    def constant(x: Any, z: Any) -> None:
        y = qd.ndarray(qd.f64, 3)
        y.fill(2.0)
        squares(y, z)
        squares(x, z)

    for function in (right, constant):
        qd.ad.jacobian(function, out={"z": "x"}, mode="forward")(PLACE)
    assert not [each for each in recwarn if issubclass(each.category, qd.OctantsWarning)]
    for mode in ("forward", "reverse"):
        with pytest.warns(qd.OctantsWarning, match="the gradient ends at `y`.*kernel `doubled`"):
            qd.ad.jacobian(ending, out={"z": "x"}, mode=mode)(PLACE)


@qd.kernel
def noisy(x: vec, y: vec):
    for i in x:
        y[i] = x[i] ** 2 * qd.random(qd.f64)


def test_all_directions_have_the_random_numbers_of_the_result() -> None:
    x = np.linspace(1.0, 2.0, 20)
    units, out = np.eye(20), {"y": "x"}
    y, columns = qd.ad.jvp(noisy, out=out)(x, tangents={"x": units})
    np.testing.assert_allclose(columns, np.diag(2 * y / x), rtol=1e-14)
    other, rows = qd.ad.vjp(noisy, out=out)(x, adjoints=units)
    np.testing.assert_allclose(rows["x"], np.diag(2 * other / x), rtol=1e-14)
    assert (y != other).all()  # another call draws other numbers


@pytest.mark.parametrize("given", [POINT, (POINT,), None])
def test_directions_that_are_no_dictionary(given: Any) -> None:
    with pytest.raises(qd.OctantsCallError, match="OCT352: .*`tangents={'x': ...}`"):
        qd.ad.jvp(neighbours, out=OUT)(POINT, 0.5, tangents=given)
    with pytest.raises(qd.OctantsCallError, match="OCT352: .*`direction={'x': ...}`"):
        qd.ad.hvp(chain_energy, out={"loss": ()})(POINT, direction=given)


def test_several_directions() -> None:
    expected = expected_of_neighbours(POINT, 0.5)
    units, zeros = np.eye(12), np.zeros(12)
    forward = qd.ad.jvp(neighbours, out=OUT)
    (y, count), (columns, none) = forward(POINT, 0.5, tangents={"x": units, "factor": zeros})
    np.testing.assert_allclose(columns.T, expected, rtol=1e-12)
    np.testing.assert_allclose(y, forward(POINT, 0.5, tangents={"x": zeros})[0][0])
    assert none is None
    assert count == 12
    backward = qd.ad.vjp(neighbours, out=OUT)
    _, rows = backward(POINT, 0.5, adjoints=(units, None))
    np.testing.assert_allclose(rows["x"], expected, rtol=1e-12)
    np.testing.assert_allclose(rows["factor"], POINT**2, rtol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 17])
def test_launches_propagate_up_to_eight_directions(count: int) -> None:
    counted = Counted(neighbours)
    directions = np.random.default_rng(count).normal(size=(count, 12))
    y, found = qd.ad.jvp(counted.function, out={"y": "x"})(POINT, tangents={"x": directions})
    assert counted.count == -(-count // 8)
    np.testing.assert_allclose(found, directions @ expected_of_neighbours(POINT, 0.5).T, rtol=1e-12)
    np.testing.assert_array_equal(
        y, qd.ad.jvp(counted.function, out={"y": "x"})(POINT, tangents={})[0]
    )


vec2 = qd.types.vector(2, qd.f64)


@qd.kernel
def scatter(x: qd.types.ndarray(vec2, 1), scale: qd.f64, shift: vec2, y: vec) -> qd.f64:
    total = 0.0
    for i in range(x.shape[0]):
        p = x[i] * scale + shift
        for _ in range(i + 1):
            p = qd.Vector([p[0] - 0.1 * p[1], p[1] + 0.1 * qd.sin(p[0])])
        if p[0] > 0.2:
            y[i % 3] += p[i % 2] * p[0]
        qd.atomic_max(y[3], p[1])
        total += p.norm()
    for i in range(3):
        y[i] *= total
    return total


@pytest.mark.parametrize("count", [3, 8])
def test_numbers_vectors_and_what_a_kernel_returns_in_several_directions(count: int) -> None:
    rng = np.random.default_rng(4)
    place = [rng.normal(size=(5, 2)), 0.7, np.array([0.1, -0.2])]
    names = ("x", "scale", "shift")
    tangents = {
        n: rng.normal(size=(count, *np.shape(p))) for n, p in zip(names, place, strict=True)
    }
    forward = qd.ad.jvp(scatter, out={"y": 4})
    _, found = forward(*place, tangents=tangents)
    for k in range(count):
        each = {name: given[k] for name, given in tangents.items()}
        _, alone = forward(*place, tangents=each)
        ends = [
            forward(*(p + step * each[n] for n, p in zip(names, place, strict=True)), tangents={})[
                0
            ]
            for step in (1e-6, -1e-6)
        ]
        for several, one, ahead, back in zip(found, alone, *ends, strict=True):
            np.testing.assert_allclose(several[k], one, rtol=1e-13)
            np.testing.assert_allclose(one, (ahead - back) / 2e-6, rtol=1e-7, atol=1e-8)


def test_a_field_and_host_writes_in_several_directions() -> None:
    between = qd.field(qd.f64, (12,), needs_grad=True)

    @qd.kernel
    def into_field(x: vec):
        for i in x:
            between[i] = x[i] ** 3

    @qd.kernel
    def out_of_field(y: vec):
        for i in y:
            y[i] = between[i] * between[(i + 1) % 12]

    def through(x: Any, y: Any) -> None:
        between.fill(5.0)
        into_field(x)
        between[3] = 2.0
        out_of_field(y)

    inner, slope = POINT**3, 3 * POINT**2
    inner[3], slope[3] = 2.0, 0.0
    expected = np.diag(slope * np.roll(inner, -1))
    expected += np.roll(np.diag(np.roll(slope, -1) * inner), 1, axis=1)
    for mode in ("forward", "reverse"):
        found = qd.ad.jacobian(through, out={"y": "x"}, mode=mode)(POINT)["x"]
        np.testing.assert_allclose(found, expected, rtol=1e-13)


@qd.kernel
def squares(x: vec, y: vec):
    for i in x:
        y[i] = x[i] ** 2


@qd.kernel
def doubled(y: vec, z: vec):
    for i in y:
        z[i] = 2.0 * y[i]


def with_host_writes(x: Any, y: Any, z: Any) -> None:
    squares(x, y)
    y[1] = 7.0  # of an argument, which a caller passes as an array of another library
    doubled(y, z)
    z[2] = 5.0


WRITTEN = {"y": "x", "z": "x"}
SLOPES = {"y": np.diag([2.0, 0.0, 6.0]), "z": np.diag([4.0, 0.0, 0.0])}
PLACE = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_host_writes_of_arguments_end_derivatives(mode: str) -> None:
    found = qd.ad.jacobian(with_host_writes, out=WRITTEN, mode=mode)(PLACE)
    for name, slope in SLOPES.items():
        np.testing.assert_array_equal(found[name]["x"], slope)
    given = PLACE.copy()
    (y, z), _ = qd.ad.jvp(with_host_writes, out=WRITTEN)(given, tangents={"x": np.ones(3)})
    np.testing.assert_array_equal(y, [1.0, 7.0, 9.0])
    np.testing.assert_array_equal(z, [2.0, 14.0, 5.0])


def test_host_writes_of_arguments_from_jax() -> None:
    jax = pytest.importorskip("jax")
    function = qd.jax.function(with_host_writes, out=WRITTEN)
    for differentiate in (jax.jacfwd, jax.jacrev):
        jax.config.update("jax_enable_x64", True)
        try:
            results = differentiate(function)(jax.numpy.array(PLACE))
        finally:
            jax.config.update("jax_enable_x64", False)
        for found, slope in zip(results, SLOPES.values(), strict=True):
            np.testing.assert_array_equal(found, slope)


@pytest.mark.parametrize("last", [False, True])
def test_untracked_writes_of_tensors_are_errors_in_forward_mode_too(last: bool) -> None:
    torch = pytest.importorskip("torch")

    def program(x: Any, y: Any, z: Any) -> None:
        squares(x, y)
        if not last:
            y[1] = 7.0
        doubled(y, z)
        if last:
            z[2] = 5.0

    function = qd.torch.function(program, out=WRITTEN)
    for differentiate in (torch.func.jacfwd, torch.func.jacrev):
        with pytest.raises(qd.OctantsRuntimeError, match=f"OCT320: `{'z' if last else 'y'}`"):
            differentiate(lambda x: function(x)[1])(torch.tensor(PLACE))


def test_several_directions_of_a_hessian() -> None:
    given = np.stack([POINT, np.ones(12), np.zeros(12)])
    function = qd.ad.hvp(chain_energy, out={"loss": ()})
    _, _, products = function(POINT, direction={"x": given})
    whole = qd.ad.hessian(chain_energy, out={"loss": ()})(POINT)["x"]["x"]
    np.testing.assert_allclose(products["x"], given @ whole, rtol=1e-10, atol=1e-12)


def test_no_direction_at_all() -> None:
    _, (columns, _) = qd.ad.jvp(neighbours, out=OUT)(POINT, 0.5, tangents={"x": np.ones((0, 12))})
    assert columns.shape == (0, 12)
    _, rows = qd.ad.vjp(neighbours, out=OUT)(POINT, 0.5, adjoints=(np.ones((0, 12)), None))
    assert rows["x"].shape == (0, 12)
    assert rows["factor"].shape == (0,)


@pytest.mark.parametrize(
    "tangents", [{"x": np.ones((2, 12)), "factor": np.ones(3)}, {"x": np.ones((2, 11))}]
)
def test_directions_of_different_numbers(tangents: Any) -> None:
    with pytest.raises(qd.OctantsValueError, match="OCT355"):
        qd.ad.jvp(neighbours, out=OUT)(POINT, 0.5, tangents=tangents)


FORMS = {
    "row-major": np.ascontiguousarray,
    "column-major": np.asfortranarray,
    "strided": lambda values: np.repeat(values, 2, 1)[:, ::2],
    "big-endian": lambda values: values.astype(">f8"),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_updated_in_place_in_any_form(form: str) -> None:
    @qd.kernel
    def update(x: qd.types.ndarray(dtype=qd.f64, ndim=2)):
        for i, j in x:
            x[i, j] = x[i, j] ** 2 + i

    values = np.arange(6.0).reshape(2, 3)
    given, one = FORMS[form](values), FORMS[form](np.ones((2, 3)))
    expected = values**2 + np.arange(2)[:, None]
    after, tangent = qd.ad.jvp(update, inout="x")(given, tangents={"x": one})
    np.testing.assert_array_equal(after, expected)
    np.testing.assert_array_equal(tangent, 2 * values)
    after, gradients = qd.ad.vjp(update, inout="x")(given, adjoints=one)
    np.testing.assert_array_equal(after, expected)
    np.testing.assert_array_equal(gradients["x"], 2 * values)
    matrix = qd.ad.jacobian(update, inout="x")(given)["x"].reshape(6, 6)
    np.testing.assert_array_equal(matrix, np.diag(2 * values.ravel()))
    np.testing.assert_array_equal(given, values)


@pytest.mark.parametrize("out", ["force", ["force"], ("force", "x")])
def test_outputs_that_are_no_dictionary(out: Any) -> None:
    @qd.kernel
    def double(x: qd.types.ndarray(qd.f64, 1), force: qd.types.ndarray(qd.f64, 1)):
        for i in x:
            force[i] = 2 * x[i]

    with pytest.raises(qd.OctantsTypeError, match="OCT351: .*`out` is no dictionary"):
        qd.ad.vjp(double, out=out)
