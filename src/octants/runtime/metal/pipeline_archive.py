"""Archives of pipelines that Metal has compiled, as bytes for the cache of kernels.

Metal reads and writes an archive as a file, which is in a temporary folder for as long as it does.
"""

from __future__ import annotations

import tempfile
from ctypes import byref, c_void_p
from pathlib import Path

from octants.runtime.metal.library import Library


class Archive:
    """An archive with the data of an earlier process, or an empty one; used in a pool.

    Its `handle` is 0 where none is wanted, or Metal rejects the data: then nothing is found in it,
    and nothing is kept.
    """

    def __init__(
        self, functions: Library, device: int, known: bytes, *, is_wanted: bool = True
    ) -> None:
        self._library = functions
        self.handle = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if not is_wanted:
            return
        try:
            self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            self._file = Path(self._folder.name) / "pipelines"
            if known:
                self._file.write_bytes(known)
        except OSError:
            return
        descriptor = functions.make("MTLBinaryArchiveDescriptor")
        if known:
            functions.setUrl_(descriptor, self._url())
        new = functions.newBinaryArchiveWithDescriptor_error_
        self.handle = new(device, descriptor, byref(c_void_p())) or 0
        functions.release(descriptor)

    def _url(self) -> int:
        path = self._library.string(str(self._file).encode())
        found: int = self._library.fileURLWithPath_(self._library.system.find_class("NSURL"), path)
        return found

    def search_for(self, descriptor: int) -> None:
        """Have the pipeline of a descriptor be taken from the archive, if it is there."""
        if self.handle:
            kind = self._library.system.find_class("NSArray")
            archives = self._library.arrayWithObject_(kind, self.handle)
            self._library.setBinaryArchives_(descriptor, archives)

    def add(self, descriptor: int) -> None:
        """Compile the pipeline of a descriptor for the archive."""
        add = self._library.addComputePipelineFunctionsWithDescriptor_error_
        if self.handle and not add(self.handle, descriptor, byref(c_void_p())):
            self.release()

    def data(self) -> bytes:
        """The bytes of the archive; empty if Metal does not write it."""
        write = self._library.serializeToURL_error_
        if not self.handle or not write(self.handle, self._url(), byref(c_void_p())):
            return b""
        try:
            return self._file.read_bytes()
        except OSError:
            return b""

    def release(self) -> None:
        """Have no archive any more."""
        if self.handle:
            self._library.release(self.handle)
        self.handle = 0
        if self._folder is not None:
            self._folder.cleanup()
