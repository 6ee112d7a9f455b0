"""The names of the kernels that were launched since the host has waited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_KERNELS_TOLD = 16


def suspects(launched: Sequence[str]) -> str:
    """Which kernels may have done it, the last ones first."""
    counts = Counter(reversed(list(launched)))
    told = [f"`{name}`" + (f" ({n} times)" if n > 1 else "") for name, n in counts.items()]
    if not told:
        return "no kernel of Octants was running"
    more = f", and {len(told) - _KERNELS_TOLD} others" if len(told) > _KERNELS_TOLD else ""
    return f"launched since the last synchronisation: {', '.join(told[:_KERNELS_TOLD])}{more}"
