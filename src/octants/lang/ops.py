"""``lang.ops`` of the peers: the functions of the library under an older name."""

from __future__ import annotations

from octants.lang.exported_names import *  # noqa: F403
