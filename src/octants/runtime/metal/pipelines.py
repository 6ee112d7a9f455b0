"""Pipelines, which Metal makes of the text of kernels, and keeps in a cache of its own."""

from __future__ import annotations

import weakref
from ctypes import byref, c_void_p

from octants.artifact import Artifact, Dispatch
from octants.diagnostics.metal_errors import MetalFailed, TooManyThreads
from octants.lazy_dataclass import dataclass
from octants.runtime.metal.context import Context
from octants.runtime.metal.library import Size

_VERSION_3_2 = 3 << 16 | 2
_SAFE, _PRECISE = 0, 1  # MTLMathModeSafe, MTLMathFloatingPointFunctionsPrecise


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A kernel function that is compiled, and the threads of its blocks."""

    handle: int
    threads: Size


class Program:
    """The pipelines of a text, by the names of its entry points."""

    def __init__(self, context: Context, artifact: Artifact) -> None:
        context.check()
        self._context, self._library = context, context.library
        self._kernel = artifact.kernel or artifact.name
        self.pipelines: dict[str, Pipeline] = {}
        if not artifact.dispatches:
            return
        with self._library.pool():
            module = self._compile(artifact.code)
            try:
                for dispatch in artifact.dispatches:
                    self.pipelines[dispatch.entry] = self._pipeline(module, dispatch)
            finally:
                self._library.release(module)
        handles = [each.handle for each in self.pipelines.values()]
        weakref.finalize(self, _release, context, handles).atexit = False

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

    def _pipeline(self, module: int, dispatch: Dispatch) -> Pipeline:
        functions, error = self._library, c_void_p()
        function = functions.newFunctionWithName_(module, functions.string(dispatch.entry.encode()))
        if not function:
            self._fail("newFunctionWithName:", error)
        new, device = functions.newComputePipelineStateWithFunction_error_, self._context.hardware
        handle = new(device.handle, function, byref(error))
        functions.release(function)
        if not handle:
            self._fail("newComputePipelineStateWithFunction:error:", error)
        most, threads = functions.maxTotalThreadsPerThreadgroup(handle), dispatch.block or 1
        if threads > most:
            functions.release(handle)
            raise TooManyThreads(self._kernel, threads, int(most)).at(None)
        return Pipeline(handle, Size(threads, 1, 1))

    def _fail(self, method: str, error: c_void_p) -> int:
        raise MetalFailed(method, self._library.describe(error.value)).at(None)


def _release(context: Context, handles: list[int]) -> None:
    """Release pipelines; command buffers that use them keep them for themselves."""
    for handle in handles:
        context.library.release(handle)
