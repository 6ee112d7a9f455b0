"""Names of Quadrants, Taichi, Warp, JAX and PyTorch that are not here, with what to use instead.

`octants` and its modules look up here what they do not have, so that ``qd.Texture`` and
``import octants.Mesh`` are errors that say how to go on. What gets a meaning leaves the table.

Some public names are found in other modules there, such as ``lang.exception``: those modules stand
for the package that has the names here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from octants.diagnostics.launch_errors import AbsentModule, AbsentName

_TEXTURES = "use a field or an ndarray, and `qd.math.mix` of neighbours for what lies between"
_MESHES = "use ndarrays of vertices and of their indices"
_GPU = "use `qd.vulkan`, or `qd.gpu` for the best that there is"
_CLOCKS = "time launches around `qd.sync()`"
_PACKS = "pass a Python dataclass or a struct of arguments"
_PRIVATE = "it is a private part of another compiler; what `octants` exports is public"

ADVICE: dict[str, str] = {
    "get_addr": "elements have no addresses in kernels: keep their indices",
    **dict.fromkeys(("Texture", "types.texture", "types.rw_texture"), _TEXTURES),
    **dict.fromkeys(("Mesh", "MeshInstance", "mesh_local", "mesh_patch_idx"), _MESHES),
    **dict.fromkeys(("opengl", "gles", "dx11", "dx12"), _GPU),
    **dict.fromkeys(("ArgPack", "argpack", "types.argpack"), _PACKS),
    "types.buffer_view_type": "annotate the parameter with `qd.BufferView[qd.f32]`",
    **dict.fromkeys(("_lib.core.*", "_kernels"), _PRIVATE),
    **dict.fromkeys(("clock_counter", "clock_freq_hz"), _CLOCKS),
    "tools.diagnose": "run `python -m octants info`",
    **{
        name: f"it is `qd.ad.{name}`"
        for name in (
            "FwdMode",
            "Tape",
            "clear_all_gradients",
            "grad_for",
            "grad_replaced",
            "no_grad",
            "value_and_grad",
            "jvp",
            "vjp",
            "jacobian",
            "hessian",
        )
    },
    **{
        name: f"it is `qd.math.{name}`"
        for name in (
            *("vec2", "vec3", "vec4", "ivec2", "ivec3", "ivec4", "uvec2", "uvec3", "uvec4"),
            *("mat2", "mat3", "mat4", "normalize", "cross", "dot", "clamp", "mix"),
        )
    },
    **{f"mat{n}{n}": f"it is `qd.math.mat{n}`" for n in (2, 3, 4)},
    **{
        old: f"it is `qd.{new}`"
        for old, new in {
            "var": "field",
            "classfunc": "func",
            "classkernel": "kernel",
            "complex_kernel": "ad.grad_replaced",
            "complex_kernel_grad": "ad.grad_for",
            **dict.fromkeys(("any_arr", "ext_arr"), "types.ndarray"),
            **dict.fromkeys(("types.any_arr", "types.ext_arr"), "types.ndarray"),
            **dict.fromkeys(("quant", "quant_type_factory", "type_factory"), "types.quant"),
            **dict.fromkeys(("bit_struct", "bit_array"), "BitpackedFields"),
            "parallel_sort": "algorithms.parallel_sort",
            **{n: f"tools.{n}" for n in ("imread", "imresize", "imshow", "imwrite")},
            **{n: f"tools.{n}" for n in ("PLYWriter", "VideoManager")},
            "kernel_profiler_clear": "profiler.clear_kernel_profiler_info",
            "kernel_profiler_total_time": "profiler.get_kernel_profiler_total_time",
            **dict.fromkeys(
                ("kernel_profiler_print", "print_kernel_profile_info", "print_profile_info"),
                "profiler.print_kernel_profiler_info",
            ),
            "query_kernel_profile_info": "profiler.query_kernel_profiler_info",
        }.items()
    },
    "layout": "place fields in `qd.root` after `qd.init`, outside of any function",
    "sqr": "write `x * x`",
    "lerp": "it is `qd.math.mix`",
    "where": "it is `qd.select`",
    "tid": "the index of a parallel loop, `for i in range(n)`, says which work item it is",
    "synchronize": "it is `qd.sync`",
    "struct": "use `qd.dataclass` or `qd.types.struct`",
    "HashGrid": "sort or count the items of each cell: `qd.algorithms` has sorts and scans",
    "Volume": "use a sparse field; see docs/sparse.md",
    **dict.fromkeys(("ScopedCapture", "capture_begin", "capture_launch"), "see docs/graphs.md"),
    **dict.fromkeys(("rand_init", "randf", "randi"), "call `qd.random()`; `init` takes a seed"),
    **dict.fromkeys(("empty", "ones", "full"), "`x = qd.zeros(shape)`, then `x.fill(1.0)`"),
    **{
        f"{name}_like": "`y = qd.zeros(x.shape, x.dtype)`; then `fill` or `copy_from`"
        for name in ("zeros", "ones", "full", "empty")
    },
    "asarray": "it is `qd.array`",
    "jit": "decorate the function with `qd.kernel`",
    "vmap": "write a parallel loop over the batch",
    "grad": "`qd.ad.value_and_grad` returns the value and the gradients",
    "ad.grad": "`qd.ad.value_and_grad` returns the value and the gradients",
    "Format": _TEXTURES,
    "DeviceCapability": "options of `qd.init` such as `vulkan_without` switch features off",
    "global_thread_idx": (
        "the index of a parallel loop says which work item it is, and"
        " `qd.simt.block.global_thread_idx()` its number; on a CPU, threads have none"
    ),
    "aot": "compiled kernels are kept on disk by `offline_cache`; see docs/cache.md",
    **dict.fromkeys(
        ("profiler.print_scoped_profiler_info", "profiler.clear_scoped_profiler_info"),
        "`python -m octants profile-compile` has the stages of the compiler",
    ),
    **dict.fromkeys(
        (
            "profiler.CuptiMetric",
            "profiler.collect_kernel_profiler_metrics",
            "profiler.get_predefined_cupti_metrics",
            "profiler.set_kernel_profiler_metrics",
            "profiler.set_kernel_profiler_toolkit",
        ),
        "NVIDIA's Nsight Compute counts what the parts of a GPU do",
    ),
}
"""The remedy, by the name without ``octants.``; ``*`` stands for all names of a module."""

PLACES = {
    f"octants.{place}": package
    for package, places in {
        "octants": (
            "_snode",
            "_snode.fields_builder",
            "lang._ndarray",
            "lang.exception",
            "lang.field",
            "lang.kernel_impl",
            "lang.matrix",
            "lang.runtime_ops",
            "lang.snode",
            "lang.struct",
        ),
        "octants.ad": ("ad._ad",),
        "octants.algorithms": ("algorithms._algorithms",),
        "octants.linalg": ("linalg.matrixfree_cg", "linalg.sparse_cg", "linalg.sparse_solver"),
        "octants.tools": ("tools.image", "tools.np2ply", "tools.vtk"),
        "octants.types": ("types.annotations", "types.compound_types", "types.ndarray_type"),
        "octants.ui": ("ui.camera", "ui.canvas", "ui.constants", "ui.utils"),
    }.items()
    for place in places
}
"""The modules that stand for one of ours, which has their public names."""

METHODS = {
    "ad.Tape.insert": "launch the kernel under the tape, or call a `qd.ad.grad_replaced` function",
    "ad.FwdMode.insert": "launch the kernel in the body of `qd.ad.FwdMode`",
    "ad.FwdMode.recover_kernels": "kernels stay as they are, so that there is nothing to recover",
}
"""The same for methods of classes."""


class UnknownName(AttributeError):
    """An error that looks for a similar name when it is shown: imports catch many that are not.

    Python would look, too, and less well, if the error had the object without the name.
    """

    def __init__(self, module: str, name: str, known: Callable[[], Iterable[str]]) -> None:
        super().__init__(f"module {module!r} has no attribute {name!r}", name=name, obj=None)
        self._known = known

    def __str__(self) -> str:
        suggestions = importlib.import_module("octants.diagnostics.suggestions")
        way_out = suggestions.suggest(self.name, self._known())
        return f"{self.args[0]}: {way_out}" if way_out else str(self.args[0])


def attribute_error(
    module: str, name: str, known: Callable[[], Iterable[str]] = tuple
) -> Exception:
    """The error that a module's ``__getattr__`` raises for a name that it does not have.

    Args:
        module: The name of the module.
        name: What it does not have.
        known: Lists what it has, of which the error suggests a similar name.
    """
    full = f"{module}.{name}".partition(".")[2]
    advice = ADVICE.get(full) or ADVICE.get(f"{module}.*".partition(".")[2])
    if advice is not None:
        return AbsentName(full, advice).at()
    return UnknownName(module, name, known)


def method_error(owner: str, name: str) -> Exception:
    """The error that the ``__getattr__`` of a class raises for a method that it does not have."""
    advice = METHODS.get(f"{owner}.{name}")
    if advice is not None:
        return AbsentName(f"{owner}.{name}", advice).at()
    return AttributeError(f"`{owner}` has no attribute {name!r}")


class ModuleFinder:
    """Finds the modules of `PLACES`, and refuses the imports of `ADVICE`.

    Python asks it for what was not found elsewhere.
    """

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        """None for whatever is not in the tables.

        Raises:
            OctantsImportError: Octants does not have this.
        """
        if fullname in PLACES:
            loader: Any = self
            return ModuleSpec(fullname, loader, is_package=fullname == "octants._snode")
        package, _, name = fullname.partition(".")
        if package == "octants" and name in ADVICE:
            raise AbsentModule(name, ADVICE[name]).at()
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Let a module have the names of the package for which it stands."""
        package = PLACES[module.__name__]
        names = vars(module)
        names["__getattr__"] = lambda name: getattr(importlib.import_module(package), name)
