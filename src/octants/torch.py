"""Kernels as functions of torch: ``octants.torch.function`` and ``octants.torch.Module``.

Needs torch (``pip install 'octants[torch]'``). Tensors stay on their device and are not copied: a
kernel for the CPU takes tensors there, one for CUDA takes tensors on the GPU, in torch's order.
Programs that torch records, to compile or to export them, call the operator ``octants::step``.
"""

from __future__ import annotations

import inspect
import itertools
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from octants import api, driver
from octants.ad.array_libraries.array_library_protocol import ArrayLibrary, Shaped
from octants.ad.array_libraries.device_array_library import DeviceArray
from octants.ad.array_libraries.numpy_array_library import as_ndarray
from octants.ad.array_libraries.recycled_array_library import RecycledArrays
from octants.ad.functions.array_function import ONE_AT_A_TIME, ArrayFunction
from octants.ad.functions.batched_steps import BatchedStep
from octants.ad.functions.calls_by_address import RepeatedStep
from octants.ad.functions.field_checks import DerivativeOf, now
from octants.ad.functions.higher_derivatives import Derivative, Step, value_step
from octants.ad.tapes.tape_losses import OuterLoss
from octants.data.dlpack_import import from_dlpack
from octants.data.ndarray import Ndarray
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.kernel_as_function_errors import RecordedElsewhere
from octants.diagnostics.optional_dependencies import import_optional
from octants.launch.kernel import Kernel
from octants.runtime.arguments.parameters import template_key
from octants.runtime.memory.host import describe
from octants.types.layouts import row_major
from octants.types.specialisation_signature import ScalarType

if TYPE_CHECKING:
    import torch
    from torch.autograd import forward_ad
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_leaves, tree_map
else:
    torch = import_optional("torch", "torch")
    from torch.autograd import forward_ad
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["Module", "function", "loss"]


class _TracksComputations:
    """The base of libraries whose functions may also compute by torch."""

    tracks_computations = True
    refuses_gradient_ends = True

    def tracking_computations(
        self, outputs: Sequence[Any], refuse: Callable[[Any], None]
    ) -> _Tracking:
        return _Tracking(outputs, refuse)

    def activate(self, value: Any) -> bool:
        is_scratch = type(value) is torch.Tensor and value.is_floating_point()
        if not is_scratch or value.requires_grad or value._base is not None:
            return False
        value.requires_grad_()
        return True

    def deactivate(self, array: Any) -> None:
        array.requires_grad_(False).grad = None

    def is_computed(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.requires_grad and not value.is_leaf


class _TorchArrays(_TracksComputations, ArrayLibrary):
    """Tensors, which kernels are passed as they are; for forward mode, ndarrays in their memory."""

    def is_array(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def shaped(self, array: Any) -> Shaped:
        return _shaped(array)

    def dtype(self, given: Any) -> np.dtype[Any]:
        return _numpy_dtype(given) if isinstance(given, torch.dtype) else np.dtype(given)

    def copy(self, array: Any, dtype: np.dtype[Any] | None = None) -> Any:
        made = array.detach().clone(memory_format=torch.contiguous_format)
        return made if dtype is None else made.to(_torch_dtype(dtype))

    def of_number(self, number: Any, like: Any) -> Any:
        found = torch.as_tensor(np.asarray(number), dtype=like.dtype, device=like.device)
        return found.reshape(like.shape).clone()

    def zeros(self, what: Shaped, like: Sequence[Any]) -> Any:
        device = like[0].device if like else None
        return torch.zeros(what.shape, dtype=_torch_dtype(what.dtype), device=device)

    def join(self, arrays: Sequence[Any]) -> Any:
        return torch.cat(list(arrays))

    def argument(
        self,
        array: Any,
        element_dim: int,  # noqa: ARG002
        adjoint: Any = None,
        *,
        observed: bool = False,  # noqa: ARG002 (torch counts writes)
    ) -> Any:
        plain = array.detach()
        if adjoint is None:
            return plain
        plain = plain.requires_grad_()
        zero = torch.zeros_like(array, memory_format=torch.preserve_format)
        plain.grad = zero if adjoint is True else zero.copy_(adjoint)
        return plain

    def ndarray(self, array: Any, element_dim: int, needs_grad: bool) -> Ndarray:
        plain = array.detach()
        if plain.device.type == "cpu":
            return as_ndarray(plain.numpy(), element_dim, needs_grad)
        return from_dlpack(plain.contiguous(), element_dim=element_dim, needs_grad=needs_grad)

    def of_ndarray(self, ndarray: Ndarray, like: Any) -> Any:
        if like.device.type == "cpu":
            return torch.from_numpy(ndarray.to_numpy())
        return torch.from_dlpack(ndarray).clone()

    def result(self, argument: Any, array: Any) -> Any:
        if isinstance(argument, Ndarray) and not driver.device().shares_memory:
            if array.device.type == "cpu":
                return torch.from_numpy(argument.to_numpy())
            api.sync()
        return array

    def gradient(self, argument: Any) -> Any:
        return argument.grad


class _ProxyTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor that a function is passed for an ndarray of Octants, in the memory of that.

    Kernels take the ndarray. An operator of torch takes a tensor that shares its memory, as if the
    program had asked for that; a function with a gradient of its own takes the proxy.
    """

    octants_ndarray: Any = None

    @classmethod
    def of(cls, ndarray: Ndarray) -> Any:
        """The proxy for an ndarray."""
        array = DeviceArray.of(ndarray)
        if not driver.device().shares_memory:
            plain = torch.as_tensor(array, device=f"cuda:{ndarray.device}")
        elif ndarray.nbytes:
            strides = row_major(array.shape, array.dtype.itemsize)
            layout = array.dtype, array.shape, strides
            plain = torch.from_numpy(describe(array.address, ndarray.nbytes, *layout))
        else:
            plain = torch.empty(array.shape, dtype=_torch_dtype(array.dtype))
        with torch._C.DisableTorchFunctionSubclass():
            made = plain.as_subclass(cls).requires_grad_(ndarray.has_grad())
        made.octants_ndarray = ndarray
        return made

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func in _OF_SHAPES:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **named)
        given = tuple(args), named
        shared = tree_map(_shared, given)
        device, stream = driver.device(), -1
        if not device.shares_memory:
            stream = torch.cuda.current_stream(device.number).cuda_stream
            device.make_stream_wait(stream)  # for the launches before
        found = func(*shared[0], **shared[1])
        if not device.shares_memory:
            device.wait_for_foreign(stream)
        pairs = zip(tree_leaves(given), tree_leaves(shared), strict=True)
        proxies = {id(tensor): proxy for proxy, tensor in pairs}
        # An update returns what it updates, such as `y += 1`.
        return tree_map(lambda each: proxies.get(id(each), each), found)


_OF_SHAPES = {
    torch.Tensor.dim,
    torch.Tensor.numel,
    torch.Tensor.size,
    torch.Tensor.__len__,
    torch.Tensor.device.__get__,
    torch.Tensor.dtype.__get__,
    torch.Tensor.ndim.__get__,
    torch.Tensor.shape.__get__,
}


def _shared(value: Any) -> Any:
    """The tensor in the memory of an ndarray, of a proxy; anything else as it is."""
    if type(value) is not _ProxyTensor:
        return value
    ndarray = value.octants_ndarray
    return ndarray.to_torch(copy=False).requires_grad_(ndarray.has_grad())


class _RecycledTensors(_TracksComputations, RecycledArrays):
    """The same for functions that launch kernels, and may do anything with tensors.

    If they do more than to pass them to kernels, there is no other call on these arrays.
    """

    def given(self, argument: Any) -> Any:
        return _ProxyTensor.of(argument) if isinstance(argument, Ndarray) else argument


_TorchArrays.recycled = _RecycledTensors


class _Tracking(TorchFunctionMode):  # type: ignore[misc]
    """Lets torch track what it computes from arguments, unless the program says ``no_grad``.

    Where it tracks, it refuses to update an argument in place. That is right for inputs; updates of
    outputs are not tracked, since the tape notices those that it may not ignore: they are refused
    if they write what was computed from an argument.
    """

    def __init__(self, outputs: Sequence[Any], refuse: Callable[[Any], None]) -> None:
        super().__init__()
        self._outputs, self._refuse = outputs, refuse
        self._tracked = torch.enable_grad()

    def __enter__(self) -> Any:
        self._tracked.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._tracked.__exit__(*error)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.__name__
        is_update = name.endswith("_") and not name.endswith("__")
        is_update = is_update or name == "__setitem__" or name.startswith("__i")
        named = kwargs or {}
        target = args[0] if args else named.get("input")
        if not is_update or all(target is not each for each in self._outputs):
            return func(*args, **named)
        others = [each for each in tree_leaves((args, named)) if each is not target]
        is_computed = any(isinstance(x, torch.Tensor) and x.requires_grad for x in others)
        if is_computed and torch.is_grad_enabled():
            self._refuse(target)
        with torch.no_grad():
            return func(*args, **named)


class _Node(torch.autograd.Function):  # type: ignore[misc]
    """Runs a step with tensors that no transformation of torch has wrapped.

    A value that has drawn random numbers has one more output, the number of its first launch, by
    which its derivatives draw the same. Under ``torch.vmap``, steps that only differ in directions
    run together, others one by one.
    """

    @staticmethod
    def forward(step: Step, *tensors: Any) -> Any:
        if _is_recorded(tensors):
            return _recorded(step, tensors)
        results = _called_by_address(step, tensors)
        if results is not None:
            return results
        if any(map(_is_batched, tensors)):
            return _called_for_rows(step, tensors)
        found, number = step.call_with_number(_dense(tensors))
        is_new = number is not None and step.kind == "value"
        return (*found, torch.tensor(number)) if is_new else tuple(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.step, *tensors = inputs
        ctx.has_number = len(output) > len(ctx.step.outputs)
        if ctx.has_number:
            ctx.step = ctx.step.with_number()
            tensors.append(output[-1])
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.time = now()
        exact = [each for each in output if each is not None and not each.is_floating_point()]
        if exact:
            ctx.mark_non_differentiable(*exact)

    @staticmethod
    def backward(ctx: Any, *adjoints: Any) -> Any:
        needed = ctx.needs_input_grad[1:]
        adjoints = adjoints[: len(ctx.step.outputs)]
        present = [each is not None for each in adjoints]
        if not any(present):
            return (None,) * (1 + len(needed))
        number = (False,) * ctx.has_number
        derivative = ctx.step.pullback((*needed, *number), present)
        with DerivativeOf(ctx.time):
            found = iter(_apply(derivative, adjoints, ctx.saved_tensors))
        return (None, *[next(found) if is_needed else None for is_needed in needed])

    @staticmethod
    def jvp(ctx: Any, *given: Any) -> Any:
        number = (None,) * ctx.has_number
        tangents = (*given[1:], *number)  # the first is that of the step
        derivative = ctx.step.pushforward([each is not None for each in tangents])
        with DerivativeOf(ctx.time):
            return (*_apply(derivative, tangents, ctx.saved_tensors), *number)

    @classmethod
    def vmap(cls, info: Any, axes: Any, step: Step, *tensors: Any) -> Any:
        """The results for the elements of a batch, stacked."""
        given = [
            each if axis is None else each.movedim(axis, 0)
            for each, axis in zip(tensors, axes[1:], strict=True)
        ]
        is_batched = [axis is not None for axis in axes[1:]]
        batched = BatchedStep(step, info.batch_size, is_batched)
        if not info.batch_size:
            shapes = batched.output_shapes(list(map(_shaped, given)))
            found = tuple(step.function.library.zeros(each, given) for each in shapes)
        elif batched.is_possible:
            found = _BatchedNode.apply(batched, *given)
        else:
            elements = (batched.element(given, k) for k in range(info.batch_size))
            found = _stacked([cls.apply(step, *each) for each in elements])
        return found, tuple(None if each is None else 0 for each in found)


_steps: dict[str, tuple[Any, Step | BatchedStep]] = {}
"""The steps in programs that torch has recorded, by their keys, from the one used longest ago on,
each with its key in `_known_keys`.
"""
_MOST_RECORDED = 4096
"""The most of these: a program that calls another one is recorded again."""
_keys = (f"{secrets.token_hex(8)}_{k}" for k in itertools.count())
"""Keys that no other process has: torch keeps compiled programs for later ones."""

_known_keys: dict[Any, str] = {}
_library = torch.library.Library("octants", "DEF")
_library.define("step(str key, Tensor[] inputs) -> Tensor[]")
_HAS_NO_RULE = torch.Tensor.__torch_dispatch__


def _run_recorded(key: str, inputs: Sequence[Any]) -> list[Any]:
    """Run a step of a recorded program."""
    found = _step_of(key).call(_dense(inputs))
    return [torch.empty(0) if each is None else each for each in found]


def _record(key: str, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a step as torch records it, without elements."""
    where = inputs[0].device if inputs else None
    return [
        torch.empty(what.shape, dtype=_torch_dtype(what.dtype), device=where)
        for what in _step_of(key).output_shapes(list(map(_shaped, inputs)))
    ]


_library.impl("step", _run_recorded, "CompositeExplicitAutograd")
torch.library.register_fake("octants::step", _record, lib=_library)


def _is_recorded(tensors: Sequence[Any]) -> bool:
    """Whether torch records what a program does, or passes tensors with rules of their own."""
    if torch._C._len_torch_dispatch_stack():
        return True
    return any(type(each).__torch_dispatch__ is not _HAS_NO_RULE for each in tensors)


def _recorded(step: Step | BatchedStep, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of a step that is called by an operator of torch; None for those of integers."""
    key = _key_of(step)
    found = torch.ops.octants.step(key, list(tensors))
    kinds = [kind for kind, _ in step.outputs]
    return tuple(
        each if kind == "f" or each.is_floating_point() else None
        for each, kind in zip(found, kinds, strict=True)
    )


def _step_of(key: str) -> Step | BatchedStep:
    """The step with a key, which is used.

    Raises:
        OctantsRuntimeError: there is none.
    """
    with ONE_AT_A_TIME:
        found = _steps.pop(key, None)
        if found is None:
            raise RecordedElsewhere(key).at()
        _steps[key] = found
        return found[1]


def _key_of(step: Step | BatchedStep) -> str:
    """The key of a step, which is recorded; those with the same constants have one."""
    batch: Any = None
    alone: Any = step
    if isinstance(step, BatchedStep):
        batch, alone = (step.count, tuple(step.is_batched)), step.step
    constants = template_key(alone.constants)
    what = alone.function, alone.inputs, alone.outputs, constants, batch
    with ONE_AT_A_TIME:
        key = _known_keys.setdefault(what, next(_keys))
        _steps.pop(key, None)
        _steps[key] = what, step
        while len(_steps) > _MOST_RECORDED:
            oldest, _ = _steps.pop(next(iter(_steps)))
            del _known_keys[oldest]
    return key


_is_batched = torch._C._functorch.is_legacy_batchedtensor
"""Whether a tensor stands for a batch, as in ``torch.autograd.grad(is_grads_batched=True)``."""


def _called_for_rows(step: Step, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of a step for the elements of such a batch."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    axes = [0 if _is_batched(each) else None for each in tensors]
    given = [
        each if axis is None else torch._remove_batch_dim(each, level, 1, 0)
        for each, axis in zip(tensors, axes, strict=True)
    ]
    count = next(len(each) for each, axis in zip(given, axes, strict=True) if axis == 0)
    found, _ = _Node.vmap(SimpleNamespace(batch_size=count), (None, *axes), step, *given)
    return tuple(None if each is None else torch._add_batch_dim(each, 0, level) for each in found)


def _dense(tensors: Sequence[Any]) -> list[Any]:
    """Tensors with elements in memory, also where torch knows that all of them are zero."""
    return [each.clone() if each._is_zerotensor() else each for each in tensors]


_PLAIN = int, float, str, type(None)
_MOST_REPEATED = 64
"""The most steps of a function that are remembered."""


def _called_by_address(step: Step, tensors: Sequence[Any]) -> tuple[Any, ...] | None:
    """The outputs of a step; None if it must be evaluated."""
    device = driver.device()
    if step.kind != "value":
        pairs = zip(step.inputs, tensors, strict=True)
        tensors = [each.contiguous() if role.kind == "a" else each for role, each in pairs]
    is_here = _is_on_host if device.shares_memory else _is_on_gpu
    if not tensors or not all(is_here(each, device) for each in tensors):
        return None
    try:
        repeated = _repeated(step, tensors)
    except (OctantsError, TypeError):  # types that kernels do not have, as an evaluation says
        return None
    if repeated is None:
        return None
    call, made = repeated
    where = tensors[0].device
    found = tuple([torch.empty(shape, dtype=dtype, device=where) for shape, dtype in made])
    addresses = [each.data_ptr() for each in tensors], [each.data_ptr() for each in found]
    if device.shares_memory:
        return found if call.run(*addresses, step.constants) else None
    stream = torch.cuda.current_stream(where).cuda_stream
    device.wait_for_foreign(stream)
    is_done = call.run(*addresses, step.constants)
    device.make_stream_wait(stream)
    return found if is_done else None


def _repeated(
    step: Step, tensors: Sequence[Any]
) -> tuple[RepeatedStep, list[tuple[tuple[int, ...], Any]]] | None:
    """A step for tensors of certain types, and the shapes and dtypes of its outputs.

    None if they depend on numbers in tensors, or constants are no numbers or strings.
    """
    function = step.function
    is_kernel = isinstance(function.kernel, Kernel)
    for name, value in step.constants.items():
        if is_kernel and not isinstance(function.annotation(name), ScalarType):
            return None
        if not is_kernel and not isinstance(value, _PLAIN):
            return None
    kinds = tuple([(each.shape, each.dtype) for each in tensors])
    types = tuple(map(type, step.constants.values()))
    key: tuple[Any, ...] = step.inputs, step.outputs, kinds, types, driver.state.generation
    if function.computes_shapes:
        names = [role.name for role in step.inputs if role.kind == "x"]
        if any(isinstance(function.annotation(name), ScalarType) for name in names):
            return None
        key += tuple(step.result_shapes(list(map(_shaped, tensors))))
    found = function.repeated.get(key)
    if found is None:
        inputs = list(map(_shaped, tensors))
        outputs = step.output_shapes(inputs)
        shapes = [(each.shape, _torch_dtype(each.dtype)) for each in outputs]
        if len(function.repeated) == _MOST_REPEATED:
            function.repeated.clear()
        found = function.repeated[key] = RepeatedStep(step, inputs, outputs), shapes
    return found


def _is_on_host(tensor: Any, _: Any) -> bool:
    """Whether the elements of a tensor are in the memory of the host as a kernel wants them."""
    return tensor.is_cpu and _is_row_major(tensor)


def _is_on_gpu(tensor: Any, device: Any) -> bool:
    """Whether they are in that of a GPU."""
    where = tensor.device
    return where.type == "cuda" and where.index == device.number and _is_row_major(tensor)


def _is_row_major(tensor: Any) -> bool:
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    is_strided = is_plain and tensor.layout is torch.strided
    has_memory = is_strided and tensor.is_contiguous() and not tensor._is_zerotensor()
    return has_memory and not (tensor.is_neg() or tensor.is_conj() or _is_batched(tensor))


class _BatchedNode(_Node):
    """Runs a step for several directions at once; its derivatives are those of each."""

    @staticmethod
    def forward(step: Any, *tensors: Any) -> Any:
        if _is_recorded(tensors):
            return _recorded(step, tensors)
        return tuple(step.call(_dense(tensors)))

    @staticmethod
    def backward(ctx: Any, *adjoints: Any) -> Any:
        batched, needed = ctx.step, ctx.needs_input_grad[1:]
        if all(each is None for each in adjoints):
            return (None,) * (1 + len(needed))
        derivative = batched.step.pullback(needed, [each is not None for each in adjoints])
        with DerivativeOf(ctx.time):
            rows = _stacked(
                [
                    _apply(
                        derivative,
                        [None if each is None else each[k] for each in adjoints],
                        batched.element(ctx.saved_tensors, k),
                    )
                    for k in range(batched.count)
                ]
            )
        left = iter(rows)
        found: list[Any] = [None]
        for is_needed, is_batched in zip(needed, batched.is_batched, strict=True):
            row = next(left) if is_needed else None
            found.append(row if row is None or is_batched else row.sum(0))
        return tuple(found)

    @staticmethod
    def jvp(ctx: Any, *given: Any) -> Any:
        batched, tangents = ctx.step, given[1:]
        derivative = batched.step.pushforward([each is not None for each in tangents])
        with DerivativeOf(ctx.time):
            return _stacked(
                [
                    _apply(
                        derivative,
                        batched.element(tangents, k),
                        batched.element(ctx.saved_tensors, k),
                    )
                    for k in range(batched.count)
                ]
            )


for _kind in (_Node, _BatchedNode):  # torch asks for the signature at each call
    _kind.forward.__signature__ = inspect.signature(_kind.forward)  # type: ignore[attr-defined]


class _PlainNode(_Node):
    """The same outside of the transformations of ``torch.func``, where torch does less."""

    @staticmethod
    def forward(ctx: Any, step: Step, *tensors: Any) -> Any:  # type: ignore[override]
        found = _Node.forward(step, *tensors)
        _Node.setup_context(ctx, (step, *tensors), found)
        return found

    setup_context = torch.autograd.Function.setup_context


_is_transformed = torch._C._are_functorch_transforms_active


def _called(step: Step, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of a step, with their derivatives where torch wants any."""
    found: tuple[Any, ...]
    if _is_transformed():
        found = _Node.apply(step, *tensors)
    elif forward_ad._current_level >= 0 or (
        torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    ):
        found = _PlainNode.apply(step, *tensors)
    else:
        found = _Node.forward(step, *tensors)
    return found


def _stacked(results: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """The results for each element of a batch, stacked; None for what has no derivative."""
    return tuple(
        None if each[0] is None else torch.stack(each) for each in zip(*results, strict=True)
    )


def _apply(derivative: Derivative, directions: Any, tensors: Any) -> tuple[Any, ...]:
    """The results of a derivative of a step, as a step of torch."""
    return _called(derivative.step, derivative.inputs(directions, tensors))


def function(
    kernel: Callable[..., Any],
    out: Mapping[str, Any] | None = None,
    *,
    inout: Iterable[str] = (),
) -> Callable[..., Any]:
    """A differentiable function of torch from a kernel, or from a function that launches kernels.

    Its results have a gradient by every tensor that requires one, by reverse mode (`backward`,
    ``torch.autograd.grad``, ``torch.func.grad``) and by forward mode (``torch.func.jvp``); it works
    under ``torch.vmap``, which calls it for each element of a batch of arguments, and propagates up
    to 8 elements of a batch of directions in each launch, as in ``torch.func.jacrev``;
    ``torch.compile`` and ``torch.export`` record it as one operator. The gradient has derivatives
    by reverse and by forward mode (`gradgradcheck`, ``torch.func.hessian``); third derivatives are
    an error. The backward pass launches the kernels again, under a tape, so that only the arguments
    are kept. Example::

        @qd.kernel
        def squares(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
            for i in x:
                y[i] = x[i] ** 2

        square = octants.torch.function(squares, out={"y": "x"})
        square(torch.ones(3, requires_grad=True)).sum().backward()

    Args:
        kernel: a kernel, or a Python function whose parameters are what its kernels take.
        out: the outputs: parameters for which the call makes tensors of zeros, on the device of the
            first tensor. By the name of each, the name of an argument of the same shape and dtype,
            a shape, a pair of a shape and a dtype (of any library), or a function of the
            arguments by name that returns one of these.
        inout: parameters that the kernel updates in place. The call passes it copies, and returns
            them.

    Returns:
        A function of the other parameters, by position or name. It returns the outputs in the order
        of the parameters, then the number that the kernel returns, as a tensor; one result alone
        is not in a tuple.

    Raises:
        OctantsTypeError: `out` or `inout` names an unknown parameter; in the backward pass: there
            is no gradient by an argument that requires one.
        OctantsCallError: at a call: an argument is missing or unknown.
        OctantsRuntimeError: in the backward pass: the kernel has read a field that was written
            after the call.
    """
    return _function(ArrayFunction(kernel, out, inout, _TorchArrays()))


def _function(made: ArrayFunction) -> Callable[..., Any]:
    """The function that `function` returns."""

    def call(*arguments: Any, **named: Any) -> Any:
        bound = made.bind(arguments, named)
        names = [name for name, each in bound.items() if isinstance(each, torch.Tensor)]
        if len(names) < len(bound):
            bound = {name: _number(each) for name, each in bound.items()}
        step = value_step(made, bound, names)
        results = _called(step, [bound[name] for name in names])[: len(step.outputs)]
        return results[0] if len(results) == 1 else results

    untraced = torch.compiler.disable(call)  # where a program calls it outside of a graph

    def recorded(*arguments: Any, **named: Any) -> Any:
        return untraced(*arguments, **named)

    recorded.__name__ = made.name
    recorded.__doc__ = f"`{made.name}` as a function of torch, of {', '.join(made.inputs)}."
    found: Callable[..., Any] = torch.compiler.allow_in_graph(recorded)
    return found


def _number(value: Any) -> Any:
    """A number of a program that torch compiles, which it compiles again for others."""
    if isinstance(value, torch.SymFloat):
        return float(value)
    return int(value) if isinstance(value, torch.SymInt) else value


class Module(torch.nn.Module):  # type: ignore[misc]
    """A kernel with parameters that torch trains, as a module of torch.

    Example::

        layer = octants.torch.Module(
            dense, out={"y": lambda x, w: (x.shape[0], w.shape[1])}, w=torch.randn(4, 8)
        )
        optimiser = torch.optim.Adam(layer.parameters())
        y = layer(x)

    Args:
        kernel: the kernel, or a function that launches kernels.
        out: the outputs, as for `function`.
        inout: the parameters of the kernel that it updates in place.
        parameters: by the name of each parameter of the kernel that torch trains: its first value,
            a tensor or a number.

    Raises:
        OctantsCallError: a name is no parameter of the kernel that a caller gives.
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        out: Mapping[str, Any] | None = None,
        *,
        inout: Iterable[str] = (),
        **parameters: Any,
    ) -> None:
        super().__init__()
        self._function = kernel, out, inout if isinstance(inout, str) else tuple(inout)
        self._trained = tuple(parameters)
        made = self._make_call()
        for name, start in parameters.items():
            if name not in made.inputs:
                raise made.unknown_input(name)
            is_made = isinstance(start, torch.nn.Parameter)
            numbers = float(start) if isinstance(start, int) else start
            given = start if is_made else torch.nn.Parameter(torch.as_tensor(numbers))
            self.register_parameter(name, given)

    def __getstate__(self) -> dict[str, Any]:
        """The state that pickle stores: the function is made again."""
        return {name: each for name, each in self.__dict__.items() if name != "_call"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what `__getstate__` returned."""
        super().__setstate__(state)
        self._make_call()

    def _make_call(self) -> ArrayFunction:
        kernel, out, inout = self._function
        made = ArrayFunction(kernel, out, inout, _TorchArrays())
        self._call = _function(made)
        return made

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Call the kernel with these arguments and the parameters of the module."""
        trained = {name: getattr(self, name) for name in self._trained}
        return self._call(*arguments, **named, **trained)


class _Loss(OuterLoss):
    """A loss that torch computes."""

    def __init__(self, function: Callable[..., Any], arrays: Sequence[Any]) -> None:
        super().__init__(arrays)
        self._function = function

    def differentiate(self, arrays: list[Any]) -> tuple[float, list[Any]]:
        tensors = [torch.from_numpy(each).requires_grad_() for each in arrays]
        value = self._function(*tensors)
        value.backward()
        adjoints = [torch.zeros_like(t) if t.grad is None else t.grad for t in tensors]
        return value.item(), [each.numpy() for each in adjoints]


def loss(function: Callable[..., Any], *arrays: Any) -> OuterLoss:
    """A loss that torch computes from fields and ndarrays, for ``ad.Tape(loss=...)``.

    At the end of the body, the function is called with tensors that hold the contents of the
    arrays; its gradient becomes their adjoint. Parameters of torch that it uses get their
    gradients, too. Example::

        loss = octants.torch.loss(lambda y: (network(y) - target).square().mean(), y)
        with qd.ad.Tape(loss=loss):
            simulate(x, y)
        print(loss.number, x.grad.to_numpy())

    Args:
        function: a function of a tensor on the CPU for each array, that returns a scalar.
        arrays: fields and ndarrays with a gradient.

    Returns:
        The loss, for any number of tapes, one after the other. Its `number` is the last value.

    Raises:
        OctantsRuntimeError: an argument is no field or ndarray, or has no gradient.
    """
    return _Loss(function, arrays)


def _shaped(tensor: Any) -> Shaped:
    return Shaped(tuple(tensor.shape), _numpy_dtype(tensor.dtype))


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    return np.dtype(str(dtype).removeprefix("torch."))


def _torch_dtype(dtype: np.dtype[Any]) -> Any:
    return getattr(torch, dtype.name)
