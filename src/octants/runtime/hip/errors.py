"""Errors of AMD's GPUs: OCT442 to OCT445. The others are those of `runtime.cuda.errors`."""

from __future__ import annotations

from octants.diagnostics.errors import UserError


class MissingHip(UserError):
    """The library of the HIP runtime cannot be loaded."""

    problem: str
    code = "OCT442"
    title = "AMD's HIP runtime cannot be used: {problem}"
    remedy = (
        "install ROCm's package `hip-runtime-amd`, which has libamdhip64; if it is installed"
        " already, add its folder, such as /opt/rocm/lib, to LD_LIBRARY_PATH"
    )


class OldHip(UserError):
    """A HIP runtime that lacks functions in use."""

    has: str
    needs: str
    code = "OCT443"
    title = "AMD's HIP runtime is too old: it is version {has}, and {needs} is needed"
    remedy = "install a newer ROCm"


class NoAmdDevice(UserError):
    """The HIP runtime finds no GPU, or refuses to start."""

    problem: str
    code = "OCT444"
    title = "no AMD GPU can be used: {problem}"
    remedy = (
        "load the kernel driver `amdgpu`, and add the user to the groups `render` and `video`; if"
        " HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES is set, it must include the GPU"
    )


class UnsupportedProcessor(UserError):
    """A GPU with a processor that no code is generated for."""

    name: str
    processor: str
    known: str
    code = "OCT445"
    title = "Octants generates no code for {processor}, the processor of {name}"
    notes = ("code is generated for {known}",)
    remedy = (
        "`init(arch=qd.vulkan)` uses this GPU through Vulkan. A processor of the same family may"
        " run its code: HSA_OVERRIDE_GFX_VERSION=10.3.0 makes ROCm treat it as a gfx1030"
    )
