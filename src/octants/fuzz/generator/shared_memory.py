"""Ndarrays that kernels refer to by name, in the memory of another array: ``from_dlpack``."""

from __future__ import annotations

import re
from typing import Any

from octants.fuzz.generator.context import ArrayInfo, Context, Productions, Shared


def declare(shared: Shared) -> list[str]:
    """Give most arrays without a gradient a second name; `arrays.declarations` writes it.

    An adjoint belongs to one name, so arrays that have a gradient keep to theirs.
    """
    rng = shared.rng
    for array in shared.arrays[2:]:
        if array.is_float and rng.random() < 0.5:
            array.has_grad = False
        if not array.has_grad and not array.element_shape and rng.random() < 0.85:
            array.imported = shared.fresh("s")
            shared.features[f"import of {'a field' if array.is_field else 'an ndarray'}"] += 1
    return []


def rename(c: Context, body: str, *_: Any) -> str:
    """Let some accesses to an array use its second name."""
    for array in c.shared.arrays:
        if array.imported:
            body = _renamed(c, array, body)
    return body


def _renamed(c: Context, array: ArrayInfo, body: str) -> str:
    first, *others = re.split(rf"\b{array.name}\[", body)
    chosen = [c.pick([array.name, array.imported]) for _ in others]
    if len(set(chosen)) == 2:
        c.note("two names of one memory in a kernel")
    return first + "".join(f"{name}[{rest}" for name, rest in zip(chosen, others, strict=True))


PRODUCTIONS = Productions(declare=declare, kernel=rename)
