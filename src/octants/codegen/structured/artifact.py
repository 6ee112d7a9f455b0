"""The artifact of a kernel whose functions have been written."""

from __future__ import annotations

from octants.artifact import Artifact, Dispatch
from octants.codegen.memory_ranges_of_arrays import written_ranges
from octants.codegen.recording_facts import recorded_loops
from octants.codegen.structured.function_emitter import KernelContext
from octants.ir.random_draws import has_draws


def make_artifact(
    kernel: KernelContext, target: str, code: bytes, dispatches: tuple[Dispatch, ...]
) -> Artifact:
    """The artifact of a kernel, with its code for a target."""
    module = kernel.module
    return Artifact(
        name=module.name,
        target=target,
        code=code,
        entry="",
        parameters=kernel.parameters,
        messages=tuple(kernel.messages),
        kernel=module.kernel,
        records=tuple(recorded_loops(module)),
        draws=has_draws(module),
        dispatches=dispatches,
        writes=written_ranges(module, kernel.parameters),
    )
