"""``lang.misc`` of the peers: the words of the language, and questions about devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octants.deferred_import import Deferred
from octants.target import EXTENSIONS, HOST, Arch, Extension

_octants, _backends = Deferred("octants"), Deferred("octants.backends.table")


def get_host_arch_list() -> list[Arch]:
    """The archs that run on the CPU: one."""
    return [HOST]


def is_arch_supported(arch: Arch) -> bool:
    """Whether ``init(arch=arch)`` works here."""
    return not _backends.obstacle_to(arch.value)


def is_extension_supported(arch: Arch, extension: Extension) -> bool:
    """Whether an arch supports an extension; `is_extension_enabled` queries the one in use."""
    return extension in EXTENSIONS[arch]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return getattr(_octants, name)
