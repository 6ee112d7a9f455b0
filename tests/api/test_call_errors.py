"""Wrong calls: a clear error before anything runs, and the process goes on working."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants import api
from tests.devices import DISCRETE, on_cpu
from tests.golden_files import check_golden


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, log_level="error")
    yield
    qd.reset()


@qd.kernel
def scale(x: qd.types.ndarray(dtype=qd.f32, ndim=1), factor: qd.f32, times: qd.i32 = 1):
    for i in x:
        x[i] *= factor * times


@qd.kernel
def first(x: qd.types.ndarray(dtype=qd.f32, ndim=1)) -> qd.f32:
    return x[0]


@qd.kernel
def shift(x: qd.types.ndarray(dtype=qd.math.vec3, ndim=1), by: qd.math.vec3):
    for i in x:
        x[i] += by


@qd.kernel
def differentiable(x: qd.types.ndarray(dtype=qd.f32, needs_grad=True)):
    for I in qd.grouped(x):
        x[I] += 1.0


@dataclasses.dataclass
class Body:
    position: qd.types.NDArray[qd.f32, 1]
    mass: qd.f32


@qd.kernel
def push(body: Body):
    for i in body.position:
        body.position[i] += body.mass


@qd.kernel
def differences(x: qd.types.ndarray(), y: qd.types.ndarray()):
    for i in y:
        x[i] -= y[i]


@qd.kernel
def flag(on: qd.u1, small: qd.u8) -> qd.i32:
    return small


class Owner:
    @qd.kernel
    def method(self, x: qd.f32) -> qd.f32:
        return x

    @qd.kernel
    def selfless(x: qd.f32) -> qd.f32:
        return x

    @staticmethod
    @qd.kernel
    def static(x: qd.f32) -> qd.f32:
        return x


@qd.kernel
def clamped(x: qd.types.ndarray(boundary="clamp")):
    x[9] = 1.0


@qd.kernel
def vectors(x: qd.types.ndarray(element_dim=1)):
    x[0][0] = 1.0


@qd.kernel
def row(x: qd.template(qd.f32, 1)):
    x[0] = 1.0


def ones(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.ones(shape, dtype)


def long_array(extent: int) -> np.ndarray[Any, Any]:
    """As many elements as that, all of them in one place."""
    return np.lib.stride_tricks.as_strided(ones(1), (extent,), (0,))


def read_only() -> np.ndarray[Any, Any]:
    array = ones(2)
    array.flags.writeable = False
    return array


def shared_elements() -> np.ndarray[Any, Any]:
    return np.lib.stride_tricks.as_strided(ones(1), (3,), (0,))


def swapped_and_not() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    array = ones(4)
    return array.view(array.dtype.newbyteorder()), array[1:]


CALLS: dict[str, Callable[[], Any]] = {
    "OCT413_missing": lambda: scale(ones(2)),
    "OCT413_too_many": lambda: scale(ones(2), 1.0, 2, 3),
    "OCT413_unknown_name": lambda: scale(ones(2), 1.0, time=2),
    "OCT413_twice": lambda: scale(ones(2), 1.0, factor=2),
    "OCT414_dtype": lambda: scale(ones(2, dtype=np.float64), 1.0),
    "OCT414_foreign_dtype": lambda: scale(ones(2, dtype=np.complex64), 1.0),
    "OCT414_rank": lambda: scale(ones(2, 2), 1.0),
    "OCT414_shared_elements": lambda: scale(shared_elements(), 1.0),
    "OCT414_shared_memory" + "_of_the_host" * DISCRETE: lambda: differences(*swapped_and_not()),
    "OCT414_read_only": lambda: scale(read_only(), 1.0),
    "OCT414_not_an_array": lambda: scale([1.0, 2.0], 1.0),
    "OCT414_own_dtype": lambda: scale(qd.ndarray(qd.i32, 2), 1.0),
    "OCT414_field_dtype": lambda: scale(qd.field(qd.i32, 2), 1.0),
    "OCT414_float_of_text": lambda: scale(ones(2), "2"),
    "OCT414_float_of_a_huge_integer": lambda: scale(ones(2), 10**400),
    "OCT414_float_of_none": lambda: scale(ones(2), None),
    "OCT414_float_of_array": lambda: scale(ones(2), ones(2)),
    "OCT414_integer_of_array": lambda: scale(ones(2), 1.0, np.ones(2, np.int32)),
    "OCT414_integer_of_float": lambda: scale(ones(2), 1.0, 1.5),
    "OCT414_integer_out_of_range": lambda: scale(ones(2), 1.0, 2**31),
    "OCT414_extent_too_large": lambda: first(long_array(2**31)),
    "OCT414_unsigned_out_of_range": lambda: flag(True, -1),
    "OCT414_bool_of_text": lambda: flag("no", 1),
    "OCT414_element_shape": lambda: shift(ones(4, 2), [1, 2, 3]),
    "OCT414_too_small_for_element": lambda: shift(np.ones((), np.float32), [1, 2, 3]),
    "OCT414_vector_shape": lambda: shift(ones(4, 3), [1, 2]),
    "OCT414_vector_of_text": lambda: shift(ones(4, 3), ["a", "b", "c"]),
    "OCT414_vector_with_text": lambda: shift(ones(4, 3), [1, "b", 2]),
    "OCT414_needs_grad": lambda: differentiable(qd.ndarray(qd.f32, 2)),
    "OCT414_numpy_needs_grad": lambda: differentiable(ones(2)),
    "OCT414_no_member": lambda: push(ones(2)),
    "OCT414_member_dtype": lambda: push(Body(ones(2, dtype=np.int32), 1.0)),
    "OCT414_member_value": lambda: push(Body(ones(2), "heavy")),
    "OCT414_clamped_field": lambda: clamped(qd.field(qd.f32, 2)),
    "OCT414_element_dim": lambda: vectors(qd.ndarray(qd.f32, 2)),
    "OCT414_template_ndim": lambda: row(qd.field(qd.f32, (2, 2))),
    "OCT414_template_dtype": lambda: row(qd.ndarray(qd.i32, 2)),
    "OCT416_mode": lambda: scale.inspect(ones(2), 1.0, mode="backward"),
}


@pytest.mark.parametrize("name", CALLS)
def test_error(name: str) -> None:
    with pytest.raises(qd.OctantsRuntimeError if "413" not in name else qd.OctantsError) as caught:
        CALLS[name]()
    check_golden(f"errors/{name}", str(caught.value))
    x = ones(2)
    scale(x, 3.0)
    assert x.tolist() == [3, 3]
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_wrong_arguments_are_type_errors_and_value_errors_too() -> None:
    for kind in (TypeError, ValueError, qd.QuadrantsRuntimeTypeError):
        with pytest.raises(kind):
            scale(ones(2, 2), 1.0)


def test_nothing_is_changed_by_a_wrong_call() -> None:
    x = ones(2)
    with pytest.raises(qd.OctantsRuntimeTypeError):
        scale(x, 2.0, "3")
    assert x.tolist() == [1, 1]


def test_before_init_and_after_reset() -> None:
    qd.reset()
    for call in (lambda: scale(ones(2), 1.0), qd.sync, lambda: qd.field(qd.f32, 1)):
        with pytest.raises(qd.QuadrantsRuntimeError) as caught:
            call()
        check_golden("errors/OCT401_not_initialised", str(caught.value))
    qd.init(arch=qd.cpu, log_level="error")
    scale(ones(2), 1.0)


def test_a_method_without_an_object() -> None:
    with pytest.raises(qd.OctantsRuntimeError) as caught:
        Owner.method()
    check_golden("errors/OCT415_no_object", str(caught.value).replace(__file__, "test.py"))
    assert Owner().method(2.0) == 2


def test_a_method_without_self() -> None:
    kernel = Owner().selfless
    for call in (lambda: kernel(2.0), lambda: kernel(), lambda: kernel.grad(2.0)):
        with pytest.raises(qd.OctantsTypeError) as caught:
            call()
        check_golden("errors/OCT428_no_self", str(caught.value).replace(__file__, "test.py"))
    assert Owner.selfless(2.0) == Owner.static(2.0) == Owner().static(2.0) == 2


# -- signatures -----------------------------------------------------------------------------------


def missing(x, y: qd.f32): ...


def not_a_type(x: list): ...


def unknown(x: no_such_name): ...  # type: ignore[name-defined]  # noqa: F821


def variable(*values: qd.f32): ...


def returns_array() -> qd.types.ndarray(): ...


SIGNATURES = {
    "OCT410_no_annotation": missing,
    "OCT411_not_a_type": not_a_type,
    "OCT411_unknown_name": unknown,
    "OCT411_returns_array": returns_array,
    "OCT412_variable": variable,
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_wrong_signature(name: str) -> None:
    with pytest.raises(qd.QuadrantsSyntaxError) as caught:
        qd.kernel(SIGNATURES[name])
    assert caught.value.diagnostic is not None
    (label,) = caught.value.diagnostic.labels
    line = label.span.line
    text = str(caught.value).replace(f"{__file__}:{line} ", "test.py:2 ")
    text = text.replace(f"{line} |", "2 |").replace(" " * len(str(line)) + " |", "  |")
    check_golden(f"errors/{name}", text)


def test_the_place_of_a_parameter_behind_decorators_and_over_lines(tmp_path: Any) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        "class Owner:\n"
        "    @property\n"
        "    @qd.kernel  # in two lines\n"
        "    def step(\n"
        "        self, größe: qd.f32, x,\n"
        "        y: qd.f32,\n"
        "    ): pass\n"
    )
    with pytest.raises(qd.OctantsSyntaxError) as caught:
        exec(compile(file.read_text(), str(file), "exec"), {"qd": qd})
    lines = str(caught.value).splitlines()
    assert lines[1].endswith("program.py:5 in `step`")
    assert lines[2] == "5 |         self, größe: qd.f32, x,"
    assert lines[3] == "  |                              ^ it needs a type"


def test_a_parameter_without_source_is_named_all_the_same() -> None:
    with pytest.raises(qd.OctantsSyntaxError, match="parameter `x` of kernel `f`"):
        exec("@qd.kernel\ndef f(x): pass\n", {"qd": qd})


def test_wrong_keywords_of_decorators() -> None:
    with pytest.raises(TypeError, match="no keyword `fast`"):
        qd.kernel(fast=True)
    for function in (qd.kernel, qd.func, qd.real_func, qd.pyfunc):
        for other in (3, print, functools.lru_cache(ones)):
            with pytest.raises(TypeError, match=rf"`@qd\.{function.__name__}` decorates functions"):
                function(other)
    for function in (qd.dataclass, qd.data_oriented):
        with pytest.raises(TypeError, match=rf"`@qd\.{function.__name__}` decorates classes"):
            function(3)
    for decorator in (qd.ad.no_grad, qd.ad.grad_replaced):
        with pytest.raises(TypeError, match=r"write `@qd\.ad\.\.\.` above it"):
            qd.kernel(decorator(test_wrong_keywords_of_decorators))
    with pytest.raises(TypeError, match="write `@staticmethod` above it"):

        class Wrong:
            @qd.kernel
            @staticmethod
            def step(): ...


# -- init -----------------------------------------------------------------------------------------


def test_an_arch_that_is_not_there() -> None:
    for arch in (qd.metal, "fortran"):
        with pytest.raises(qd.OctantsRuntimeError) as caught:
            qd.init(arch=arch)
        name = getattr(arch, "name", arch)
        check_golden(f"errors/OCT404_{name}", str(caught.value))
    scale(ones(2), 1.0)  # the runtime from before is still there


@on_cpu
def test_gpu_falls_back_with_a_message(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {name: f"no driver for {name}" for name in ("cuda", "vulkan", "metal", "amdgpu")}
    monkeypatch.setattr(api, "obstacle_to", lambda name, **_: missing.get(name, ""))
    qd.init(arch=qd.gpu)
    assert qd.cfg.arch is qd.cpu
    message = capsys.readouterr().err
    assert "not available" in message and "cuda: no driver for cuda; amdgpu: no" in message
    qd.init(arch=qd.vulkan, enable_fallback=True, log_level="error")
    assert qd.cfg.arch is qd.cpu
    with pytest.raises(qd.OctantsRuntimeError, match="OCT404"):
        qd.init(arch=qd.gpu, enable_fallback=False)


@on_cpu
def test_cfg() -> None:
    qd.init(arch=qd.x64 if qd.cpu is qd.x64 else qd.arm64, debug=True, default_fp=qd.f64)
    assert (qd.cfg.debug, qd.cfg.default_fp, qd.cfg.default_up) == (True, qd.f64, qd.u32)
    assert qd.cfg.opt_level >= 0
    assert qd.cfg.cuda_stack_limit is None
    with pytest.raises(AttributeError):
        qd.cfg.no_such_option


def test_logging_levels() -> None:
    qd.set_logging_level(qd.WARN)
    assert qd.is_logging_effective(qd.ERROR)
    assert not qd.is_logging_effective(qd.INFO)
    with pytest.raises(qd.OctantsRuntimeError, match="OCT403"):
        qd.set_logging_level("loud")


def test_extensions() -> None:
    assert qd.is_extension_enabled(qd.extension.adstack)
    assert qd.is_extension_enabled(qd.extension.data64)
    assert qd.is_extension_enabled(qd.extension.sparse)


def test_calls_that_do_not_fit_are_type_errors_as_in_python() -> None:
    @qd.kernel
    def kernel(a: qd.i32, b: qd.f32):
        pass

    @qd.kernel
    def separated(a: qd.i32, /, b: qd.f32, *, c: qd.i32):
        pass

    for function, arguments, named in (
        (kernel, (), {}),
        (kernel, (1,), {}),
        (kernel, (1, 2.0, 3), {}),
        (kernel, (1,), {"c": 2}),
        (separated, (1, 2.0, 3), {}),
        (separated, (), {"a": 1, "b": 2.0, "c": 3}),
    ):
        for call in (function, function.grad):
            with pytest.raises(TypeError, match="OCT413") as caught:
                call(*arguments, **named)
            assert isinstance(caught.value, qd.OctantsCallError)
            assert isinstance(caught.value, qd.OctantsSyntaxError)
    separated(1, 2.0, c=3)


@qd.kernel
def truth(on: qd.u1) -> qd.i32:
    return on


def test_a_truth_value_is_a_bool_or_an_integer() -> None:
    """None and floats have a truth value of Python, too; as an argument they are a mistake."""
    assert [truth(v) for v in (True, 2, np.bool_(True), np.int32(1), np.array(True))] == [1] * 5
    assert [truth(v) for v in (False, 0, np.bool_(False), np.array(False))] == [0] * 4
    for wrong in (None, 1.5, np.float32(0.0), "yes", [1], np.array([1]), object()):
        with pytest.raises(qd.OctantsArgumentError, match="`on`: .* cannot be converted to u1"):
            truth(wrong)
