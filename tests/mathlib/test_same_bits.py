"""Without `fast_math` all CPUs give the same bits: digests of results are kept in a golden file."""

from __future__ import annotations

import hashlib
import linecache
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import on_cpu
from tests.golden_files import check_golden

COUNT = 1024  # arguments of each kind
UNARY = """sin cos tan asin acos atan sinh cosh tanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt
cbrt erf floor ceil round abs""".split()
EXPRESSIONS = [
    *(f"qd.{name}(u)" for name in UNARY),
    *("qd.atan2(u, v)", "u**v", "u / v", "u // v", "u % v", "qd.max(u, v)"),
    *("u * v + u", "u * u - v * v + u * v * u", "(u + v) * (u - v) + 1.0 / (1.0 + u * u)"),
    *("qd.random() * u", "qd.randn() + v"),
]
HEAD = """\
import octants as qd

@qd.kernel
def compute(a: qd.types.ndarray(), b: qd.types.ndarray(), out: qd.types.ndarray()):
    for i in range(a.shape[0]):
        u, v = a[i], b[i]
"""


def arguments(seed: int, dtype: Any) -> Any:
    """Numbers of all sizes, made of integers: NumPy's own functions differ between machines."""
    dice = np.random.default_rng(seed)
    wide = dice.integers(-(2**40), 2**40, (3, COUNT)).astype(np.float64)
    shift = dice.integers(-14, 14, COUNT)
    return np.concatenate([wide[0] * 2.0**-38, wide[1] * 2.0**-40, np.ldexp(wide[2], shift - 40)])


def kernel() -> Any:
    lines = [f"        out[{k}, i] = {text}\n" for k, text in enumerate(EXPRESSIONS)]
    text = HEAD + "".join(lines)
    linecache.cache["same_bits.py"] = len(text), None, text.splitlines(keepends=True), "same_bits"
    names: dict[str, Any] = {}
    exec(compile(text, "same_bits.py", "exec"), names)
    return names["compute"]


def digest(values: Any) -> str:
    """NaN may have any bits."""
    return hashlib.md5(
        np.where(np.isnan(values), 0, values).astype(values.dtype).tobytes()
    ).hexdigest()


@on_cpu
@pytest.mark.parametrize("simd", ["always", "never"])
@pytest.mark.parametrize("dtype", [qd.f16, qd.f32, qd.f64], ids=str)
def test_results_have_the_bits_that_they_have_elsewhere(dtype: Any, simd: str) -> None:
    options = {"fast_math": False, "offline_cache": False, "simd": simd, "random_seed": 7}
    qd.init(arch=qd.cpu, default_fp=dtype, **options)
    a, b = qd.ndarray(dtype, 3 * COUNT), qd.ndarray(dtype, 3 * COUNT)
    out = qd.ndarray(dtype, (len(EXPRESSIONS), 3 * COUNT))
    for array, seed in ((a, 1), (b, 2)):
        array.from_numpy(arguments(seed, dtype).astype(array.to_numpy().dtype))
    kernel()(a, b, out)
    lines = [f"{digest(row)} {text}" for row, text in zip(out.to_numpy(), EXPRESSIONS, strict=True)]
    check_golden(f"bits/{dtype}", "\n".join(lines))
