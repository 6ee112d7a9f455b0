"""Propagates many directions of forward mode, several in each launch.

A launch that propagates k directions computes the values once and k tangents beside them
(`autodiff.forward.with_tangent_arrays`). Its code grows with k, and so does the time to compile it.
So a launch takes at most `AT_ONCE` directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from octants.ad.array_function import ArrayFunction, Evaluated
from octants.ad.repeated_runs import run_each

AT_ONCE = 8
"""The most directions of one launch. The values cost little beside so many tangents: more would
only take longer to compile, and more memory."""
FORWARD_OVER_REVERSE = 4
"""About how many directions of forward mode, several at once, take as long as one adjoint."""


def push_forward(
    function: ArrayFunction, bound: Mapping[str, Any], tangents: Mapping[str, Any], count: int
) -> tuple[list[Any], list[Any]]:
    """Propagate directions of arguments, in as few launches as `AT_ONCE` allows.

    All launches propagate the same number of directions, so that one kernel is compiled; the last
    may have zeros among them.

    Args:
        function: a function of numpy arrays.
        bound: the arguments.
        tangents: by name, arrays with a first axis for the directions.
        count: how many directions there are.

    Returns:
        The results, and their tangents with such an axis; None for results of integers. If there
        is no direction, the axis has no elements.

    Raises:
        OctantsTypeError: there is no derivative by one of the arguments.
    """
    runs = max(1, -(-count // AT_ONCE))
    at_once = max(1, -(-count // runs))

    def run(first: int) -> Evaluated:
        part = {name: _part(each, first, at_once) for name, each in tangents.items()}
        if at_once == 1:
            part = {name: each[0] for name, each in part.items()}
        return function.evaluate(bound, tangents=part, directions=at_once)

    found = run_each(run, range(0, runs * at_once, at_once))
    join = np.stack if at_once == 1 else np.concatenate
    columns = zip(*(each.tangents for each in found), strict=True)
    tangents_of_results = [None if each[0] is None else join(each)[:count] for each in columns]
    return found[0].results, tangents_of_results


def _part(tangents: np.ndarray[Any, Any], first: int, count: int) -> np.ndarray[Any, Any]:
    """Some of the directions, with zeros behind the last."""
    part = tangents[first : first + count]
    missing = count - len(part)
    if not missing:
        return part
    return np.concatenate([part, np.zeros((missing, *part.shape[1:]), part.dtype)])
