"""Errors of Metal: OCT470 to OCT475."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import OctantsMemoryError


class MissingMetal(UserError):
    """There is no Metal, or no GPU that has it."""

    problem: str
    code = "OCT470"
    title = "Metal cannot be used: {problem}"
    remedy = "Metal needs macOS 15 or newer on a Mac with Apple silicon"


class MetalFailed(UserError):
    """A method of Metal that failed."""

    method: str
    problem: str
    code = "OCT471"
    title = "Metal's `{method}` failed: {problem}"
    remedy = "please report it with the kernel; `qd.init(arch=qd.cpu)` uses no Metal"


class MetalDeviceLost(UserError):
    """A command buffer that ended with an error: its results are missing."""

    device: str
    problem: str
    kernels: str
    code = "OCT472"
    title = "the Metal device `{device}` stopped: {problem}"
    notes = (
        "{kernels}",
        "a kernel may have run longer than macOS allows, or accessed memory outside an array",
    )
    remedy = "call `qd.init` again; with `debug=True` kernels check their indices"


class OutOfMetalMemory(UserError):
    """The device has no memory left."""

    device: str
    size: str
    left: str
    code = "OCT473"
    exception = OctantsMemoryError
    title = "the Metal device `{device}` cannot allocate {size}: {left}"
    remedy = "free arrays, use narrower types, or end other programs that use memory"


class ForkedMetal(UserError):
    """A process that was forked from one that uses a device."""

    code = "OCT474"
    title = "a forked process cannot use the Metal device of the process that it was forked from"
    remedy = 'start new processes instead: `multiprocessing.set_start_method("spawn")`'


class TooManyThreads(UserError):
    """A kernel whose blocks have more threads than its registers allow."""

    kernel: str
    threads: int
    most: int
    code = "OCT475"
    title = "kernel `{kernel}` has blocks of {threads} threads; Metal runs at most {most} of them"
    remedy = "choose smaller blocks with `qd.loop_config(block_dim=...)`"
