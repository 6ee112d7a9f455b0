"""The functions that a user calls on the host: `init`, `reset`, `sync`, and the decorators."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast, overload

from octants import driver, options, timeline
from octants.backends.table import begin, obstacle_to
from octants.data import current_runtime
from octants.deferred_import import Deferred
from octants.diagnostics.launch_errors import IneffectiveOption, MissingBackend
from octants.diagnostics.tracebacks import Shown, shortens_tracebacks
from octants.diagnostics.user_frames import WITHOUT_FILE, warn_at_caller
from octants.launch.kernel import Kernel
from octants.options import LOG_LEVELS, Options
from octants.target import EXTENSIONS, GPUS, HOST, Arch, Extension
from octants.types import default_types, scalars
from octants.types.scalars import DType

if TYPE_CHECKING:
    import logging

    from octants import profiler
    from octants.diagnostics import custom_adjoint_errors, source_text
    from octants.launch.func_typing_stub import Func
    from octants.launch.segments import segmented_kernel
else:
    profiler = Deferred("octants.profiler")
    logging = Deferred("logging")
    custom_adjoint_errors = Deferred("octants.diagnostics.custom_adjoint_errors")
    source_text = Deferred("octants.diagnostics.source_text")
    segmented_kernel = Deferred("octants.launch.segments.segmented_kernel")

__all__ = [
    "CRITICAL",
    "DEBUG",
    "ERROR",
    "INFO",
    "TRACE",
    "WARN",
    "Arch",
    "Extension",
    "amdgpu",
    "arm64",
    "cfg",
    "cpu",
    "cuda",
    "data_oriented",
    "dump_compile_config",
    "extension",
    "func",
    "gpu",
    "init",
    "is_extension_enabled",
    "is_logging_effective",
    "kernel",
    "metal",
    "pure",
    "pyfunc",
    "python",
    "real_func",
    "reset",
    "set_logging_level",
    "sync",
    "vulkan",
    "x64",
    "x86_64",
]


TRACE, DEBUG, INFO, WARN, ERROR, CRITICAL = LOG_LEVELS
_SEVERITY = dict(zip(LOG_LEVELS, (5, 10, 20, 30, 40, 50), strict=True))

x64, arm64, cuda, vulkan, metal, amdgpu, python = Arch
cpu = HOST
x86_64 = x64
gpu = list(GPUS)
extension = Extension


# -- the runtime ----------------------------------------------------------------------------------


@shortens_tracebacks
def init(
    arch: Any = None,
    default_fp: Any = None,
    default_ip: Any = None,
    *,
    debug: bool | Literal["nan"] | None = None,
    check_out_of_bound: bool | None = None,
    fast_math: bool | None = None,
    random_seed: int | None = None,
    deterministic: bool | None = None,
    cpu_max_num_threads: int | None = None,
    simd: bool | str | None = None,
    device: int | None = None,
    ad_stack_size: int | None = None,
    ad_stack_budget_bytes: int | None = None,
    ad_stack_nests: str | None = None,
    ad_snapshot_budget_bytes: int | None = None,
    on_overwrite: str | None = None,
    kernel_profiler: bool | None = None,
    log_level: str | None = None,
    print_full_traceback: bool | None = None,
    offline_cache: bool | None = None,
    offline_cache_file_path: str | None = None,
    offline_cache_max_size_of_files: int | None = None,
    offline_cache_cleaning_policy: str | None = None,
    enable_fallback: bool | None = None,
    opt_level: int | None = None,
    print_ir: bool | None = None,
    print_kernel_llvm_ir: bool | None = None,
    print_kernel_llvm_ir_optimized: bool | None = None,
    print_kernel_asm: bool | None = None,
    dump_ir: bool | None = None,
    debug_dump_path: str | None = None,
    vulkan_without: str | None = None,
    **others: Any,
) -> None:
    """Start Octants: select the device, the default types and the options.

    Arrays from before a later call of `init` can no longer be used; kernels can. If a program uses
    anything before `init`, it runs with the defaults, and a line says so. An option that is not
    passed, or is None, has the value of the variable ``OCTANTS_<NAME>`` or ``QD_<NAME>`` of the
    environment, else its default. Example::

        qd.init(arch=qd.gpu, default_fp=qd.f64, debug=True)

    Args:
        arch: `cpu`, `cuda`, `vulkan`, or `gpu` for the best GPU that there is; without one, `gpu`
            takes the CPU, with a message. A list is tried in order.
        default_fp: the type of float literals and of `float`: `f16`, `f32` (the default) or `f64`.
        default_ip: the type of integer literals and of `int`: `i32` (the default) or `i64`.
        debug: check indices and asserts, look for data races, and verify what the compiler makes.
            With "nan", find the first NaN or infinity that a kernel stores, and nothing else.
        check_out_of_bound: check indices only.
        fast_math: round a product and a sum as one, let functions of f32 be wrong by two units of
            the last digit, and let subnormal adjoints be zero; True by default.
        random_seed: the seed of `qd.random`; 0 by default.
        deterministic: update arrays in a fixed order, so that results have the same bits each time.
        cpu_max_num_threads: the most threads of a CPU; 0, the default: all cores.
        simd: run several work items at once in the lanes of a CPU: "auto" (the default) where that
            should pay, "always", "never"; True and False are "auto" and "never".
        device: the number of the GPU.
        ad_stack_size: the most iterations that the record of a loop holds; 0, the default: all.
        ad_stack_budget_bytes: the most bytes of the records of loops, on all threads together; 0,
            the default: a 64th of the memory.
        ad_stack_nests: how loops in loops are recorded: "auto" (the default), "replay", "store".
        ad_snapshot_budget_bytes: the most bytes of the copies of a tape; 0, the default: half of
            the memory.
        on_overwrite: what a bare ``kernel.grad()`` does whose operands were overwritten: "error"
            (the default), or "trust" to take what memory holds.
        kernel_profiler: time launches, compilations and copies; see `octants.profiler`.
        log_level: trace, debug, info (the default), warn, error or critical, for the logger
            "octants"; where a program has set up no logging, "debug" prints what is compiled.
        print_full_traceback: show the functions of Octants in tracebacks, too.
        offline_cache: keep compiled kernels on disk; True by default.
        offline_cache_file_path: the folder for them.
        offline_cache_max_size_of_files: the most bytes that they take; 256 MiB by default.
        offline_cache_cleaning_policy: which go first: "lru" (the default), "fifo", "version"; or
            "never".
        enable_fallback: take the CPU where `arch` is not available; by default only for `gpu` and
            lists.
        opt_level: how hard LLVM tries, 0 to 3; 2 by default.
        print_ir: print kernels after each pass of the compiler.
        print_kernel_llvm_ir: print the LLVM IR of kernels.
        print_kernel_llvm_ir_optimized: print it after LLVM's passes.
        print_kernel_asm: print the machine code of kernels.
        dump_ir: write kernels after each pass to files.
        debug_dump_path: the folder for these.
        vulkan_without: features of a Vulkan device to leave unused, with commas between them.
        others: options that steer the compilers of Quadrants and Taichi, which are ignored, and
            options for what Octants does not do, which give a warning.

    Raises:
        OctantsRuntimeError: for an unknown option or value, or an arch that is not available.
    """
    passed = dict(locals())
    given = passed.pop("others")
    for name in options.FIELDS.keys() & passed.keys() - {"arch", "default_fp", "default_ip"}:
        if passed[name] is not None:
            given[name] = passed[name]
    for name, value in (("default_fp", default_fp), ("default_ip", default_ip)):
        if value is not None:
            given[name] = default_types.resolve(value).name
    if arch is not None:
        given["arch"] = _arch_name(arch)
    chosen = options.make_options(given)
    for name, value, advice in (*options.ineffective(given), *options.unused(given)):
        warn_at_caller(IneffectiveOption(name, repr(value), advice))
    available = _available(chosen)
    number = chosen.device if available in GPUS else 0
    chosen = options.replace(chosen, arch=available.name, device=number)
    reset()
    Shown.internal = chosen.print_full_traceback
    default_types.set_defaults(_dtype(chosen.default_ip), _dtype(chosen.default_fp))
    _Messages.level = chosen.log_level
    current_runtime.start(driver.state.start(chosen))
    options.install(chosen)
    timeline.activate(None)
    if chosen.kernel_profiler:
        profiler.begin(driver.device())
    if "logging" in sys.modules or chosen.log_level in _DETAILS:  # else no handler can exist
        _logger().info("Octants on %s", chosen.arch)


def _init_with_defaults() -> None:
    """Initialise with the defaults, before the first use of anything without `init`."""
    init()
    chosen = options.current()
    if chosen.log_level not in ("error", "critical"):
        print(f"[Octants] qd.init() was not called: running on {chosen.arch}", file=sys.stderr)


options.initialise_by(_init_with_defaults)


def reset() -> None:
    """End all arrays. Kernels stay usable; call `init` next.

    `int` and `float` stand for i32 and f32 again. An error that the next `sync` would have raised
    becomes a warning.
    """
    unraised = driver.state.stop()
    current_runtime.stop()
    if options.is_initialised():
        options.install(None)
    default_types.set_defaults(scalars.i32, scalars.f32)
    driver.warn_of(unraised)


@shortens_tracebacks
def sync() -> None:
    """Wait until all launches are done, and raise their errors.

    Raises:
        OctantsAssertionError: the records of a gradient overflowed, which a forced `ad_stack_size`
            makes possible. Host reads of fields and ndarrays raise it, too; it is raised once.
    """
    options.current()
    driver.state.synchronize()


def _arch_name(arch: Any) -> str:
    """The option ``arch`` from what `init` was given: an arch, its name, or a list of them."""
    if isinstance(arch, (list, tuple)):
        return ",".join(_arch_name(each) for each in arch)
    return arch.name if isinstance(arch, Arch) else str(arch)


def _available(chosen: Options) -> Arch:
    """The first arch of the wanted ones that can run here."""
    wanted = [arch for name in chosen.arch.split(",") for arch in _arches(name.strip())]
    obstacles: dict[str, list[str]] = {}
    for arch in wanted:
        begin(arch.name, chosen)
        obstacle = obstacle_to(arch.name, by_itself=len(wanted) == 1)
        if not obstacle:
            return arch
        obstacles.setdefault(obstacle, []).append(arch.name)
    if len(wanted) > 1 if chosen.enable_fallback is None else chosen.enable_fallback:
        if chosen.log_level not in ("error", "critical"):
            print(_fallback_message(obstacles), file=sys.stderr)
        return HOST
    names = ", ".join(arch.name for arch in wanted)
    raise MissingBackend(names, "; ".join(obstacles)).at()


def _fallback_message(obstacles: Mapping[str, Sequence[str]]) -> str:
    """Why the archs that were wanted are not used."""
    reasons = "; ".join(f"{', '.join(names)}: {why}" for why, names in obstacles.items())
    return f"[Octants] not available, using {HOST.name} - {reasons}"


def _arches(name: str) -> Sequence[Arch]:
    if name in ("cpu", "x86_64"):
        return (HOST,)
    if name == "gpu":
        return GPUS
    if name not in Arch.__members__:
        known = ", ".join(("cpu", "gpu", *Arch.__members__))
        raise MissingBackend(name, f"there is no such arch; the names are: {known}").at()
    return (Arch[name],)


def _dtype(name: str) -> DType:
    return scalars.by_name(name)


class Configuration:
    """``qd.cfg``: the options in force, as attributes."""

    @property
    def arch(self) -> Arch:
        return Arch[options.current().arch]

    @property
    def default_fp(self) -> DType:
        return _dtype(options.current().default_fp)

    @property
    def default_ip(self) -> DType:
        return _dtype(options.current().default_ip)

    @property
    def default_up(self) -> DType:
        """The unsigned type of the width of `default_ip`."""
        return _dtype("u" + options.current().default_ip[1:])

    def __getattr__(self, name: str) -> Any:
        if name in options.FIELDS:
            return getattr(options.current(), name)
        if name in options.ACCEPTED_AND_IGNORED:
            return None
        raise AttributeError(f"there is no option `{name}`")


cfg = Configuration()


def dump_compile_config() -> None:
    """Print the options in force, one a line: ``name=value``."""
    chosen = options.current()
    for name in sorted(options.FIELDS):
        print(f"{name}={getattr(chosen, name)}")


def is_extension_enabled(ext: Extension) -> bool:
    """Whether the arch in use supports an extension."""
    return ext in EXTENSIONS[cfg.arch]


def set_logging_level(level: str) -> None:
    """Show messages from ``level`` on: trace, debug, info, warn, error or critical."""
    options.make_options({"log_level": level}, {})
    _Messages.level = level
    _logger()


def is_logging_effective(level: str) -> bool:
    """Whether messages of a level are shown."""
    return _logger().isEnabledFor(_SEVERITY[level])


_DETAILS = ("trace", "debug")


class _Messages:
    level = "info"
    console: logging.Handler | None = None


def _logger() -> logging.Logger:
    """The logger at the level in force; detailed levels also show without handlers."""
    logger = logging.getLogger("octants")
    logger.setLevel(_SEVERITY[_Messages.level])
    if _Messages.console is not None:
        logger.removeHandler(_Messages.console)
        _Messages.console = None
    if _Messages.level in _DETAILS and not logger.hasHandlers():
        _Messages.console = logging.StreamHandler()
        _Messages.console.setFormatter(logging.Formatter("[octants] %(message)s"))
        logger.addHandler(_Messages.console)
    return logger


# -- decorators -----------------------------------------------------------------------------------

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class")
_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def kernel(function: Callable[_P, _R], /) -> Kernel[_P, _R]: ...
@overload
def kernel(
    *,
    graph: bool = False,
    gpu_graph: bool = False,
    checkpoints: bool = False,
    pure: bool = False,
    fastcache: bool = False,
) -> Callable[[Callable[_P, _R]], Kernel[_P, _R]]: ...
def kernel(function: Any = None, **steering: Any) -> Any:
    """Decorate a function as a kernel: a call compiles and launches it.

    The top-level loops of a kernel run in parallel. ``kernel.grad(...)`` runs its reverse on the
    adjoints in memory. Example::

        @qd.kernel
        def scale(x: qd.types.ndarray(), factor: qd.f32) -> qd.i32:
            for i in x:
                x[i] *= factor
            return x.shape[0]

    Annotate each parameter. Scalar, vector, matrix and struct types are passed by value,
    ``types.ndarray()`` in place, ``template()`` at compile time. In a class, the first parameter is
    the object.

    Args:
        function: the function, if the decorator has no keywords.
        steering: ``graph=True`` launches the top-level loops as one, if the device has graphs; such
            a kernel returns nothing, and takes no host arrays on a device with its own memory.
            `gpu_graph` is its older name. ``checkpoints=True`` lets the kernel pause at each
            `checkpoint`: it returns a `GraphStatus`, and ``kernel.resume`` continues it. `pure` and
            `fastcache` are ignored.

    Raises:
        TypeError: if what is decorated is not a function, or for an unknown keyword.
    """
    _check_keywords("kernel", steering, ("pure", "fastcache", "graph", "gpu_graph", "checkpoints"))
    wants_graph = bool(steering.get("graph") or steering.get("gpu_graph"))
    frame = inspect.currentframe()
    around = frame.f_back if frame is not None else None

    @shortens_tracebacks
    def decorate(given: Any) -> Kernel:
        if isinstance(given, Kernel):
            return given
        if _is_decorated_by_ad(given):
            raise TypeError("`@qd.kernel` decorates functions: write `@qd.ad...` above it")
        _check_function("kernel", given)
        if given.__code__.co_filename in WITHOUT_FILE:
            source_text.search_text(given, around)
        names = lambda: {} if around is None else around.f_locals  # noqa: E731
        kind: type[Kernel] = Kernel
        if steering.get("checkpoints"):
            kind = segmented_kernel.CheckpointedKernel
        elif not _REPEATING.isdisjoint(given.__code__.co_names):
            kind = segmented_kernel.SegmentedKernel
        return kind(given, names, wants_graph=wants_graph)

    return decorate if function is None else decorate(function)


def _is_decorated_by_ad(given: Any) -> bool:
    """Whether this is what a decorator of `octants.ad` has made of a function."""
    if isinstance(given, FunctionType):
        maker = given.__globals__.get("__name__", "")
    else:
        maker = type(given).__module__
    return hasattr(given, "__wrapped__") and str(maker).startswith("octants.ad.")


_REPEATING = frozenset(("do_while", "graph_do_while"))
"""The names by which kernels call `graph.do_while`."""


@overload
def func(function: Callable[_P, _R], /) -> Func[_P, _R]: ...
@overload
def func(
    *, is_real_function: bool = False, requires_top_level: bool = False
) -> Callable[[Callable[_P, _R]], Func[_P, _R]]: ...
def func(function: Any = None, **steering: Any) -> Any:
    """Decorate a function that kernels call: it is inlined there. On the host it runs as Python.

    ``@f.adjoint`` gives the function ``f`` derivatives of its own. It decorates a function of the
    arguments of ``f`` and of the adjoint of each result, which returns the adjoint of each argument
    of floats: one, or a tuple of several. Neither writes to memory. Example::

        @qd.func
        def stretch(x):
            return qd.sqrt(x * x)

        @stretch.adjoint
        def stretch_adjoint(x, g):
            return g * qd.math.sign(x)

    With `is_real_function` it is a `real_func`. The keyword `requires_top_level` is ignored.
    """
    _check_keywords("func", steering, ("is_real_function", "requires_top_level"))
    if steering.get("is_real_function"):
        return real_func(function) if function is not None else real_func()
    return _mark if function is None else _mark(function)


def _check_function(decorator: str, given: Any) -> FunctionType:
    """The function that is decorated; an error if it is none."""
    if isinstance(given, (staticmethod, classmethod, property)):
        outer = type(given).__name__
        raise TypeError(f"`@qd.{decorator}` decorates functions: write `@{outer}` above it")
    if not isinstance(given, FunctionType):
        raise TypeError(f"`@qd.{decorator}` decorates functions, not {given!r}")
    return given


def _mark(function: _Function, decorator: str = "func") -> _Function:
    """Let the frontend know a function; a method of it leads back to the function too."""
    given = _check_function(decorator, function)
    if given.__code__.co_filename in WITHOUT_FILE:
        source_text.search_text(given, inspect.currentframe())
    function.octants_function = function  # type: ignore[attr-defined]
    function.adjoint = functools.partial(_register_adjoint, function)  # type: ignore[attr-defined]
    return function


def _register_adjoint(function: Any, adjoint: _Function, /) -> _Function:
    """Make a function the adjoint of another one: ``@f.adjoint``; see `func`."""
    if not isinstance(adjoint, FunctionType):
        raise TypeError(f"`@{function.__name__}.adjoint` decorates functions, not {adjoint!r}")
    if getattr(function, "octants_is_compiled", False):
        raise custom_adjoint_errors.LateAdjoint(function.__name__).at()
    function.octants_adjoint = adjoint
    return _mark(adjoint)


@overload
def real_func(function: Callable[_P, _R], /) -> Func[_P, _R]: ...
@overload
def real_func(*, max_depth: int = 32) -> Callable[[Callable[_P, _R]], Func[_P, _R]]: ...
def real_func(function: Any = None, *, max_depth: int = 32) -> Any:
    """Decorate a function that kernels call, and that may call itself: `func` with recursion.

    The recursion ends by a condition at run time. For that, annotate the result, and all parameters
    with types of numbers, vectors, matrices or structs, with `ref`, or with `types.ndarray()` or
    `template` for arrays. A function that does not call itself is inlined, as a `func` is.

    Args:
        function: the function.
        max_depth: how many calls may be active at once, before a launch is an error. Each work item
            has memory for so many. Of functions that call each other, the largest counts.

    Raises:
        ValueError: `max_depth` is no positive integer.

    Example::

        @qd.real_func
        def fibonacci(n: qd.i32) -> qd.i32:
            if n < 2:
                return n
            return fibonacci(n - 1) + fibonacci(n - 2)
    """
    if type(max_depth) is not int or max_depth < 1:
        raise ValueError(f"`max_depth` is a positive integer, not {max_depth!r}")

    def decorate(function: _Function) -> _Function:
        _mark(function, "real_func").octants_max_depth = max_depth  # type: ignore[attr-defined]
        return function

    return decorate if function is None else decorate(function)


def pyfunc(function: Callable[_P, _R]) -> Func[_P, _R]:
    """Make a function callable in kernels and on the host."""
    return cast("Func[_P, _R]", _mark(function, "pyfunc"))


def pure(function: _Function) -> _Function:
    """Accepted and ignored: a promise that a kernel reads no globals but constants."""
    return function


@overload
def data_oriented(cls: type[_Class], /) -> type[_Class]: ...
@overload
def data_oriented(
    *, stable_members: bool = False, template_primitives: bool = False
) -> Callable[[type[_Class]], type[_Class]]: ...
def data_oriented(cls: Any = None, **steering: Any) -> Any:
    """Decorate a class whose methods are kernels; ``self`` is a compile-time value in them.

    The keywords `stable_members` and `template_primitives` are ignored.

    Example::

        @qd.data_oriented
        class Simulation:
            def __init__(self, n):
                self.x = qd.field(qd.f32, n)

            @qd.kernel
            def step(self, dt: qd.f32):
                for i in self.x:
                    self.x[i] += dt

        Simulation(100).step(0.1)
    """
    _check_keywords("data_oriented", steering, ("stable_members", "template_primitives"))

    def decorate(given: Any) -> Any:
        if not isinstance(given, type):
            raise TypeError(f"`@qd.data_oriented` decorates classes, not {given!r}")
        return given

    return decorate if cls is None else decorate(cls)


def _check_keywords(decorator: str, given: dict[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise TypeError(f"`@qd.{decorator}` has no keyword `{name}`; it has {', '.join(known)}")
