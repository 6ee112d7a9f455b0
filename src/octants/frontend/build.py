"""From a Python function to a module: the entry point of the frontend."""

from __future__ import annotations

import types
from typing import Any

from octants.diagnostics.errors import MissingReturn
from octants.diagnostics.exceptions import InternalError
from octants.diagnostics.recursion_limit import deep_recursion
from octants.diagnostics.render import Diagnostic
from octants.frontend import expressions, statements
from octants.frontend.calls import dispatch, functions
from octants.frontend.compile_time.python_object_conversion import wrap
from octants.frontend.compile_time.unspecialised_numbers import HostNumbers
from octants.frontend.context import Context, Handlers
from octants.frontend.control_flow import conditions
from octants.frontend.memory import out_of_bounds, references, sparse_access
from octants.frontend.memory.returns import Returns
from octants.frontend.scope import UNDEFINED, FunctionScope
from octants.frontend.syntax import source
from octants.ir.core import Module
from octants.lazy_dataclass import dataclass
from octants.target import Blocks
from octants.types.compile_time_reads import HiddenArgument, Read, ReadKey
from octants.types.scalars import DType, f32, i32
from octants.types.specialisation_signature import (
    ArgumentSource,
    ArgumentType,
    ArraySource,
    ReturnType,
    ScalarType,
)

HANDLERS = Handlers(
    references,
    {**expressions.TABLE, **conditions.TABLE, **dispatch.TABLE},
    statements.TABLE,
    statements.build,
    sparse_access.after_write,
)


@dataclass(frozen=True)
class Built:
    """A kernel as the frontend leaves it.

    `sources` says where each of `module.arrays` comes from; `returns_tuple` whether the kernel
    returns a tuple of its `return_types`; `reads` has the Python values that it is specialised for.
    One that is not `is_repeatable` depends on more than these. `hidden` are arguments that launches
    add to those of the user: numbers that vary. `warnings` are about lines of the kernel.
    """

    module: Module
    sources: list[ArraySource]
    return_types: tuple[ScalarType, ...]
    returns_tuple: bool
    reads: tuple[Read, ...]
    is_repeatable: bool = True
    hidden: tuple[HiddenArgument, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()


def build(
    function: types.FunctionType,
    arguments: list[ArgumentType],
    *,
    default_int: DType = i32,
    default_float: DType = f32,
    debug: bool = False,
    bound_self: Any = None,
    returns: tuple[ReturnType, ...] | None = None,
    blocks: Blocks | None = None,
    varying: frozenset[ReadKey] = frozenset(),
) -> Built:
    """Build the kernel ``function`` for arguments of these types.

    `arguments` has one entry for each parameter, without ``self``, which is `bound_self`. `returns`
    are the types of the return annotation; without them, the first ``return`` decides. `blocks` is
    what the machine has for work items that work together. The kernel is not specialised for the
    numbers of the reads in ``varying``; if it has to be, the build raises any error. Mistakes of
    the user raise an `OctantsError`.
    """
    numbers = HostNumbers(varying)
    context = Context(
        default_int, default_float, HANDLERS, debug=debug, blocks=blocks, numbers=numbers
    )
    context.first_hidden = len(arguments)
    with deep_recursion(function.__name__):
        text = source.find_source(function)
        frame = FunctionScope(text, function, is_kernel=True)
        with context.scopes.entered(frame), context.at(text.tree):
            context.returns = Returns(context, returns)
            _bind_parameters(context, function, arguments, bound_self)
            completes = context.build(text.tree.body)
            _check_return(context, frame, completes)
            context.builder.yield_()
    context.stops.apply(context.body)
    module = Module(function.__name__, context.arrays.arrays, context.body)
    module.location = text.span(text.tree)
    module.calls = tuple(context.calls)
    context.arrays.drop_unused_shared(context.body)
    entry = context.arrays.used_entry(context.body)
    context.body.ops[:0] = entry
    for problem in out_of_bounds.find(context.body):
        context.note(problem)
    kept = context.returns
    return Built(
        module,
        context.arrays.sources,
        tuple(kept.types),
        kept.is_tuple,
        tuple(context.reads),
        context.is_repeatable,
        numbers.hidden,
        tuple(context.warnings.values()),
    )


def _bind_parameters(
    context: Context,
    function: types.FunctionType,
    arguments: list[ArgumentType],
    bound_self: Any,
) -> None:
    parameters = functions.parameters(context, function)
    if bound_self is not None:
        first, *parameters = parameters
        context.scopes.declare(first.name, bound_self)
    if len(parameters) != len(arguments):
        raise InternalError(f"{len(arguments)} arguments for {len(parameters)} parameters")
    for position, (parameter, kind) in enumerate(zip(parameters, arguments, strict=True)):
        value = context.arrays.argument(kind, parameter.name, ArgumentSource(position))
        context.scopes.declare(parameter.name, wrap(context, value, parameter.name))


def _check_return(context: Context, frame: FunctionScope, completes: bool) -> None:
    returns_value = frame.result.value is not UNDEFINED
    if not returns_value and not context.returns.types:
        return
    if completes or frame.returns_nothing:
        context.fail(MissingReturn(frame.source.name), frame.source.tree)
