"""Resolves names and attributes: to variables, and Python objects that specialise the kernel."""

from __future__ import annotations

import ast
import inspect
import types
from typing import Any

from octants.diagnostics.absent_names import ADVICE
from octants.diagnostics.errors import (
    AssignedInBranch,
    AssignedInLoop,
    BranchTypes,
    CompileTimeFailure,
    LoopIndexAfterLoop,
    MissingCompanion,
    UndefinedName,
    UnknownAttribute,
    UsedBeforeAssignment,
    UserError,
)
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.render import Label
from octants.diagnostics.suggestions import suggest
from octants.frontend.calls.inlined_calls import BoundFunction, bound, inline_call
from octants.frontend.compile_time.python_object_conversion import wrap
from octants.frontend.context import NOT_FOUND, Context
from octants.frontend.memory import indexing, references
from octants.frontend.scope import UNDEFINED, FunctionScope, Lost
from octants.frontend.values import matrices
from octants.frontend.values.expression_values import (
    ArrayReference,
    Components,
    ElementReference,
    MatrixValue,
    ShapeReference,
    StructValue,
    VariableReference,
    describe,
    is_view,
)
from octants.ir.core import Array, Companion, Value
from octants.lang import exported_names as library
from octants.lang import math as mathematics
from octants.lang.library_function_marks import marked_function
from octants.types import scalars
from octants.types.compile_time_reads import ABSENT, Read
from octants.types.matrix_values import Matrix
from octants.types.structs import StructType

# -- names -----------------------------------------------------------------------------------------


def name(context: Context, node: ast.Name) -> Any:
    """A local variable as a reference, or the Python object of that name."""
    frame = context.scopes.frame
    variable = frame.variables.get(node.id)
    if variable is not None:
        is_alias = references.is_reference(variable.value)
        return variable.value if is_alias else VariableReference(variable)
    is_assigned = node.id in frame.source.locals
    if is_assigned and not _means_global(frame, node.id):
        _fail_unassigned(context, node)
    found = frame.python_name(node.id)
    if found is UNDEFINED:
        context.fail(UndefinedName(node.id, _suggest_name(frame, node.id)), node)
    kind = "closure" if node.id in frame.closure() else "global"
    found = context.read(Read(kind, frame.function, node.id, found))
    return wrap(context, found, node.id)


def _suggest_name(frame: FunctionScope, name: str) -> str:
    """The remedy for an undefined name: an object or ``octants`` has it, or one like it."""
    owner = frame.variables.get("self")
    if owner is not None and inspect.getattr_static(owner.value, name, None) is not None:
        return f"write `self.{name}`"
    return _name_in_octants(frame, name) or suggest(name, frame.known_names())


def _name_in_octants(frame: FunctionScope, name: str) -> str:
    """The remedy for a public name that lacks its module, or nothing."""
    for module, prefix in ((library, ""), (mathematics, "math.")):
        if callable(getattr(module, name, None)):
            return f"write `{_alias(frame.function)}.{prefix}{name}`"
    return ""


def _alias(function: types.FunctionType) -> str:
    """The name by which a function's module knows ``octants``."""
    names = function.__globals__.items()
    return next((name for name, value in names if _is_module(value, "octants")), "octants")


def _is_module(value: Any, name: str) -> bool:
    return isinstance(value, types.ModuleType) and value.__name__ == name


def _means_global(frame: FunctionScope, name: str) -> bool:
    """Whether a variable that was never assigned shares its name with a global, and means that."""
    return name not in frame.lost and name in frame.function.__globals__


_LOST: dict[str, type[Any]] = {
    "branch": AssignedInBranch,
    "types": BranchTypes,
    "loop": AssignedInLoop,
    "index": LoopIndexAfterLoop,
}


def _fail_unassigned(context: Context, node: ast.Name) -> None:
    lost: Lost | None = context.scopes.frame.lost.get(node.id)
    if lost is None:
        context.fail(UsedBeforeAssignment(node.id), node)
    problem: UserError = _LOST[lost.reason](node.id)
    labels = [Label(lost.span, "assigned inside of this")] if lost.span is not None else []
    context.fail(problem, node, *labels)


# -- attributes ------------------------------------------------------------------------------------


def attribute(context: Context, node: ast.Attribute) -> Any:
    """``base.name`` as a reference where it is one, else as a value."""
    base = context.evaluate_reference(node.value)
    found = find_attribute(context, base, node.attr, node)
    if found is NOT_FOUND:
        base = context.load(base)
        problem = _hint(context, base, node.attr)
        context.fail(UnknownAttribute(describe(base), node.attr, problem), node)
    return found


_HOST_METHODS = frozenset(
    "copy_from deactivate from_numpy from_paddle from_torch place to_dlpack to_numpy to_paddle"
    " to_torch".split()
)
_METHODS_OF_ARRAYS = ("fill",)
_REDUCTIONS = frozenset(("all", "any", "max", "mean", "min", "prod", "sum"))


def _hint(context: Context, base: Any, attr: str) -> str:
    """The remedy for an attribute that does not exist."""
    if attr in _HOST_METHODS and isinstance(base, (ArrayReference, StructValue)):
        return f"`{attr}` works on the host: call it outside of the kernel"
    if attr in _REDUCTIONS and isinstance(base, ArrayReference):
        return "loop over its elements, as in `for i in a: total += a[i]`"
    if isinstance(base, types.ModuleType):
        full = f"{base.__name__}.{attr}".partition(".")[2]
        is_ours = base.__name__.partition(".")[0] == "octants"
        elsewhere = _name_in_octants(context.scopes.frame, attr) if is_ours else ""
        return ADVICE.get(full) or elsewhere or suggest(attr, _attributes_of(base))
    is_method = (isinstance(base, MatrixValue) and attr in matrices.METHOD_NAMES) or (
        isinstance(base, ArrayReference) and attr in _METHODS_OF_ARRAYS
    )
    if is_method:
        return f"it is a method: call it, `{attr}()`"
    return suggest(attr, _attributes_of(base))


def find_attribute(context: Context, base: Any, attr: str, node: ast.expr) -> Any:
    """An attribute of a value, a reference or a Python object, or NOT_FOUND."""
    if isinstance(base, (ElementReference, VariableReference)):
        part = indexing.swizzle(base, attr)
        if part is not None:
            return part
        if isinstance(base, VariableReference):
            return _attribute_of_variable(context, base, attr, node)
        return find_attribute(context, context.load(base), attr, node)
    if isinstance(base, StructValue):
        return _member(context, base, attr, node)
    if isinstance(base, ArrayReference):
        return _attribute_of_array(context, base, attr, node)
    if isinstance(base, (Value, MatrixValue, Matrix)):
        return matrices.attribute(context, node, context.value(base), attr)
    return _attribute_of_object(context, base, attr)


def _attribute_of_variable(
    context: Context, base: VariableReference, attr: str, node: ast.expr
) -> Any:
    is_component = bool(base.path) and isinstance(base.path[-1], Components)
    held = None if is_component else base.held()
    if isinstance(held, StructValue):
        if attr in held.members:
            return VariableReference(base.variable, (*base.path, attr))
        if is_view(held):
            return _attribute_of_view(context, held, attr, node)
        return attribute_of_type(context, held.python_type, base, attr, node)
    return find_attribute(context, context.load(base), attr, node)


def _member(context: Context, base: StructValue, attr: str, node: ast.expr) -> Any:
    if attr in base.members:
        return base.members[attr]
    if is_view(base):
        return _attribute_of_view(context, base, attr, node)
    if attr in COMPANIONS and _arrays_of(base):
        members = _companions_of(context, base, attr, node)
        if members:
            return StructValue(members)
        return _without_companion(context, _arrays_of(base)[0].array, attr, node)
    if attr == "shape" and _arrays_of(base):
        return ShapeReference(_arrays_of(base)[0].array)
    return attribute_of_type(context, base.python_type, base, attr, node)


def _attribute_of_view(context: Context, view: StructValue, attr: str, node: ast.expr) -> Any:
    """An attribute of a view of an ndarray; a companion of it is the same part of that."""
    array = view.members["array"]
    if attr in COMPANIONS:
        found = _companion(context, array, attr, node)
        return StructValue({**view.members, "array": found}, view.python_type)
    if attr == "shape":
        return (view.members["size"],)
    return array.array.dtype if attr == "dtype" else NOT_FOUND


def _companions_of(
    context: Context, base: StructValue, attr: str, node: ast.expr
) -> dict[str, Any]:
    """The companions of the members of a struct of fields; those without one are left out."""
    found: dict[str, Any] = {}
    for name, member in base.members.items():
        if isinstance(member, StructValue):
            inner = _companions_of(context, member, attr, node)
            if inner:
                found[name] = StructValue(inner)
        elif isinstance(member, ArrayReference) and member.array.has(COMPANIONS[attr]):
            found[name] = _companion(context, member, attr, node)
    return found


def _arrays_of(base: StructValue) -> list[ArrayReference]:
    return [member for member in base.members.values() if isinstance(member, ArrayReference)]


def attribute_of_type(
    context: Context, python_type: Any, base: Any, attr: str, node: ast.AST
) -> Any:
    """A method of a struct's type, bound to the struct or its reference, or what its class has."""
    if python_type is None:
        return NOT_FOUND
    methods = getattr(python_type, "methods", None) or {}
    find = inspect.getattr_static if isinstance(python_type, type) else getattr
    found = methods.get(attr) or find(python_type, attr, ABSENT)
    is_property = isinstance(found, property)
    if not (is_property or inspect.isfunction(found) or marked_function(found) is not None):
        return _attribute_of_object(context, python_type, attr)
    context.reads.append(Read("attribute of a type", python_type, attr, found))
    if is_property:
        return inline_call(context, node, BoundFunction(found.fget, base), [], {})
    return BoundFunction(found, base)


COMPANIONS = {"grad": Companion.ADJOINT, "dual": Companion.TANGENT}


def _attribute_of_array(context: Context, base: ArrayReference, attr: str, node: ast.expr) -> Any:
    if attr in COMPANIONS:
        return _companion(context, base, attr, node)
    if attr == "shape":
        return ShapeReference(base.array)
    if attr == "size" and base.array.fixed_shape is None:
        return _size(context, base.array)
    if attr == "dtype":
        return base.array.dtype
    if attr in ("n", "m") and base.array.element_shape:
        shape = (*base.array.element_shape, 1)
        return shape[0 if attr == "n" else 1]
    found = getattr(base.handle, attr, ABSENT)
    context.reads.append(Read("attribute", base.handle, attr, found))
    return NOT_FOUND if found is ABSENT or callable(found) else found


def _size(context: Context, array: Array) -> Any:
    """How many elements an argument has: of several axes the product of the extents, an i64."""
    extents = [indexing.extent(context, array, axis) for axis in range(array.rank)]
    if len(extents) == 1:
        return extents[0]
    size: Any = context.builder.constant(1, scalars.i64)
    for each in extents:
        size = context.builder.binary("mul", size, context.builder.cast(each, scalars.i64))
    return size


def _companion(context: Context, base: ArrayReference, attr: str, node: ast.expr) -> Any:
    wanted = COMPANIONS[attr]
    if base.companion is not Companion.PRIMAL:
        wanted = Companion.ADJOINT_TANGENT
    if not base.array.has(wanted):
        return _without_companion(context, base.array, attr, node)
    return ArrayReference(base.array, wanted, base.handle)


def _without_companion(context: Context, array: Array, attr: str, node: ast.expr) -> None:
    """None within `static`, as on the host, for conditions such as ``x.grad is not None``."""
    if not context.is_in_static:
        context.fail(MissingCompanion(array.name, attr), node)


def _attribute_of_object(context: Context, base: Any, attr: str) -> Any:
    if isinstance(base, StructType) and attr in base.constants:
        base = base.python_class
    try:
        found = getattr(base, attr)
    except AttributeError:
        context.reads.append(Read("attribute", base, attr, ABSENT))
        return NOT_FOUND
    except OctantsError:
        raise
    except Exception as error:  # of a property
        context.fail(CompileTimeFailure(type(error).__name__, str(error)))
    found = context.read(Read("attribute", base, attr, found))
    if marked_function(found) is not None and not isinstance(base, (type, types.ModuleType)):
        return _bound(base, attr, found)
    return wrap(context, found, attr)


_UNBOUND = staticmethod, property, types.MemberDescriptorType
"""Attributes of a class that are not bound to its objects."""


def _bound(base: Any, attr: str, found: Any) -> Any:
    """A function found on an object: a method, unless it is stored there, returned or static."""
    if isinstance(found, types.MethodType):
        return bound(found)
    static = inspect.getattr_static(type(base), attr, None)
    if getattr(base, "__dict__", {}).get(attr) is found:
        return found
    if static is None or isinstance(static, _UNBOUND):
        return found
    return BoundFunction(found, base)


def _attributes_of(base: Any) -> list[str]:
    if isinstance(base, StructValue):
        return list(base.members)
    if isinstance(base, ArrayReference):
        return ["shape", "size", "grad", "dual", "dtype", "n", "m", *_METHODS_OF_ARRAYS]
    if isinstance(base, (Value, MatrixValue)):
        return ["n", "m", *matrices.METHOD_NAMES]
    return dir(base)
