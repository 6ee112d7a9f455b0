"""The returned value of a kernel with checkpoints."""

from __future__ import annotations

from octants.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class GraphStatus:
    """Whether a launch of a kernel with checkpoints has paused, and where; see `checkpoint`.

    Attributes:
        yielded: Whether the launch paused at a checkpoint; else it is complete.
        checkpoint: The label of that checkpoint, as the kernel has it; None if it is complete.
    """

    yielded: bool
    checkpoint: int | None
