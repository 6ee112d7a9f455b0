"""The store that the options of the last `init` ask for."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence

from octants.cache import source_version
from octants.cache.store import FileStore
from octants.diagnostics.exceptions import OctantsError
from octants.hashing import blake2b
from octants.locks_at_fork import released_in_children
from octants.options import Options


class _InUse:
    store: FileStore | None = None


def start(chosen: Options) -> None:
    """Use the folder of these options; nothing, if they do not want a cache."""
    stop()
    if chosen.offline_cache and chosen.cache_directory and source_version.is_current():
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


def store_of(chosen: Options) -> FileStore:
    """The folder of these options."""
    return FileStore(
        chosen.cache_directory,
        chosen.offline_cache_max_size_of_files,
        chosen.offline_cache_cleaning_policy,
        source_version.version(),
    )


def cached_bytes(
    part: str, key: str, make: Callable[[], bytes], accept: Callable[[bytes], bool] | None = None
) -> bytes:
    """Bytes that depend on the version of Octants and on ``key``: read, or made and stored.

    Bytes that ``accept`` refuses are made again. Empty bytes are not stored.
    """
    if _InUse.store is None:
        return make()
    words = f"{source_version.version()} {part} {key}"
    name = f"{blake2b(words.encode(), digest_size=20).hexdigest()}-{part}"
    found = _InUse.store.read(name)
    if found is None or (accept is not None and not accept(found)):
        found = make()
        if found and source_version.is_current():
            _InUse.store.write(name, found, part=part)
    return found


def store() -> FileStore | None:
    """The store in use."""
    return _InUse.store


class _Later:
    """Something that is to be kept when what it waits for is done."""

    def __init__(self, waits: Sequence[Callable[[], None]], keep: Callable[[], None]) -> None:
        self._waits, self._keep = waits, keep

    def run(self, pause: float = 0.0) -> None:
        """Keep it, in whichever thread comes first; nothing if there is nothing to be kept."""
        for wait in self._waits:
            wait()
        time.sleep(pause)
        with _later_lock, contextlib.suppress(OctantsError):  # a launch raises it again
            if self in _put_off:
                _put_off.remove(self)
                self._keep()


_put_off: list[_Later] = []
_later_lock = released_in_children(threading.Lock())
_PAUSE = 0.05  # seconds in which the program goes on with what it has waited for


def later(waits: Sequence[Callable[[], None]], keep: Callable[[], None]) -> None:
    """Keep something soon after all of ``waits`` return; the store is not stopped before."""
    made = _Later(waits, keep)
    _put_off.append(made)
    threading.Thread(target=made.run, args=(_PAUSE,), name="octants cache", daemon=True).start()


@atexit.register
def stop() -> None:
    """Keep what was put off, and the folder within its bounds, if this process has added to it."""
    for each in _put_off.copy():  # each is removed
        each.run()
    _put_off.clear()
    ending, _InUse.store = _InUse.store, None
    if ending is not None and ending.writes:
        ending.trim()
