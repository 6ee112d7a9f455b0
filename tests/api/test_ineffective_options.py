"""Each option of `init` has an effect, or a warning says that it has none."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import octants as qd
from octants import options
from octants.diagnostics.exceptions import OctantsWarning
from octants.options import FIXED, STEERING, WITHOUT_EFFECT, ineffective
from tests.devices import on_cpu
from tests.golden_files import check_golden


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    yield
    qd.reset()


def read_names() -> set[str]:
    """The attributes that some part of the package reads."""
    root = Path(options.__file__).parent
    return {
        node.attr
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def test_each_option_is_read_somewhere() -> None:
    assert set(options.FIELDS) - read_names() == set()


def test_each_other_option_is_in_one_group() -> None:
    groups = [set(options.FIELDS), set(STEERING), set(WITHOUT_EFFECT), set(FIXED)]
    assert len(set.union(*groups)) == sum(map(len, groups))


@pytest.mark.parametrize("name", [*WITHOUT_EFFECT, *FIXED])
def test_a_warning(name: str) -> None:
    value = not FIXED[name][0] if name in FIXED else True
    with pytest.warns(OctantsWarning, match=f"OCT427: `{name}={value}` has no effect") as caught:
        qd.init(arch=qd.cpu, log_level="error", **{name: value})
    assert caught[0].filename == __file__
    assert qd.cfg.arch is not None


def test_its_text() -> None:
    with pytest.warns(OctantsWarning) as caught:
        qd.init(arch=qd.cpu, log_level="error", timeline=True)
    check_golden("errors/OCT427_timeline", str(caught[0].message))


def test_no_warning_for_defaults_and_for_what_steers_a_compiler() -> None:
    given = {"kernel_profiler": True, "device_memory_fraction": 0.0, "timeline": None}
    given |= {"short_circuit_operators": True, **dict.fromkeys(STEERING, 1)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", OctantsWarning)
        qd.init(arch=qd.cpu, log_level="error", **given)


def test_the_environment_asks_too() -> None:
    environment = {"QD_GDB_TRIGGER": "1", "OCTANTS_TIMELINE": "0", "QD_TIMELINE": "1"}
    assert [name for name, _, _ in ineffective({}, environment)] == ["gdb_trigger"]
    assert ineffective({"gdb_trigger": False}, environment) == []


def test_the_gradient_of_a_kernel_without_gradients() -> None:
    qd.init(arch=qd.cpu, log_level="error")

    @qd.kernel
    def cube(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 3

    @qd.kernel
    def scaled(a: qd.f32) -> qd.f32:
        return a * 3.0

    plain, other = (qd.ndarray(qd.f32, 3) for _ in range(2))
    cube(plain, other)
    for arguments in ((plain, other), (plain.to_numpy(), other.to_numpy())):
        with pytest.raises(qd.QuadrantsRuntimeError) as caught:
            cube.grad(*arguments)
        check_golden("errors/OCT337_no_gradient", str(caught.value))
    with pytest.raises(qd.QuadrantsRuntimeError, match="OCT337"):
        scaled.grad(2.0)
    assert scaled.grad.using(argument_gradients=True)(2.0) == {"a": 3.0}
    x, y = (qd.ndarray(qd.f32, 3, needs_grad=True) for _ in range(2))
    x.fill(2.0)
    cube(x, y)
    y.grad.fill(1.0)
    cube.grad(x, y)
    assert x.grad.to_numpy().tolist() == [12, 12, 12]


@on_cpu
@pytest.mark.parametrize(
    ("name", "value"), [("device", 3), ("vulkan_without", "f64"), ("debug_dump_path", "dumps")]
)
def test_options_that_others_leave_without_effect(name: str, value: object) -> None:
    given: dict[str, object] = {name: value}
    with pytest.warns(OctantsWarning, match=f"OCT427: `{name}=.*` has no effect") as caught:
        qd.init(arch=qd.cpu, log_level="error", **given)  # type: ignore[arg-type]
    assert caught[0].filename == __file__


@pytest.mark.parametrize(("name", "value"), [("opt_level", 4), ("cpu_max_num_threads", -1)])
def test_numbers_that_options_cannot_have(name: str, value: int) -> None:
    given: dict[str, int] = {name: value}
    with pytest.raises(qd.OctantsRuntimeError, match=f"OCT403: the option `{name}`"):
        qd.init(arch=qd.cpu, log_level="error", **given)  # type: ignore[arg-type]
