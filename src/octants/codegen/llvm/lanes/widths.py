"""How many lanes the vectors of a target have, and whether they are wanted."""

from __future__ import annotations

from octants.target import Target

AUTO, ALWAYS, NEVER = "auto", "always", "never"
"""What `init` says: lanes where they pay, wherever they can be, or nowhere."""

_FEATURES = (("+avx512vl", 16), ("+avx2", 8), ("+neon", 4))
"""Of a target with so many lanes of 32 bits in a vector."""

MOST_VECTORS = 4
"""The vectors of the widest tiles."""


def lanes_of_target(target: Target) -> int:
    """The lanes of a vector of 32 bits each; 0 where the target's vectors are none to rely on."""
    features = target.features.split(",")
    for feature, lanes in _FEATURES:
        if feature in features:
            return lanes
    return 0


def most_lanes(target: Target) -> int:
    """The lanes of the widest tiles."""
    return lanes_of_target(target) * MOST_VECTORS
