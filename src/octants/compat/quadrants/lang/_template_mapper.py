"""``quadrants.lang._template_mapper``: only holds a flag.

``genesis/__init__.py`` turns checks of Quadrants off by
``qd.lang._template_mapper.__builtins__["__debug__"] = ...``. Octants has no such checks, and this
dictionary serves nothing else.
"""

from __future__ import annotations

__builtins__ = {"__debug__": True}  # type: ignore[assignment]
