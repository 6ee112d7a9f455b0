"""Reads the signature of a kernel: the annotations of its parameters, and what it returns."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from octants.diagnostics.function_header_spans import Definition
from octants.diagnostics.launch_errors import (
    MissingAnnotation,
    VariableArguments,
    WrongAnnotation,
    WrongCall,
)
from octants.diagnostics.span import Span
from octants.lazy_dataclass import dataclass
from octants.runtime.arguments.parameters import Annotation, Leaf, StructAnnotation, leaves_of
from octants.types.default_types import resolve
from octants.types.matrix_types import MatrixType
from octants.types.parameter_annotations import (
    AnyBufferView,
    AnyTensor,
    BufferViewAnnotation,
    NdarrayAnnotation,
    OptionalTensor,
    SparseMatrixBuilderAnnotation,
    Template,
)
from octants.types.specialisation_signature import (
    FieldHandle,
    NdarrayHandle,
    ReturnType,
    ScalarType,
    StructArgument,
)
from octants.types.structs import StructType


@dataclass(frozen=True)
class Signature:
    """The parameters and return types of a kernel.

    `returns` are the types of the return annotation; None without one.
    """

    kernel: str
    function: types.FunctionType
    text: str
    names: tuple[str, ...]
    annotations: tuple[Annotation, ...]
    returns: tuple[ReturnType, ...] | None

    def leaves(self) -> list[Leaf]:
        """The leaves of all parameters, in order."""
        found: list[Leaf] = []
        for position, (name, annotation) in enumerate(
            zip(self.names, self.annotations, strict=True)
        ):
            found += leaves_of(self.kernel, name, position, annotation)
        return found

    def bind(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Bind the arguments of a call: return them in the order of the parameters.

        Raises:
            OctantsCallError: arguments are missing, unknown, or given twice.
        """
        code = self.function.__code__
        count = code.co_argcount
        if len(arguments) > count and code.co_kwonlyargcount:
            raise self._wrong(f"`{self.names[count]}` is given by its name only")
        for name in self.names[: code.co_posonlyargcount]:
            if name in named:
                raise self._wrong(f"`{name}` is given by its position only")
        defaults = defaults_of(self.function)
        found = bind_arguments(self.names, defaults, arguments, named, self._wrong)
        return tuple(found.values())

    def _wrong(self, problem: str) -> Exception:
        return WrongCall(self.kernel, problem, self.text).at()


def defaults_of(function: types.FunctionType) -> dict[str, Any]:
    """The present defaults of the parameters of a function, by name."""
    code, given = function.__code__, function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    defaults = dict(zip(positional[len(positional) - len(given) :], given, strict=True))
    return defaults | (function.__kwdefaults__ or {})


def bind_arguments(
    names: Sequence[str],
    defaults: Mapping[str, Any],
    arguments: Sequence[Any],
    named: Mapping[str, Any],
    wrong: Callable[[str], Exception],
) -> dict[str, Any]:
    """Bind the arguments of a call to parameters: return them by name, in the order of the names.

    Args:
        names: The parameters.
        defaults: What those without an argument are bound to.
        arguments: The arguments by position.
        named: The arguments by name.
        wrong: Makes the exception that says what is wrong with the arguments.
    """
    if len(arguments) > len(names):
        plural = "s" * (len(names) != 1)
        raise wrong(f"{len(arguments)} arguments for {len(names)} parameter{plural}")
    values = dict(zip(names, arguments, strict=False))
    for name, value in named.items():
        if name not in names:
            raise wrong(f"there is no parameter `{name}`")
        if name in values:
            raise wrong(f"argument `{name}` is given twice")
        values[name] = value
    values = {**defaults, **values}
    missing = [f"`{name}`" for name in names if name not in values]
    if missing:
        raise wrong(f"missing argument{'s' * (len(missing) > 1)} {', '.join(missing)}")
    return {name: values[name] for name in names}


def read_signature(
    function: types.FunctionType, local_names: Mapping[str, Any], *, is_method: bool
) -> Signature:
    """Read the signature of a kernel.

    ``float`` and ``int`` stand for the default types of the current `init`. The first parameter of
    a method is the object, a template.

    Args:
        function: The Python function.
        local_names: The local names around its definition.
        is_method: Whether it is a method.

    Raises:
        OctantsSyntaxError: an annotation is missing or wrong.
    """
    reader = _Reader(function, local_names)
    names: list[str] = []
    annotations: list[Annotation] = []
    for parameter in inspect.signature(function, follow_wrapped=False).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            span = reader.definition.parameter(parameter.name)
            raise VariableArguments(reader.name, stars + parameter.name).at(span)
        is_self = is_method and not names
        annotations.append(Template() if is_self else reader.parameter(parameter))
        names.append(parameter.name)
    count = function.__code__.co_argcount
    shown = [*names[:count], *(["*"] if names[count:] else []), *names[count:]]
    text = f"{function.__name__}({', '.join(shown)})"
    return Signature(
        reader.name,
        function,
        text,
        tuple(names),
        tuple(annotations),
        reader.returns(),
    )


class _Reader:
    """Converts the annotations of a function to those of `runtime.arguments.parameters`."""

    def __init__(self, function: types.FunctionType, local_names: Mapping[str, Any]) -> None:
        self.name = function.__name__
        self._current_parameter = ""
        self._function = function
        self._annotations = function.__annotations__
        self._globals = function.__globals__
        closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self._locals = {**local_names, **_contents(closure)}

    @property
    def definition(self) -> Definition:
        """The position of the function's definition, for errors."""
        return Definition(self._function)

    def parameter(self, parameter: inspect.Parameter) -> Annotation:
        if parameter.annotation is parameter.empty:
            span = self.definition.parameter(parameter.name)
            raise MissingAnnotation(self.name, parameter.name).at(span)
        self._current_parameter = parameter.name
        what = f"parameter `{parameter.name}`"
        return self._convert(self._evaluate(parameter.annotation, what), what)

    def returns(self) -> tuple[ReturnType, ...] | None:
        """The types of the returned values; None without an annotation."""
        if "return" not in self._annotations:
            return None
        self._current_parameter = "return"
        given = self._evaluate(self._annotations["return"], "the return value")
        if given is None:
            return ()
        if isinstance(given, (tuple, list)):
            return tuple(self._returned(item) for item in given)
        if typing.get_origin(given) is tuple:
            return tuple(self._returned(item) for item in typing.get_args(given))
        return (self._returned(given),)

    def _returned(self, given: Any) -> ReturnType:
        what = "the return value"
        return self._by_value(self._convert(given, what), given, what)

    def _by_value(self, converted: Annotation, given: Any, what: str) -> ReturnType:
        """The type of a returned value, which contains no arrays."""
        if isinstance(converted, ScalarType):
            return converted
        if not isinstance(converted, StructAnnotation):
            raise self._wrong(what, given)
        members = [
            (name, self._by_value(kind, kind, f"{what}, member `{name}`"))
            for name, kind in converted.members
        ]
        return StructArgument(tuple(members), converted.python_type)

    def _evaluate(self, annotation: Any, what: str) -> Any:
        """The value of an annotation that may be a string (``from __future__ import ...``).

        Aliases (``type Values = npt.NDArray[np.float32]``) are replaced by what they stand for.
        """
        while True:
            if isinstance(annotation, str):
                text = annotation
                try:
                    annotation = eval(text, self._globals, self._locals)
                except Exception as error:
                    raise self._wrong(what, text) from error
            elif _is_alias(annotation):
                annotation = _value_of_alias(annotation)
            else:
                return annotation

    def _convert(self, given: Any, what: str) -> Annotation:
        if isinstance(given, (Template, NdarrayAnnotation, OptionalTensor)):
            return given
        if typing.get_origin(given) in (types.UnionType, typing.Union):
            return self._optional(given, what)
        if isinstance(given, type):
            for kind in (Template, NdarrayAnnotation, AnyTensor):
                if issubclass(given, kind):
                    return kind()
            if issubclass(given, AnyBufferView):
                given = BufferViewAnnotation()
        if given is np.ndarray or typing.get_origin(given) is np.ndarray:
            return _numpy_annotation(given)
        if isinstance(given, type) and hasattr(given, "__dlpack__"):
            return NdarrayAnnotation()  # an array of another library, such as `torch.Tensor`
        if (found := _array_annotation(given)) is not None:
            return found
        if isinstance(given, MatrixType):
            if not given.has_dtype:
                raise given.missing_element_type().at(self._span())
            return ScalarType(given.dtype, given.element_shape)
        if isinstance(given, StructType):
            return self._struct(given, given.members, what)
        if given is SparseMatrixBuilderAnnotation:
            given = given()
        if isinstance(given, (SparseMatrixBuilderAnnotation, BufferViewAnnotation)):
            return self._struct(given, given.members, what)
        if isinstance(given, type) and dataclasses.is_dataclass(given):
            members = {entry.name: entry.type for entry in dataclasses.fields(given)}
            scope = vars(inspect.getmodule(given) or object)
            self._globals = {**scope, **self._globals}
            return self._struct(given, members, what)
        try:
            if given is not None:
                return ScalarType(resolve(given))
        except TypeError:
            pass
        raise self._wrong(what, given)

    def _optional(self, given: Any, what: str) -> Annotation:
        """Convert ``T | None``, where T is the annotation of an array or a template."""
        rest = [each for each in typing.get_args(given) if each is not types.NoneType]
        if len(rest) == 1:
            found = self._convert(self._evaluate(rest[0], what), what)
            if isinstance(found, Template):
                return found
            if isinstance(found, (NdarrayAnnotation, AnyTensor)):
                return OptionalTensor(found)
        raise self._wrong(what, given)

    def _struct(self, python_type: Any, members: Mapping[str, Any], what: str) -> StructAnnotation:
        converted = []
        for name, kind in members.items():
            inner = f"{what}, member `{name}`"
            converted.append((name, self._convert(self._evaluate(kind, inner), inner)))
        return StructAnnotation(python_type, tuple(converted))

    def _wrong(self, what: str, given: Any) -> Exception:
        text = given if isinstance(given, str) else getattr(given, "__name__", repr(given))
        return WrongAnnotation(self.name, what, f"`{text}`").at(self._span())

    def _span(self) -> Span | None:
        """The source location of the annotation that is being read."""
        if self._current_parameter == "return":
            return self.definition.returned()
        return self.definition.parameter(self._current_parameter)


def _is_alias(given: Any) -> bool:
    """Whether this is a `typing.TypeAliasType` (`NDArray` since numpy 2.5), or one with arguments.

    By its attributes: Python has the class since 3.12, and typing_extensions has another.
    """
    if type(given) is type:  # as are most, and `get_origin` takes long
        return False
    alias = typing.get_origin(given) or given
    return hasattr(alias, "__value__") and hasattr(alias, "__type_params__")


def _value_of_alias(given: Any) -> Any:
    """The value of an alias, with its arguments in place of its parameters."""
    alias = typing.get_origin(given) or given
    arguments = dict(zip(alias.__type_params__, typing.get_args(given), strict=False))
    value = alias.__value__
    parameters = getattr(value, "__parameters__", ())
    if not arguments or not parameters:
        return value
    return value[tuple(arguments.get(parameter, parameter) for parameter in parameters)]


def _array_annotation(given: Any) -> Annotation | None:
    """Convert ``qd.Field[qd.f32]`` and ``qd.Ndarray[qd.f32]``, or another class with elements."""
    origin = None if type(given) is type else typing.get_origin(given)
    if not isinstance(origin, type) or not issubclass(origin, AnyTensor):
        return None
    (element,) = typing.get_args(given)
    if issubclass(origin, FieldHandle):
        return Template(element)
    return NdarrayAnnotation(element) if issubclass(origin, NdarrayHandle) else AnyTensor()


def _numpy_annotation(given: Any) -> NdarrayAnnotation:
    """Convert ``np.ndarray`` or ``npt.NDArray[np.float32]``, which has an element type."""
    kinds = typing.get_args(given)[1:]
    scalars = [kind for each in kinds for kind in typing.get_args(each)]
    is_known = scalars and isinstance(scalars[0], type) and issubclass(scalars[0], np.generic)
    return NdarrayAnnotation(dtype=resolve(scalars[0]) if is_known else None)


def _contents(cells: Mapping[str, types.CellType]) -> dict[str, Any]:
    found = {}
    for name, cell in cells.items():
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def is_in_class(function: Callable[..., Any]) -> bool:
    """Whether a function was defined in the body of a class."""
    owner = function.__qualname__.rpartition(".")[0]
    return bool(owner) and not owner.endswith("<locals>")


def is_method(function: Callable[..., Any]) -> bool:
    """Whether a function was defined in a class, and takes the object, or the class, first.

    That parameter has no annotation, as all others have, or one of the usual names.
    """
    first = next(iter(inspect.signature(function, follow_wrapped=False).parameters.values()), None)
    if first is None or not is_in_class(function):
        return False
    has_annotation = first.annotation is not first.empty
    is_variable = first.kind in (first.VAR_POSITIONAL, first.VAR_KEYWORD)
    return first.name in ("self", "cls") or not (has_annotation or is_variable)
