"""Two devices in one process: two CPUs with discrete memory, and two GPUs of a fake driver."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle
import random
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import driver
from octants.backends.table import backend_of, obstacle_to
from octants.data import host_access_events
from octants.diagnostics.exceptions import OctantsError
from tests.codegen.on_emulated_gpu import emulated_gpu
from tests.devices import on_cpu
from tests.golden_files import check_golden, without_lines
from tests.test_docs import FENCE, REPOSITORY, same_text

pytestmark = on_cpu
N = 40
Array1 = qd.types.NDArray[qd.f64, 1]
Array0 = qd.types.NDArray[qd.f64, 0]


def count_of_gpus() -> int:
    """The number of NVIDIA GPUs of this machine."""
    return 0 if obstacle_to("cuda") else len(backend_of("cuda").device_names())


hardware = pytest.mark.skipif(count_of_gpus() < 2, reason="there are no two NVIDIA GPUs")


@pytest.fixture(params=["discrete", "late", "gpus", pytest.param("hardware", marks=hardware)])
def devices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The devices in use. Discrete memory of one cannot be accessed by the other's kernels."""
    if request.param == "hardware":
        qd.init(arch=qd.cuda, default_fp=qd.f64, log_level="error", offline_cache=False)
        yield driver.state.devices
        qd.reset()
        return
    if request.param == "gpus":
        with emulated_gpu(devices=2, total=1 << 27) as fake:
            qd.init(arch=qd.cuda, default_fp=qd.f64, log_level="error")
            yield driver.state.devices
            qd.sync()
            assert not fake.problems
        return
    monkeypatch.setenv("OCTANTS_DISCRETE", "late" if request.param == "late" else "1")
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False)
    yield driver.state.devices
    qd.reset()


@qd.kernel
def increase(x: Array1, by: float):
    for i in x:
        x[i] += by


@qd.kernel
def scaled(x: Array1, y: Array1, by: float):
    for i in x:
        y[i] += by * x[i]


@qd.kernel
def waves(x: Array1, loss: Array0, count: int):
    for i in x:
        v = x[i]
        for _ in range(count + i):
            v = qd.sin(v) + 0.1 * v
        loss[None] += v


def numbers(shape: Any = N) -> Any:
    return np.random.default_rng(7).random(shape)


def array(device: int, values: Any = None, **options: Any) -> Any:
    return qd.array(numbers() if values is None else values, qd.f64, device=device, **options)


# -- arrays ---------------------------------------------------------------------------------------


def test_arrays_say_where_they_are(devices: Any) -> None:
    made = [
        qd.ndarray(qd.f64, 3, needs_grad=True, needs_dual=True, device=1),
        qd.zeros(3, qd.f64, device=1),
        qd.array([1.0, 2.0], device=1),
        qd.from_numpy(numbers(), device=1),
        qd.Vector.ndarray(3, qd.f64, 4, device=1),
        qd.tensor(qd.f64, 3, device=1),
        qd.tensor(qd.f64, (3, 4), layout=(1, 0), device=1),
        qd.field(qd.f64, 3, needs_grad=True, device=1),
        qd.field(qd.f64, (), device=1),
        qd.Vector.field(3, qd.f64, 4, layout=qd.Layout.SOA, device=1),
        qd.Matrix.field(2, 2, qd.f64, 4, device=1),
        qd.Struct.field({"a": qd.f64, "b": qd.i32}, shape=4, device=1),
    ]
    assert [each.device for each in made] == [1] * len(made)
    x, f = made[0], made[7]
    assert x.grad.device == x.dual.device == f.grad.device == 1
    assert (
        qd.ndarray(qd.f64, 3).device == qd.field(qd.f64, 3).device == qd.field(qd.f64).device == 0
    )
    assert len(list(devices)) == 2


def test_a_tree_is_on_one_device(devices: Any) -> None:
    builder = qd.FieldsBuilder(device=1)
    x, y, z = qd.field(qd.f64), qd.field(qd.i32), qd.field(qd.f64)
    builder.dense(qd.i, 4).place(x, y)
    qd.root.dense(qd.i, 4).place(z)
    builder.lazy_grad()
    builder.finalize()
    assert (x.device, y.device, z.device) == (1, 1, 0)
    x.from_numpy(np.arange(4.0))
    z.copy_from(x)
    assert z.to_numpy().tolist() == [0, 1, 2, 3]
    assert x.grad.device == 1


def test_sparse_fields(devices: Any) -> None:
    builder = qd.FieldsBuilder(device=1)
    x = qd.field(qd.f64)
    builder.pointer(qd.i, 8).dense(qd.i, 4).place(x)
    builder.finalize()

    @qd.kernel
    def touch():
        for _ in range(1):
            x[5] = 2.0

    @qd.kernel
    def count() -> int:
        n = 0
        for i in x:
            n += int(i >= 0)
        return n

    touch()
    assert count() == 4
    x[31] = 1.0
    assert count() == 8
    qd.deactivate_all_snodes()
    assert count() == 0


def test_only_what_is_named_is_started(devices: Any) -> None:
    qd.ndarray(qd.f64, 3, device=0)
    assert len(list(devices)) == 1
    x = array(1)
    assert len(list(devices)) == 2
    increase(x, 1.0)
    assert np.allclose(x.to_numpy(), numbers() + 1)


@pytest.mark.parametrize("devices", ["gpus"], indirect=True)
def test_the_device_of_init_is_that_of_its_number(devices: Any) -> None:
    qd.init(arch=qd.cfg.arch, device=1, default_fp=qd.f64, offline_cache=False, log_level="error")
    x, y = array(1), qd.array(numbers(), qd.f64)
    assert (x.device, y.device) == (1, 1)
    z = array(0)
    scaled(x, y, 2.0)
    increase(z, 1.0)
    z.copy_from(y)
    assert np.allclose(z.to_numpy(), 3 * numbers())


@pytest.mark.parametrize("number", [-1, "cuda:1", 1.0, True])
def test_numbers_that_are_none(devices: Any, number: Any) -> None:
    makers: list[Callable[[], Any]] = [
        lambda: qd.ndarray(qd.f64, 3, device=number),
        lambda: qd.field(qd.f64, 3, device=number),
        lambda: qd.Struct.field({"a": qd.f64}, shape=3, device=number),
        lambda: qd.FieldsBuilder(device=number),
        lambda: qd.ndarray(qd.f64, 3).to(number),
        lambda: qd.create_stream(device=number),
        lambda: qd.profiler.memory_report(device=number),
    ]
    for make in makers:
        with pytest.raises(qd.OctantsValueError, match="`device` cannot be"):
            make()


def test_fields_without_a_shape_take_no_device(devices: Any) -> None:
    for make in (
        lambda: qd.field(qd.f64, device=1),
        lambda: qd.Struct.field({"a": qd.f64}, device=1),
    ):
        with pytest.raises(qd.OctantsValueError, match="`device` needs a shape"):
            make()
    with pytest.raises(qd.OctantsValueError, match="`device` cannot be given"):
        qd.field(qd.types.quant.int(4), device=1)


def test_other_archs_have_one_device() -> None:
    qd.init(arch=qd.python, log_level="error")
    assert qd.ndarray(qd.f64, 3, device=0).device == 0
    with pytest.raises(qd.OctantsValueError, match="OCT488: there is no device 1 here"):
        qd.ndarray(qd.f64, 3, device=1)


def test_arrays_end_with_their_runtime(devices: Any) -> None:
    x = array(1)
    qd.init(arch=qd.cfg.arch, offline_cache=False, log_level="error")
    for use in (lambda: x.to_numpy(), lambda: increase(x, 1.0), lambda: x.to(0)):
        with pytest.raises(qd.OctantsRuntimeError, match="OCT520"):
            use()


# -- kernels --------------------------------------------------------------------------------------


def test_kernels_run_where_their_arrays_are(devices: Any) -> None:
    x, y = array(0), array(1)
    for k in range(5):  # by turns, so that entries are remembered
        increase(x, 1.0)
        increase(y, 2.0 * k)
    assert np.allclose(x.to_numpy(), numbers() + 5)
    assert np.allclose(y.to_numpy(), numbers() + 20)
    chosen = {each.device.number for each in increase._specialisations.values()}
    assert chosen == {0, 1}


def test_fields_and_captured_ndarrays(devices: Any) -> None:
    field = qd.field(qd.f64, N, device=1)
    captured = array(1)
    struct = qd.Struct.field({"a": qd.f64, "b": qd.f64}, shape=N, device=1)

    @qd.kernel
    def gather():
        for i in field:
            field[i] += 2.0 * captured[i]
            struct[i].b = field[i]

    @qd.kernel
    def template(f: qd.template(), by: float):
        for i in f:
            f[i] *= by

    gather()
    template(field, 3.0)
    template(captured, 2.0)
    assert np.allclose(field.to_numpy(), 6 * numbers())
    assert np.allclose(struct.b.to_numpy(), 2 * numbers())
    assert np.allclose(captured.to_numpy(), 2 * numbers())


def test_methods_and_structs(devices: Any) -> None:
    @dataclasses.dataclass
    class Pair:
        a: Array1
        b: Array1

    @qd.kernel
    def swap(pair: Pair):
        for i in pair.a:
            pair.a[i], pair.b[i] = pair.b[i], pair.a[i]

    @qd.data_oriented
    class Owner:
        def __init__(self, device: int) -> None:
            self.x = qd.field(qd.f64, N, device=device)

        @qd.kernel
        def set(self, value: float):
            for i in self.x:
                self.x[i] = value

    for device in (0, 1, 0):
        pair = Pair(a=array(device), b=array(device, np.zeros(N)))
        swap(pair)
        assert np.allclose(pair.b.to_numpy(), numbers())
        owner = Owner(device)
        owner.set(3.0)
        assert (owner.x.to_numpy() == 3).all()
    with pytest.raises(
        qd.OctantsRuntimeError, match=r"OCT489: .*`pair.a` is on device 0, and `pair.b`"
    ):
        swap(Pair(a=array(0), b=array(1)))


def test_what_is_on_no_device(devices: Any) -> None:
    x = array(1)

    @qd.kernel
    def total(x: Array1) -> float:
        found = 0.0
        for i in x:
            found += x[i]
        return found

    @qd.kernel
    def one() -> int:
        return 1

    host = numbers()
    scaled(x, host, 2.0)  # the array of the host is sent to where the other one is
    assert np.allclose(host, 3 * numbers())
    increase(host, 1.0)
    assert np.allclose(host, 3 * numbers() + 1)
    assert np.isclose(total(x), numbers().sum())
    assert np.isclose(total(host), host.sum())
    assert one() == 1


def test_arrays_on_two_devices(devices: Any) -> None:
    x, y, f, g = array(0), array(1), qd.field(qd.f64, N, device=1), qd.field(qd.f64, N)

    @qd.kernel
    def to_field(x: Array1):
        for i in x:
            f[i] = x[i]

    @qd.kernel
    def fields():
        for i in f:
            f[i] = g[i]

    @qd.kernel
    def template(a: qd.template(), b: qd.template()):
        for i in a:
            a[i] = b[i]

    wrong: dict[str, Callable[[], Any]] = {
        "`x` is on device 0, and `y` on device 1": lambda: scaled(x, y, 1.0),
        "`x` is on device 1, and `y` on device 0": lambda: scaled(y, x, 1.0),
        "`x` is on device 0, and `f` on device 1": lambda: to_field(x),
        "`f` is on device 1, and `g` on device 0": fields,
        "`a` is on device 1, and `b` on device 0": lambda: template(f, g),
    }
    for text, launch in wrong.items():
        for _ in range(2):
            with pytest.raises(qd.OctantsRuntimeError, match=f"OCT489: kernel .*: {text}"):
                launch()
    assert np.array_equal(x.to_numpy(), y.to_numpy())
    assert not f.to_numpy().any() and not g.to_numpy().any()
    for _ in range(2):
        with pytest.raises(qd.OctantsRuntimeError, match="OCT489"):
            scaled.grad(x, y, 1.0)
    to_field(y)
    assert np.array_equal(f.to_numpy(), numbers())


def test_a_global_that_moves(devices: Any) -> None:
    """A kernel is compiled again where a name stands for an array on another device."""
    spot: dict[str, Any] = {"f": qd.field(qd.f64, N)}

    class Holder:
        x: Any = None

    holder = Holder()

    @qd.kernel
    def fill(value: float):
        for i in range(N):
            qd.static(holder).x[i] = value

    for device in (0, 1, 0, 1):
        holder.x = array(device)
        fill(float(device))
        assert (holder.x.to_numpy() == device).all()
    assert spot


def test_errors_of_both(devices: Any) -> None:
    @qd.kernel
    def check(x: Array1):
        for i in x:
            assert x[i] < 100.0, "too large"

    x, y = array(0, np.full(N, 200.0)), array(1, np.full(N, 300.0))
    qd.init(arch=qd.cfg.arch, debug=True, default_fp=qd.f64, offline_cache=False, log_level="error")
    x, y = array(0, np.full(N, 1.0)), array(1, np.full(N, 300.0))

    def launch() -> None:
        check(x)
        check(y)
        qd.sync()

    for _ in range(2):
        with pytest.raises(qd.OctantsAssertionError, match="too large"):
            launch()
    y.fill(1.0)
    launch()


def test_an_overflow_on_the_other_device_is_raised_at_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OCTANTS_DISCRETE", "1")
    qd.init(arch=qd.cpu, default_fp=qd.f64, offline_cache=False, ad_stack_size=4)
    x, loss = array(1, needs_grad=True), qd.ndarray(qd.f64, (), needs_grad=True, device=1)
    other = array(0)
    loss.grad.fill(1.0)
    waves(x, loss, 30)
    with pytest.raises(qd.OctantsAssertionError, match="OCT423"):
        waves.grad(x, loss, 30)
        other.to_numpy()
    other.to_numpy()
    qd.sync()
    assert driver._synchronize not in host_access_events.host_reads.observers
    waves(x, loss, 30)
    waves.grad(x, loss, 30)
    assert driver._synchronize in host_access_events.host_reads.observers
    with pytest.raises(qd.OctantsAssertionError, match="OCT423"):
        qd.sync()


# -- copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ndarray", "field", "column-major", "vectors", "interleaved"])
@pytest.mark.parametrize("source", [0, 1])
def test_copies(devices: Any, kind: str, source: int) -> None:
    shape, element = (6, 5), (3,) if kind == "vectors" else ()

    def make(device: int) -> Any:
        if kind == "ndarray":
            return qd.ndarray(qd.f64, shape, device=device)
        if kind == "interleaved":
            builder = qd.FieldsBuilder(device=device)
            x, y = qd.field(qd.f64), qd.field(qd.f64)
            builder.dense(qd.ij, shape).place(x, y)
            builder.finalize()
            y.fill(9.0)
            return x
        if kind == "vectors":
            return qd.Vector.field(3, qd.f64, shape, device=device)
        order = "ji" if kind == "column-major" else "ij"
        return qd.field(qd.f64, shape, order=order, device=device)

    values = numbers((*shape, *element))
    a, b, same = make(source), make(1 - source), make(source)
    a.from_numpy(values)
    b.copy_from(a)
    same.copy_from(b)
    assert np.array_equal(b.to_numpy(), values)
    assert np.array_equal(same.to_numpy(), values)
    if not element:
        row_major = qd.ndarray(qd.f64, shape, device=1 - source)
        row_major.copy_from(a)
        assert np.array_equal(row_major.to_numpy(), values)
        single = qd.ndarray(qd.f32, shape, device=1 - source)
        single.copy_from(a)
        assert np.array_equal(single.to_numpy(), values.astype(np.float32))


class CudaArray:
    """An array of a library that offers only ``__cuda_array_interface__``."""

    def __init__(self, owner: Any) -> None:
        self.owner, self.shape = owner, owner.shape

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found: dict[str, Any] = self.owner.__cuda_array_interface__
        return found


@pytest.mark.parametrize(
    "devices", ["gpus", pytest.param("hardware", marks=hardware)], indirect=True
)
def test_arrays_with_the_interface_run_where_they_are(devices: Any) -> None:
    owners = [array(k % 2, numbers() + k) for k in range(4)]
    for _ in range(3):
        for each in owners:
            increase(CudaArray(each), 1.0)
    for k, each in enumerate(owners):
        assert np.allclose(each.to_numpy(), numbers() + k + 3)
    scaled(owners[3], CudaArray(owners[1]), 2.0)
    assert np.allclose(owners[1].to_numpy(), numbers() + 4 + 2 * (numbers() + 6))
    for one, other in ((0, 1), (1, 0)):
        with pytest.raises(qd.OctantsRuntimeError, match=f"OCT489: .*`x` is on device {one}"):
            scaled(owners[one], CudaArray(owners[other]), 1.0)


def test_arrays_move(devices: Any) -> None:
    x = array(0, needs_grad=True)
    x.grad.fill(5.0)
    y = x.to(1)
    assert x.to(0) is x
    assert (y.device, y.grad.device, y.dtype, y.shape) == (1, 1, qd.f64, (N,))
    assert np.array_equal(y.to_numpy(), numbers())
    assert not y.grad.to_numpy().any()
    y.fill(1.0)
    assert np.array_equal(x.to_numpy(), numbers())
    v = qd.Vector.ndarray(3, qd.f64, 4, device=1)
    v[2] = [1, 2, 3]
    assert v.to(0)[2].to_list() == [1, 2, 3]
    empty = qd.ndarray(qd.f64, (0, 3), device=1)
    assert empty.to(0).shape == (0, 3)
    with pytest.raises(qd.OctantsValueError, match="shape"):
        qd.ndarray(qd.f64, 3).copy_from(y)


def test_copies_of_python(devices: Any) -> None:
    x = array(1, needs_grad=True)
    x.grad.fill(2.0)
    for y in (copy.copy(x), copy.deepcopy(x)):
        assert (y.device, y.grad.device) == (1, 1)
        assert np.array_equal(y.to_numpy(), numbers())
        assert (y.grad.to_numpy() == 2).all()
    for y in (x, array(0)):
        z = pickle.loads(pickle.dumps(y))
        assert z.device == y.device
        assert np.array_equal(z.to_numpy(), numbers())


def test_an_array_is_unpickled_where_there_is_no_other_device(devices: Any) -> None:
    text = pickle.dumps(array(1, needs_grad=True))
    qd.init(arch=qd.python, log_level="error")
    x = pickle.loads(text)
    assert (x.device, x.grad.device) == (0, 0)
    assert np.array_equal(x.to_numpy(), numbers())


def test_random_work_on_both(devices: Any) -> None:
    """Launches and copies in any order are as in numpy, however late the devices run them."""
    draw = random.Random(3)
    for _ in range(12):
        arrays = [array(k % 2, numbers(8) + k) for k in range(4)]
        wanted = [numbers(8) + k for k in range(4)]
        for _ in range(40):
            one, other = draw.sample(range(4), 2)
            kind = draw.choice(["copy", "increase", "scaled", "fill", "read", "write", "sync"])
            if kind == "copy":
                arrays[one].copy_from(arrays[other])
                wanted[one] = wanted[other].copy()
            elif kind == "increase":
                increase(arrays[one], 0.5)
                wanted[one] = wanted[one] + 0.5
            elif kind == "scaled" and one % 2 == other % 2:
                scaled(arrays[one], arrays[other], 0.25)
                wanted[other] = wanted[other] + 0.25 * wanted[one]
            elif kind == "fill":
                arrays[one].fill(1.5)
                wanted[one] = np.full(8, 1.5)
            elif kind == "read":
                assert np.allclose(arrays[one].to_numpy(), wanted[one])
            elif kind == "write":
                arrays[one].from_numpy(numbers(8))
                wanted[one] = numbers(8)
            elif kind == "sync":
                qd.sync()
        for found, expected in zip(arrays, wanted, strict=True):
            assert np.allclose(found.to_numpy(), expected)


# -- derivatives ----------------------------------------------------------------------------------


def gradient_of_parts(places: tuple[int, int]) -> tuple[Any, float, Any]:
    """Of a program whose middle part is on another device: x is scaled, copied, and summed up."""
    first, second = places
    x = array(first, needs_grad=True)
    y = qd.ndarray(qd.f64, N, needs_grad=True, device=first)
    z = qd.ndarray(qd.f64, N, needs_grad=True, device=second)
    loss = qd.ndarray(qd.f64, (), needs_grad=True, device=second)
    with qd.ad.Tape(loss=loss):
        scaled(x, y, 2.0)
        z.copy_from(y)
        increase(x, 1.0)
        waves(z, loss, 3)
        z.copy_from(x)
        waves(z, loss, 2)
    return x.grad.to_numpy(), float(loss.to_numpy()), x.to_numpy()


def test_a_tape_over_both(devices: Any) -> None:
    wanted = gradient_of_parts((0, 0))
    assert np.abs(wanted[0]).min() > 0
    for places in ((0, 1), (1, 0), (1, 1)):
        for found, expected in zip(gradient_of_parts(places), wanted, strict=True):
            assert np.allclose(found, expected, rtol=1e-13)


def test_the_sum_of_losses_on_both(devices: Any) -> None:
    def gradients(second: int) -> list[Any]:
        x, y = array(0, needs_grad=True), array(second, needs_grad=True)
        one = qd.ndarray(qd.f64, (), needs_grad=True)
        two = qd.ndarray(qd.f64, (), needs_grad=True, device=second)
        with qd.ad.Tape(loss=[one, two]):
            waves(x, one, 3)
            increase(y, 1.0)
            waves(y, two, 2)
            waves(y.to(0), one, 1)
        return [x.grad.to_numpy(), y.grad.to_numpy()]

    for found, expected in zip(gradients(1), gradients(0), strict=True):
        assert np.abs(expected).min() > 0
        assert np.allclose(found, expected, rtol=1e-13)


def test_overwritten_arrays_are_restored_on_their_devices(devices: Any) -> None:
    def run(device: int) -> tuple[Any, Any]:
        x = array(device, needs_grad=True)
        loss = qd.ndarray(qd.f64, (), needs_grad=True, device=device)

        @qd.kernel
        def square(x: Array1):
            for i in x:
                x[i] = x[i] * x[i] + 0.1

        with qd.ad.Tape(loss=loss) as tape:
            for _ in range(4):
                square(x)
            waves(x, loss, 1)
        assert tape.snapshot_bytes == 4 * 8 * N
        return x.grad.to_numpy(), x.to_numpy()

    for found, expected in zip(run(1), run(0), strict=True):
        assert np.array_equal(found, expected)


def test_fields_and_logs_of_atomics(devices: Any) -> None:
    def run(device: int) -> Any:
        x = qd.field(qd.f64, N, needs_grad=True, device=device)
        y = qd.field(qd.f64, N, needs_grad=True, device=device)
        loss = qd.field(qd.f64, (), needs_grad=True, device=device)
        count = qd.field(qd.i32, (), device=device)

        @qd.kernel
        def list_up():
            for i in x:
                if x[i] > 0.3:
                    k = qd.atomic_add(count[None], 1)
                    y[k] = x[i] * x[i]

        @qd.kernel
        def total():
            for i in y:
                loss[None] += y[i] ** 3

        x.from_numpy(numbers())
        with qd.ad.Tape(loss=loss):
            list_up()
            total()
        return x.grad.to_numpy()

    assert np.allclose(run(1), run(0), rtol=1e-13)


def test_bare_gradients_and_arguments(devices: Any) -> None:
    def run(device: int) -> tuple[Any, float]:
        x, y = array(device, needs_grad=True), array(device, needs_grad=True)
        for _ in range(3):
            scaled(x, y, 2.0)
            y.grad.fill(1.0)
            found = scaled.grad.using(argument_gradients=True)(x, y, 2.0)
        return x.grad.to_numpy(), found["by"]

    (x, by), (other_x, other_by) = run(0), run(1)
    assert np.array_equal(x, other_x)
    assert np.isclose(by, other_by)


def test_clearing_gradients(devices: Any) -> None:
    x, y = array(0, needs_grad=True), array(1, needs_grad=True)
    f = qd.field(qd.f64, 3, needs_grad=True, device=1)
    for _ in range(20):  # often enough for a graph
        for each in (x, y, f):
            each.grad.fill(1.0)
        qd.ad.clear_all_gradients()
        assert not any(each.grad.to_numpy().any() for each in (x, y, f))


def test_forward_mode(devices: Any) -> None:
    def run(device: int) -> float:
        x = qd.ndarray(qd.f64, N, needs_dual=True, device=device)
        x.from_numpy(numbers())
        loss = qd.ndarray(qd.f64, (), needs_dual=True, device=device)
        with qd.ad.FwdMode(loss=loss, param=x, seed=numbers()):
            waves(x, loss, 2)
        return float(loss.dual.to_numpy())

    assert np.isclose(run(1), run(0), rtol=1e-13)


def test_checkpointed_loops(devices: Any) -> None:
    @qd.kernel
    def step(x: Array1):
        for i in x:
            x[i] = qd.sin(x[i]) + 0.1 * x[i] * x[i]

    def run(device: int) -> Any:
        x = array(device, needs_grad=True)
        loss = qd.ndarray(qd.f64, (), needs_grad=True, device=device)
        with qd.ad.Tape(loss=loss):
            qd.ad.checkpointed(lambda _: step(x), 20, slots=3)
            waves(x, loss, 1)
        return x.grad.to_numpy()

    assert np.array_equal(run(1), run(0))


def test_tangents_of_tangents(devices: Any) -> None:
    """Second derivatives of a function that copies its array to the other device and back."""
    other = qd.ndarray(qd.f64, N, needs_grad=True, device=1)
    back = qd.ndarray(qd.f64, N, needs_grad=True)

    def through(x: Array1, loss: Array0) -> None:
        other.copy_from(x)
        increase(other, 0.5)
        back.copy_from(other)
        waves(back, loss, 1)

    def plain(x: Array1, loss: Array0) -> None:
        increase(x, 0.5)
        waves(x, loss, 1)

    x, v = numbers(), np.random.default_rng(1).random(N)
    found, expected = (
        qd.ad.hvp(each, out={"loss": ()}, inout=["x"], by="x")(x, direction={"x": v})
        for each in (through, plain)
    )
    assert np.isclose(found[0], expected[0])
    for one, two in zip(found[1:], expected[1:], strict=True):
        assert np.abs(two["x"]).min() > 0
        assert np.allclose(one["x"], two["x"])


def test_explanations_and_validation(devices: Any) -> None:
    x = array(1, needs_grad=True)
    loss = qd.ndarray(qd.f64, (), needs_grad=True, device=1)
    text = str(waves.grad.explain(x, loss, 3))
    assert "waves" in text
    with qd.ad.Tape(loss=loss, validation=True):
        waves(x, loss, 3)
    assert x.grad.to_numpy().all()


def test_sparse_matrices(devices: Any) -> None:
    @qd.kernel
    def fill(entries: qd.types.sparse_matrix_builder(), weights: Array1):
        for i in weights:
            entries[i, i] += 2.0 * weights[i]

    def run(device: int) -> Any:
        weights = array(device, needs_grad=True)
        loss = qd.ndarray(qd.f64, (), needs_grad=True, device=device)
        builder = qd.linalg.SparseMatrixBuilder(
            N, N, max_num_triplets=N, dtype=qd.f64, needs_grad=True, device=device
        )
        with qd.ad.Tape(loss=loss):
            fill(builder, weights)
            product = builder.build() @ array(device, np.arange(1.0, N + 1))
            waves(product, loss, 1)
        assert product.device == builder.values.device == device
        return weights.grad.to_numpy()

    assert np.abs(run(0)).min() > 0
    assert np.allclose(run(1), run(0), rtol=1e-13)
    with pytest.raises(qd.OctantsValueError, match="`device` cannot be"):
        qd.linalg.SparseMatrixBuilder(2, device="cuda:1")


# -- streams, graphs, reports ---------------------------------------------------------------------


def test_streams(devices: Any) -> None:
    x, y = array(0), array(1)
    one, two = qd.create_stream(), qd.create_stream(device=1)
    assert (one.device, two.device) == (0, 1)
    increase(x, 1.0, qd_stream=one)
    increase(y, 2.0, qd_stream=two)
    done = qd.create_event(device=1)
    done.record(two)
    done.wait(one)
    increase(x, 1.0, qd_stream=one)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT490"):
        done.record(one)
    assert np.allclose(x.to_numpy(), numbers() + 2)
    assert np.allclose(y.to_numpy(), numbers() + 2)
    one.synchronize()
    two.destroy()


@pytest.mark.parametrize("devices", ["gpus"], indirect=True)
def test_a_stream_of_the_other_device(devices: Any) -> None:
    x, y = array(0), array(1)
    stream = qd.create_stream(device=1)
    for _ in range(2):
        with pytest.raises(qd.OctantsRuntimeError, match="OCT441: the stream is one of GPU 1"):
            increase(x, 1.0, qd_stream=stream)
        with pytest.raises(qd.OctantsRuntimeError, match="OCT441"):
            increase.grad(array(0, needs_grad=True), 1.0, qd_stream=stream)
        increase(y, 1.0, qd_stream=stream)
    increase(x, 1.0)
    assert np.allclose(x.to_numpy(), numbers() + 1)
    assert np.allclose(y.to_numpy(), numbers() + 2)


def test_graphs(devices: Any) -> None:
    x, y = array(0), array(1)
    spare = qd.ndarray(qd.f64, N, device=1)
    with qd.graph.capture() as graph:
        increase(y, 1.0)
        spare.copy_from(y)
        scaled(spare, y, 1.0)
    for _ in range(2):
        graph.replay()
    wanted = numbers()
    for _ in range(3):
        wanted = 2 * (wanted + 1)
    assert np.allclose(y.to_numpy(), wanted)
    for second in (lambda: increase(x, 1.0), lambda: x.fill(1.0), lambda: x.copy_from(y)):
        with pytest.raises(OctantsError, match="OCT460"), qd.graph.capture():
            increase(y, 1.0)
            second()


def test_reports(devices: Any) -> None:
    kept = array(1, np.zeros((100, 10)), needs_grad=True), array(0, np.zeros(50))
    sizes = [{use.kind: use.nbytes for use in qd.profiler.memory_report(device=k)} for k in (0, 1)]
    assert sizes[0]["ndarrays"] == 400
    assert sizes[1]["ndarrays"] == sizes[1]["ndarrays, gradients"] == 8000
    assert qd.profiler.memory_report()[0] == qd.profiler.memory_report(device=0)[0]
    del kept


def test_profiles(devices: Any) -> None:
    qd.init(
        arch=qd.cfg.arch, kernel_profiler=True, default_fp=qd.f64, offline_cache=False,
        log_level="error",
    )  # fmt: skip
    x, y = array(0), array(1)
    increase(x, 1.0)
    increase(y, 1.0)
    y.to_numpy()
    assert qd.profiler.query_kernel_profiler_info("increase").counter == 2


def test_algorithms(devices: Any) -> None:
    keys = array(1)
    values = qd.array(np.arange(N), qd.i32, device=1)
    qd.algorithms.parallel_sort(keys, values)
    assert np.array_equal(keys.to_numpy(), np.sort(numbers()))
    assert np.array_equal(values.to_numpy(), np.argsort(numbers(), kind="stable"))
    sums = array(1)
    qd.algorithms.PrefixSumExecutor(N).run(sums)
    assert np.allclose(sums.to_numpy(), np.cumsum(numbers()))


# -- documentation --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "devices", ["gpus", pytest.param("hardware", marks=hardware)], indirect=True
)
def test_the_programs_of_the_documentation(
    devices: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fences = list(FENCE.finditer((REPOSITORY / "docs" / "sharing.md").read_text()))
    programs = [
        (fence[3], output[3])
        for fence, output in itertools.pairwise(fences)
        if fence[2] == "several_gpus"
    ]
    assert programs
    for number, (code, printed) in enumerate(programs):
        script = tmp_path / f"program{number}.py"
        script.write_text(code)
        runpy.run_path(str(script))
        assert same_text(printed, capsys.readouterr().out)


# -- the texts of errors --------------------------------------------------------------------------


def text_of(call: Callable[[], Any]) -> str:
    with pytest.raises(OctantsError) as caught:
        call()
    return str(caught.value)


def test_text_of_no_other_device() -> None:
    qd.init(arch=qd.python, log_level="error")
    check_golden("errors/OCT488_no_other_device", text_of(lambda: qd.ndarray(qd.f64, 3, device=1)))


def test_texts_of_two_devices(devices: Any) -> None:
    x, y = array(0), array(1)

    def launch() -> None:  # in a line of its own, since Python 3.10 tells no columns
        scaled(x, y, 1.0)

    check_golden("errors/OCT489_arrays_on_two_devices", without_lines(text_of(launch)))
    event, stream = qd.create_event(), qd.create_stream(device=1)
    check_golden("errors/OCT490_event_of_other_device", text_of(lambda: event.record(stream)))
