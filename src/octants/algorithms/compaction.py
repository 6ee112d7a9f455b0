"""Selecting elements, and summing up runs of equal keys.

Each chunk counts what it will write, one work item finds where each chunk begins, and each chunk
writes in order.
"""

from __future__ import annotations

from typing import Any

from octants.algorithms.chunks import count_of, last_of, size_of
from octants.lang.library_function_marks import library_function
from octants.lang.scalar_functions import max as larger
from octants.types.parameter_annotations import CompileTime
from octants.types.scalars import i32, u32


@library_function
def select_scratch_slots(n: Any) -> Any:
    """The length of the array of u32 that `select` needs as scratch; for kernels, too.

    Args:
        n: the most elements that it chooses from.
    """
    return larger(1, count_of(n))


@library_function
def reduce_by_key_scratch_slots(n: Any) -> Any:
    """The length of the array of u32 that `reduce_by_key_add` needs as scratch; for kernels, too.

    Args:
        n: the most elements that it sums up.
    """
    return larger(1, count_of(n))


@library_function
def select(
    arr: Any,
    flags: Any,
    out: Any,
    num_out: Any,
    scratch: Any,
    n: Any,
    log256_max_n: CompileTime = None,  # noqa: ARG001
) -> None:
    """Copy the elements of ``arr`` whose flag is not 0 to the beginning of ``out``, in order.

    Example::

        x, chosen = qd.field(qd.f32, 1000), qd.field(qd.f32, 1000)
        flags, count = qd.field(qd.i32, 1000), qd.field(qd.i32, 1)
        scratch = qd.field(qd.u32, qd.algorithms.select_scratch_slots(1000))

        @qd.kernel
        def choose_positive():
            for i in x:
                flags[i] = x[i] > 0.0
            qd.algorithms.select(x, flags, chosen, count, scratch, 1000)

    Args:
        arr: a field or an array with one axis, of numbers, vectors, matrices or structs.
        flags: integers, as many as elements.
        out: another array like ``arr``, long enough for what is chosen; the rest is unchanged.
        num_out: how many there are, an array of i32 of one element; written.
        scratch: u32, of one axis, with at least `select_scratch_slots` elements; overwritten.
        n: the number of elements to choose from, an integer.
        log256_max_n: accepted for Quadrants' sake, and not needed.
    """
    for chunk in range(count_of(n)):
        count = u32(0)
        for i in range(chunk * size_of(n), last_of(chunk, n)):
            if flags[i] != 0:
                count += u32(1)
        scratch[chunk] = count
    _add_up(scratch, num_out, n)
    for chunk in range(count_of(n)):
        position = i32(scratch[chunk])
        for i in range(chunk * size_of(n), last_of(chunk, n)):
            if flags[i] != 0:
                out[position] = arr[i]
                position += 1


@library_function
def reduce_by_key_add(
    keys_in: Any,
    values_in: Any,
    keys_out: Any,
    values_out: Any,
    num_runs: Any,
    scratch: Any,
    n: Any,
    value_dtype: CompileTime,
    log256_max_n: CompileTime = None,  # noqa: ARG001
) -> None:
    """Sum up the values of each run of equal keys.

    A run is a sequence of consecutive elements; for one sum for each key, sort by keys first. Each
    NaN is a run of its own.

    Args:
        keys_in: a field or an array of numbers with one axis.
        values_in: numbers of ``value_dtype``, as many as keys.
        keys_out: the key of each run, an array like ``keys_in``; the rest is unchanged.
        values_out: the sum of each run, an array like ``values_in``; the rest is unchanged.
        num_runs: how many runs there are, an array of i32 of one element; written.
        scratch: u32, of one axis, with at least `reduce_by_key_scratch_slots` elements;
            overwritten.
        n: the number of elements, an integer.
        value_dtype: the type of the values.
        log256_max_n: accepted for Quadrants' sake, and not needed.
    """
    for chunk in range(count_of(n)):
        count = u32(0)
        for i in range(chunk * size_of(n), last_of(chunk, n)):
            if _begins_run(keys_in, i):
                count += u32(1)
        scratch[chunk] = count
    _add_up(scratch, num_runs, n)
    for chunk in range(count_of(n)):
        first_run = i32(scratch[chunk])
        run = first_run
        total = value_dtype(0)
        for i in range(chunk * size_of(n), last_of(chunk, n)):
            if _begins_run(keys_in, i):
                if run > first_run:
                    values_out[run - 1] = total
                keys_out[run] = keys_in[i]
                run += 1
                total = value_dtype(0)
            total = value_dtype(total + values_in[i])
        if run > first_run:
            values_out[run - 1] = total
    for chunk in range(1, count_of(n)):  # what goes on with a run of the chunk before
        total = value_dtype(0)
        i = chunk * size_of(n)
        while i < last_of(chunk, n) and not _begins_run(keys_in, i):
            total = value_dtype(total + values_in[i])
            i += 1
        if i > chunk * size_of(n):
            values_out[i32(scratch[chunk]) - 1] += total


@library_function
def _begins_run(keys: Any, i: Any) -> Any:
    result = True
    if i > 0:
        result = keys[i] != keys[i - 1]
    return result


@library_function
def _add_up(counts: Any, total: Any, n: Any) -> None:
    """Replace the counts of chunks by the sums of those before; ``total[0]`` is that of all."""
    for _ in range(1):
        position = u32(0)
        for chunk in range(count_of(n)):
            count = u32(counts[chunk])
            counts[chunk] = position
            position += count
        total[0] = i32(position)
