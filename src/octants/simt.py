"""Work items that work together: in blocks, and in subgroups of them that run in step.

`block` is for the work items of a block, `subgroup` for those that run in step, `warp` has the
latter by older names, `grid` is about all of a device.
"""

from __future__ import annotations

import sys

from octants.lang import simt as _simt
from octants.lang.simt import block as block
from octants.lang.simt import grid as grid
from octants.lang.simt import subgroup as subgroup
from octants.lang.simt import warp as warp
from octants.lang.simt.tiles import Tile16x16 as Tile16x16
from octants.lang.simt.tiles import Tile32x32 as Tile32x32

sys.modules[__name__] = _simt  # one module under two names: nothing of it exists twice
for _name in ("block", "grid", "reductions_and_scans", "subgroup", "tiles", "warp"):
    sys.modules[f"{__name__}.{_name}"] = sys.modules[f"{_simt.__name__}.{_name}"]
