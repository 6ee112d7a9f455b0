"""The files of the cache: written at once, checked when they are read, bounded in size.

A file is a line with the hash of the rest, a line of JSON that says what it is, and the
content. A problem with a file gives one warning; the file then counts as missing.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsWarning
from octants.diagnostics.user_frames import levels_to_the_user
from octants.hashing import blake2b
from octants.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import json
else:
    json = Deferred("json")

SCHEMA = 1
_MARK = f"octants-cache-{SCHEMA}"
_SUFFIX, _TEMPORARY = ".octants", ".tmp"
_STALE = 3600.0  # seconds after which a temporary file was left by a process that is gone
_WRITES_TO_TRIM = 256
_numbers = itertools.count()


@dataclass(frozen=True)
class CacheFile:
    """A file: its path, its bytes, when it was last used, and what it says that it holds."""

    path: str
    nbytes: int
    used: float
    head: dict[str, Any]


class FileStore:
    """A folder of files by name, of at most ``largest`` bytes together; 0 sets no bound.

    ``policy`` says what gives way: with "lru" what was not used for the longest time, with "fifo"
    what is oldest, with "never" nothing, with "version" what other versions of Octants wrote.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        largest: int = 0,
        policy: str = "lru",
        version: str = "",
    ) -> None:
        self.folder = folder
        self.largest = largest
        self.policy = policy
        self.version = version
        self.writes = 0
        self._can_write = True

    def read(self, name: str) -> bytes | None:
        """The content of a file; None where there is none that is whole."""
        path = self._path(name)
        try:
            data = _content(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot be read ({error})")
            return None
        parts = _split(data)
        if parts is None:
            self.reject(name)
            return None
        if self.policy == "lru":
            _touch(path)
        return parts[1]

    def has(self, name: str) -> bool:
        """Whether there is a file, whole or not."""
        return os.path.isfile(self._path(name))

    def reject(self, name: str) -> None:
        """Remove a file that is damaged, and say so."""
        self._warn(f"has a damaged file, {name}{_SUFFIX}, which is replaced")
        _remove(self._path(name))

    def write(self, name: str, content: bytes, **head: Any) -> None:
        """Write a file, as a whole or not at all; another one of the name is replaced."""
        if not self._can_write:
            return
        head = {"version": self.version, **head}
        body = json.dumps(head).encode() + b"\n" + content
        line = f"{_MARK} {blake2b(body, digest_size=16).hexdigest()}\n".encode()
        path = self._path(name)
        own = f"{os.getpid()}-{threading.get_ident()}-{next(_numbers)}"
        temporary = f"{path}.{own}{_TEMPORARY}"
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            _write(temporary, line + body)
            os.replace(temporary, path)
            self.writes += 1
            if self.writes % _WRITES_TO_TRIM == 0:
                self.trim()
        except OSError as error:
            self._can_write = False
            self._warn(f"cannot be written ({error}); kernels are compiled by each process")
        finally:
            _remove(temporary)

    def entries(self) -> Iterator[CacheFile]:
        """All files that are whole, in no order."""
        for path, status in self.files():
            try:
                parts = _split(_content(path))
            except OSError:
                continue
            if parts is not None:
                yield CacheFile(path, status.st_size, status.st_mtime, json.loads(parts[0]))

    def size(self) -> int:
        """The bytes of all files."""
        return sum(status.st_size for _, status in self.files())

    def clear(self) -> int:
        """Remove all files; how many there were."""
        paths = [path for path, _ in self.files(with_temporary=True)]
        for path in paths:
            _remove(path)
        return len(paths)

    def trim(self) -> None:
        """Remove what gives way, until three quarters of the bound are left."""
        self._remove_leftovers()
        if self.policy == "never":
            return
        if self.policy == "version":
            for entry in self.entries():
                if entry.head.get("version") != self.version:
                    _remove(entry.path)
            return
        files = sorted(self.files(), key=lambda file: file[1].st_mtime)
        total = sum(status.st_size for _, status in files)
        if not self.largest or total <= self.largest:
            return
        for path, status in files:
            if total <= self.largest * 3 // 4:
                break
            _remove(path)
            total -= status.st_size

    def _remove_leftovers(self) -> None:
        for path, status in self.files(with_temporary=True):
            if path.endswith(_TEMPORARY) and time.time() - status.st_mtime > _STALE:
                _remove(path)

    def files(self, with_temporary: bool = False) -> Iterator[tuple[str, os.stat_result]]:
        """The files, whole or not, in no order; with those that are being written if asked for."""
        suffixes = (_SUFFIX, _TEMPORARY) if with_temporary else (_SUFFIX,)
        try:
            found = list(os.scandir(self.folder))
        except OSError:
            return
        for each in found:
            if each.name.endswith(suffixes):
                try:
                    yield each.path, each.stat()
                except OSError:  # another process has removed it
                    continue

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, f"{name}{_SUFFIX}")

    def _warn(self, problem: str) -> None:
        kind = problem.partition("(")[0].partition(",")[0]
        if (self.folder, kind) not in _reported:
            _reported.add((self.folder, kind))
            text = f"the cache of kernels in {self.folder} {problem}"
            warnings.warn(text, OctantsWarning, stacklevel=levels_to_the_user())


_reported: set[tuple[str | os.PathLike[str], str]] = set()


def _split(data: bytes) -> tuple[bytes, bytes] | None:
    """The header of a file, from JSON, and its content; None for files of another format."""
    line, _, body = data.partition(b"\n")
    if line != f"{_MARK} {blake2b(body, digest_size=16).hexdigest()}".encode():
        return None
    head, _, content = body.partition(b"\n")
    return head, content


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def _touch(path: str) -> None:
    with contextlib.suppress(OSError):
        os.utime(path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
