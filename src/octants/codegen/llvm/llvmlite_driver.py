"""Drive LLVM through llvmlite: from text to optimised modules, assembly and object code."""

from __future__ import annotations

import functools
import os.path
import re
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from octants.codegen.llvm import opaque_merges, opaque_splats
from octants.compile_profile import stage
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import InternalError
from octants.lazy_dataclass import dataclass
from octants.target import Target, code_model

if TYPE_CHECKING:
    import tempfile

    import llvmlite
    import llvmlite.binding as llvm
else:
    tempfile = Deferred("tempfile")
    llvmlite, llvm = Deferred("llvmlite"), Deferred("llvmlite.binding")

# The features of every CPU of an architecture. For a CPU that LLVM does not know it would assume
# that they are missing, and abort the process.
_BASE = {
    "x86_64": "+64bit,+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87",
    "aarch64": "+fp-armv8,+neon",
    "arm64": "+fp-armv8,+neon",
}

_NOTE = "octants_has_set_options"

_OPTIONS = (
    # Vectorise loops with a float sum: the terms in lanes, the sum in order. Without the option
    # LLVM does so on some CPUs only, though no bit of a result changes.
    "--force-ordered-reductions=true",
    # Octants has forwarded stores to loads before; to look for more takes most of the time of the
    # pass where there are many stores.
    "--enable-gvn-memdep=false",
    # Register allocation is quadratic in functions of many blocks, for almost no gain, as are
    # the schedulers in long blocks that access memory.
    "--grow-region-complexity-budget=1000",
    "--dag-maps-huge-region=200",
)
_OPTIONS_OF_22 = (
    # It looks for checksums in loops, in time exponential in a chain of conditional values.
    "--disable-loop-idiom-hashrecognize",
    # For each copy of a register it looks through all uses of the register.
    "--terminal-rule=false",
)

LARGE = 1000
"""Lines of text above which few of LLVM's passes run on CPUs, and those of level 1 on AMD's GPUs.

The others are quadratic in the size of a loop, a nest or a block, and do not make code of this size
faster: it has been simplified before. Code is emitted at level 1 as well, in 0.85 of the time. GPUs
unroll loops, since their threads would wait for each load of a short iteration.
"""
_FOR_LARGE = ("always_inliner", "instruction_combine", "simplify_cfg")

_BEFORE_FUNCTIONS = ("always_inliner", "global_dead_code_eliminate")
_AFTER_FUNCTIONS = ("loop_unroll", "instruction_combine", "simplify_cfg")
"""The passes before and after those of each function, for NVIDIA's GPUs and lanes of CPUs.

LLVM's passes of a module take up to twice as long, and make the same instructions, or as many to a
few percent: they vectorise, which neither needs, and combine instructions four more times.
"""

_VECTOR = re.compile(r"<\d+ x ")

INLINABLE = "#0"
"""The attribute group of calls that are worth inlining: in small texts, LLVM decides."""
MAY_INLINE = f"attributes {INLINABLE} = {{ nounwind }}"
_MUST_INLINE = f"attributes {INLINABLE} = {{ alwaysinline nounwind }}"


@dataclass(frozen=True, slots=True)
class _Passes:
    """LLVM's passes for a text: the pipeline of a level, or only the `few` that are named.

    They run on the module, or `by_function`, between a few others on the module. `slp` joins
    scalars to vectors, in time that is quadratic in the size of a block.
    """

    level: int
    vectorises: bool = False
    unrolls: bool = False
    slp: bool = False
    by_function: bool = False
    few: tuple[str, ...] = ()


def _passes_for(
    text: str, target: Target, level: int, by_function: bool, unswitches: bool
) -> _Passes:
    """Choose passes for a target, an optimisation level, and the size of a text.

    A text of a CPU runs `by_function` if no loops are left for LLVM to vectorise. It `unswitches`
    if the same condition always skips or runs some blocks of its loops: the pipeline of level 3
    writes these loops twice, so that the one without them can run in vectors.
    """
    by_function &= level < 3 and not is_large(text)
    if level > 0 and (by_function or target.arch == "cuda"):
        return _Passes(level, level >= 2, level >= 2, level >= 3, by_function=True)
    if not is_large(text):
        pipeline = 3 if level == 2 and unswitches else level
        return _Passes(pipeline, level >= 2, level >= 2, level >= 3)
    if target.arch == "cpu" and level > 0:
        return _Passes(1, few=_FOR_LARGE)
    return _Passes(min(level, 1), unrolls=level >= 2 and target.arch != "cpu")


def host_target() -> Target:
    """Return the CPU of this machine; a generic one where LLVM does not know it."""
    _initialise()
    try:
        features = llvm.get_host_cpu_features().flatten()
    except RuntimeError:
        features = ""
    triple = llvm.get_process_triple()
    features = _with_neon(triple, features)
    return Target("cpu", triple, llvm.get_host_cpu_name() or "generic", features)


def _with_neon(triple: str, features: str) -> str:
    """Add NEON to the detected features: every arm64 has it, but some systems do not report it."""
    architecture = triple.split("-", maxsplit=1)[0]
    if architecture not in ("aarch64", "arm64") or "+neon" in features.split(","):
        return features
    return ",".join(filter(None, (_BASE[architecture], features)))


def is_x64(target: Target) -> bool:
    """Return whether the target is an x86-64."""
    return target.triple.startswith(("x86_64", "i686"))


def has_fused(target: Target) -> bool:
    """Return whether the target has a fused multiply-add."""
    return not is_x64(target) or "+fma" in target.features.split(",")


def version() -> str:
    """Return LLVM's version: that of llvmlite, and the state of its files.

    Where the files do not identify it LLVM itself is asked, which is slow to load.
    """
    folder = os.path.join(os.path.dirname(llvmlite.__file__), "binding")
    try:
        with os.scandir(folder) as entries:
            files = [(each.name, each.stat()) for each in entries if "llvmlite" in each.name]
    except OSError:
        files = []
    state = sorted((name, status.st_size, status.st_mtime_ns) for name, status in files)
    return f"llvmlite {llvmlite.__version__}, LLVM {state or llvm.llvm_version_info}"


def begin() -> None:
    """Load LLVM for all targets in advance."""
    _initialise_all()


def begin_on_host() -> None:
    """Load LLVM for this machine's CPU in advance."""
    _initialise()


@functools.cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    _set_options()


@functools.cache
def _initialise_all() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    _set_options()


def _set_options() -> None:
    """Set our LLVM options once per process.

    LLVM ends the process on an unknown option, and on one that is set twice. So options are set
    only for the versions that have them, and a marker that survives a reload records that they are
    set.
    """
    if llvm.llvm_version_info[0] in (20, 21, 22) and not hasattr(llvm, _NOTE):
        setattr(llvm, _NOTE, True)
        further = _OPTIONS_OF_22 if llvm.llvm_version_info[0] == 22 else ()
        for option in (*_OPTIONS, *further):
            llvm.set_option("octants", option)


def optimised(
    text: str,
    target: Target,
    level: int,
    *,
    by_function: bool = False,
    unswitches: bool = False,
) -> tuple[Any, Any]:
    """Run LLVM's passes on a text.

    A module is emitted once: emitting it a second time can abort the process.

    Args:
        text: LLVM IR.
        target: The CPU to generate code for.
        level: The optimisation level, 0 to 3.
        by_function: Whether a CPU's text has nothing for LLVM's passes of modules.
        unswitches: Whether the same condition always skips or runs some blocks of its loops.

    Returns:
        The module, and the machine to emit it with.
    """
    machine = _machine(target, level)
    hides = is_x64(target) and llvm.llvm_version_info[0] < opaque_splats.MENDED
    if hides and level == 0:
        text = opaque_splats.hide_all(text)
    passes = _passes_for(text, target, level, by_function, unswitches)
    if passes.few:
        machine = _machine(target, passes.level)
    if passes.few or passes.by_function:
        text = text.replace(MAY_INLINE, _MUST_INLINE)
    with stage("LLVM parse") as note:
        module = parse(text, target, machine)
        note.gives(partial(_instructions, module), "instructions")
    options = llvm.create_pipeline_tuning_options(speed_level=passes.level)
    options.loop_vectorization = options.loop_interleaving = passes.vectorises
    options.loop_unrolling = passes.unrolls
    options.slp_vectorization = passes.slp
    builder = llvm.create_pass_builder(machine, options)
    with stage("LLVM optimise", size=partial(_instructions, module), unit="instructions"):
        if passes.by_function:
            _run(_manager_of(_BEFORE_FUNCTIONS), [module], builder)
            defined = [each for each in module.functions if not each.is_declaration]
            _run(builder.getFunctionPassManager(), defined, builder)
            _run(_manager_of(_AFTER_FUNCTIONS if passes.unrolls else ()), [module], builder)
        else:
            few = passes.few
            _run(_manager_of(few) if few else builder.getModulePassManager(), [module], builder)
    may_vectorise = not (passes.few or passes.by_function)
    if level > 0 and is_x64(target) and (may_vectorise or _VECTOR.search(text)):
        module = _hide(text, module, target, machine, hides)
    return module, machine


def _hide(text: str, module: Any, target: Target, machine: Any, splats: bool) -> Any:
    """Return the optimised module of a text with what LLVM would miscompile on x86 hidden."""
    hides_splats = splats and opaque_splats.may_have_choices(text)
    has_avx512 = "-avx512f" not in target.features.split(",")
    hides_merges = has_avx512 and opaque_merges.may_merge(text)
    if not hides_splats and not hides_merges:
        return module
    found = hidden = str(module)
    if hides_splats:
        hidden = opaque_splats.hide_choices(hidden)
    if hides_merges:
        hidden = opaque_merges.hide(hidden)
    return module if hidden is found else parse(hidden, target, machine)


def is_large(text: str) -> bool:
    """Return whether few passes run on a text."""
    return text.count("\n") > LARGE


def _manager_of(names: Sequence[str]) -> Any:
    """Return a manager of passes by their names."""
    passes = llvm.create_new_module_pass_manager()
    for name in names:
        getattr(passes, f"add_{name}_pass")()
    return passes


def _run(passes: Any, parts: Sequence[Any], builder: Any) -> None:
    """Run passes on modules or functions, and free the manager.

    llvmlite does not free it: a base class hides the method that would.
    """
    for part in parts:
        passes.run(part, builder)
    llvm.newpassmanagers.NewPassManager._dispose(passes)
    passes.detach()


def _instructions(module: Any) -> int:
    return sum(1 for each in module.functions for block in each.blocks for _ in block.instructions)


def parse(text: str, target: Target, machine: Any) -> Any:
    """Return the verified module of a text, in its own context."""
    head = f'target triple = "{target.triple}"\ntarget datalayout = "{machine.target_data}"\n'
    try:
        module = llvm.parse_assembly(head + text, context=llvm.create_context())
        module.verify()
    except RuntimeError as error:
        with tempfile.NamedTemporaryFile("w", suffix=".ll", delete=False) as dump:
            dump.write(head + text)
        raise InternalError(f"LLVM refuses what is now in {dump.name}: {error}") from None
    return module


def _machine(target: Target, level: int) -> Any:
    """Return this thread's machine of a target: a new one reads the features of the CPU again."""
    return _machine_of(target, level, threading.get_ident())


@functools.lru_cache(maxsize=8)
def _machine_of(target: Target, level: int, thread: int) -> Any:  # noqa: ARG001
    architecture = target.triple.split("-")[0]
    if architecture == llvm.get_process_triple().split("-")[0]:
        _initialise()
    else:
        _initialise_all()
    chosen = llvm.Target.from_triple(target.triple)
    return chosen.create_target_machine(
        cpu=target.cpu,
        features=",".join(part for part in (_BASE.get(architecture), target.features) if part),
        opt=level,
        reloc="pic",
        codemodel=code_model(target.triple),
    )
