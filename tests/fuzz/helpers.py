from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from octants.fuzz.generator.build import generate
from octants.fuzz.oracle.run import run
from octants.fuzz.program import Outcome, Program


def make(
    source: str,
    inputs: dict[str, Any],
    launches: list[tuple[str, tuple[Any, ...]]],
    precision: str = "f64",
    weights: dict[str, Any] | None = None,
    direction: dict[str, Any] | None = None,
) -> Program:
    """A program from plain lists; ints make integer arrays, weights and directions default to 1."""
    arrays = {name: np.array(values) for name, values in inputs.items()}
    floats = {name: values for name, values in arrays.items() if values.dtype.kind == "f"}
    ones = {name: np.ones(values.shape) for name, values in floats.items()}
    given = {name: np.array(values, float) for name, values in (weights or {}).items()}
    along = {name: np.array(values, float) for name, values in (direction or {}).items()}
    return Program(0, source, precision, arrays, {**ones, **given}, {**ones, **along}, launches)


def outcome(source: str, inputs: dict[str, Any], *arguments: Any, **options: Any) -> Outcome:
    """What the oracle says of a program with one kernel `k`."""
    return run(make(source, inputs, [("k", arguments)], **options))


def assert_generated(names: str, profile: str, most: int) -> None:
    """Check that at least two of the first programs have each of these features, by `;`."""
    wanted = {name.strip() for name in names.replace("\n", " ").split(";")}
    features: Counter[str] = Counter()
    for seed in range(most):
        features.update(set(generate(seed, "f32", profile).features))
        if all(features[name] >= 2 for name in wanted):
            return
    raise AssertionError({name: features[name] for name in wanted if features[name] < 2})
