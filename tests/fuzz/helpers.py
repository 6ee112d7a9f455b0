from __future__ import annotations

from typing import Any

import numpy as np

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
