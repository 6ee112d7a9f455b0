"""The errors of CUDA devices: OCT43x."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsMemoryError,
    OctantsValueError,
)


class MissingDriver(UserError):
    """The driver's library cannot be loaded."""

    problem: str
    code = "OCT430"
    title = "NVIDIA's driver cannot be used: {problem}"
    remedy = (
        "install the driver of the GPU; the CUDA toolkit is not needed. In a container, make the"
        " GPU visible to it"
    )


class OldDriver(UserError):
    """A driver that lacks what is needed."""

    has: str
    needs: str
    code = "OCT431"
    title = "NVIDIA's driver is too old: it is for CUDA {has}, and CUDA {needs} is needed"
    remedy = "install a newer driver; the CUDA toolkit is not needed"


class NoDevice(UserError):
    """The driver knows no GPU, or refuses to start."""

    problem: str
    code = "OCT432"
    title = "no NVIDIA GPU can be used: {problem}"
    remedy = "if CUDA_VISIBLE_DEVICES is set, add the number of the GPU to it"


class NoSuchDevice(UserError):
    """A number of a device that does not exist."""

    number: int
    count: int
    code = "OCT433"
    exception = OctantsValueError
    title = "there is no GPU {number}: this process sees {count}, numbered from 0"
    remedy = "`init(device=...)` takes one of these numbers"


class OldDevice(UserError):
    """A GPU of a compute capability that no code is made for."""

    name: str
    has: str
    needs: str
    code = "OCT434"
    title = "{name} has compute capability {has}, and {needs} is needed"


class CallFailed(UserError):
    """A call of the driver that should not have failed."""

    api: str
    function: str
    name: str
    text: str
    code = "OCT435"
    title = "{api}: {function} failed: {text} ({name})"


class DeviceLost(UserError):
    """A kernel failed in a way that ends all work of the process on the GPU."""

    name: str
    text: str
    kernels: str
    code = "OCT436"
    title = "the GPU was lost to this process: {text} ({name})"
    notes = (
        "{kernels}",
        "everything on the GPU is lost, and the process cannot use it any more",
    )
    remedy = (
        "run it again with `qd.init(debug=True)`, which checks the indices of each access, or on"
        " the CPU"
    )


class OutOfDeviceMemory(UserError):
    """The GPU has no memory left."""

    device: str
    size: str
    left: str
    code = "OCT437"
    exception = OctantsMemoryError
    title = "{device} cannot allocate {size}: {left}"
    remedy = "free arrays, use narrower types, or end other programs that use the GPU"


class OtherDevice(UserError):
    """Memory of another device than the one that a kernel runs on."""

    what: str
    where: str
    device: str
    code = "OCT438"
    title = "{what} is in the memory of {where}, and kernels run on {device}"
    remedy = "copy it to that device first, or name the other one in `init(device=...)`"


class OtherStream(UserError):
    """A stream of another device than the one that a kernel runs on."""

    where: str
    device: str
    code = "OCT441"
    title = "the stream is one of {where}, and kernels run on {device}"
    remedy = "take a stream of that device: `qd.create_stream(device=...)`"


class Forked(UserError):
    """A process that was forked from one that uses a GPU."""

    code = "OCT440"
    title = "a forked process cannot use the GPU of the process that it was forked from"
    remedy = 'start new processes instead: `multiprocessing.set_start_method("spawn")`'
