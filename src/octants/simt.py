"""Work items that work together, as a module: ``from octants.simt import block``.

What is here is `octants.lang.simt`, which ``qd.simt`` names without an import.
"""

from __future__ import annotations

from octants.lang.simt import block as block
from octants.lang.simt import grid as grid
from octants.lang.simt import subgroup as subgroup
from octants.lang.simt import warp as warp
from octants.lang.simt.tiles import Tile16x16 as Tile16x16
from octants.lang.simt.tiles import Tile32x32 as Tile32x32
