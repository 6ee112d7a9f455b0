"""Creates pipelines from the text of kernels, with an archive of what Metal compiled earlier."""

from __future__ import annotations

import weakref
from ctypes import byref, c_void_p

from octants.artifact import Artifact, Dispatch
from octants.cache import configured_store
from octants.diagnostics.metal_errors import ForkedMetal, MetalFailed, TooManyThreads
from octants.lazy_dataclass import dataclass
from octants.runtime.gpu import pipeline_cache
from octants.runtime.metal.context import Context
from octants.runtime.metal.library import Size
from octants.runtime.metal.pipeline_archive import Archive

_VERSION_3_2 = 3 << 16 | 2
_SAFE, _PRECISE = 0, 1  # MTLMathModeSafe, MTLMathFloatingPointFunctionsPrecise


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A kernel function that is compiled, and the threads of its blocks."""

    handle: int
    threads: Size


class MetalPipelines(pipeline_cache.CachedPipelines):
    """The pipelines of a text, by the names of its entry points."""

    def __init__(self, context: Context, artifact: Artifact) -> None:
        super().__init__(context, artifact)
        self._library = context.library
        self._handles: list[int] = []
        weakref.finalize(self, _release, context, self._handles).atexit = False
        if artifact.dispatches:
            with self._library.pool():
                module = self._compile(artifact.code)
                try:
                    self._load(module)
                finally:
                    self._library.release(module)

    def _identity(self) -> str:
        return f"{self._context.hardware.name} {self._library.system.build}"

    def _compile(self, code: bytes) -> int:
        """The library of a text."""
        functions, error = self._library, c_void_p()
        options = functions.make("MTLCompileOptions")
        functions.setLanguageVersion_(options, _VERSION_3_2)
        functions.setMathMode_(options, _SAFE)
        functions.setMathFloatingPointFunctions_(options, _PRECISE)
        new, device = functions.newLibraryWithSource_options_error_, self._context.hardware.handle
        module = new(device, functions.string(code), options, byref(error))
        functions.release(options)
        return module or self._fail("newLibraryWithSource:options:error:", error)

    def _make(self, module: int, known: bytes) -> bytes:
        is_wanted = configured_store.store() is not None
        archive = Archive(self._library, self._context.hardware.handle, known, is_wanted=is_wanted)
        try:
            if known and not archive.handle:
                return b""
            for dispatch in self._artifact.dispatches:
                handle = self._pipeline(module, dispatch.entry, archive, is_new=not known)
                if not handle:
                    return b""
                self._check(handle, dispatch)
                threads = Size(dispatch.block or 1, 1, 1)
                self.pipelines[dispatch.entry] = Pipeline(handle, threads)
            return known or archive.data()
        finally:
            archive.release()

    def _restore(self, module: int, known: bytes) -> bool:
        if self._make(module, known):
            return True
        _release(self._context, self._handles)
        self._handles.clear()
        return False

    def _pipeline(self, module: int, entry: str, archive: Archive, *, is_new: bool) -> int:
        """A pipeline; 0 if it cannot be made with an archive that is not new."""
        functions, error = self._library, c_void_p()
        function = functions.newFunctionWithName_(module, functions.string(entry.encode()))
        if not function:
            self._fail("newFunctionWithName:", error)
        descriptor = functions.make("MTLComputePipelineDescriptor")
        functions.setComputeFunction_(descriptor, function)
        functions.release(function)
        if is_new:
            archive.add(descriptor)
        archive.search_for(descriptor)
        new = functions.newComputePipelineStateWithDescriptor_options_reflection_error_
        handle = new(self._context.hardware.handle, descriptor, 0, None, byref(error))
        functions.release(descriptor)
        if not handle and archive.handle:  # what is in it may be the reason
            archive.release()
            return self._pipeline(module, entry, archive, is_new=False) if is_new else 0
        if not handle:
            self._fail("newComputePipelineStateWithDescriptor:options:reflection:error:", error)
        self._handles.append(handle)
        return int(handle)

    def _check(self, handle: int, dispatch: Dispatch) -> None:
        """Raise `OctantsRuntimeError` unless a pipeline can run the blocks of its dispatch."""
        most, threads = self._library.maxTotalThreadsPerThreadgroup(handle), dispatch.block or 1
        if threads > most:
            name = self._artifact.kernel or self._artifact.name
            raise TooManyThreads(name, threads, int(most)).at()
        width = self._library.threadExecutionWidth(handle)
        if dispatch.lanes not in (0, width):
            problem = f"subgroups have {width} threads, not {dispatch.lanes}"
            raise MetalFailed("threadExecutionWidth", problem).at()

    def _fail(self, method: str, error: c_void_p) -> int:
        raise MetalFailed(method, self._library.describe(error.value)).at()


def _release(context: Context, handles: list[int]) -> None:
    """Release pipelines; command buffers that use them keep them for themselves."""
    if not isinstance(context.lost, ForkedMetal):
        for handle in handles:
            context.library.release(handle)
