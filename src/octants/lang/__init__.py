"""The words of the language and its library: what may be called in kernels.

The functions are public as those of ``octants`` itself. ``octants.lang.impl`` and
``octants.lang.ops`` are for programs that know them from the peers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from octants.diagnostics.absent_names import attribute_error

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in ("impl", "ops"):
            return importlib.import_module(f"octants.lang.{name}")
        raise attribute_error(__name__, name)
