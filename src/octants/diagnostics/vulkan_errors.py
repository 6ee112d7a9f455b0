"""Errors of Vulkan: OCT447 to OCT459."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsMemoryError,
    OctantsValueError,
)


class MissingFeature(UserError):
    """A kernel that needs what the device does not have."""

    kernel: str
    feature: str
    device: str
    way_out: str
    code = "OCT450"
    title = "kernel `{kernel}` needs {feature}, which the device `{device}` does not have"
    label = "for this"
    remedy = "{way_out} another device (`init(device=...)`), or `qd.init(arch=qd.cpu)`"


class MissingVulkan(UserError):
    """libvulkan cannot be loaded."""

    problem: str
    code = "OCT451"
    title = "Vulkan's loader cannot be loaded: {problem}"
    remedy = (
        "install it (Debian and Ubuntu: `apt install libvulkan1`) with the driver of the GPU;"
        " `mesa-vulkan-drivers` has one that runs on the CPU"
    )


class NoVulkanDevice(UserError):
    """There is a loader, but no driver that it knows, or none with a device."""

    problem: str
    code = "OCT452"
    title = "Vulkan has no device: {problem}"
    remedy = (
        "install the driver of the GPU, or `mesa-vulkan-drivers`, which runs on the CPU;"
        " VK_DRIVER_FILES names the drivers that the loader considers"
    )


class NoSuchVulkanDevice(UserError):
    """A number of a device that does not exist."""

    number: int
    names: str
    code = "OCT453"
    exception = OctantsValueError
    title = "Vulkan has no device {number}: there are {names}"
    remedy = "`init(device=...)` takes one of these numbers"


class UnfitVulkanDevice(UserError):
    """A device that lacks what all kernels need."""

    device: str
    missing: str
    code = "OCT454"
    title = "the Vulkan device `{device}` cannot run kernels: it lacks {missing}"
    remedy = "install a newer driver, or choose another device by `init(device=...)`"


class VulkanFailed(UserError):
    """A call of the driver that failed."""

    function: str
    problem: str
    code = "OCT455"
    title = "Vulkan's `{function}` failed: {problem}"


class DeviceLost(UserError):
    """The driver has given up: a kernel ran too long, or touched memory that is none."""

    device: str
    kernels: str
    code = "OCT456"
    title = "the Vulkan device `{device}` was lost, and its memory with it"
    notes = (
        "{kernels}",
        "a kernel may have run longer than the driver allows, or accessed memory outside an array",
    )
    remedy = "call `qd.init` again; with `debug=True` kernels check their indices"


class LoopCut(UserError):
    """A driver that ends loops early has ended one."""

    device: str
    code = "OCT457"
    title = "the driver of `{device}` ended a loop early: results of the launch are wrong"
    notes = ("it allows one work item some 65,000 iterations of its loops",)
    remedy = "split the loop over several launches, or use another device or `qd.init(arch=qd.cpu)`"


class NotOnThisArch(UserError):
    """An operation for which there is no code generation."""

    operation: str
    code = "OCT458"
    title = "there is no code for `{operation}` on this arch"
    remedy = "use another arch for this kernel, such as `qd.init(arch=qd.cpu)`"


class OutOfVulkanMemory(UserError):
    """The device has no memory left."""

    device: str
    size: str
    left: str
    code = "OCT459"
    exception = OctantsMemoryError
    title = "the Vulkan device `{device}` cannot allocate {size}: {left}"
    remedy = "free arrays, use narrower types, or end other programs that use the device"


class ForkedVulkan(UserError):
    """A process that was forked from one that uses a device."""

    code = "OCT447"
    title = "a forked process cannot use the Vulkan device of the process that it was forked from"
    remedy = 'start new processes instead: `multiprocessing.set_start_method("spawn")`'


class TooDeepForDriver(UserError):
    """Nested branches and loops that exceed a limit of the driver."""

    kernel: str
    most: int
    device: str
    code = "OCT449"
    title = "kernel `{kernel}` nests more than {most} branches and loops"
    notes = ("the driver of `{device}` silently miscompiles deeper ones",)
    remedy = (
        "use fewer `elif` and, with `debug=True`, fewer checks, such as those of unrolled loops;"
        " another device; or `qd.init(arch=qd.cpu)`"
    )
