"""Kernels as functions of torch: ``octants.torch.function`` and ``octants.torch.Module``.

Needs torch (``pip install 'octants[torch]'``). Tensors stay on their device and are not copied: a
kernel for the CPU takes tensors there, one for CUDA takes tensors on the GPU, in torch's order.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from octants import api, driver
from octants.ad.array_function import ArrayFunction, ArrayLibrary, Shaped
from octants.ad.numpy_arrays import as_ndarray
from octants.data.dlpack_import import from_dlpack
from octants.data.ndarray import Ndarray
from octants.diagnostics.array_function_errors import NoSecondDerivative
from octants.diagnostics.optional_dependencies import import_optional

if TYPE_CHECKING:
    import torch
else:
    torch = import_optional("torch", "torch")

__all__ = ["Module", "function"]


class _TorchArrays(ArrayLibrary):
    """Tensors, which kernels are passed as they are; for forward mode, ndarrays in their memory."""

    def is_array(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def shaped(self, array: Any) -> Shaped:
        return Shaped(tuple(array.shape), _numpy_dtype(array.dtype))

    def copy(self, array: Any) -> Any:
        return array.detach().clone(memory_format=torch.contiguous_format)

    def zeros(self, what: Shaped, like: Sequence[Any]) -> Any:
        device = like[0].device if like else None
        return torch.zeros(what.shape, dtype=_torch_dtype(what.dtype), device=device)

    def argument(
        self, array: Any, element_dim: int, adjoint: Any = None, has_tangent: bool = False
    ) -> Any:
        plain = array.detach()
        if has_tangent and plain.device.type == "cpu":
            return as_ndarray(plain.numpy(), element_dim, needs_grad=False, needs_dual=True)
        if has_tangent:
            return from_dlpack(plain.contiguous(), element_dim=element_dim, needs_dual=True)
        if adjoint is None:
            return plain
        plain = plain.requires_grad_()
        zero = torch.zeros_like(array, memory_format=torch.preserve_format)
        plain.grad = zero if adjoint is True else zero.copy_(adjoint)
        return plain

    def result(self, argument: Any, array: Any) -> Any:
        if isinstance(argument, Ndarray) and not driver.device().shares_memory:
            if array.device.type == "cpu":
                return torch.from_numpy(argument.to_numpy())
            api.sync()
        return array

    def gradient(self, argument: Any) -> Any:
        return argument.grad

    def tangent(self, argument: Any, array: Any) -> Any:
        if array.device.type == "cpu":
            return torch.from_numpy(argument.dual.to_numpy())
        return torch.from_dlpack(argument.dual).clone()

    def numbers(self, array: Any) -> Any:
        return array.detach().cpu().numpy().reshape(-1)


class _Opaque(torch.autograd.Function):  # type: ignore[misc]
    """Calls a function with tensors that no transformation of torch has wrapped.

    Under ``torch.vmap`` it is called for each element of the batch. It has no derivative.
    """

    @staticmethod
    def forward(run: Any, *tensors: Any) -> Any:
        return run(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(_: Any, *__: Any) -> Any:
        raise NoSecondDerivative().at(None)

    @staticmethod
    def jvp(_: Any, *__: Any) -> Any:
        raise NoSecondDerivative().at(None)

    @classmethod
    def vmap(cls, info: Any, axes: Any, run: Any, *tensors: Any) -> Any:
        """The results for the elements of a batch, stacked."""
        results = [
            cls.apply(
                run,
                *(
                    each if axis is None else each.select(axis, position)
                    for each, axis in zip(tensors, axes[1:], strict=True)
                ),
            )
            for position in range(info.batch_size)
        ]
        stacked = tuple(torch.stack(each) for each in zip(*results, strict=True))
        return stacked, (0,) * len(stacked)


class _Differentiable(_Opaque):
    """The same for the value of an `ArrayFunction`, with both derivatives."""

    @staticmethod
    def forward(run: Any, *tensors: Any) -> Any:
        return run.value(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.run, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(each for each in output if not each.is_floating_point()))

    @staticmethod
    def backward(ctx: Any, *adjoints: Any) -> Any:
        needed = ctx.needs_input_grad[1:]
        run = functools.partial(ctx.run.pullback, needed, [each is None for each in adjoints])
        given = [each for each in adjoints if each is not None]
        found = iter(_Opaque.apply(run, *given, *ctx.saved_tensors))
        return (None, *(next(found) if is_needed else None for is_needed in needed))

    @staticmethod
    def jvp(ctx: Any, *given: Any) -> Any:
        tangents = given[1:]  # the first is that of what is run
        run = functools.partial(ctx.run.pushforward, [each is not None for each in tangents])
        known = [each for each in tangents if each is not None]
        return tuple(_Opaque.apply(run, *known, *ctx.saved_tensors))


class _Bound:
    """An `ArrayFunction` with its arguments, but for those that are tensors."""

    def __init__(self, function: ArrayFunction, bound: Mapping[str, Any]) -> None:
        self._function = function
        self._bound = {n: None if isinstance(v, torch.Tensor) else v for n, v in bound.items()}
        self.tensors = {n: v for n, v in bound.items() if isinstance(v, torch.Tensor)}
        self._names = tuple(self.tensors)

    def value(self, *tensors: Any) -> tuple[Any, ...]:
        """The results."""
        results = self._function.value(self._with(tensors))
        for kind in self._function.returns():
            results[-1] = torch.tensor(results[-1], dtype=_torch_dtype(np.dtype(kind.numpy)))
        return tuple(results)

    def pullback(
        self, needed: Sequence[bool], absent: Sequence[bool], *given: Any
    ) -> tuple[Any, ...]:
        """The gradients of the tensors where they are `needed`.

        `given` are the adjoints of the results, but for those that are `absent`, then the tensors.
        """
        count = len(given) - len(self._names)
        present = iter(given[:count])
        adjoints = [None if is_absent else next(present) for is_absent in absent]
        wanted = list(itertools.compress(self._names, needed))
        bound = self._with(given[count:])
        _, found = self._function.pullback(bound, adjoints, wanted)
        pairs = zip(self._names, given[count:], strict=True)
        return tuple(_like(found[name], tensor) for name, tensor in pairs if name in found)

    def pushforward(self, present: Sequence[bool], *given: Any) -> tuple[Any, ...]:
        """The tangents of the results.

        `given` are the tangents of the tensors that have one, then the tensors.
        """
        names = list(itertools.compress(self._names, present))
        tensors = given[len(names) :]
        tangents = dict(zip(names, given, strict=False))
        _, found = self._function.pushforward(self._with(tensors), tangents)
        return tuple(found)

    def _with(self, tensors: Sequence[Any]) -> dict[str, Any]:
        """The arguments; tensors for numbers of a kernel are such numbers."""
        found = dict(self._bound)
        for name, tensor in zip(self._names, tensors, strict=True):
            found[name] = tensor if self._function.is_array(name, tensor) else tensor.item()
        return found


def _like(gradient: Any, argument: Any) -> Any:
    """A gradient as a tensor, also that by a tensor of one element that stands for a number."""
    if isinstance(gradient, torch.Tensor):
        return gradient
    return torch.full_like(argument, gradient)


def function(
    kernel: Callable[..., Any],
    out: Mapping[str, Any] | None = None,
    *,
    inout: Iterable[str] = (),
) -> Callable[..., Any]:
    """A differentiable function of torch from a kernel, or from a function that launches kernels.

    Its results have a gradient by every tensor that requires one, by reverse mode (`backward`,
    ``torch.autograd.grad``, ``torch.func.grad``) and by forward mode (``torch.func.jvp``); it works
    under ``torch.vmap``, which calls it for each element of the batch, and ``torch.compile`` calls
    it as it is. Derivatives of the gradient are an error. The backward pass launches the kernels
    again, under a tape, so that only the arguments are kept. Example:

        @qd.kernel
        def squares(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
            for i in x:
                y[i] = x[i] ** 2

        square = octants.torch.function(squares, out={"y": "x"})
        square(torch.ones(3, requires_grad=True)).sum().backward()

    Args:
        kernel: a kernel, or a Python function whose parameters are what its kernels take.
        out: for each parameter that the call makes: the name of an argument whose shape and dtype
            it has, a shape, a pair of a shape and a dtype (of Octants or numpy), or a function of
            the arguments by name that returns one of these. Outputs begin as zeros, on the device
            of the first tensor.
        inout: parameters that the kernel updates in place. It is given copies, which are returned.

    Returns:
        A function of the other parameters, by position or name. It returns the outputs in the order
        of the parameters, then the number that the kernel returns, as a tensor; one result alone
        is not in a tuple.

    Raises:
        OctantsTypeError: `out` or `inout` names what is no parameter; in the backward pass: there
            is no gradient by an argument that requires one.
        OctantsCallError: at a call: an argument is missing or unknown.
    """
    made = ArrayFunction(kernel, out, inout, _TorchArrays())

    def call(*arguments: Any, **named: Any) -> Any:
        bound = made.bind(arguments, named)
        run = _Bound(made, bound)
        results = _Differentiable.apply(run, *run.tensors.values())
        return results[0] if len(results) == 1 else results

    call.__name__ = made.name
    call.__doc__ = f"`{made.name}` as a function of torch, of {', '.join(made.inputs)}."
    found: Callable[..., Any] = torch.compiler.disable(call)
    return found


class Module(torch.nn.Module):  # type: ignore[misc]
    """A kernel with parameters that torch trains; see `function` for `out` and `inout`.

    Example:
        layer = octants.torch.Module(
            dense, out={"y": lambda x, w: (x.shape[0], w.shape[1])}, w=torch.randn(4, 8)
        )
        optimiser = torch.optim.Adam(layer.parameters())
        y = layer(x)

    Args:
        kernel: the kernel, or a function that launches kernels.
        out: the outputs.
        inout: the parameters of the kernel that it updates in place.
        parameters: the start of each parameter of the kernel that is to be trained, by its name.

    Raises:
        OctantsTypeError: a name is no parameter of the kernel.
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
        self._call = function(kernel, out, inout=inout)
        for name, start in parameters.items():
            given = start if isinstance(start, torch.nn.Parameter) else torch.nn.Parameter(start)
            self.register_parameter(name, given)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Call the kernel with these arguments and the parameters of the module."""
        return self._call(*arguments, **named, **dict(self.named_parameters()))


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    return np.dtype(str(dtype).removeprefix("torch."))


def _torch_dtype(dtype: np.dtype[Any]) -> Any:
    return getattr(torch, dtype.name)
