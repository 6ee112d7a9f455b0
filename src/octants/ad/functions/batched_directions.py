"""Propagates many directions - tangents forward, adjoints back - several in each launch.

A launch that propagates k tangents computes the values once and the tangents beside them
(`autodiff.forward.with_tangent_arrays`). A reverse launch that propagates k adjoints reads records
and repeats values once (`autodiff.variants.batched_adjoints`), after one forward launch for all.
Code grows with k, and so does the time to compile it. So a launch takes at most `AT_ONCE`
directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from octants.ad.array_libraries.array_library_protocol import ArrayLibrary, Shaped
from octants.ad.functions.array_function import ArrayFunction, Evaluated
from octants.ad.functions.repeated_runs import run_each
from octants.ad.tapes.batched_gradients import OneByOne

AT_ONCE = 8
"""The most directions of one launch. The values cost little beside so many directions: more would
only take longer to compile, and more memory."""
FORWARD_OVER_REVERSE = 2
"""About how many tangents take as long as one adjoint, if each launch propagates several."""


def push_forward(
    function: ArrayFunction, bound: Mapping[str, Any], tangents: Mapping[str, Any], count: int
) -> tuple[list[Any], list[Any]]:
    """Propagate tangents of arguments, in as few launches as `AT_ONCE` allows.

    Args:
        function: a function of arrays.
        bound: the arguments.
        tangents: by name, arrays with a first axis for the directions.
        count: how many directions there are.

    Returns:
        The results, and their tangents with such an axis; None for results of integers. If there
        is no direction, the axis has no elements.

    Raises:
        OctantsTypeError: there is no derivative by one of the arguments.
    """

    def run(part: Mapping[str, Any], size: int) -> Evaluated:
        return function.evaluate(bound, tangents=part, directions=size)

    library = function.library
    size, found = _run_parts(run, library, tangents, count, AT_ONCE)
    columns = zip(*(each.tangents for each in found), strict=True)
    return found[0].results, [_joined(library, each, size, count) for each in columns]


def pull_back(
    function: ArrayFunction,
    bound: Mapping[str, Any],
    adjoints: Sequence[Any],
    wanted: Sequence[str],
    count: int,
) -> tuple[list[Any], dict[str, Any]]:
    """Propagate adjoints of the results back, in as few launches as `AT_ONCE` allows.

    Adjoints are propagated one by one if the reverse of the function does not allow more.

    Args:
        function: a function of arrays.
        bound: the arguments.
        adjoints: one for each result, with a first axis for the adjoints; None stands for zeros.
        wanted: the names of the arguments to differentiate by.
        count: how many adjoints there are.

    Returns:
        The results, and the gradients by name with such an axis. If there is no adjoint, the axis
        has no elements.

    Raises:
        OctantsTypeError: there is no derivative by one of the arguments.
    """
    known = {k: adjoint for k, adjoint in enumerate(adjoints) if adjoint is not None}

    def run(part: Mapping[int, Any], size: int) -> Evaluated:
        given = [part.get(k) for k in range(len(adjoints))]
        return function.evaluate(bound, adjoints=given, wanted=wanted, directions=size)

    library, most = function.library, 1 if function.is_one_by_one else AT_ONCE
    try:
        size, found = _run_parts(run, library, known, count, most)
    except OneByOne:
        function.is_one_by_one = True
        size, found = _run_parts(run, library, known, count, 1)
    gradients = {
        name: _joined(library, [each.gradients[name] for each in found], size, count)
        for name in wanted
    }
    return found[0].results, gradients


def _run_parts(
    run: Callable[[dict[Any, Any], int], Evaluated],
    library: ArrayLibrary,
    directions: Mapping[Any, Any],
    count: int,
    most: int,
) -> tuple[int, list[Evaluated]]:
    """Run parts of some directions, each with the random numbers of the first.

    All parts are equally large, so that one kernel is compiled; the last may have zeros at its end.

    Args:
        run: propagates some directions; one alone has no axis for them.
        library: that of the arrays of the directions, except for those of numbers.
        directions: arrays with a first axis for the directions.
        count: how many directions there are.
        most: the largest size of a part.

    Returns:
        The size of the parts, and what was found for each.
    """
    runs = max(1, -(-count // most))
    size = max(1, -(-count // runs))

    def run_part(first: int) -> Evaluated:
        part = {key: _part(library, each, first, size) for key, each in directions.items()}
        return run(part if size > 1 else {key: each[0] for key, each in part.items()}, size)

    return size, run_each(run_part, range(0, runs * size, size))


def _part(library: ArrayLibrary, directions: Any, first: int, count: int) -> Any:
    """Some of the directions, with zeros behind the last."""
    part = directions[first : first + count]
    missing = count - len(part)
    if not missing:
        return part
    shape = (missing, *part.shape[1:])
    if not library.is_array(part):
        return np.concatenate([part, np.zeros(shape, part.dtype)])
    return library.join([part, library.zeros(Shaped(shape, library.shaped(part).dtype), [part])])


def _joined(library: ArrayLibrary, parts: Sequence[Any], size: int, count: int) -> Any:
    """The results of parts of that size, joined in one array; None for integers."""
    if parts[0] is None:
        return None
    if not library.is_array(parts[0]):  # numbers
        return (np.stack(parts) if size == 1 else np.concatenate(parts))[:count]
    return library.join([each[None] for each in parts] if size == 1 else parts)[:count]
