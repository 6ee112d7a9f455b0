"""A fuzz program: source text, the contents of its arrays, and what is launched."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FloatArray = np.ndarray[Any, np.dtype[Any]]


HOST_WRITES = ("fill", "copy_from", "from_numpy", "__setitem__", "__setattr__")


@dataclass(frozen=True)
class Text:
    """An argument of a launch that the module evaluates: ``Pair(x1, 0.5)``."""

    text: str


def resolve(module: dict[str, Any], name: str) -> Any:
    """The object with a name, possibly dotted, in a module."""
    first, *rest = name.split(".")
    return functools.reduce(getattr, rest, module[first])


def argument(module: dict[str, Any], given: Any) -> Any:
    """The value of an argument of a launch."""
    if isinstance(given, Text):
        return eval(given.text, module)
    return resolve(module, given) if isinstance(given, str) else given


@dataclass
class Program:
    """A module's source, which finds the package in ``qd`` and the float type of the run in ``FP``.

    `inputs` has the contents of every array that the module makes, by its name there, with the
    shape of the array followed by that of its element. `weights` are the adjoints that the outputs
    start with, `direction` the tangents of the inputs. `launches` are the kernels to call, in
    order; an argument that is a string names an array of the module, a `Text` is evaluated there.
    Names may have dots: a member of a field of structs, a kernel of an object. A launch may also
    be a write by the host, one of `HOST_WRITES`, to the array that is the first argument, or
    to an attribute of an object.
    """

    seed: int
    source: str
    precision: str
    inputs: dict[str, FloatArray]
    weights: dict[str, FloatArray]
    direction: dict[str, FloatArray]
    launches: list[tuple[str, tuple[Any, ...]]]
    features: Counter[str] = field(default_factory=Counter)
    random_seed: int = 7
    profile: str = "core"
    sparse: tuple[str, ...] = ()  # arrays whose elements that are not zero are active at first

    @property
    def kernels(self) -> list[str]:
        """The names of the kernels that are launched, in order."""
        return [name for name, _ in self.launches if name not in HOST_WRITES]

    def with_source(self, source: str) -> Program:
        """The same program with another text."""
        return Program(**{**self.__dict__, "source": source})


@dataclass
class Estimate:
    """Numbers, with a bound of the error that a sound implementation may make in each."""

    value: FloatArray
    error: FloatArray


@dataclass(frozen=True)
class Undefined:
    """The oracle's answer to a program whose work items race, so that its results are undefined."""

    race: str


@dataclass(frozen=True)
class Close:
    """The oracle's answer to a program with a branch that rounding may change."""

    reason: str
    has_sums: bool  # as in `Outcome`


@dataclass
class Outcome:
    """The oracle's results of a program, and the decisions that rounding may change (`near`).

    `gradient` is that of the arrays' functional, `gradient_with_returned` that of its sum with the
    returned floats; `arguments` has that of the arrays' functional for the floats and vectors that
    each launch passes by value. A program `has_sums` if updates add up or multiply floats in memory
    or over work items: then the bits of values depend on the order of these. If work items `race`
    without an effect on results, as where all store one number, an implementation may refuse it.
    """

    primal: dict[str, Estimate]
    returned: list[Estimate]
    gradient: dict[str, Estimate]
    gradient_with_returned: dict[str, Estimate]
    tangent: dict[str, Estimate]
    near: list[str]
    path: list[Any]
    size: int
    has_sums: bool
    arguments: list[list[Estimate]] = field(default_factory=list)
    race: str = ""

    def functional(self, weights: dict[str, FloatArray]) -> float:
        """The number that `gradient` is the gradient of."""
        return float(sum(np.sum(w * self.primal[name].value) for name, w in weights.items()))
