"""The words of the language and its library: what may be called in kernels.

The functions are public as those of ``octants`` itself. `impl`, `misc`, `ops` and `util` are for
programs that know them from the peers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octants.deferred_import import names_of as _names_of

if not TYPE_CHECKING:
    __getattr__ = _names_of(__name__, submodules=("impl", "misc", "ops", "util"))
