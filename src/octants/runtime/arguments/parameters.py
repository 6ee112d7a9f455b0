"""Parameters of kernels: what their annotations allow, and the keys of arguments.

A parameter is one or several *leaves*: a scalar, an array or a template, or the members of a struct
of those. A kernel is specialised for each *key* of its arguments, the tuple of what its code can
depend on: nothing for a scalar, type and layout for an array, the value for a template.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any

import numpy as np

from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.launch_errors import WrongArgument
from octants.functions_from_text import define
from octants.lazy_dataclass import dataclass
from octants.types.likeness import content_of
from octants.types.masked_arrays import is_masked_type
from octants.types.parameter_annotations import (
    AnyTensor,
    NdarrayAnnotation,
    OptionalTensor,
    Template,
)
from octants.types.specialisation_signature import (
    FieldHandle,
    NdarrayHandle,
    QuantHandle,
    ScalarType,
    StructHandle,
)
from octants.types.weak_references import number_of, parts_of


@dataclass(frozen=True)
class StructAnnotation:
    """The annotation of a struct, whose members are leaves."""

    python_type: Any
    members: tuple[tuple[str, Annotation], ...]


Annotation = ScalarType | NdarrayAnnotation | Template | AnyTensor | StructAnnotation


@dataclass(frozen=True)
class Leaf:
    """A parameter, or the member of a struct parameter at a `path`."""

    kernel: str
    parameter: str
    position: int
    path: tuple[str, ...]
    annotation: ScalarType | NdarrayAnnotation | Template | AnyTensor

    @property
    def expression(self) -> str:
        """The value in generated code, where argument k is called ``ak``."""
        return ".".join((f"a{self.position}", *self.path))

    @property
    def name(self) -> str:
        """The value as the user would write it."""
        return ".".join((self.parameter, *self.path))

    def if_given(self) -> Leaf:
        """The leaf for an argument that is not None, of an `OptionalTensor`."""
        given = getattr(self.annotation, "given", self.annotation)
        return Leaf(self.kernel, self.parameter, self.position, self.path, given)

    def value(self, arguments: Sequence[Any]) -> Any:
        value = arguments[self.position]
        for member in self.path:
            if not hasattr(value, member):
                raise self._missing(value, member)
            value = getattr(value, member)
        return value

    def _missing(self, value: Any, member: str) -> OctantsError:
        problem = f"the `{type(value).__name__}` that is given has no member `{member}`"
        advice = ""
        if isinstance(value, Mapping):
            problem = f"a struct or a dataclass is needed, not a `{type(value).__name__}`"
            advice = "make a struct or a dataclass of it: `S(**values)`"
        elif isinstance(value, NdarrayHandle):
            advice = f"a view of all elements of an ndarray `{self.parameter}` is"
            advice += f" `{self.parameter}[:]`"
        return self.error(problem, advice)

    def error(self, problem: str, advice: str = "") -> OctantsError:
        return WrongArgument(self.kernel, self.name, problem, advice).at()


def leaves_of(
    kernel: str, parameter: str, position: int, annotation: Annotation, path: tuple[str, ...] = ()
) -> list[Leaf]:
    """The leaves of one parameter."""
    if not isinstance(annotation, StructAnnotation):
        return [Leaf(kernel, parameter, position, path, annotation)]
    found: list[Leaf] = []
    for name, member in annotation.members:
        found += leaves_of(kernel, parameter, position, member, (*path, name))
    return found


def make_key_function(count: int, leaves: Sequence[Leaf]) -> Callable[..., tuple[Any, ...]]:
    """Generate the function of ``count`` arguments that returns the key of a call."""
    terms = [term + ", " for leaf in leaves if (term := key_term(leaf, leaf.expression))]
    arguments = "".join(f"a{k}, " for k in range(count))
    scope: dict[str, Any] = {**KEY_FUNCTIONS, "_explain": functools.partial(_explain, leaves)}
    return define("key", _KEY_SOURCE.format(arguments=arguments, terms="".join(terms)), scope)


_KEY_SOURCE = """
def key({arguments}):
    try:
        return ({terms})
    except (AttributeError, TypeError):
        _explain(({arguments}))
        raise
"""


def _explain(leaves: Sequence[Leaf], arguments: Sequence[Any]) -> None:
    """Raise an error that says why arguments have no key."""
    for leaf in leaves:
        value = leaf.value(arguments)
        if isinstance(leaf.annotation, NdarrayAnnotation) and not hasattr(value, "shape"):
            raise leaf.error(f"a {type(value).__name__} is not an array")


def key_term(leaf: Leaf, value: str) -> str:
    """The term of a leaf in the key, in generated code over `KEY_FUNCTIONS`; "" for none.

    ``value`` is the expression of the argument.
    """
    annotation = leaf.annotation
    if isinstance(annotation, ScalarType):
        return ""
    if isinstance(annotation, Template):
        return f"_template({value})"
    if isinstance(annotation, OptionalTensor):
        return f"None if {value} is None else ({key_term(leaf.if_given(), value)},)"
    if isinstance(annotation, AnyTensor):
        return f"_any({value})"
    if annotation.element_dim:
        return f"_array({value}), {value}.shape[-{annotation.element_dim}:]"
    return f"_array({value})"


def array_key(value: Any) -> Any:
    """The key of an array argument: what code can depend on."""
    kind = type(value)
    found = _ARRAY_KEYS.get(kind)
    if found is None:
        found = _ARRAY_KEYS[kind] = _key_function(kind)
    return found(value)


NUMPY_FLAGS = 0x1 | 0x100 | 0x400  # row-major, aligned, writable


def _numpy_key(value: np.ndarray[Any, Any]) -> Any:
    return value.dtype, value.ndim, value.flags.num & NUMPY_FLAGS


def _torch_key(value: Any) -> Any:
    with_grad = value.requires_grad or value.grad is not None
    try:
        layout = value.layout, value.is_contiguous(), value.is_neg()
    except RuntimeError:  # compressed rows and nested tensors, which no specialisation takes
        return "no strides"
    return value.dtype, value.dim(), layout, with_grad, value.device


class InterfaceDevices:
    """Finds the device of an array with ``__cuda_array_interface__``; `driver` sets how."""

    number_of: Callable[[Any], int | None] = staticmethod(lambda _: None)


def _interface_key(value: Any) -> Any:
    given, number = value.__cuda_array_interface__, InterfaceDevices.number_of(value)
    strides, is_read_only = given.get("strides"), given["data"][1]
    return given["typestr"], len(given["shape"]), strides is None, is_read_only, number


_ARRAY_KEYS: dict[type, Callable[[Any], Any]] = {np.ndarray: _numpy_key}


def _key_function(kind: type) -> Callable[[Any], Any]:
    """The function of arrays of a type that returns their key."""
    if issubclass(kind, NdarrayHandle):
        return operator.attrgetter("argument_key")
    if is_masked_type(kind):
        return lambda _: "masked"  # which no specialisation takes
    if issubclass(kind, np.ndarray):
        return _numpy_key
    if hasattr(kind, "octants_ndarray"):  # see `launch.dlpack_arguments`
        return lambda _: "proxy"
    if is_torch(kind):
        return _torch_key
    return _interface_key if has_interface(kind) else template_key


def is_torch(kind: type) -> bool:
    """Whether a type is that of torch tensors; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(kind, torch.Tensor)


def has_interface(kind: type) -> bool:
    """Whether a type offers ``__cuda_array_interface__``, and is not one of Octants."""
    is_own = issubclass(kind, (FieldHandle, NdarrayHandle, QuantHandle))
    return hasattr(kind, "__cuda_array_interface__") and not is_own


def template_key(value: Any) -> Any:
    """The key of a template argument.

    It is the type and value of a number or string, the keys of the items of a tuple, list or
    dictionary, and the identity of anything else: a number that no other object ever has. What can
    be changed in place, such as an array of numpy, has its content in the key, too. An object that
    cannot be referenced weakly must be kept alive together with the key.
    """
    kind = type(value)
    if kind is float:
        return kind, value.hex()
    if kind in (int, bool, str, bytes, type(None)):
        return kind, value
    if isinstance(value, NdarrayHandle):
        return value.argument_key, "array"
    if isinstance(value, np.generic):
        return kind, value.tobytes()
    if issubclass(kind, (tuple, list, MethodType)):
        return kind, *map(template_key, parts_of(value))
    if issubclass(kind, dict):
        return kind, *map(template_key, value), *map(template_key, value.values())
    content = content_of(value)
    return object_key(value) if content is None else (object_key(value), template_key(content))


def object_key(value: Any) -> Any:
    """The key of an object by identity.

    The number is in a tuple, since `array_key` returns bare numbers, of another sequence.
    """
    number = number_of(value)
    return ("address", id(value)) if number is None else ("object", number)


def tensor_key(value: Any) -> Any:
    """The key of an argument that may be an ndarray or a field."""
    is_template = isinstance(value, (FieldHandle, QuantHandle, StructHandle))
    return object_key(value) if is_template else array_key(value)


KEY_FUNCTIONS = {"_array": array_key, "_template": template_key, "_any": tensor_key}
"""The functions of key terms, by the names that generated code has for them."""
