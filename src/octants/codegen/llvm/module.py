"""The text of an LLVM module while it is written: functions, declarations, helpers, metadata."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from octants.analysis.costs import Costs
from octants.analysis.lanes.decision import Choice
from octants.analysis.privatisation import Sums
from octants.artifact import MessageFormat, ParameterLayout, Slot, parameters_of
from octants.codegen.llvm.alias import Scopes
from octants.ir import ops
from octants.ir.core import Array, Companion, Module, Value
from octants.types.scalars import i64


class ModuleText:
    """What kernels that are compiled together share. `finish` gives the whole text.

    With ``fast_math`` some functions of f32 are quicker and less exact.
    """

    def __init__(self, *, fast_math: bool = False) -> None:
        self.fast_math = fast_math
        self.mathematics = 0  # calls of functions of `mathlib`
        self._functions: list[str] = []
        self._declarations: dict[str, str] = {}
        self._helpers: set[str] = set()
        self._constants: dict[str, str] = {}
        self._metadata: list[str] = [
            "!{}",
            '!{!"branch_weights", i32 1048576, i32 1}',
            '!{!"branch_weights", i32 1, i32 1048576}',
        ]
        self.empty, self.likely, self.unlikely = "!0", "!1", "!2"

    def add_function(self, text: str) -> None:
        self._functions.append(text)

    def declare(self, name: str, result: str, arguments: str, attributes: str = "") -> str:
        """Declare a function or an intrinsic, once; gives its name."""
        if name not in self._declarations:
            self._declarations[name] = f"declare {result} {name}({arguments}) {attributes}"
        return name

    def helper(self, name: str, make: Callable[[ModuleText, str], str]) -> str:
        """Define a function of our own, once; gives its name."""
        if name not in self._helpers:
            self._helpers.add(name)
            self._functions.append(make(self, name))
        return name

    def constants(self, type: str, values: Sequence[str]) -> str:
        """An array of constants in memory, there once for equal ones; gives its name."""
        elements = ", ".join(f"{type} {value}" for value in values)
        content = f"[{len(values)} x {type}] [{elements}]"
        return self._constants.setdefault(content, f"@octants.table{len(self._constants)}")

    def metadata(self, node: str) -> str:
        """Add a metadata node, in which ``{}`` stands for the node itself; gives its reference."""
        reference = f"!{len(self._metadata)}"
        self._metadata.append(node.replace("{}", reference))
        return reference

    def finish(self) -> str:
        nodes = [f"!{number} = {node}" for number, node in enumerate(self._metadata)]
        constants = [
            f"{name} = private unnamed_addr constant {content}"
            for content, name in self._constants.items()
        ]
        return (
            "\n".join([*constants, *self._functions, *self._declarations.values(), *nodes]) + "\n"
        )


class KernelText:
    """What the functions of one kernel share: its arrays, its parameter block, its messages."""

    def __init__(self, text: ModuleText, module: Module) -> None:
        self.text = text
        self.module = module
        self.parameters: ParameterLayout = parameters_of(module)
        self.messages: list[MessageFormat] = []
        self.costs = Costs(module)
        self.choices: list[Choice] = []  # of each task: how its work items are run
        self.sums: list[Sums] = []  # of each task: to what its workers add plainly
        self.scopes = Scopes(text.metadata, module.arrays, module.apart)
        self._positions = {slot: number for number, slot in enumerate(self.parameters.slots)}
        self._numbers = {array: number for number, array in enumerate(module.arrays)}

    def offset(self, slot: Slot) -> int:
        """The byte in the parameter block where a slot stands."""
        return 8 * self._positions[slot]

    def pointer_offset(self, array: Array, companion: Companion) -> int:
        return self.offset(Slot("pointer", array=self._numbers[array], companion=companion))

    def shape_offset(self, array: Array, axis: int) -> int:
        return self.offset(Slot("shape", array=self._numbers[array], index=axis))

    def stride_offset(self, array: Array, companion: Companion, index: int) -> int:
        """The byte of the first of an array's strides; the others follow, 8 bytes each."""
        return self.offset(Slot("stride", "", self._numbers[array], companion, index))

    def scalar_offset(self, array: Array) -> int:
        """The byte of an argument's first component; the others follow, 8 bytes each."""
        return self.offset(Slot("scalar", array=self._numbers[array], index=0))

    @functools.cached_property
    def widened(self) -> dict[Value, Value]:
        """What each i64 that is a cast was before it."""
        casts = (op for op in self.module.walk() if isinstance(op, ops.Cast))
        return {op.result: op.x for op in casts if op.result.type is i64}

    @property
    def size(self) -> int:
        """The bytes of the slots."""
        return 8 * len(self.parameters.slots)

    def add_message(self, message: MessageFormat) -> int:
        """Gives the id of the message."""
        self.messages.append(message)
        return len(self.messages) - 1
