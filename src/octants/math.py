"""``qd.math``: constants, vector types, and the functions of shading languages.

It can be imported as ``import octants.math as tm``. Functions here are written in the language
itself; kernels inline them, and on the host they work on numbers and on `Vector` and `Matrix`
values. A complex number is a vector of 2.
"""

from __future__ import annotations

import sys

from octants.lang import math as _math
from octants.lang.math import *  # noqa: F403
from octants.lang.math import __all__ as __all__

sys.modules[__name__] = _math  # one module under two names: nothing of it exists twice
