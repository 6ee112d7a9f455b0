"""Kernels as functions of JAX: ``octants.jax.function``.

Needs JAX (``pip install 'octants[jax]'``). JAX calls the kernels on the host, by its
``pure_callback``: on the CPU they use the memory of its arrays, and results are copied once; arrays
on a GPU travel to the host and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from octants.ad.array_function import ArrayFunction, Shaped
from octants.ad.numpy_arrays import NumpyArrays
from octants.diagnostics.array_function_errors import NoSecondDerivative, WrongMode
from octants.diagnostics.optional_dependencies import import_optional

if TYPE_CHECKING:
    import jax
else:
    jax = import_optional("jax", "jax")

__all__ = ["function"]

MODES = ("reverse", "forward")


def function(
    kernel: Callable[..., Any],
    out: Mapping[str, Any] | None = None,
    *,
    inout: Iterable[str] = (),
    mode: str = "reverse",
) -> Callable[..., Any]:
    """A differentiable function of JAX from a kernel, or from a function that launches kernels.

    It works under ``jax.jit``, ``jax.vmap`` (which calls it for each element of the batch) and
    ``jax.grad`` and ``jax.vjp``, or with ``mode="forward"`` under ``jax.jvp`` and ``jax.jacfwd``:
    JAX allows a function one rule of its own. Derivatives of derivatives are an error. The
    backward pass launches the kernels again, under a tape, so that only the arguments are kept.

    Example:
        @qd.kernel
        def squares(x: qd.types.ndarray(ndim=1), y: qd.types.ndarray(ndim=1)):
            for i in x:
                y[i] = x[i] ** 2

        square = octants.jax.function(squares, out={"y": "x"})
        jax.grad(lambda x: square(x).sum())(jnp.ones(3))

    Args:
        kernel: a kernel, or a Python function whose parameters are what its kernels take.
        out: for each parameter that the call makes: the name of an argument whose shape and dtype
            it has, a shape, a pair of a shape and a dtype (of Octants or numpy), or a function of
            the arguments by name that returns one of these. Outputs begin as zeros.
        inout: parameters that the kernel updates in place. It is given copies, which are returned.
        mode: "reverse" or "forward".

    Returns:
        A function of the other parameters, by position or name. Arrays of JAX and numpy are what
        JAX traces; anything else is a constant. It returns the outputs in the order of the
        parameters, then the number that the kernel returns; one result alone is not in a tuple.

    Raises:
        OctantsTypeError: `out` or `inout` names what is no parameter, or at a call: JAX
            differentiates by an argument that has no derivative.
        OctantsValueError: for another mode.
        OctantsCallError: at a call: an argument is missing or unknown.
    """
    if mode not in MODES:
        raise WrongMode(repr(mode)).at(None)
    made = ArrayFunction(kernel, out, inout, NumpyArrays())

    def call(*arguments: Any, **named: Any) -> Any:
        bound = made.bind(arguments, named)
        traced = {n: v for n, v in bound.items() if isinstance(v, (jax.Array, np.ndarray))}
        run = _Bound(made, bound, tuple(traced))
        derive = run.in_reverse_mode if mode == "reverse" else run.in_forward_mode
        results = derive()(*traced.values())
        return results[0] if len(results) == 1 else results

    call.__name__ = made.name
    call.__doc__ = f"`{made.name}` as a function of JAX, of {', '.join(made.inputs)}."
    return call


class _Bound:
    """An `ArrayFunction` with its constant arguments; `names` are those that JAX traces."""

    def __init__(
        self, function: ArrayFunction, bound: Mapping[str, Any], names: tuple[str, ...]
    ) -> None:
        self._function = function
        self._names = names
        self._bound = {
            name: Shaped(tuple(value.shape), np.dtype(value.dtype)) if name in names else value
            for name, value in bound.items()
        }
        self._results = [_abstract(each) for each in function.output_shapes(self._bound)]
        self._arguments = [_abstract(self._bound[name]) for name in names]
        self._is_float = [each.dtype.kind == "f" for each in self._arguments]

    def in_reverse_mode(self) -> Callable[..., Any]:
        """The function with its vector-Jacobian product."""
        run = jax.custom_vjp(self._value)
        run.defvjp(lambda *traced: (self._value(*traced), traced), self._pullback)
        return run

    def in_forward_mode(self) -> Callable[..., Any]:
        """The function with its Jacobian-vector product."""
        run = jax.custom_jvp(self._value)
        run.defjvp(self._pushforward)
        return run

    def _value(self, *traced: Any) -> Any:
        def value(*arrays: Any) -> Any:
            return self._function.value(self._with(arrays))

        return _call_back(value, self._results, *traced)

    def _pullback(self, traced: Sequence[Any], adjoints: Sequence[Any]) -> Any:
        is_float = self._is_float
        wanted = [name for name, counts in zip(self._names, is_float, strict=True) if counts]

        def pullback(adjoints: Any, *arrays: Any) -> Any:
            given = [each if each.dtype.kind == "f" else None for each in map(np.asarray, adjoints)]
            _, found = self._function.pullback(self._with(arrays), given, wanted)
            return [found[name] for name in wanted]

        kinds = [kind for kind, counts in zip(self._arguments, is_float, strict=True) if counts]
        adjoints = [
            np.zeros((), np.int32) if result.dtype.kind != "f" else each
            for each, result in zip(adjoints, self._results, strict=True)
        ]
        found = iter(_call_back(pullback, kinds, adjoints, *traced))
        return tuple(
            next(found) if counts else np.zeros(kind.shape, jax.dtypes.float0)
            for kind, counts in zip(self._arguments, is_float, strict=True)
        )

    def _pushforward(self, traced: Sequence[Any], tangents: Sequence[Any]) -> Any:
        pairs = zip(self._names, tangents, self._is_float, strict=True)
        given = {name: tangent for name, tangent, counts in pairs if counts}

        floats = [each for each in self._results if each.dtype.kind == "f"]

        def pushforward(tangents: Any, *arrays: Any) -> Any:
            seeds = {name: np.asarray(each) for name, each in tangents.items()}
            _, found = self._function.pushforward(self._with(arrays), seeds)
            return [each for each in found if each is not None]

        found = iter(_call_back(pushforward, floats, given, *traced))
        # The results come from a call of their own: `jax.jacfwd` wants them without its directions.
        return self._value(*traced), tuple(
            next(found) if each.dtype.kind == "f" else np.zeros(each.shape, jax.dtypes.float0)
            for each in self._results
        )

    def _with(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """The arguments; arrays for numbers of a kernel are such numbers."""
        found = dict(self._bound)
        for name, array in zip(self._names, map(np.asarray, arrays), strict=True):
            found[name] = array if self._function.is_array(name, array) else array.item()
        return found


def _call_back(run: Callable[..., Any], kinds: Sequence[Any], *arguments: Any) -> Any:
    """The results of a function of the host, in the dtypes that JAX has."""

    def host(*given: Any) -> Any:
        found = run(*given)
        return tuple(np.asarray(each, kind.dtype) for each, kind in zip(found, kinds, strict=True))

    @jax.custom_jvp
    def opaque(*given: Any) -> Any:
        return jax.pure_callback(host, tuple(kinds), *given, vmap_method="sequential")

    @opaque.defjvp
    def _refuse(*_: Any) -> Any:
        raise NoSecondDerivative().at(None)

    return opaque(*arguments)


def _abstract(what: Shaped) -> Any:
    """The result that JAX is promised; without ``jax_enable_x64`` it has no wider types."""
    dtype = jax.dtypes.canonicalize_dtype(what.dtype)
    return jax.ShapeDtypeStruct(what.shape, dtype)  # type: ignore[no-untyped-call]
