"""The options of `init`: frozen `Options`, and the only reader of environment variables.

`OCTANTS_X` and, for programs that move over, `QD_X` set option ``x`` where `init` does not name it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.launch_errors import NotInitialised, UnknownOption, WrongOption
from octants.lazy_dataclass import dataclass
from octants.locks_at_fork import released_in_children

if TYPE_CHECKING:
    import difflib
else:
    difflib = Deferred("difflib")

_VULKAN_CHOICES = (
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_LOADER_DRIVERS_SELECT",
    "VK_LOADER_DRIVERS_DISABLE",
)

NAN = "nan"
"""The values of `debug` besides truth values."""

LOG_LEVELS = ("trace", "debug", "info", "warn", "error", "critical")

STEERING = frozenset(
    """
    ad_stack_experimental_enabled ad_stack_sparse_threshold_bytes advanced_optimization
    auto_mesh_local_default_occupacy cache_loop_invariant_global_vars cfg_optimization
    default_cpu_block_dim default_gpu_block_dim demote_dense_struct_fors demote_no_access_mesh_fors
    detect_read_only experimental_auto_mesh_local flatten_if force_scalarize_matrix
    half2_vectorization make_block_local make_cpu_multithreading_loop make_mesh_block_local
    make_thread_local max_block_dim mesh_localize_all_attr_mappings mesh_localize_from_end_mapping
    mesh_localize_to_end_mapping move_loop_invariant_outside_if num_compile_threads
    optimize_mesh_reordered_mapping quant_opt_atomic_demotion quant_opt_store_fusion
    real_matrix_scalarize saturating_grid_dim src_ll_cache unrolling_limit

    allow_nv_shader_extension cpu_block_dim_adaptive gpu_max_reg lower_access
    simplify_after_lower_access simplify_before_lower_access use_llvm verbose
    verbose_kernel_launches
    """.split()
)
"""Options of `init` that steer how another compiler optimises: accepted without a word.

They decide neither what a program computes nor what its user sees. The last ones are Taichi's.
"""

_IR = "`print_ir` and `dump_ir` show kernels after each pass"
_QUEUES = "`qd.metal` makes a queue of its own"
WITHOUT_EFFECT = {
    "cuda_stack_limit": "kernels have no call stack: functions are inlined",
    "default_ad_stack_size": "`ad_stack_size` sets the size of the records; 0 fits all",
    "device_memory_GB": "memory is allocated as it is needed",
    "device_memory_fraction": "memory is allocated as it is needed",
    "external_metal_command_queue": _QUEUES,
    "external_metal_command_queue_is_torch_queue": _QUEUES,
    "gdb_trigger": "run the program in a debugger",
    "offline_cache_cleaning_factor": "files are removed until they fit the size of the cache",
    "print_accessor_ir": _IR,
    "print_ir_dbg_info": _IR,
    "print_kernel_amdgcn": "`print_kernel_llvm_ir` and `print_kernel_asm` show the code",
    "print_non_pure": "kernels notice that the globals that they read have changed",
    "print_preprocessed_ir": _IR,
    "print_struct_llvm_ir": "`print_kernel_llvm_ir` shows the code",
    "raise_on_templated_floats": "a kernel is compiled again for each float in a template",
    "require_version": "it names a version of Quadrants; see `qd.__version__`",
    "timeline": "`kernel_profiler=True` records one; `qd.profiler.save_trace` writes it",
    "vk_api_version": "the version is the newest that the driver and Octants know",
}
"""Options that a user would expect to see at work; what does instead."""

FIXED = {
    "short_circuit_operators": (True, "`and` and `or` work as in Python"),
}
"""Options that always have one value, and why."""

ACCEPTED_AND_IGNORED = STEERING | WITHOUT_EFFECT.keys() | FIXED.keys()
"""All options of `init` that change nothing here."""


@dataclass(frozen=True)
class Options:
    """The options of `init`. Number types are given by their names ("f32").

    With `fast_math`, where a machine can do that, a product and a sum are rounded as one, some
    functions of f32 are faster and right to two units of the last digit instead of one, and f32
    divided by a root, or by a common divisor, is multiplied by the reciprocal. On x86-64 adjoints
    that are subnormal may be zero.

    With `ad_stack_size` the record of each loop holds so many iterations, and no more; with 0, as
    many as there are. The copies that a tape makes of what is overwritten take at most
    `ad_snapshot_budget_bytes`; 0 stands for half of the memory of the device. The records of loops
    take at most `ad_stack_budget_bytes` on all threads together, by running parts of long loops
    twice; 0 stands for a 64th of the memory. A loop in a loop is run again for each iteration
    around it that is reversed if `ad_stack_nests` is "replay"; the records of all its executions
    are kept, where that saves a run, as far as they fit the budget with "store", and as far as they
    fit the cache, too, with "auto". `on_overwrite` says what a bare ``kernel.grad()`` does whose
    operands were overwritten: "error" raises, "trust" takes what memory holds; a tape keeps copies
    in any case. With `deterministic`, updates of arrays happen in an
    order that neither chance nor the number of threads changes, and so results are the same bits
    each time; it costs time where work items update elements that they share. `simd` says whether a
    CPU runs several work items of a parallel loop at once, one in each lane of its vectors: "auto"
    or True where an estimate says that it pays, "always" wherever it can, "never" or False nowhere.
    With `kernel_profiler` launches, compilations and copies are timed; see `octants.profiler`.
    `device` is the number of the GPU, where there are several. With `print_full_traceback` the
    traceback of an error shows the functions of Octants, too, and not only those of the user.
    `vulkan_without` names features of a device for Vulkan that are left unused, with commas between
    them, as if it did not have them.
    """

    arch: str = "cpu"
    debug: bool | str = False
    check_out_of_bound: bool = False
    default_fp: str = "f32"
    default_ip: str = "i32"
    fast_math: bool = True
    opt_level: int = 2
    simd: str = "auto"
    random_seed: int = 0
    cpu_max_num_threads: int = 0
    device: int = 0
    vulkan_without: str = ""
    ad_stack_size: int = 0
    ad_stack_budget_bytes: int = 0
    ad_stack_nests: str = "auto"
    ad_snapshot_budget_bytes: int = 0
    on_overwrite: str = "error"
    deterministic: bool = False
    offline_cache: bool = True
    offline_cache_file_path: str = ""
    offline_cache_max_size_of_files: int = 256 * 2**20
    offline_cache_cleaning_policy: str = "lru"
    kernel_profiler: bool = False
    log_level: str = "info"
    enable_fallback: bool | None = None
    print_full_traceback: bool = False
    print_ir: bool = False
    print_kernel_llvm_ir: bool = False
    print_kernel_llvm_ir_optimized: bool = False
    print_kernel_asm: bool = False
    dump_ir: bool = False
    debug_dump_path: str = ""

    @property
    def in_debug_mode(self) -> bool:
        """Whether indices, asserts and data races are checked; not what ``debug="nan"`` asks."""
        return self.debug is True

    @property
    def checks_bounds(self) -> bool:
        """Whether every access to an array is checked."""
        return self.in_debug_mode or self.check_out_of_bound

    @property
    def checks_finite(self) -> bool:
        """Whether a NaN or an infinity that a kernel stores is an error."""
        return self.debug == NAN

    @property
    def cache_directory(self) -> str:
        """The folder of the cache of compiled kernels."""
        return self.offline_cache_file_path or default_cache_directory()

    @property
    def shows_compilation(self) -> bool:
        """Whether something of the compilation is to be seen, which must happen for that."""
        return (
            self.print_ir
            or self.print_kernel_llvm_ir
            or self.print_kernel_llvm_ir_optimized
            or self.print_kernel_asm
            or self.dump_ir
        )

    def snapshot_budget(self, memory: int) -> int:
        """How many bytes the copies of a tape may take, of ``memory`` bytes that a device has."""
        return self.ad_snapshot_budget_bytes or memory // 2

    def stack_budget(self, memory: int) -> int:
        """How many bytes the records of loops may take on all threads together."""
        return self.ad_stack_budget_bytes or memory // 64

    def compilation_key(self) -> tuple[Any, ...]:
        """The options that determine the code of a kernel."""
        return (
            self.arch,
            self.debug,
            self.checks_bounds,
            self.default_fp,
            self.default_ip,
            self.fast_math,
            self.opt_level,
            self.simd,
            self.ad_stack_size,
            self.deterministic,
            self.ad_stack_nests,
        )


FIELDS = {entry.name: entry for entry in dataclasses.fields(Options)}
_TYPES: dict[str, type] = {name: type(entry.default) for name, entry in FIELDS.items()}
_TYPES["enable_fallback"] = bool
_WORDS = {"debug": NAN}
"""The other values of options that are truth values."""


replace = dataclasses.replace


def make_options(given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Options:
    """Options from the keywords of `init`, then the environment, then the defaults.

    A keyword wins over its variable; `OCTANTS_X` wins over `QD_X`. An unknown option raises
    `OctantsRuntimeError`, as does a value that an option cannot hold.
    """
    values = _from_environment(os.environ if environment is None else environment)
    for name, value in given.items():
        if name in FIELDS:
            values[name] = _coerce(name, value)
        elif name not in ACCEPTED_AND_IGNORED:
            raise _unknown(name)
    return Options(**values)


def ineffective(
    given: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> list[tuple[str, Any, str]]:
    """The options that ask for something that does not happen: name, value, what to do instead."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for name in (*WITHOUT_EFFECT, *FIXED):
        for prefix in ("QD_", "OCTANTS_"):
            text = environment.get(prefix + name.upper())
            if text is not None:
                values[name] = "" if text.strip().lower() in _FALSE else text
    values.update((name, value) for name, value in given.items() if value is not None)
    found = [
        (name, values[name], WITHOUT_EFFECT[name]) for name in WITHOUT_EFFECT if values.get(name)
    ]
    for name, (always, why) in FIXED.items():
        if bool(values.get(name, always)) is not always:
            found.append((name, values[name], why))
    return found


def unused(given: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
    """The keywords of `init` that its other keywords leave without effect, as `ineffective`."""
    found = []
    if given.get("arch", "cpu") in ("cpu", "x64", "x86_64", "arm64"):
        for name in ("device", "vulkan_without"):
            if given.get(name):
                found.append((name, given[name], "it is for GPUs, and `arch` is a CPU"))
    if given.get("debug_dump_path") and not given.get("dump_ir"):
        found.append(("debug_dump_path", given["debug_dump_path"], "it needs `dump_ir=True`"))
    return found


def _unknown(name: str) -> OctantsError:
    near = difflib.get_close_matches(name, [*FIELDS, *ACCEPTED_AND_IGNORED], n=1, cutoff=0.6)
    if name == "default_up":
        return UnknownOption(name, "it is always the unsigned type of `default_ip`").at()
    hint = f"did you mean `{near[0]}`?" if near else "see `octants.options.Options` for the list"
    return UnknownOption(name, hint).at()


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in FIELDS:
        for prefix in ("OCTANTS_", "QD_"):
            text = environment.get(prefix + name.upper())
            if text is not None:
                values[name] = _parse(prefix + name.upper(), name, text)
                break
    return values


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


def _parse(variable: str, name: str, text: str) -> Any:
    """The value of an option from the text of an environment variable."""
    kind = _TYPES[name]
    if kind is bool:
        if text == _WORDS.get(name):
            return text
        word = text.strip().lower()
        if word not in (*_TRUE, *_FALSE):
            known = f'1 or 0, or "{_WORDS[name]}"' if name in _WORDS else "1 or 0"
            raise WrongOption(variable, known, repr(text)).at()
        return word in _TRUE
    if kind is int:
        try:
            return _natural(variable, name, int(text))
        except ValueError:
            raise WrongOption(variable, "an integer", repr(text)).at() from None
    return _checked(variable, name, text)


def _coerce(name: str, value: Any) -> Any:
    """The value of a keyword in the type of its option."""
    kind = _TYPES[name]
    if value is None:
        return FIELDS[name].default
    if kind is str:
        return _checked(name, name, str(value))
    if value == _WORDS.get(name):
        return value
    if not hasattr(value, "__index__"):
        word = f' or "{_WORDS[name]}"' if name in _WORDS else ""
        raise WrongOption(name, f"of type {kind.__name__}{word}", repr(value)).at()
    return _natural(name, name, kind(value)) if kind is int else kind(value)


_COUNTS = {
    "device": "the number of a GPU, from 0",
    "cpu_max_num_threads": "a number of threads, or 0 for all cores",
    "opt_level": "a level from 0 to 3",
    "ad_stack_size": "a number of iterations, or 0",
    "ad_stack_budget_bytes": "a number of bytes, or 0",
    "ad_snapshot_budget_bytes": "a number of bytes, or 0",
    "offline_cache_max_size_of_files": "a number of bytes, or 0",
}


_MOST = {"opt_level": 3}


def _natural(given_as: str, name: str, value: int) -> int:
    if name in _COUNTS and not 0 <= value <= _MOST.get(name, value):
        raise WrongOption(given_as, _COUNTS[name], str(value)).at()
    return value


_CHOICES = {
    "simd": ("auto", "always", "never"),
    "default_fp": ("f16", "f32", "f64"),
    "default_ip": ("i32", "i64"),
    "log_level": LOG_LEVELS,
    "ad_stack_nests": ("auto", "replay", "store"),
    "on_overwrite": ("error", "trust"),
    "offline_cache_cleaning_policy": ("never", "version", "lru", "fifo"),
}


_MEANINGS = {"simd": {**dict.fromkeys(_TRUE, "auto"), **dict.fromkeys(_FALSE, "never")}}
"""Of an option that is more than a truth value, and may be given as one."""


def _checked(given_as: str, name: str, text: str) -> str:
    text = _MEANINGS.get(name, {}).get(text.strip().lower(), text)
    choices = _CHOICES.get(name)
    if choices is not None and text not in choices:
        raise WrongOption(given_as, f"one of {', '.join(choices)}", text).at()
    return text


def default_cache_directory() -> str:
    """The folder of kernels unless `init` names one: ``OCTANTS_CACHE_DIR``, or the user's caches.

    It is empty, and nothing is kept, where a user has no element for such files.
    """
    given = os.environ.get("OCTANTS_CACHE_DIR")
    if given:
        return given
    caches = os.environ.get("XDG_CACHE_HOME")
    if not caches and os.name == "nt":
        caches = os.environ.get("LOCALAPPDATA")
    if not caches:
        parts = ("Library", "Caches") if sys.platform == "darwin" else (".cache",)
        home = os.path.expanduser("~")
        if home == "~":  # it is unknown
            return ""
        caches = os.path.join(home, *parts)
    return os.path.join(caches, "octants")


@functools.cache
def memory_of_the_machine() -> int:
    """The bytes of memory; as much as is usual where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 * 2**30


class _InForce:
    """The options of the last `init`."""

    options: Options | None = None
    initialise: Callable[[], None] | None = None
    """The function to call when something is used before the first `init`; None from then on."""
    lock = released_in_children(threading.RLock())


def verifies_passes() -> bool:
    """Whether the verifier runs after each pass outside of debug mode too: tests ask for it."""
    return os.environ.get("OCTANTS_VERIFY", "") not in ("", "0")


def frames() -> tuple[str | None, int | None]:
    """The folder for what programs draw (``OCTANTS_FRAMES``), and after how many frames they end.

    Raises:
        WrongOption: If ``OCTANTS_FRAME_COUNT`` is not a positive number.
    """
    text = os.environ.get("OCTANTS_FRAME_COUNT", "")
    if text and not (text.isdecimal() and int(text)):
        raise WrongOption("OCTANTS_FRAME_COUNT", "a positive number", text).at()
    return os.environ.get("OCTANTS_FRAMES") or None, int(text) if text else None


def vulkan_choices() -> dict[str, str]:
    """The environment variables by which Vulkan's loader chooses among drivers."""
    return {name: os.environ[name] for name in _VULKAN_CHOICES if name in os.environ}


def current() -> Options:
    """The options in force; before the first `init`, the defaults. An error after `reset`."""
    if _InForce.options is None:
        begin_with_defaults()
    return _InForce.options or current()


def begin_with_defaults() -> None:
    """Initialise for who uses something before the first `init`, and say so; else an error."""
    with _InForce.lock:
        if _InForce.options is None:
            initialise, _InForce.initialise = _InForce.initialise, None
            if initialise is None:
                raise NotInitialised().at()
            initialise()


def is_initialised() -> bool:
    """Whether `init` was called, and no `reset` since."""
    return _InForce.options is not None


def install(options: Options | None) -> None:
    """Put options in force; None as `reset` does."""
    _InForce.options = options
    _InForce.initialise = None


def initialise_by(initialise: Callable[[], None]) -> None:
    """Have a function called when something is used before the first `init`."""
    _InForce.initialise = initialise
