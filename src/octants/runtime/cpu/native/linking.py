"""Links native code into this process, and makes the native runtime callable from Python."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import itertools
import platform
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from octants.cache import configured_store
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.runtime.c_declarations import fields
from octants.runtime.cpu.loader.elf import CODE, CONSTANTS, ObjectFile
from octants.runtime.cpu.loader.executable import ExecutableMemory
from octants.runtime.cpu.loader.relocations import Refused
from octants.runtime.cpu.native import assembly
from octants.target import code_model

if TYPE_CHECKING:
    import ctypes.util as finder

    import llvmlite.binding as llvm
else:
    finder, llvm = Deferred("ctypes.util"), Deferred("llvmlite.binding")

# LLVM may turn loops into these, and calls the others where a CPU has no instruction for them.
_IMPLIED = (
    "memcpy memmove memset bcmp memcmp strlen floor floorf ceil ceilf trunc truncf rint rintf fma"
).split()
if sys.platform == "win32":
    _IMPLIED.append("__chkstk")


_PLACES = (None, "libm.so.6", "ucrtbase", "ntdll", "kernel32", "libpthread.so.0")
"""The libraries that may have the functions of C; None is the process itself."""


def _libraries() -> Iterator[ctypes.CDLL]:
    """The libraries that exist; the last one is found by running other programs."""
    for name in _PLACES:
        yield from _load(name)
    yield from _load(finder.find_library("m"))


def _load(name: str | None) -> Iterator[ctypes.CDLL]:
    with contextlib.suppress(OSError, TypeError):
        yield ctypes.CDLL(name)


@functools.cache
def address_of(symbol: str) -> int | None:
    """The address of a function of the C library, if there is one."""
    for library in _opened():
        function = getattr(library, symbol, None)
        if function is not None:
            return _address(function)
    return None


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


_known: list[ctypes.CDLL] = []
_further = _libraries()


def _opened() -> Iterator[ctypes.CDLL]:
    """The libraries in order, each opened when the ones before it lack a function."""
    yield from _known
    for library in _further:
        _known.append(library)
        yield library


@functools.cache
def _linker() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(reloc="pic", codemodel="default", jit=True)
    # LLVM's older linker maps each section by itself, and aborts if two are too far apart.
    return llvm.create_lljit_compiler(machine, use_jit_link=True)


_numbers = itertools.count()
_alive: weakref.WeakSet[Any] = weakref.WeakSet()


def link(code: bytes, exports: Iterable[str], symbols: Mapping[str, int]) -> Any:
    """Load an object file.

    LLVM, which takes long to load, is used only for files with unusual content.

    Args:
        code: The object file.
        exports: The names of its entry points.
        symbols: The addresses of external symbols.

    Returns:
        An object that maps names to addresses, and keeps the code in memory.
    """
    names = list(exports)
    try:
        return Loaded(code, names, symbols)
    except Refused:
        return _linked_by_llvm(code, names, symbols)


class Loaded:
    """A loaded object file."""

    def __init__(self, code: bytes, exports: Iterable[str], symbols: Mapping[str, int]) -> None:
        file = ObjectFile(code)
        self._memory = ExecutableMemory(file.size)
        base = self._memory.address
        image = file.image(base, lambda name: symbols.get(name) or address_of(name))
        self._addresses = file.exports(base, exports)
        ctypes.memmove(base, image, len(image))
        for part in (CODE, CONSTANTS):
            self._memory.protect(*file.parts[part], executable=part == CODE)

    def __getitem__(self, name: str) -> int:
        return self._addresses[name]


def _linked_by_llvm(code: bytes, exports: Iterable[str], symbols: Mapping[str, int]) -> Any:
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name, address in symbols.items():
        builder.import_symbol(name, address)
    for name in exports:
        builder.export_symbol(name)
    try:
        library = builder.link(_linker(), f"octants{next(_numbers)}")
    except RuntimeError as error:
        raise OctantsRuntimeError(f"machine code cannot be loaded: {error}") from None
    _alive.add(library)
    return library


@atexit.register
def _keep_code() -> None:
    """Keep code loaded at the end of the process, since Python threads may still run it."""
    for library in list(_alive):
        library.detach()
    if _linker.cache_info().currsize:
        _linker().detach()


def implied_symbols() -> dict[str, int]:
    """The addresses of functions that LLVM inserts calls of."""
    found = {name: address for name in _IMPLIED if (address := address_of(name)) is not None}
    return {**found, "_fltused": ctypes.addressof(_MARK)}


_MARK = ctypes.c_int32()
"""On Windows, code with floats refers to a symbol of that name, and never reads it."""


class Support:
    """The functions of the native runtime as Python calls them, and their addresses.

    ``replaced`` has addresses to call in place of functions of the system, by name; ``system`` is
    one as in `sys.platform`.
    """

    def __init__(
        self, replaced: Mapping[str, int] | None = None, system: str = sys.platform
    ) -> None:
        wanted = assembly.symbols(system)
        symbols = {name: address_of(name) for name in wanted} | dict(replaced or {})
        python = {
            name: _address(getattr(ctypes.pythonapi, name)) for name in assembly.PYTHON_SYMBOLS
        }
        self.has_threads = all(symbols.values())
        self.has_signals = bool(symbols.get("sigaction"))  # else Ctrl-C waits for the launch
        compile_it = functools.partial(compile_support, system)
        code = configured_store.cached_bytes(
            "support", f"{system} {platform.machine()}", compile_it
        )
        never_called = ctypes.addressof(_MARK)  # LLVM ends the process if it is to link with 0
        known = {name: address or never_called for name, address in symbols.items()}
        symbols_of_all = {**known, **python, **implied_symbols()}
        self._library = link(code, assembly.EXPORTS, symbols_of_all)
        self.addresses: dict[str, int] = {name: self._library[name] for name in assembly.EXPORTS}
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self.launch = _python_function(b"launch", self.addresses["octants_call"])
        self.replay = _python_function(b"replay", self.addresses["octants_replay"])
        self.prepare = self._function("prepare", None, pointer)
        self.acquire = self._function("acquire", number, pointer)
        self.release = self._function("release", None, pointer)
        self.stop = self._function("stop", None, pointer)
        self.free_record_buffer = self._function("free_record_buffer", None, pointer, pointer)
        self.free_parts = self._function("free_parts", None, pointer)
        self.after_fork = self._function("after_fork", None)
        self.clear = self._function("clear", None, pointer, ctypes.c_int64)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(result, *arguments)(self.addresses[f"octants_{name}"])


class _Method(ctypes.Structure):
    """A ``PyMethodDef``."""

    _fields_ = fields("char* name; void* function; int flags; char* documentation")


_FASTCALL = 0x80  # the function takes an array of arguments, and their number
_new_function = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)(("PyCFunction_NewEx", ctypes.pythonapi))


def _python_function(name: bytes, address: int) -> Any:
    """Wrap native code as a built-in function, which is ten times faster than through ctypes."""
    method = _Method(name, address, _FASTCALL, None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(method))  # the function refers to it to its end
    return _new_function(ctypes.addressof(method), None, None)


@functools.cache
def native_support() -> Support:
    """The native runtime of the process, compiled on first use."""
    return Support()


def compile_support(system: str, triple: str = "") -> bytes:
    """The object file of the native runtime, for this process or another target."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = triple or llvm.get_process_triple()
    text = assembly.support_text(triple.split("-")[0], system)
    # At level 0 that takes a fifth of the time, and launches take what they take at level 2.
    machine = llvm.Target.from_triple(triple).create_target_machine(
        opt=0, reloc="pic", codemodel=code_model(triple)
    )
    head = f'target triple = "{triple}"\ntarget datalayout = "{machine.target_data}"\n'
    module = llvm.parse_assembly(head + text, context=llvm.create_context())
    module.verify()
    for function in module.functions:  # tables for unwinding would need an image, on Windows
        function.add_function_attribute("nounwind")
    code: bytes = machine.emit_object(module)
    return code
