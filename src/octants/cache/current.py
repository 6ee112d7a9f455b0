"""The store that the options of the last `init` ask for."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable

from octants.cache import stamp
from octants.cache.store import Store
from octants.hashing import blake2b
from octants.options import Options


class _InUse:
    store: Store | None = None


def start(chosen: Options) -> None:
    """Use the folder of these options; nothing, if they do not want a cache."""
    stop()
    if chosen.offline_cache and chosen.cache_directory and stamp.is_current():
        _InUse.store = store_of(chosen)


def is_empty(chosen: Options) -> bool:
    """Whether no kernel can be found under these options."""
    if not (chosen.offline_cache and chosen.cache_directory):
        return True
    try:
        with os.scandir(chosen.cache_directory) as files:
            return next(files, None) is None
    except OSError:
        return True


def store_of(chosen: Options) -> Store:
    """The folder of these options."""
    return Store(
        chosen.cache_directory,
        chosen.offline_cache_max_size_of_files,
        chosen.offline_cache_cleaning_policy,
        stamp.version(),
    )


def kept(part: str, key: str, make: Callable[[], bytes]) -> bytes:
    """Something that depends on the version of Octants and on ``key``: found, or made and kept.

    Nothing is kept of what has no bytes.
    """
    if _InUse.store is None:
        return make()
    words = f"{stamp.version()} {part} {key}"
    name = f"{blake2b(words.encode(), digest_size=20).hexdigest()}-{part}"
    found = _InUse.store.read(name)
    if found is None:
        found = make()
        if found and stamp.is_current():
            _InUse.store.write(name, found, part=part)
    return found


def store() -> Store | None:
    """The store in use."""
    return _InUse.store


@atexit.register
def stop() -> None:
    """Keep the folder within its bounds, if this process has added to it."""
    ending, _InUse.store = _InUse.store, None
    if ending is not None and ending.writes:
        ending.trim()
