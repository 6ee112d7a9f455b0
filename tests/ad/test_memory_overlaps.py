"""Arrays that share memory, in different launches under one tape: right, or an error.

Random programs write and read one memory as two arrays, of every kind that can share it. An
interpreter of duals on that memory says what the derivative is: an array without a derivative
stores and reads constants.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import shares_memory
from tests.golden_files import check_golden

pytestmark = shares_memory

N, LENGTH = 4, 6
CODES = ("OCT315", "OCT338", "OCT320")
"""Overlap in a launch; in different launches; a host write through another import."""


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


@qd.kernel
def store(w: qd.types.ndarray(), a: qd.types.ndarray()):
    for i in range(4):
        a[i] = w[i] * w[i]


@qd.kernel
def scale(w: qd.types.ndarray(), a: qd.types.ndarray()):
    for i in range(4):
        a[i] *= w[i]


@qd.kernel
def use(w: qd.types.ndarray(), a: qd.types.ndarray(), loss: qd.types.ndarray()):
    for i in range(4):
        loss[None] += a[i] * a[i] * w[i]


@qd.kernel
def both(a: qd.types.ndarray(), b: qd.types.ndarray(), loss: qd.types.ndarray()):
    for i in range(4):
        loss[None] += a[i] * b[3 - i]


class Shared:
    """An array, its first element in the memory, and whether it has a derivative."""

    def __init__(self, array: Any, first: int, *, is_active: bool) -> None:
        self.array, self.first, self.is_active = array, first, is_active


def own(**needed: bool) -> Any:
    x = qd.ndarray(qd.f64, LENGTH, **needed)
    x.from_numpy(np.linspace(1, 2, LENGTH))
    return x


def imports(**needed: bool) -> list[Shared]:
    memory = np.linspace(1, 2, LENGTH)
    parts = qd.from_dlpack(memory[:N], **needed), qd.from_dlpack(memory[2:], **needed)
    return [Shared(parts[0], 0, is_active=True), Shared(parts[1], 2, is_active=True)]


def same_imports(**needed: bool) -> list[Shared]:
    memory = np.linspace(1, 2, LENGTH)
    parts = qd.from_dlpack(memory, **needed), qd.from_dlpack(memory, **needed)
    return [Shared(part, 0, is_active=True) for part in parts]


def one_without(**needed: bool) -> list[Shared]:
    memory = np.linspace(1, 2, LENGTH)
    parts = qd.from_dlpack(memory[:N], **needed), qd.from_dlpack(memory[1:])
    return [Shared(parts[0], 0, is_active=True), Shared(parts[1], 1, is_active=False)]


def exported(**needed: bool) -> list[Shared]:
    x = own(**needed)
    y = qd.from_dlpack(x, **needed)
    return [Shared(x, 0, is_active=True), Shared(y, 0, is_active=True)]


def exported_plain(**needed: bool) -> list[Shared]:
    x = own(**needed)
    return [Shared(x, 0, is_active=True), Shared(qd.from_dlpack(x), 0, is_active=False)]


def viewed(**needed: bool) -> list[Shared]:
    x = own(**needed)
    view = x.to_numpy(copy=False)[1:]
    return [Shared(x, 0, is_active=True), Shared(view, 1, is_active=False)]


def numpy_views(**needed: bool) -> list[Shared]:
    memory = np.linspace(1, 2, LENGTH)
    return [Shared(memory[:N], 0, is_active=False), Shared(memory[1:], 1, is_active=False)]


def leaf(part: Any) -> Any:
    return part.detach().requires_grad_()


def leaves(**needed: bool) -> list[Shared]:
    torch = pytest.importorskip("torch")
    memory = torch.linspace(1, 2, LENGTH, dtype=torch.float64)
    return [
        Shared(leaf(memory[:N]), 0, is_active=True),
        Shared(leaf(memory[2:]), 2, is_active=True),
    ]


def detached(**needed: bool) -> list[Shared]:
    torch = pytest.importorskip("torch")
    x = leaf(torch.linspace(1, 2, LENGTH, dtype=torch.float64))
    return [Shared(x, 0, is_active=True), Shared(x.detach(), 0, is_active=False)]


def consistent(**needed: bool) -> list[Shared]:
    torch = pytest.importorskip("torch")
    memory = torch.linspace(1, 2, LENGTH, dtype=torch.float64)
    gradient = torch.zeros_like(memory)
    parts = leaf(memory[:N]), leaf(memory[2:])
    parts[0].grad, parts[1].grad = gradient[:N], gradient[2:]
    return [Shared(parts[0], 0, is_active=True), Shared(parts[1], 2, is_active=True)]


KINDS: list[Callable[..., list[Shared]]] = [
    imports,
    same_imports,
    one_without,
    exported,
    exported_plain,
    viewed,
    numpy_views,
    leaves,
    detached,
    consistent,
]
WITH_DUALS = [imports, one_without, exported]


class Duals:
    """The memory as values, with the derivative of each by every element of `w`."""

    def __init__(self, w: np.ndarray) -> None:
        self.values = np.linspace(1, 2, LENGTH)
        self.derivatives = np.zeros((LENGTH, N))
        self.w, self.loss, self.gradient = w, 0.0, np.zeros(N)

    def read(self, a: Shared, i: int) -> tuple[float, np.ndarray]:
        k = a.first + i
        return self.values[k], self.derivatives[k] if a.is_active else np.zeros(N)

    def write(self, a: Shared, i: int, value: float, derivative: np.ndarray) -> None:
        k = a.first + i
        self.values[k] = value
        self.derivatives[k] = derivative if a.is_active else 0.0

    def run(self, name: str, a: Shared, b: Shared) -> None:
        unit = np.eye(N)
        for i in range(N):
            w = self.w[i]
            value, derivative = self.read(a, i)
            if name == "store":
                self.write(a, i, w * w, 2 * w * unit[i])
            elif name == "scale":
                self.write(a, i, value * w, derivative * w + value * unit[i])
            elif name == "use":
                self.loss += value * value * w
                self.gradient += 2 * value * w * derivative + value * value * unit[i]
            elif name == "both":
                other, its = self.read(b, N - 1 - i)
                self.loss += value * other
                self.gradient += value * its + other * derivative
        if name == "fill":
            for i in range(len(a.array)):
                self.write(a, i, 1.5, np.zeros(N))


def launch(name: str, a: Shared, b: Shared, w: Any, loss: Any) -> None:
    if name == "fill":
        a.array.fill(1.5)
    elif name == "both":
        both(a.array, b.array, loss)
    elif name == "use":
        use(w, a.array, loss)
    else:
        {"store": store, "scale": scale}[name](w, a.array)


def program(chance: random.Random, arrays: list[Shared], count: int) -> list[Any]:
    steps = []
    for _ in range(chance.randrange(2, 6)):
        a, b = chance.choice(arrays[:count]), chance.choice(arrays[:count])
        names = ["store", "scale", "use", "both", "use"]
        names += ["fill"] * isinstance(a.array, qd.Ndarray)
        steps.append((chance.choice(names), a, b))
    return [*steps, ("use", chance.choice(arrays[:count]), arrays[0])]


def expected(steps: list[Any]) -> Duals:
    duals = Duals(np.array([0.7, 1.1, 1.3, 0.9]))
    for step in steps:
        duals.run(*step)
    return duals


def made(**needed: bool) -> tuple[Any, Any]:
    w, loss = qd.ndarray(qd.f64, N, **needed), qd.ndarray(qd.f64, (), **needed)
    w.from_numpy(np.array([0.7, 1.1, 1.3, 0.9]))
    return w, loss


@pytest.mark.filterwarnings("ignore:the (gradient|tangent) ends")
@pytest.mark.parametrize("kind", KINDS)
def test_programs_on_shared_memory_are_right_or_an_error(kind: Callable[..., Any]) -> None:
    chance, right, refused = random.Random(1), 0, 0
    for count in [1] * 2 + [2] * 16:
        arrays = kind(needs_grad=True)
        steps = program(chance, arrays, count)
        w, loss = made(needs_grad=True)
        try:
            with qd.ad.Tape(loss=loss):
                for name, a, b in steps:
                    launch(name, a, b, w, loss)
        except qd.OctantsRuntimeError as error:
            assert count == 2, "one array shares memory with none"
            assert str(error)[:6] in CODES
            refused += 1
            continue
        duals = expected(steps)
        assert w.grad.to_numpy() == pytest.approx(duals.gradient, rel=1e-9)
        assert loss[None] == pytest.approx(duals.loss, rel=1e-9)
        right += count == 2
    assert right
    assert refused or kind in (numpy_views, consistent)


@pytest.mark.parametrize("kind", WITH_DUALS)
def test_programs_in_forward_mode_are_right_or_an_error(kind: Callable[..., Any]) -> None:
    chance, right, refused = random.Random(2), 0, 0
    seed = [1.0, -0.5, 2.0, 0.25]
    for count in [1] * 2 + [2] * 16:
        arrays = kind(needs_dual=True)
        steps = program(chance, arrays, count)
        w, loss = made(needs_dual=True)
        try:
            with qd.ad.FwdMode(loss=loss, param=w, seed=seed):
                for name, a, b in steps:
                    launch(name, a, b, w, loss)
        except qd.OctantsRuntimeError as error:
            assert count == 2, "one array shares memory with none"
            assert str(error)[:6] in CODES
            refused += 1
            continue
        assert loss.dual[None] == pytest.approx(expected(steps).gradient @ seed, rel=1e-9)
        right += count == 2
    assert right
    assert refused


def caught(*launches: Callable[[], Any], loss: Any) -> str:
    with pytest.raises(qd.OctantsRuntimeError) as found, qd.ad.Tape(loss=loss):
        for each in launches:
            each()
    return str(found.value)


def test_the_error_names_both_arrays_and_comes_before_the_launch() -> None:
    w, loss = made(needs_grad=True)
    first, second = (each.array for each in imports(needs_grad=True))
    text = caught(lambda: store(w, first), lambda: use(w, second, loss), loss=loss)
    check_golden("errors/OCT338_overlap_on_tape", text)
    assert loss[None] == 0
    assert not w.grad.to_numpy().any() and not second.grad.to_numpy().any()


def test_a_loss_that_was_written_as_another_array() -> None:
    w, _ = made(needs_grad=True)
    a, memory = own(needs_grad=True), np.zeros(())
    one, other = (qd.from_dlpack(memory, needs_grad=True) for _ in range(2))
    use(w, a, other)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT338: .* `loss`"), qd.ad.Tape(loss=one):
        use(w, a, one)
        use(w, a, other)


def test_a_loss_that_is_stored_as_another_array() -> None:
    @qd.kernel
    def set_loss(a: qd.types.ndarray(), loss: qd.types.ndarray()):
        loss[None] = a[0] * a[1]

    a, memory = own(needs_grad=True), np.zeros(())
    one, other = (qd.from_dlpack(memory, needs_grad=True) for _ in range(2))
    with pytest.raises(qd.OctantsRuntimeError, match="OCT338: the tape reads `loss`"):
        with qd.ad.Tape(loss=one):
            set_loss(a, one)
            set_loss(a, other)
    assert not a.grad.to_numpy().any()


def test_arrays_that_are_exported_under_the_tape() -> None:
    """Before, they take the fast path, which does not look at what they share."""
    w, loss = made(needs_grad=True)
    for _ in range(2):
        x = own(needs_grad=True)
        with pytest.raises(qd.OctantsRuntimeError, match="OCT338"), qd.ad.Tape(loss=loss):
            store(w, x)
            use(w, qd.from_dlpack(x, needs_grad=True), loss)
        x = own(needs_grad=True)
        with qd.ad.Tape(loss=loss):
            use(w, x, loss)
            use(w, qd.from_dlpack(x, needs_grad=True), loss)
        assert x.grad.to_numpy()[:N] == pytest.approx(2 * x.to_numpy()[:N] * w.to_numpy())


@pytest.mark.parametrize("writes_import", [False, True])
def test_contents_that_another_array_overwrites_are_restored(writes_import: bool) -> None:
    w, loss = made(needs_grad=True)
    a = own(needs_grad=True)
    b = qd.from_dlpack(a, needs_grad=True)
    before = a.to_numpy()[:N]
    read, written = (a, b) if writes_import else (b, a)
    for _ in range(2):
        a.from_numpy(np.linspace(1, 2, LENGTH))
        with qd.ad.Tape(loss=loss):
            use(w, read, loss)
            store(w, written)
        assert read.grad.to_numpy()[:N] == pytest.approx(2 * before * w.to_numpy())


def test_steps_of_a_checkpointed_loop() -> None:
    w, loss = made(needs_grad=True)
    one, other = (each.array for each in imports(needs_grad=True))

    def step(k: int) -> None:
        use(w, one, loss)
        store(w, other)

    with pytest.raises(qd.OctantsRuntimeError, match="OCT338"), qd.ad.Tape(loss=loss):
        qd.ad.checkpointed(step, 3)


def test_host_writes_to_another_array() -> None:
    w, loss = made(needs_grad=True)
    one, other = (each.array for each in imports(needs_grad=True))
    with qd.ad.Tape(loss=loss):
        one[2] = 3.0
        use(w, other, loss)
    assert other.grad[0] == pytest.approx(2 * 3.0 * w[0])
    with pytest.raises(qd.OctantsRuntimeError, match="OCT338.*the host"), qd.ad.Tape(loss=loss):
        use(w, other, loss)
        one[2] = 3.0
        use(w, other, loss)


def test_host_writes_to_an_exported_field_without_a_derivative() -> None:
    x = qd.field(qd.f32, N, needs_grad=True, needs_dual=True)
    total = qd.field(qd.f32, (), needs_grad=True, needs_dual=True)
    factor = qd.field(qd.f32, N)
    imported = qd.from_dlpack(factor)

    @qd.kernel
    def step() -> None:
        for i in range(N):
            total[None] += x[i] * factor[i]

    def launches() -> None:
        imported.fill(2.0)
        step()
        factor.fill(3.0)
        step()

    with qd.ad.Tape(loss=total):
        launches()
    assert (x.grad.to_numpy() == 5.0).all()
    with qd.ad.FwdMode(loss=total, param=x, seed=[1.0, 0.0, 0.0, 0.0]):
        launches()
        assert total.dual[None] == 5.0


def test_gradients_that_share_memory() -> None:
    torch = pytest.importorskip("torch")
    w, loss = made(needs_grad=True)
    p, q = (leaf(torch.ones(N, dtype=torch.float64)) for _ in range(2))
    p.grad = q.grad = torch.zeros(N, dtype=torch.float64)
    with qd.ad.Tape(loss=loss):
        both(p, q, loss)
    assert p.grad.tolist() == [2.0] * N
    text = caught(lambda: store(w, p), lambda: both(p, q, loss), loss=loss)
    check_golden("errors/OCT339_derivative_in_memory", text)


def interleaved() -> Any:
    x, y = qd.field(qd.f64, needs_grad=True), qd.field(qd.f64, needs_grad=True)
    qd.root.dense(qd.i, LENGTH).place(x, y, x.grad, y.grad)
    return x, y


def interleaved_gradients() -> Any:
    x, y = qd.field(qd.f64, needs_grad=True), qd.field(qd.f64, needs_grad=True)
    qd.root.dense(qd.i, LENGTH).place(x, y)
    qd.root.dense(qd.i, LENGTH).place(x.grad, y.grad)
    return x, y


@pytest.mark.parametrize("place", [interleaved, interleaved_gradients])
def test_interleaved_fields_share_no_memory(place: Callable[[], Any]) -> None:
    w, loss = made(needs_grad=True)
    x, y = place()
    x.from_numpy(np.linspace(1, 2, LENGTH))
    x.to_numpy(copy=False)
    y.to_numpy(copy=False)
    for _ in range(2):
        with qd.ad.Tape(loss=loss):
            store(x, y)
            use(w, y, loss)
        expected = 4 * x.to_numpy()[:N] ** 3 * w.to_numpy()
        assert x.grad.to_numpy()[:N] == pytest.approx(expected)


def test_a_gradient_as_an_argument() -> None:
    """A launch may set it; what a derivative reads later must not be where one adds up."""
    w, loss = made(needs_grad=True)
    x = own(needs_grad=True)
    with qd.ad.Tape(loss=loss):
        use(w, x, loss)
        store(w, x.grad)
    expected = w.to_numpy() ** 2 + 2 * x.to_numpy()[:N] * w.to_numpy()
    assert x.grad.to_numpy()[:N] == pytest.approx(expected)
    field = qd.field(qd.f64, LENGTH, needs_grad=True)
    arrays = (x, x.grad), (x.grad, x), (x, qd.from_dlpack(x.grad))
    for first, second in (*arrays, (field, qd.from_dlpack(field.grad))):
        text = caught(lambda: use(w, first, loss), lambda: use(w, second, loss), loss=loss)
        assert "OCT339" in text
    x.grad.fill(2)
    with qd.ad.Tape(loss=loss, clear_gradients=False):
        use(w, x.grad, loss)  # the gradient of an earlier tape
    assert w.grad.to_numpy().tolist() == [4.0] * N


@pytest.mark.parametrize("kind", [numpy_views, exported_plain, viewed])
def test_a_gradient_that_ends_where_memory_is_shared(kind: Callable[..., Any]) -> None:
    w, loss = made(needs_grad=True)
    first, second = (each.array for each in kind(needs_grad=True))
    with pytest.warns(qd.OctantsWarning, match="the gradient ends at"), qd.ad.Tape(loss=loss):
        store(w, first)
        use(w, second, loss)


def test_a_detached_tensor_ends_the_gradient() -> None:
    w, loss = made(needs_grad=True)
    first, second = (each.array for each in detached())
    with qd.ad.Tape(loss=loss):
        store(w, first)
        use(w, second, loss)
    assert w.grad.to_numpy() == pytest.approx(w.to_numpy() ** 4)
