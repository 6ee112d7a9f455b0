"""``_lib`` of the peers, for programs that ask there which devices can be used."""

from __future__ import annotations

from octants._lib import core as core
