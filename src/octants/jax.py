"""Kernels as functions of JAX: ``octants.jax.function``.

Needs JAX (``pip install 'octants[jax]'``). Compiled programs of JAX for the CPU call kernels for
any device, those for a GPU of NVIDIA call kernels for CUDA, in the order of JAX's own work there.
The kernels use the memory of JAX; only derivatives are copied, once. In all other cases JAX copies
arrays to the host and back.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from octants.ad.array_libraries.array_library_protocol import Shaped
from octants.ad.array_libraries.device_array_library import DeviceArray, DeviceArrays
from octants.ad.array_libraries.numpy_array_library import NumpyArrays
from octants.ad.functions.array_function import ArrayFunction
from octants.ad.functions.batched_steps import BatchedStep
from octants.ad.functions.calls_by_address import RepeatedStep, may_read_fields
from octants.ad.functions.field_checks import take_time
from octants.ad.functions.higher_derivatives import TIME, Derivative, Step, value_step
from octants.ad.tapes.tape_losses import OuterLoss
from octants.data import current_runtime
from octants.data.dlpack_import import from_dlpack
from octants.diagnostics.kernel_as_function_errors import CompiledForAnotherDevice
from octants.diagnostics.optional_dependencies import import_optional
from octants.runtime.interop import xla_calls
from octants.runtime.interop.dlpack import GPU
from octants.runtime.memory.host import describe
from octants.types.layouts import row_major
from octants.types.parameter_annotations import NdarrayAnnotation

if TYPE_CHECKING:
    import jax
else:
    jax = import_optional("jax", "jax")
# They have no types that could be checked.
core, ad, batching, mlir = (
    importlib.import_module(f"jax.{name}")
    for name in ("extend.core", "interpreters.ad", "interpreters.batching", "interpreters.mlir")
)

__all__ = ["function", "loss"]

# Compiled programs call kernels by pointers to the memory of XLA (`runtime.interop.xla_calls`),
# other programs by ``pure_callback``. A step of `ad.functions.higher_derivatives` is one primitive
# of JAX, so that JAX itself composes derivatives.


def function(
    kernel: Callable[..., Any],
    out: Mapping[str, Any] | None = None,
    *,
    inout: Iterable[str] = (),
) -> Callable[..., Any]:
    """A differentiable function of JAX from a kernel, or from a function that launches kernels.

    It works under ``jax.jit``, ``jax.vmap`` (which calls it for each element of a batch of
    arguments, and propagates up to 8 of a batch of directions in each launch, as in ``jacrev``),
    ``jax.grad``, ``jax.vjp``, ``jax.jvp``, and those of gradients, such as ``jax.hessian``. Third
    derivatives, and forward mode of forward mode, are errors. The backward pass launches the
    kernels again, under a tape, so that only the arguments are kept. Example::

        @qd.kernel
        def squares(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
            for i in x:
                y[i] = x[i] ** 2

        square = octants.jax.function(squares, out={"y": "x"})
        jax.grad(lambda x: square(x).sum())(jnp.ones(3))

    Args:
        kernel: a kernel, or a Python function whose parameters are what its kernels take.
        out: the outputs: parameters for which the call makes arrays of zeros. By the name of each,
            the name of an argument of the same shape and dtype, a shape, a pair of a shape and a
            dtype (of Octants or numpy), or a function of the arguments by name that returns one of
            these.
        inout: parameters that the kernel updates in place. The call passes it copies, and returns
            them.

    Returns:
        A function of the other parameters, by position or name. Arrays of JAX and numpy are what
        JAX traces; anything else is a constant. It returns the outputs in the order of the
        parameters, then the number that the kernel returns; one result alone is not in a tuple.

    Raises:
        OctantsTypeError: `out` or `inout` names an unknown parameter, or at a call: JAX
            differentiates by an argument that has no derivative.
        OctantsRuntimeError: at a call: JAX asks for a derivative that there is not.
        OctantsCallError: at a call: an argument is missing or unknown.
    """
    made = ArrayFunction(kernel, out, inout, NumpyArrays())

    def call(*arguments: Any, **named: Any) -> Any:
        bound = {n: _as_traced(made, n, v) for n, v in made.bind(arguments, named).items()}
        traced = {n: v for n, v in bound.items() if isinstance(v, (jax.Array, np.ndarray))}
        results = _bind(value_step(made, bound, list(traced)), traced.values())
        return results[0] if len(results) == 1 else tuple(results)

    call.__name__ = made.name
    call.__doc__ = f"`{made.name}` as a function of JAX, of {', '.join(made.inputs)}."
    return call


class _Loss(OuterLoss):
    """A loss that JAX computes."""

    def __init__(self, function: Callable[..., Any], arrays: Sequence[Any]) -> None:
        super().__init__(arrays)
        self._differentiate = jax.value_and_grad(function, tuple(range(len(arrays))))

    def differentiate(self, arrays: list[Any]) -> tuple[float, list[Any]]:
        value, adjoints = self._differentiate(*map(jax.numpy.asarray, arrays))
        return float(value), list(adjoints)


def loss(function: Callable[..., Any], *arrays: Any) -> OuterLoss:
    """A loss that JAX computes from fields and ndarrays, for ``ad.Tape(loss=...)``.

    At the end of the body, the function is called with the contents of the arrays; its gradient
    becomes their adjoint. Example::

        loss = octants.jax.loss(jax.jit(lambda y: jnp.mean((y - target) ** 2)), y)
        with qd.ad.Tape(loss=loss):
            simulate(x, y)
        print(loss.number, x.grad.to_numpy())

    Args:
        function: a function of an array of JAX for each array, that returns a scalar.
        arrays: fields and ndarrays with a gradient.

    Returns:
        The loss, for any number of tapes, one after the other. Its `number` is the last value.

    Raises:
        OctantsRuntimeError: an argument is no field or ndarray, or has no gradient.
    """
    return _Loss(function, arrays)


def _as_traced(function: ArrayFunction, name: str, value: Any) -> Any:
    """An argument; a number of Python as an array, where the kernel takes an array."""
    if not isinstance(getattr(value, "dtype", _NUMBER), np.dtype):
        raise function.wrong_dtype(name, value)
    takes_array = isinstance(function.annotation(name), NdarrayAnnotation)
    return jax.numpy.asarray(value) if takes_array and isinstance(value, (int, float)) else value


_NUMBER = np.dtype(float)
_TARGET = "octants_step"
_FIRST_FOR_CALLS = (0, 10)
"""The first version of JAX that calls steps by pointers; before, what executables keep differs."""

_ON_GPUS = DeviceArrays()

_step: Any = core.Primitive("octants")
_step.multiple_results = True
_time: Any = core.Primitive("octants_time")
"""The time of a value, which its derivatives take: they are errors if fields have changed since."""


def _bind(step: Step, arrays: Iterable[Any]) -> list[Any]:
    """The results of a step, as a step of JAX."""
    found: list[Any] = _step.bind(*_vary_alike(map(jax.numpy.asarray, arrays)), step=step)
    return found


def _vary_alike(arrays: Iterable[Any]) -> list[Any]:
    """Arrays that vary over the same axes of a mesh, as `shard_map` wants the inputs of a step."""
    given = list(arrays)
    if not any(isinstance(each, jax.core.Tracer) for each in given):
        return given
    axes = [_varying(jax.typeof(each)) for each in given]
    every = frozenset[Any]().union(*axes)
    return [
        jax.lax.pcast(each, tuple(every - known), to="varying") if every - known else each
        for each, known in zip(given, axes, strict=True)
    ]


def _varying(kind: Any) -> frozenset[Any]:
    """The axes of a mesh over which an abstract value varies."""
    found: frozenset[Any] = getattr(getattr(kind, "mat", kind), "varying", frozenset())
    return found


def _kinds(step: Step | BatchedStep, arrays: Sequence[Any]) -> list[Any]:
    """The shapes and dtypes of what a step gives, in the dtypes that JAX has."""
    found = step.output_shapes([Shaped(tuple(each.shape), np.dtype(each.dtype)) for each in arrays])
    return [_abstract(each, kind) for each, (kind, _) in zip(found, step.outputs, strict=True)]


def _abstract(what: Shaped, kind: str) -> Any:
    """A promise to JAX; without ``jax_enable_x64`` it has no wider types."""
    dtype = jax.dtypes.canonicalize_dtype(what.dtype)
    if kind != "f" and dtype.kind != "f":
        dtype = np.dtype(np.float32)  # the zeros that stand for derivatives of integers
    return jax.ShapeDtypeStruct(what.shape, dtype)  # type: ignore[no-untyped-call]


def _call_back(*arrays: Any, step: Step | BatchedStep) -> Any:
    """Run a step on the host."""
    kinds = _kinds(step, arrays)

    def host(*given: Any) -> Any:
        found = step.call([np.asarray(each) for each in given])
        return tuple(
            np.zeros(kind.shape, kind.dtype) if each is None else np.asarray(each, kind.dtype)
            for each, kind in zip(found, kinds, strict=True)
        )

    return list(jax.pure_callback(host, tuple(kinds), *arrays))


def _call_now(*arrays: Any, step: Step | BatchedStep) -> Any:
    """Run a step on arrays with elements, where they are if kernels run there."""
    arrays = tuple(
        each  # if it is none of Python's numbers, which JAX passes on in some transformations
        if hasattr(each, "devices")
        else jax.numpy.asarray(each, getattr(each, "dtype", None))
        for each in arrays
    )
    devices = {device for each in arrays for device in each.devices()}
    if len(devices) > 1:
        return _call_back(*arrays, step=step)
    kinds = _kinds(step, arrays)
    if any(device.platform in ("gpu", "cuda") for device in devices) and _runs_on_gpus():
        given = [DeviceArray.of(from_dlpack(each)) for each in arrays]
        found = step.with_library(_ON_GPUS).call(given)
        results = [
            None if each is None else jax.dlpack.from_dlpack(each.astype(kind.dtype).ndarray())
            for each, kind in zip(found, kinds, strict=True)
        ]
    else:
        results = _call_on_host(step, [np.asarray(each) for each in arrays])
    place = next((each.device for each in arrays if each.committed), None)
    return [
        jax.numpy.zeros(kind.shape, kind.dtype, device=place)
        if each is None
        else jax.numpy.asarray(each, kind.dtype, device=place)
        for each, kind in zip(results, kinds, strict=True)
    ]


def _call_on_host(
    step: Step | BatchedStep, arrays: list[Any], memory: Sequence[Any] = ()
) -> list[Any]:
    """Run a step on arrays of numpy, which change when it has ended; None for those of integers.

    Outputs may be in `memory`; see `Step.call`.
    """
    if not _runs_on_host():
        # A device may access them later.
        arrays, memory = [np.array(each) for each in arrays], ()
    return step.call(arrays, memory)


def _runs_on_gpus() -> bool:
    """Whether kernels run on CUDA, where XLA's memory is theirs."""
    return current_runtime.device().dlpack_device[0] == GPU


def _runs_on_host() -> bool:
    """Whether kernels run in the memory of the host."""
    return current_runtime.device().shares_memory


def _lower_to_call(context: Any, *operands: Any, step: Step | BatchedStep) -> Any:
    """Let XLA call a step with pointers to its own memory."""
    context, operands, step = _without_needless_time(context, operands, step)
    arguments, results = _layouts(context)
    by_address = _by_address(step, arguments, results)

    def run(frame: xla_calls.CallFrame) -> None:
        if _runs_on_host() and by_address(frame):
            return
        given = [
            _host_array(address, *each)
            for address, each in zip(frame.arguments, arguments, strict=True)
        ]
        for each in given:
            each.flags.writeable = False
        targets = [
            _host_array(address, *each)
            for address, each in zip(frame.results, results, strict=True)
        ]
        for target, values in zip(targets, _call_on_host(step, given, targets), strict=True):
            if values is not target:
                np.copyto(target, 0 if values is None else values)

    return _custom_call(context, operands, xla_calls.XlaCall(run))


def _lower_to_gpu_call(context: Any, *operands: Any, step: Step | BatchedStep) -> Any:
    """The same on a GPU, if kernels run there; otherwise XLA calls the step on the host."""
    if not _runs_on_gpus():
        return _lower_to_callback(context, *operands, step=step)
    context, operands, step = _without_needless_time(context, operands, step)
    arguments, results = _layouts(context)
    on_gpu = step.with_library(_ON_GPUS)
    by_address = _by_address(on_gpu, arguments, results)

    def run(frame: xla_calls.CallFrame) -> None:
        if not _runs_on_gpus():
            raise CompiledForAnotherDevice().at()
        stream = frame.stream()
        devices = current_runtime.runtime().devices
        device = devices.at(DeviceArray(frame.results[0], *results[0]).device)
        device.wait_for_foreign(stream)
        if device is not devices.default or not by_address(frame):
            targets = _device_arrays(frame.results, results)
            given = _device_arrays(frame.arguments, arguments, is_read_only=True)
            for target, values in zip(targets, on_gpu.call(given, targets), strict=True):
                if values is not target:
                    target.assign(values)
        device.make_stream_wait(stream)

    return _custom_call(context, operands, xla_calls.XlaCall(run))


def _without_needless_time(
    context: Any, operands: tuple[Any, ...], step: Step | BatchedStep
) -> tuple[Any, tuple[Any, ...], Step | BatchedStep]:
    """The same step without the time of the value, if it reads no fields."""
    if isinstance(step, BatchedStep) or TIME not in step.inputs:
        return context, operands, step
    position, bare = step.inputs.index(TIME), step.without_time()
    kinds = [each for k, each in enumerate(context.avals_in) if k != position]
    without = context.replace(avals_in=kinds)
    if may_read_fields(bare, *_layouts(without)):
        return context, operands, step
    return without, operands[:position] + operands[position + 1 :], bare


def _lower_time(context: Any) -> Any:
    """Let XLA store the time."""

    def run(frame: xla_calls.CallFrame) -> None:
        _host_array(frame.results[0], (), np.dtype(np.int32))[...] = take_time()

    return _custom_call(context, (), xla_calls.XlaCall(run))


def _lower_time_on_gpu(context: Any) -> Any:
    """The same on a GPU."""
    if not _runs_on_gpus():
        return _lower_time_to_callback(context)

    kind = (), np.dtype(np.int32)

    def run(frame: xla_calls.CallFrame) -> None:
        stream = frame.stream()
        device = current_runtime.runtime().devices.at(DeviceArray(frame.results[0], *kind).device)
        device.wait_for_foreign(stream)
        device.write(frame.results[0], np.array([take_time()], np.int32).view(np.uint8))
        device.make_stream_wait(stream)

    return _custom_call(context, (), xla_calls.XlaCall(run))


def _time_by_callback() -> Any:
    kind = jax.ShapeDtypeStruct((), np.int32)  # type: ignore[no-untyped-call]
    return jax.pure_callback(lambda: np.array(take_time(), np.int32), kind)


def _by_address(
    step: Step | BatchedStep, arguments: Sequence[Shaped], results: Sequence[Shaped]
) -> Callable[[xla_calls.CallFrame], bool]:
    """A function that runs a step at the addresses of a call, or returns False."""
    if isinstance(step, BatchedStep):
        return lambda _: False
    repeated = RepeatedStep(step, arguments, results)
    return lambda frame: repeated.run(frame.arguments, frame.results)


def _custom_call(context: Any, operands: Sequence[Any], call: xla_calls.XlaCall) -> Any:
    context.module_context.add_keepalive(call.publish())
    return jax.ffi.ffi_lowering(_TARGET)(context, *operands, key=np.int64(call.key))


def _layouts(context: Any) -> tuple[list[Any], list[Any]]:
    """The shapes and dtypes of what a step takes and gives."""
    taken, given = (
        [Shaped(each.shape, np.dtype(each.dtype)) for each in kinds]
        for kinds in (context.avals_in, context.avals_out)
    )
    return taken, given


def _host_array(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """The elements at an address of XLA's, where they are."""
    nbytes = dtype.itemsize * math.prod(shape)
    if not nbytes:
        return np.zeros(shape, dtype)
    return describe(address, nbytes, dtype, shape, row_major(shape, dtype.itemsize))


def _device_arrays(
    addresses: Sequence[int], layouts: Sequence[Any], *, is_read_only: bool = False
) -> list[DeviceArray]:
    """The arrays at addresses of XLA's on a GPU."""
    return [
        DeviceArray(address, *layout, is_read_only=is_read_only)
        for address, layout in zip(addresses, layouts, strict=True)
    ]


def _shapes(*arrays: Any, step: Step | BatchedStep) -> Any:
    kinds = _kinds(step, arrays)
    like = next(filter(_varying, arrays), None)
    if like is None:
        return [jax.core.ShapedArray(each.shape, each.dtype) for each in kinds]
    return [
        like.update(
            shape=each.shape,
            dtype=each.dtype,
            weak_type=False,
            sharding=like.sharding.update(spec=(None,) * len(each.shape)),
        )
        for each in kinds
    ]


def _pushforward(arrays: Any, tangents: Any, *, step: Step | BatchedStep) -> Any:
    present = [_is_present(each) for each in tangents]
    if not isinstance(step, BatchedStep) and step.kind == "value" and TIME not in step.inputs:
        # The value takes the time, too, so that nothing is written between both.
        step, arrays = step.with_time(), _vary_alike([*arrays, _time.bind()])
        present.append(False)
    results = _step.bind(*arrays, step=step)
    if isinstance(step, BatchedStep):
        _, found = jax.jvp(
            _one_by_one(step, arrays, present),
            list(itertools.compress(arrays, present)),
            list(itertools.compress(tangents, present)),
        )
        return results, found
    found = _derive(step.pushforward(present), tangents, arrays)
    return results, [
        each
        if result.dtype.kind == "f"
        else ad.Zero(jax.core.ShapedArray(result.shape, jax.dtypes.float0))
        for each, result in zip(found, results, strict=True)
    ]


def _transpose(adjoints: Any, *arrays: Any, step: Step | BatchedStep) -> Any:
    linear = [ad.is_undefined_primal(each) for each in arrays]
    present = [_is_present(each) for each in adjoints]
    if not any(present):
        return [None] * len(arrays)
    if isinstance(step, BatchedStep):
        kinds = [each.aval for each, is_linear in zip(arrays, linear, strict=True) if is_linear]
        transposed = jax.linear_transpose(_one_by_one(step, arrays, linear), *kinds)
        given = [ad.instantiate_zeros(each) for each in adjoints]
        found = iter(transposed(given))
        return [next(found) if is_linear else None for is_linear in linear]
    found = iter(_derive(step.transposed(linear, present), adjoints, arrays))
    return [next(found) if is_linear else None for is_linear in linear]


def _derive(derivative: Derivative, directions: Any, arrays: Any) -> list[Any]:
    inputs = _vary_alike(derivative.inputs(directions, arrays))
    found: list[Any] = _step.bind(*inputs, step=derivative.step)
    return found


def _is_present(direction: Any) -> bool:
    """Whether a tangent or an adjoint is not surely zero."""
    return (
        type(direction) is not ad.Zero
        and getattr(direction, "dtype", None) != jax.dtypes.float0  # a float has none
    )


def _batch(arrays: Any, axes: Any, *, step: Step | BatchedStep) -> Any:
    """Run a step for the elements of a batch, together if they differ in directions only."""
    is_batched = [axis is not None for axis in axes]
    given = [
        each if axis is None else jax.numpy.moveaxis(each, axis, 0)
        for each, axis in zip(arrays, axes, strict=True)
    ]
    (count, *_) = (len(each) for each, counts in zip(given, is_batched, strict=True) if counts)
    batched = BatchedStep(step, count, is_batched)
    if batched.is_possible:
        results = _step.bind(*given, step=batched)
    else:
        results = _one_by_one(batched, given, is_batched)(*itertools.compress(given, is_batched))
    return results, [0] * len(results)


def _one_by_one(
    batched: BatchedStep, arrays: Sequence[Any], varying: Sequence[bool]
) -> Callable[..., Any]:
    """A step for the elements of a batch, one after the other, of the arrays that vary."""

    def run(*varied: Any) -> Any:
        left = iter(varied)
        given = [
            next(left) if varies else each for each, varies in zip(arrays, varying, strict=True)
        ]

        def single(elements: Any) -> Any:
            found = iter(elements)
            pairs = zip(given, batched.is_batched, strict=True)
            return _step.bind(*(next(found) if b else each for each, b in pairs), step=batched.step)

        return jax.lax.map(single, list(itertools.compress(given, batched.is_batched)))

    return run


_lower_to_callback = mlir.lower_fun(_call_back, multiple_results=True)
_lower_time_to_callback = mlir.lower_fun(_time_by_callback, multiple_results=False)
_step.def_impl(_call_now)
_step.def_abstract_eval(_shapes)
ad.primitive_jvps[_step] = _pushforward
ad.primitive_transposes[_step] = _transpose
batching.primitive_batchers[_step] = _batch
mlir.register_lowering(_step, _lower_to_callback)
_time.def_impl(lambda: jax.numpy.asarray(take_time(), np.int32))
_time.def_abstract_eval(lambda: jax.core.ShapedArray((), np.dtype(np.int32)))
mlir.register_lowering(_time, _lower_time_to_callback)
if getattr(jax, "__version_info__", (0,)) >= _FIRST_FOR_CALLS:
    _handler = jax.ffi.pycapsule(xla_calls.handler)  # type: ignore[no-untyped-call]
    # One interface writes the name of CUDA in capitals, the other does not.
    for platform, xla_platform, lower, lower_time in (
        ("cpu", "cpu", _lower_to_call, _lower_time),
        ("cuda", "CUDA", _lower_to_gpu_call, _lower_time_on_gpu),
    ):
        jax.ffi.register_ffi_target(_TARGET, _handler, platform=xla_platform)
        mlir.register_lowering(_step, lower, platform=platform)
        mlir.register_lowering(_time, lower_time, platform=platform)
