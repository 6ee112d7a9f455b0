"""The rows of the table: an arch, and the module with its ``BACKEND``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octants.backends.base import Backend
from octants.deferred_import import Deferred
from octants.options import Options
from octants.target import HOST, Arch

if TYPE_CHECKING:
    from octants.backends import amdgpu, cpu, cuda, metal, python, vulkan
else:
    cpu, python = Deferred("octants.backends.cpu"), Deferred("octants.backends.python")
    cuda, vulkan = Deferred("octants.backends.cuda"), Deferred("octants.backends.vulkan")
    amdgpu, metal = Deferred("octants.backends.amdgpu"), Deferred("octants.backends.metal")

_ROWS: dict[str, Any] = {
    HOST.name: cpu,
    Arch.python.name: python,
    Arch.cuda.name: cuda,
    Arch.vulkan.name: vulkan,
    Arch.metal.name: metal,
    Arch.amdgpu.name: amdgpu,
}


def backend_of(arch: str) -> Backend:
    """The backend of an arch that has one."""
    backend: Backend = _ROWS[arch].BACKEND
    return backend


def begin(arch: str, chosen: Options) -> None:
    """Let what takes an arch long to start begin."""
    if arch in _ROWS:
        backend_of(arch).begin(chosen)


def obstacle_to(arch: str, *, by_itself: bool = True) -> str:
    """The reason why an arch cannot be used, and the remedy; "" if it can.

    One that is not wanted ``by_itself`` is only used if it is worth it.
    """
    if arch not in _ROWS:
        return "this version has no code generation for it"
    backend = backend_of(arch)
    return backend.obstacle() or ("" if by_itself else backend.drawback())
