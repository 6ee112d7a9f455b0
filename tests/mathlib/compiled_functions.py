"""The functions as compiled kernels over arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from octants.ir.core import Module
from octants.mathlib import function_registry
from octants.mathlib.evaluate_with_numpy import translate
from octants.mathlib.function_registry import UNARY
from octants.runtime.cpu import CpuDevice
from octants.types.scalars import DType
from tests.codegen.compiled import Compiled, ndarray, parallel

WORDS = {2: np.uint16, 4: np.uint32, 8: np.uint64}


@functools.cache
def compiled(fn: str, dtype: DType, fast_math: bool = False) -> Callable[..., Any]:
    """A function of arrays, by the CPU backend."""
    a, b, c = ndarray("a", dtype), ndarray("b", dtype), ndarray("c", dtype)

    def body(build: Any, i: Any) -> None:
        x = build.load(a, [i])
        result = build.unary(fn, x) if fn in UNARY else build.binary(fn, x, build.load(b, [i]))
        build.store(c, [i], result)

    task = parallel("all", lambda build: (build.index(0), build.shape(a, 0)), body)
    module = Module(fn, [a, b, c], tasks=[task])
    kernel = Compiled(module, CpuDevice(max_threads=1), fast_math=fast_math)

    def run(x: Any, y: Any = None) -> Any:
        result = np.empty_like(x)
        kernel.run({"a": x, "b": x if y is None else y, "c": result})
        return result

    return run


def bits(x: Any) -> Any:
    """The bits of an array of floats, with one NaN for all."""
    x = np.where(np.isnan(x), x.dtype.type(np.nan), x)
    return x.view(WORDS[x.dtype.itemsize])


def units(found: Any, exact: Any) -> Any:
    """Errors in units of the last digit of the exact values, which are of a wider type."""
    kind = found.dtype.type
    info = np.finfo(kind)
    with np.errstate(all="ignore"):
        rounded = exact.astype(kind)
        spacing = np.spacing(np.minimum(np.abs(rounded), info.max)).astype(exact.dtype)
        errors = np.abs(found.astype(exact.dtype) - exact) / spacing
        special = ~np.isfinite(rounded) | ~np.isfinite(found)
        same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
        edge = np.isfinite(rounded) | (np.abs(exact) < float(info.max) * (1 + 2.0**-20))
        return np.where(special, np.where(same, 0.0, np.where(edge, 1.0, np.inf)), errors)


@functools.cache
def _translated(fn: str, dtype: DType, fast: bool) -> Callable[..., Any]:
    return translate(function_registry.function(fn, dtype, fast, "plain").block)


def evaluate_arrays(
    fn: str, dtype: DType, *operands: np.ndarray[Any, Any], fast_math: bool = False
) -> Any:
    """The values of a function of arrays of f32 or f64, element by element.

    With ``fast_math`` as on a machine without a fused operation.
    """
    return _translated(fn, dtype, fast_math)(*operands)
