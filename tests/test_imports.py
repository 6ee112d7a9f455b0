"""The import table: a lower layer never imports a higher one, and there are no import cycles."""

from __future__ import annotations

import ast
import functools
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import octants
from octants.target import Capabilities, LaneCosts, Vectors

ROOT = Path(octants.__file__).parent

# Bottom first. Units of one layer may import each other, without a cycle.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "cached_property",
        "garbage_collection",
        "compile_profile",
        "deferred_import",
        "diagnostics",
        "functions_from_text",
        "hashing",
        "internal_members",
        "lazy_dataclass",
        "locks_at_fork",
        "options",
        "target",
        "timeline",
        "version",
    ),
    ("types",),
    ("abi", "artifact", "elf", "ir", "lang"),
    ("mathlib",),
    (
        "analysis",
        "cache",
        "frontend",
        "interpreter",
        "block_interpreter",
        "runtime",
        "simplify",
        "pass_context",
        "slow_compiles",
    ),
    ("lowering",),
    ("autodiff", "codegen", "data", "passes"),
    ("pipeline",),
    ("backends",),
    ("driver",),
    ("launch",),
    ("ad",),
    (
        "_quadrants_names",
        "_lib",
        "algorithms",
        "api",
        "experimental",
        "graph",
        "graph_builder",
        "interop",
        "math",
        "profiler",
        "simt",
        "sparse",
        "ui",
    ),
    ("jax", "linalg", "torch"),
    ("__init__",),
    ("compat", "demos", "fuzz", "tools"),
    ("__main__",),
)
STRANGERS = ("frontend", "passes", "autodiff", "codegen", "runtime")  # never import each other
RANK = {unit: rank for rank, layer in enumerate(LAYERS) for unit in layer}


def module_name(path: Path) -> str:
    parts = ("octants", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def unit_of(module: str) -> str:
    """The top-level part of the package that a module belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


UNITS = {unit: [*found] for unit, found in itertools.groupby(sorted(MODULES, key=unit_of), unit_of)}


def imports_of(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The modules of Octants that a syntax tree imports, with the lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "octants":
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if source.split(".")[0] == "octants":
                for alias in node.names:
                    name = f"{source}.{alias.name}"
                    yield (name if name in MODULES else source), node.lineno


class Imports(NamedTuple):
    """What a module imports of other modules of Octants, with the lines, and where it must not."""

    edges: list[tuple[str, int]]
    in_functions: list[int]


@functools.cache
def imports_in(module: str) -> Imports:
    """The imports of a module, whose syntax tree is not kept."""
    tree = ast.parse(MODULES[module].read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    edges = [edge for edge in imports_of(tree) if edge[0] != module]
    spans = [(n.lineno, n.end_lineno) for n in ast.walk(tree) if isinstance(n, functions)]
    inside = [line for _, line in imports_of(tree) if any(a <= line <= (b or a) for a, b in spans)]
    return Imports(edges, inside)


def edges_of(module: str) -> list[tuple[str, int]]:
    return imports_in(module).edges


def test_every_unit_has_a_layer() -> None:
    assert {unit_of(name) for name in MODULES} <= set(RANK)


def test_the_page_on_the_architecture_has_the_layers() -> None:
    text = " ".join((ROOT.parent.parent / "docs/architecture.md").read_text().split())
    order = text.partition("The order, bottom first: ")[2].partition(". The parts ")[0]
    found = [re.findall(r"`(\w+)`", row) for row in order.split("; ")]
    public = [[unit for unit in layer if unit[0] != "_"] for layer in LAYERS]
    assert found == [layer for layer in public if layer]


@pytest.mark.parametrize("importer", UNITS)
def test_imports_point_down(importer: str) -> None:
    wrong = list[str]()
    for module in UNITS[importer]:
        for imported, line in edges_of(module):
            unit = unit_of(imported)
            where = f"{MODULES[module]}:{line}: {module} imports {imported}"
            if RANK[unit] > RANK[importer]:
                wrong.append(f"{where}, of a higher layer")
            if unit != importer and {unit, importer} <= set(STRANGERS):
                wrong.append(f"{where}: these two never import each other")
    assert not wrong, "\n".join(wrong)


def test_units_do_not_import_in_circles() -> None:
    graph: dict[str, set[str]] = {}
    for module in MODULES:
        unit = unit_of(module)
        graph.setdefault(unit, set()).update(unit_of(name) for name, _ in edges_of(module))
    assert not find_cycle({unit: targets - {unit} for unit, targets in graph.items()})


def test_modules_do_not_import_in_circles() -> None:
    assert not find_cycle({module: {name for name, _ in edges_of(module)} for module in MODULES})


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """Some cycle of the graph as a list of nodes, or nothing."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return path[path.index(node) :]
        if node in done:
            return []
        for target in sorted(graph.get(node, ())):
            cycle = visit(target, [*path, node])
            if cycle:
                return cycle
        done.add(node)
        return []

    return next((cycle for node in sorted(graph) if (cycle := visit(node, []))), [])


def test_a_cycle_is_found() -> None:
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert not find_cycle({"a": {"b", "c"}, "b": {"c"}})


def test_nothing_flows_back() -> None:
    """What makes and changes modules cannot ask what comes after it, in no number of steps."""
    reached = {name for name in MODULES if unit_of(name) in ("pipeline", "passes")}
    below = list(reached)
    while below:
        found = {name for name, _ in edges_of(below.pop())} - reached
        reached |= found
        below += found
    after = {"codegen", "backends", "runtime", "driver", "launch", "data"}
    assert not {name for name in reached if unit_of(name) in after}


@pytest.mark.parametrize("part", [Capabilities, LaneCosts, Vectors])
def test_what_a_backend_tells_is_data(part: type) -> None:
    """Frozen, without functions by which a pass could ask a backend something, and without sets.

    Keys of the cache have the text of it, which must be the same in each process.
    """
    kinds = {kind for name in part.__annotations__ for kind in _names_of(part, name)}
    plain = {"int", "float", "bool", "str", "None", "tuple", "Ellipsis"}
    assert kinds <= plain | {"Blocks", "Vectors", "LaneCosts"}
    assert part.__hash__ is not object.__hash__


def _names_of(part: type, field: str) -> set[str]:
    tree = ast.parse(part.__annotations__[field])
    constants = {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return constants | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


@pytest.mark.parametrize("unit", UNITS)
def test_no_import_of_octants_inside_a_function(unit: str) -> None:
    found = {MODULES[module]: imports_in(module).in_functions for module in UNITS[unit]}
    assert not any(found.values()), {path: lines for path, lines in found.items() if lines}


def test_importing_octants_imports_no_optional_package() -> None:
    code = "import sys, octants; print(*{name.partition('.')[0] for name in sys.modules})"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    optional = {"hypothesis", "jax", "matplotlib", "pytest", "quadrants", "rich", "scipy", "torch"}
    assert not optional & set(output.split())


def test_importing_octants_imports_no_compiler() -> None:
    code = "import sys, octants; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    loaded = set(output.split())
    compiler = ("frontend", "simplify", "passes", "autodiff", "mathlib", "pipeline", "ir.ops")
    assert not {f"octants.{name}" for name in compiler} & loaded
    assert not {"octants.codegen.llvm.cpu", "octants.interpreter", "octants.fuzz"} & loaded
    assert not {"llvmlite", "html", "argparse", "doctest", "unittest"} & loaded


def test_importing_octants_imports_little_of_the_standard_library() -> None:
    code = "import sys, numpy; old = {*sys.modules}; import octants; print(*{*sys.modules} - old)"
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    slow = {"difflib", "fractions", "hashlib", "json", "logging", "pathlib", "signal", "tempfile"}
    assert not slow & set(output.split())


def test_importing_octants_looks_for_garbage_once_at_most() -> None:
    count = "import gc, numpy; found = []; gc.callbacks.append(lambda *each: found.append(each))"
    code = f"{count}; import octants; print(sum(phase == 'start' for phase, _ in found))"
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(output) <= 2  # behind the imports, and before them


def test_init_imports_the_compiler_where_each_kernel_has_to_be_compiled(tmp_path: Path) -> None:
    code = "import octants as qd; qd.init(arch=qd.cpu); import sys; print(*sys.modules)"
    compiler = {"octants.frontend.build", "octants.pipeline", "octants.codegen.llvm.cpu"}
    compiler |= {"octants.passes.tasks.outline_tasks", "octants.passes.arithmetic.contract_to_fma"}
    folder = tmp_path / "cache"
    folder.mkdir()
    for is_empty in (True, False):
        more = {"OCTANTS_OFFLINE_CACHE": "1", "OCTANTS_CACHE_DIR": str(folder)}
        command = [sys.executable, "-c", code]
        output = subprocess.run(
            command, env=os.environ | more, capture_output=True, text=True, check=True
        ).stdout
        assert compiler & set(output.split()) == (compiler if is_empty else set())
        (folder / "kernel").write_text("")


KERNEL = """
import sys

import octants as qd

qd.init(arch=qd.cpu, offline_cache=False)
x = qd.field(qd.f32, shape=100, needs_grad=True)

@qd.func
def wave(v):
    return qd.sin(v)

@qd.kernel
def waves():
    for i in x:
        x[i] = wave(x[i])

waves()
print(*sys.modules)
"""


def test_a_first_launch_imports_no_part_of_the_compiler_that_it_does_not_need(
    tmp_path: Path,
) -> None:
    script = tmp_path / "waves.py"
    script.write_text(KERNEL)
    command = [sys.executable, str(script)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    loaded = set(output.split())
    assert {"octants.pipeline", "octants.passes.arithmetic.contract_to_fma"} <= loaded
    assert not {"octants.autodiff", "octants.frontend.calls.recursion", "numpy.random"} & loaded
    passes = ("check_bounds", "fix_summation_order", "gather_sums", "sink_stores", "split_sums")
    assert not set(passes) & {name.rpartition(".")[2] for name in loaded}
