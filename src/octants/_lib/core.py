"""The archs that can be used here: ``arch = qd.vulkan if qd._lib.core.with_vulkan() else qd.cuda``.

In the peers this is a library in C++; the rest of it has no counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octants.backends.table import obstacle_to
from octants.deferred_import import names_of as _names_of

GGUI_AVAILABLE = True
"""Whether `ui.Window` draws: it does, into pictures."""


def with_cuda() -> bool:
    """Whether ``init(arch=qd.cuda)`` works here."""
    return not obstacle_to("cuda")


def with_vulkan() -> bool:
    """Whether ``init(arch=qd.vulkan)`` works here."""
    return not obstacle_to("vulkan")


def with_metal() -> bool:
    """Whether ``init(arch=qd.metal)`` works here."""
    return not obstacle_to("metal")


def with_amdgpu() -> bool:
    """Whether ``init(arch=qd.amdgpu)`` works here."""
    return not obstacle_to("amdgpu")


def with_opengl() -> bool:
    """False: Octants has no code generation for OpenGL."""
    return False


if not TYPE_CHECKING:
    __getattr__ = _names_of(__name__)
