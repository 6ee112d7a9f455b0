"""Finds and stores one kernel in the cache, for one key of arguments.

The first key is the hash of what is known before the kernel is built: its code, the types of its
arguments, the options, the machine, the versions. It names a manifest: the paths to everything that
such kernels have read. The present values at these paths make the second key, which names what was
compiled. So a kernel is found without being built.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from octants import compile_profile, driver
from octants.backends.table import backend_of
from octants.cache import configured_store, pickling, source_version
from octants.cache.build_inputs import Path, follow_paths, follow_reads
from octants.cache.digest import Digest
from octants.cache.store import FileStore
from octants.hashing import blake2b
from octants.options import Options
from octants.types.compile_time_reads import Read
from octants.types.specialisation_signature import ArgumentType, ReturnType
from octants.types.weak_references import if_referable

if TYPE_CHECKING:
    from octants.frontend import Built

_MOST_MANIFESTS = 16


class CacheEntry:
    """The cache files of one specialised kernel."""

    def __init__(
        self, store: FileStore, hash_code: Callable[[], Digest], name: str, location: str
    ) -> None:
        self._store = store
        self._hash_code = hash_code
        self._digest: Digest | None = hash_code()
        self._code_key = self._digest.text
        self._name = name
        self._location = location
        self.key = ""
        self._objects: list[Callable[[], Any]] = []

    def release(self) -> None:
        """Drop the references to the objects that the key was computed from."""
        self._digest = None

    @property
    def _code(self) -> Digest:
        return self._digest or self._hash_code()

    def find_reads(self) -> list[Read] | None:
        """Look the kernel up; return what it read, or None if the cache does not have it."""
        for paths in self._manifest():
            digest = self._code.copy()
            try:
                reads = follow_paths(digest, paths)
            except Exception:  # an error of a property, which building the kernel raises again
                continue
            if reads is not None and self._store.has(self._file(digest.text, "facts")):
                self._set_key(digest)
                return reads
        return None

    def _set_key(self, digest: Digest) -> None:
        """Set the key, and the objects that files refer to by number."""
        self.key, self._objects = digest.text, list(map(if_referable, digest.objects))

    def settle(self, built: Built) -> bool:
        """Set the key of a kernel that was built; return whether it can be cached."""
        digest = self._code.copy()
        paths = follow_reads(digest, built.reads) if built.is_repeatable else None
        if paths is None or not source_version.is_current():
            return False
        self._set_key(digest)
        known = self._manifest()
        if paths not in known:
            known = [paths, *known][:_MOST_MANIFESTS]
            content = pickling.to_bytes(known, lambda _: None)
            assert content is not None
            self._store.write(self._manifest_file, content, kernel=self._name, part="manifest")
        return True

    def is_of(self, built: Built) -> bool:
        """Whether a kernel that was built again has this key."""
        digest = self._code.copy()
        paths = follow_reads(digest, built.reads) if built.is_repeatable else None
        return paths is not None and digest.text == self.key

    def find(self, part: str, find_object: Callable[[Any], Any] | None) -> Any:
        """Read a part of what was compiled; None if there is none."""
        file = self._file(self.key, part)
        content = self._store.read(file)
        if content is None:
            return None

        def find_named(name: Any) -> Any:
            if isinstance(name, int):
                return self._objects[name]()
            assert find_object is not None
            return find_object(name)

        try:
            return pickling.from_bytes(content, find_named)
        except Exception:  # a file may hold anything
            self._store.reject(file)
            return None

    def write_part(self, part: str, value: Any, name_object: Callable[[Any], Any]) -> None:
        """Write a part of what was compiled."""
        objects = [give() for give in self._objects]
        numbers = {id(x): number for number, x in enumerate(objects) if x is not None}

        def name(each: Any) -> Any:
            return None if each is value else numbers.get(id(each), name_object(each))

        content = pickling.to_bytes(value, name)
        if content is not None and source_version.is_current():
            file = self._file(self.key, part)
            self._store.write(file, content, kernel=self._name, location=self._location, part=part)

    @property
    def _manifest_file(self) -> str:
        return f"{self._code_key}-manifest"

    def _manifest(self) -> list[list[Path]]:
        content = self._store.read(self._manifest_file)
        if content is None:
            return []
        known: list[list[Path]] = pickling.from_bytes(content, lambda _: None)
        return known

    @staticmethod
    def _file(key: str, part: str) -> str:
        return f"{key}-{blake2b(part.encode(), digest_size=6).hexdigest()}"


def open_entry(
    function: Any,
    types: Callable[[], Sequence[ArgumentType]],
    returns: tuple[ReturnType, ...] | None,
    chosen: Options,
) -> CacheEntry | None:
    """Open the cache entry of a kernel for argument types; None if nothing is to be cached.

    Args:
        function: The Python function.
        types: Returns the types, whenever they are needed.
        returns: The types of the return annotation.
        chosen: The options.
    """
    store = configured_store.store()
    is_watched = chosen.shows_compilation or compile_profile.is_requested()
    if store is None or is_watched or not backend_of(chosen.arch).compiles:
        return None

    def hash_code() -> Digest:
        digest = Digest()
        digest.word(build_environment(chosen))
        digest.value(function)
        digest.values(*types())
        digest.value(returns)
        return digest

    code = function.__code__
    location = f"{code.co_filename}:{code.co_firstlineno}"
    return CacheEntry(store, hash_code, function.__qualname__, location)


def build_environment(chosen: Options) -> str:
    """Everything that determines the compiled code, except the kernel."""
    backend, machine = backend_of(chosen.arch), driver.capabilities(chosen)
    parts = (
        source_version.version(),
        platform.python_implementation(),
        platform.python_version(),
        np.__version__,
        (backend.version(), backend.target(chosen)),
        chosen.compilation_key(),
        dataclasses.replace(
            machine, memory_bytes=0, workers=0
        ),  # which `whole_record_bytes` is made of
    )
    return repr(parts)
