"""Names the kernels that may have caused an error: those since the last synchronisation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_MOST_NAMED = 16


def suspects(launched: Sequence[str]) -> str:
    """The kernels that may have caused an error, the latest first."""
    counts = Counter(reversed(list(launched)))
    names = [f"`{name}`" + (f" ({n} times)" if n > 1 else "") for name, n in counts.items()]
    if not names:
        return "no kernel of Octants was running"
    more = f", and {len(names) - _MOST_NAMED} others" if len(names) > _MOST_NAMED else ""
    return f"launched since the last synchronisation: {', '.join(names[:_MOST_NAMED])}{more}"
