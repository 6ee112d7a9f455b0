"""Messages by level, as functions that a program may replace by its own.

``genesis/__init__.py`` does, at its start: ``setattr(qd._logging, "info", ...)``; at its end it has
them back by ``qd._logging._get_logging(qd._logging.INFO)``. They go to the logger ``octants``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from octants import CRITICAL, DEBUG, ERROR, INFO, TRACE, WARN
from octants import is_logging_effective as is_logging_effective
from octants import set_logging_level as set_logging_level

_LEVELS = {
    TRACE: 5,
    DEBUG: logging.DEBUG,
    INFO: logging.INFO,
    WARN: logging.WARNING,
    ERROR: logging.ERROR,
    CRITICAL: logging.CRITICAL,
}
supported_log_levels = list(_LEVELS)


def _get_logging(name: str) -> Callable[[str], None]:
    """The function that logs messages of a level."""
    return partial(logging.getLogger("octants").log, _LEVELS[name])


trace = _get_logging(TRACE)
debug = _get_logging(DEBUG)
info = _get_logging(INFO)
warn = _get_logging(WARN)
error = _get_logging(ERROR)
critical = _get_logging(CRITICAL)
