"""All work items of a device."""

from __future__ import annotations

from octants.lang.library_function_marks import kernel_only


@kernel_only
def mem_fence() -> None:
    """Let all work items of the device see what was written before, before what comes after."""


memfence = mem_fence
