"""Generates the function that launches a specialised kernel.

The function takes a parameter block from a pool, fills it with one `struct` call (see `packing`),
runs the code, and reads the results, so that a warm launch allocates nothing. Several threads may
launch a kernel at once, each with a block. On a device with discrete memory, the storage of a block
is there (see `runtime.parameter_blocks.pool`). *Persistent* storage outlives the launch; the caller
passes its address.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any

from octants.functions_from_text import define
from octants.ir.core import Companion, Space
from octants.runtime.arguments.argument_replacement import replace
from octants.runtime.arguments.array_bindings import COPIED, Binding
from octants.runtime.arguments.overlap_test import OverlapTest
from octants.runtime.arguments.packing import ParameterPacking
from octants.runtime.arguments.parameters import Leaf
from octants.runtime.arguments.staging_copies import StagedLeaf, launch_on_staging_copies
from octants.runtime.capture import captures, launched, refuse
from octants.runtime.device import Device
from octants.runtime.parameter_blocks.pool import ParameterBlockPool

_SOURCE = """
def launch(seed, number, persistent{staging}{parameters}):
    {pool}
    try:
        block = pool.pop()
    except IndexError:
        block = new_block()
    view, base = block[0], block[1]
    {unpack}
    {refuse}
    try:
        {pack}
    except (error, OverflowError, TypeError, ValueError, AttributeError):
        repack(block, seed, number, persistent, ({arguments}))
        {suspect}
    {redirect}
    {prepare}
    {run}
    {fetch}
    results = {results}
    if captures and launched(run, kernel, owner, (base, {sizes}), block, ({arrays})):
        return results
    pool.append(block)
    return results
"""


_REDIRECT = """if shares and overlaps(view):
        pool.append(block)
        return aliased(seed, number, persistent{staging}{parameters})"""


def make_launch(
    binding: Binding,
    run: Callable[[int], None],
    device: Device,
    kernel: Any = None,
    owner: Any = None,
    aliased: Callable[[], Any] | None = None,
) -> Callable[..., Any]:
    """Generate the function ``launch(seed, number, persistent, *arguments)``.

    Its ``number`` is that of the forward launch, ``persistent`` the address of persistent storage
    (0 for none). It returns the flat results. Its attribute ``direct`` is the function that takes
    staging copies where those are needed.

    Args:
        binding: The sources of the kernel's arrays.
        run: Launches the code with the parameter block at an address.
        device: The device.
        kernel: The device's loaded kernel, for captures.
        owner: What a capture keeps alive for the launch.
        aliased: Returns the launch function for arrays that share memory, if `binding` does not
            allow that.
    """
    test = OverlapTest(binding) if aliased is not None else None
    layout = ParameterPacking(binding, device, {} if test is None else test.named)
    parameters = "".join(f", a{k}" for k in range(binding.count))
    is_staged = not COPIED.isdisjoint(binding.kinds.values())
    is_per_stream = not device.shares_memory and bool(layout.storage or layout.temporaries)
    staging = ", launch_on_copies" if is_staged else ""
    packing, redirect = layout.packing, ""
    if test is not None:
        packing = [*packing, *test.lines]
        redirect = _REDIRECT.format(staging=staging, parameters=parameters)
    source = _SOURCE.format(
        parameters=parameters,
        arguments=parameters[2:] + ("," if parameters else ""),
        pack="\n        ".join(packing),
        suspect="shares = True" if redirect else "",
        redirect=redirect,
        results=layout.result_expression(),
        refuse="if captures: refuse_results()" if binding.results else "",
        sizes=layout.sizes,
        arrays="".join(f"{each}, " for each in _array_expressions(binding)),
        unpack="storage, memory = block[2], block[3]" if layout.storage else "",
        prepare=layout.prepare,
        fetch=layout.fetch,
        staging=staging,
        run="launch_on_copies(run, kernel, base)" if is_staged else "run(base)",
        pool="pool = blocks_of(all_blocks)" if is_per_stream else "pool = all_blocks",
    )
    pool = ParameterBlockPool()
    scope = {
        **layout.scope,
        "all_blocks": pool,
        "blocks_of": device.blocks_of,
        "new_block": layout.blocks(),
        "repack": layout.repack,
        "error": struct.error,
        "run": run,
        "kernel": kernel,
        "owner": owner,
        "captures": captures,
        "launched": launched,
        "refuse_results": _refuse_results,
    }
    if test is not None and aliased is not None:
        scope |= {"overlaps": test.overlaps, "aliased": _deferred(aliased)}
    launch: Any = define("launch", source, scope)
    launch.blocks = functools.partial(device.blocks_of, pool)
    found: Any = launch
    if is_staged:
        leaves, others = _staged_leaves(binding, device)
        found = launch_on_staging_copies(launch, device, leaves, others, replace)
    found.direct = launch
    launched_by: Callable[..., Any] = found
    return launched_by


def _deferred(find: Callable[[], Any]) -> Callable[..., Any]:
    """A function that calls the launch function which ``find`` returns."""

    def launch(*given: Any) -> Any:
        return find().direct(*given)

    return launch


def _refuse_results() -> None:
    refuse(
        "a kernel cannot return a value, for which the host would have to wait",
        "let it write to an array of one element",
    )


def _array_expressions(binding: Binding) -> list[str]:
    """The array arguments, in generated code."""
    ndarrays = [array for array in binding.arrays if array.space is Space.NDARRAY]
    return [binding.leaf(array).expression for array in ndarrays]


def _staged_leaves(
    binding: Binding, device: Device
) -> tuple[list[StagedLeaf], list[tuple[Leaf, bool]]]:
    """The array arguments that are copied, and those that may share memory with them.

    The latter come with whether the kernel writes them.
    """
    staged, others = [], []
    for array in binding.arrays:
        if array.space is not Space.NDARRAY:
            continue
        leaf, is_written = binding.leaf(array), array in binding.written
        if binding.kind(array) in COPIED:
            has_gradient = (array, Companion.ADJOINT) in binding.accessed
            staged.append(StagedLeaf(leaf, array.rank, is_written, has_gradient))
        elif device.shares_memory:
            others.append((leaf, is_written))
    return staged, others
