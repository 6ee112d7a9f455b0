"""Resources that other libraries share with Octants, except arrays: see `from_dlpack`."""

from __future__ import annotations

__all__ = ["get_mps_command_queue"]


def get_mps_command_queue() -> int:
    """The command queue of torch on Metal, as a number: always 0, which says that there is none.

    Octants has a queue of its own on Metal. Call `sync` before torch reads what kernels wrote, and
    ``torch.mps.synchronize()`` before kernels read what torch wrote.
    """
    return 0
