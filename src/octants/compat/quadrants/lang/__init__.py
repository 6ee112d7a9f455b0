"""``quadrants.lang``: what Genesis uses of it, as ``qd.lang.impl.get_runtime()``."""

from __future__ import annotations

from octants.compat.quadrants.lang import _template_mapper as _template_mapper
from octants.compat.quadrants.lang import impl as impl
from octants.lang import math as math
from octants.lang import simt as simt
