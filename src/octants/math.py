"""Constants, vector types and functions of shading languages: ``import octants.math as tm``.

What is here is `octants.lang.math`, which ``qd.math`` names without an import.
"""

from __future__ import annotations

from octants.lang.math import *  # noqa: F403
from octants.lang.math import __all__ as __all__
