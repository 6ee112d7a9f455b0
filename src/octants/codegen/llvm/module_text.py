"""The text of an LLVM module under construction: functions, declarations, helpers, metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octants.analysis.cost_model import Costs
from octants.analysis.lanes.lane_choice import LaneChoice
from octants.analysis.sums.privatisation import PrivatisedSums
from octants.codegen.kernel_context import KernelContext
from octants.codegen.llvm.alias_scopes import AliasScopes
from octants.codegen.llvm.llvmlite_driver import MAY_INLINE
from octants.ir.core import Module


class ModuleText:
    """The text that kernels compiled together share. `finish` returns it all.

    With ``fast_math`` some functions of f32 are faster and less exact.
    """

    def __init__(self, *, fast_math: bool = False, constant_space: int = 0) -> None:
        self.fast_math = fast_math
        self._space = constant_space
        self.mathematics = 0  # calls of `mathlib` functions
        self.lane_sums = 0  # calls of functions that add numbers of lanes to one element
        self.unswitches = False
        """Whether the same condition always skips or runs some blocks of loops."""
        self.has_module_passes = False
        """Whether LLVM's passes of a module pay: they vectorise loops, and inline by cost."""
        self._functions: list[str] = []
        self._declarations: dict[str, str] = {}
        self._helpers: set[str] = set()
        self._constants: dict[str, str] = {}
        self._metadata: list[str] = [
            "!{}",
            '!{!"branch_weights", i32 1048576, i32 1}',
            '!{!"branch_weights", i32 1, i32 1048576}',
        ]
        self._flags: list[str] = []
        self.empty, self.likely, self.unlikely = "!0", "!1", "!2"

    def add_function(self, text: str) -> None:
        self._functions.append(text)

    def declare(self, name: str, result: str, arguments: str, attributes: str = "") -> str:
        """Declare a function or an intrinsic, once; gives its name."""
        if name not in self._declarations:
            self._declarations[name] = f"declare {result} {name}({arguments}) {attributes}"
        return name

    def helper(self, name: str, make: Callable[[ModuleText, str], str]) -> str:
        """Define a helper function, once, and return its name."""
        if name not in self._helpers:
            self._helpers.add(name)
            self._functions.append(make(self, name))
        return name

    def constants(self, type: str, values: Sequence[str]) -> str:
        """Define an array of constants, shared if equal, and return its name."""
        elements = ", ".join(f"{type} {value}" for value in values)
        content = f"[{len(values)} x {type}] [{elements}]"
        name = self._constants.setdefault(content, f"@octants.table{len(self._constants)}")
        return (
            f"addrspacecast (ptr addrspace({self._space}) {name} to ptr)" if self._space else name
        )

    def metadata(self, node: str) -> str:
        """Add a metadata node, in which ``{}`` stands for itself, and return its reference."""
        reference = f"!{len(self._metadata)}"
        self._metadata.append(node.replace("{}", reference))
        return reference

    def flag(self, name: str, value: int) -> None:
        """Set a flag of the module; all of them must agree on it where modules are linked."""
        self._flags.append(self.metadata(f'!{{i32 1, !"{name}", i32 {value}}}'))

    def finish(self) -> str:
        space = f"addrspace({self._space}) " if self._space else ""
        nodes = [f"!{number} = {node}" for number, node in enumerate(self._metadata)]
        constants = [
            f"{name} = private unnamed_addr {space}constant {content}"
            for content, name in self._constants.items()
        ]
        if self.mathematics or self.lane_sums:
            nodes.append(MAY_INLINE)
        if self._flags:
            nodes.append(f"!llvm.module.flags = !{{{', '.join(self._flags)}}}")
        return (
            "\n".join([*constants, *self._functions, *self._declarations.values(), *nodes]) + "\n"
        )


class KernelText(KernelContext):
    """The context of a kernel whose functions are written as text."""

    def __init__(self, text: ModuleText, module: Module) -> None:
        super().__init__(module)
        self.text = text
        self.costs = Costs(module)
        self.choices: list[LaneChoice] = []  # of each task: how its work items run
        self.sums: list[PrivatisedSums] = []  # of each task: the sums to which workers add plainly
        self.scopes = AliasScopes(text.metadata, module)

    @property
    def size(self) -> int:
        """The size of the slots in bytes."""
        return 8 * len(self.parameters.slots)
