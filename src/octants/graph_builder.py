"""Graphs of launches whose arguments have names: ``graph.GraphBuilder``, as in Taichi.

    x = qd.graph.Arg(qd.graph.ArgKind.NDARRAY, "x", qd.f32, ndim=1)
    builder = qd.graph.GraphBuilder()
    builder.dispatch(step, x)
    graph = builder.compile()
    graph.run({"x": array})

A run launches the kernels one after the other. `graph.capture` makes one launch of them where the
device can, without names.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octants.diagnostics.graph_errors import WrongGraphArgument


class ArgKind(enum.Enum):
    """The kind of an argument of a graph."""

    SCALAR = 0
    NDARRAY = 1
    MATRIX = 2
    TEXTURE = 3
    RWTEXTURE = 4


@dataclass(frozen=True)
class Arg:
    """A name in a graph, in the place of an argument of kernels.

    Args:
        tag: What it stands for; there are no textures.
        name: The key under which `NamedGraph.run` finds the value.
        dtype: The type of the value, or of the elements of the ndarray.
        ndim: How many indices an ndarray has.

    Raises:
        OctantsArgumentError: It is to be a texture.
    """

    tag: ArgKind
    name: str
    dtype: Any = None
    ndim: int | None = None
    fmt: Any = None

    def __post_init__(self) -> None:
        if self.tag in (ArgKind.TEXTURE, ArgKind.RWTEXTURE):
            raise WrongGraphArgument(self.name, "there are no textures", "use an ndarray").at()

    def check(self, value: Any) -> Any:
        """The value, if it has as many indices as were declared.

        Raises:
            OctantsArgumentError: It has more or fewer.
        """
        shape = getattr(value, "shape", None)
        if self.tag is ArgKind.NDARRAY and self.ndim is not None and len(shape or ()) != self.ndim:
            problem = f"it has {len(shape or ())} indices, and was declared with ndim={self.ndim}"
            raise WrongGraphArgument(self.name, problem, "pass another ndarray").at()
        return value


class Sequential:
    """Launches one after the other; `GraphBuilder.create_sequential` makes one."""

    def __init__(self) -> None:
        self._steps: list[tuple[Any, tuple[Any, ...]] | Sequential] = []

    def dispatch(self, kernel: Any, *args: Any) -> None:
        """Add the launch of a kernel; its arguments are names (`Arg`) or values."""
        self._steps.append((kernel, args))

    def append(self, node: Sequential) -> None:
        """Add other launches at this point; the same ones can be added several times."""
        self._steps.append(node)

    def launches(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """The kernels and their arguments, in order."""
        found: list[tuple[Any, tuple[Any, ...]]] = []
        for step in self._steps:
            found.extend(step.launches() if isinstance(step, Sequential) else [step])
        return found


class GraphBuilder(Sequential):
    """Collects launches for a graph; see `octants.graph_builder`."""

    def create_sequential(self) -> Sequential:
        """An empty sequence, which becomes part of the graph where it is appended."""
        return Sequential()

    def compile(self) -> NamedGraph:
        """The graph of what was added so far."""
        return NamedGraph(self.launches())


class NamedGraph:
    """Launches that wait for their arguments.

    Args:
        launches: Kernels and their arguments, in order.
    """

    def __init__(self, launches: list[tuple[Any, tuple[Any, ...]]]) -> None:
        self._launches = launches
        self._names = {arg.name: arg for _, args in launches for arg in args if type(arg) is Arg}

    def run(self, args: Mapping[str, Any]) -> None:
        """Launch all kernels, in order.

        Args:
            args: A value for each name.

        Raises:
            OctantsArgumentError: A name has no value, or an ndarray the wrong number of indices.
        """
        values = {}
        for name, arg in self._names.items():
            if name not in args:
                given = ", ".join(f"`{each}`" for each in args) or "nothing"
                problem = f"it has no value; values are given for {given}"
                raise WrongGraphArgument(name, problem, "add it to `args`").at()
            values[name] = arg.check(args[name])
        for kernel, symbols in self._launches:
            kernel(*(values[arg.name] if type(arg) is Arg else arg for arg in symbols))
