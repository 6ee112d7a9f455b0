"""Handlers that build the functions of the library, called with loaded arguments.

A handler takes the context, the node of the call, and the arguments by position and by name. Where
all arguments are Python numbers, functions without effects are evaluated by Python.
"""

from __future__ import annotations

import ast
import builtins as python
import functools
import inspect
import math
import operator
from collections.abc import Callable
from typing import Any

from octants.diagnostics.errors import WrongArguments
from octants.diagnostics.library_errors import WrongOperand
from octants.frontend.calls import custom_adjoints
from octants.frontend.compile_time import compile_time_evaluation
from octants.frontend.context import Context
from octants.frontend.control_flow import cooperation
from octants.frontend.memory import atomics_and_random, sparse_access, sparse_functions
from octants.frontend.values import constructors, matrices, numeric_functions, tiles
from octants.frontend.values.expression_values import MatrixValue, describe, is_number
from octants.ir.ops.arithmetic import FLOAT_FUNCTIONS
from octants.lang import atomics_and_random as stubs
from octants.lang import scalar_functions, sparse
from octants.types.matrix_types import MatrixType
from octants.types.matrix_values import Matrix, Vector
from octants.types.scalars import ALL, DType
from octants.types.structs import Struct, StructType

Handler = Callable[..., Any]
"""``handler(context, node, args, kwargs)``"""


def bind(function: Any, implementation: Callable[..., Any], folds: bool = False) -> Handler:
    """A handler that gives the arguments, in order of the function's parameters, to a builder.

    ``implementation(context, node, *arguments)``; with `folds`, a call with numbers only is made
    at compile time.
    """
    signature = functools.cache(functools.partial(inspect.signature, function))

    def handler(context: Context, node: ast.AST, args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            bound = signature().bind(*args, **kwargs)
        except TypeError as error:
            name = getattr(function, "__name__", str(function))
            context.fail(WrongArguments(name, f"does not fit: {error}"), node)
        bound.apply_defaults()
        if folds and all(is_number(x) for x in bound.args):
            return compile_time_evaluation.operate(context, node, function, *bound.args)
        return implementation(context, node, *bound.args)

    return handler


def handler_of(function: Any) -> Handler | None:
    """The handler of a function or a type of the library; None for anything else."""
    try:
        known = BUILTINS.get(function)
    except TypeError:
        return None
    if known is not None:
        return known
    for kind, construct in CONSTRUCTORS.items():
        if isinstance(function, kind):
            return functools.partial(construct, function)
    return None


# -- tables ----------------------------------------------------------------------------------------

CONSTRUCTORS: dict[type, Callable[..., Any]] = {
    DType: constructors.scalar,
    MatrixType: constructors.matrix,
    StructType: constructors.struct,
}
"""Types whose objects are called to make values: ``f32(x)``, ``vec3(x, y, z)``."""


def _float_functions() -> dict[Any, Handler]:
    return {
        getattr(scalar_functions, name): bind(
            getattr(scalar_functions, name), numeric_functions.float_function(name), folds=True
        )
        for name in sorted(FLOAT_FUNCTIONS)
    }


def _python_math() -> dict[Any, Handler]:
    """Functions of Python's `math` that mean the same; numbers alone are left to Python."""
    names = "sqrt exp log log2 log10 log1p expm1 sin cos tan asin acos atan sinh cosh tanh asinh"
    names += " acosh atanh erf"
    table = {
        getattr(math, name): bind(
            getattr(scalar_functions, name), numeric_functions.float_function(name), folds=True
        )
        for name in names.split()
    }
    others: dict[Any, Callable[..., Any]] = {
        math.atan2: numeric_functions.atan2,
        math.isnan: numeric_functions.isnan,
        math.isinf: numeric_functions.isinf,
        math.floor: numeric_functions.python_rounding("floor"),
        math.ceil: numeric_functions.python_rounding("ceil"),
        math.trunc: numeric_functions.python_rounding("trunc"),
    }
    return table | {
        function: bind(function, build, folds=True) for function, build in others.items()
    }


def _numeric() -> dict[Any, Handler]:
    table: dict[Any, Callable[..., Any]] = {
        scalar_functions.pow: numeric_functions.power,
        scalar_functions.atan2: numeric_functions.atan2,
        scalar_functions.floor: numeric_functions.rounding("floor"),
        scalar_functions.ceil: numeric_functions.rounding("ceil"),
        scalar_functions.round: numeric_functions.round_half_away,
        scalar_functions.trunc: numeric_functions.rounding("trunc"),
        scalar_functions.abs: numeric_functions.absolute,
        scalar_functions.sign: numeric_functions.sign,
        scalar_functions.isnan: numeric_functions.isnan,
        scalar_functions.isinf: numeric_functions.isinf,
        scalar_functions.min: numeric_functions.extreme("min"),
        scalar_functions.max: numeric_functions.extreme("max"),
        scalar_functions.select: numeric_functions.select,
        scalar_functions.raw_div: numeric_functions.raw_div,
        scalar_functions.raw_mod: numeric_functions.raw_mod,
    }
    return {function: bind(function, build, folds=True) for function, build in table.items()}


def _types_and_bits() -> dict[Any, Handler]:
    table: dict[Any, Callable[..., Any]] = {
        scalar_functions.cast: numeric_functions.cast,
        scalar_functions.as_floats: numeric_functions.as_floats,
        scalar_functions.bit_cast: numeric_functions.bit_cast,
        scalar_functions.bit_shr: numeric_functions.bit_shr,
        scalar_functions.popcnt: numeric_functions.bit_count("popcount"),
        scalar_functions.clz: numeric_functions.bit_count("clz"),
        scalar_functions.ffs: numeric_functions.ffs,
        scalar_functions.zero: numeric_functions.like(0),
        scalar_functions.one: numeric_functions.like(1),
        scalar_functions.stop_grad: atomics_and_random.stop_grad,
        scalar_functions.with_derivative_of: custom_adjoints.with_derivative_of,
    }
    return {function: bind(function, build) for function, build in table.items()}


def _python_builtins() -> dict[Any, Handler]:
    return {
        python.abs: bind(scalar_functions.abs, numeric_functions.absolute, folds=True),
        operator.abs: bind(scalar_functions.abs, numeric_functions.absolute, folds=True),
        python.pow: bind(scalar_functions.pow, numeric_functions.power, folds=True),
        python.min: numeric_functions.python_extreme("min"),
        python.max: numeric_functions.python_extreme("max"),
        python.sum: bind(python.sum, numeric_functions.python_sum),
        python.round: bind(python.round, numeric_functions.python_round),
        python.divmod: bind(python.divmod, numeric_functions.python_divmod),
        python.any: bind(python.any, numeric_functions.python_any),
        python.all: bind(python.all, numeric_functions.python_all),
        python.int: functools.partial(constructors.python_scalar, int),
        python.float: functools.partial(constructors.python_scalar, float),
        python.bool: functools.partial(constructors.python_scalar, bool),
        python.len: bind(python.len, constructors.length),
    }


def _matrices() -> dict[Any, Handler]:
    table: dict[Any, Callable[..., Any]] = {
        Matrix: constructors.make_matrix,
        Vector: constructors.make_vector,
        Matrix.zero: constructors.filled(0),
        Matrix.one: constructors.filled(1),
        Matrix.unit: constructors.unit,
        Matrix.identity: constructors.identity,
        Matrix.diag: constructors.diag,
        Matrix.rows: constructors.rows,
        Matrix.cols: constructors.cols,
    }
    return {function: bind(function, build) for function, build in table.items()}


def _methods() -> dict[Any, Handler]:
    """Methods called through the class: ``Vector.normalized(v, eps)``."""
    return {
        getattr(Matrix, name): functools.partial(_method, name)
        for name in (*matrices.METHODS, *matrices.CHANGING)
    }


def _method(
    name: str, context: Context, node: ast.AST, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    reference, *others = [kwargs.pop("self"), *args] if "self" in kwargs else args or [None]
    owner = context.value(context.load(reference))
    if not isinstance(owner, MatrixValue):
        context.fail(WrongOperand(f"Matrix.{name}", describe(owner)), node)
    if name not in matrices.CHANGING:
        return matrices.method(context, node, owner, name, others, kwargs)
    return context.store(
        reference, matrices.changed(context, node, owner, name, others, kwargs), node
    )


def _memory() -> dict[Any, Handler]:
    table: dict[Any, Callable[..., Any]] = {
        stubs.atomic_cas: atomics_and_random.compare_and_swap,
        stubs.volatile_load: atomics_and_random.volatile_load,
        stubs.random: atomics_and_random.random,
        stubs.rescale_index: atomics_and_random.rescale_index,
        stubs.assume_in_range: atomics_and_random.assume_in_range,
    }
    for fn in atomics_and_random.FUNCTIONS:
        table[getattr(stubs, f"atomic_{fn}")] = atomics_and_random.atomic(fn)
    return {function: bind(function, build) for function, build in table.items()}


def _sparse() -> dict[Any, Handler]:
    table: dict[Any, Callable[..., Any]] = {
        sparse.activate: sparse_functions.activate,
        sparse.append: sparse_functions.append,
        sparse.deactivate: sparse_functions.deactivate,
        sparse.is_active: sparse_functions.is_active,
        sparse.length: sparse_functions.length,
        sparse.no_activate: sparse_functions.no_activate,
        sparse._cell_of: sparse_access.cell_of,
        sparse._element_of: sparse_access.element_of,
        sparse._clear_contents: sparse_functions.clear_contents,
        sparse._number_of: sparse_functions.number_of,
    }
    return {function: bind(function, build) for function, build in table.items()}


BUILTINS: dict[Any, Handler] = {
    **_float_functions(),
    **_python_math(),
    **_numeric(),
    **_types_and_bits(),
    **_python_builtins(),
    **_matrices(),
    **_methods(),
    **_memory(),
    **_sparse(),
    **{
        function: bind(function, build)
        for table in (cooperation.TABLE, tiles.TABLE)
        for function, build in table.items()
    },
    **{dtype: functools.partial(constructors.scalar, dtype) for dtype in ALL},
    Struct: constructors.python_struct,
}

TAKES_REFERENCE = frozenset(
    [getattr(stubs, f"atomic_{fn}") for fn in (*atomics_and_random.FUNCTIONS, "cas")]
    + [stubs.volatile_load, scalar_functions.stop_grad, Matrix.fill]
)
"""Functions whose first argument is a reference, not the value that it holds."""
