"""Kernels as objects: a Python function, its specialisations, and their launches.

A warm call is a few microseconds: it runs the entry of the specialisation that ran last, generated
code that recognises its arguments and launches it (`warm_call`). If the arguments are others,
`Kernel._launch` tries the entries of other specialisations, then looks one up by the key of the
arguments, and compiles the kernel if there is none (`Kernel.specialise`).
"""

from __future__ import annotations

import builtins
import copy
import dataclasses
import functools
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, overload

from octants import driver, options
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsError, OctantsWarning
from octants.diagnostics.function_header_spans import Definition
from octants.diagnostics.graph_errors import NotResumable
from octants.diagnostics.launch_errors import MethodWithoutSelf, MissingMethodOwner
from octants.diagnostics.tracebacks import of_users, shortens_tracebacks
from octants.diagnostics.user_frames import levels_to_the_user
from octants.garbage_collection import Uncollected
from octants.internal_members import internal
from octants.lang.library_function_marks import is_from_octants
from octants.launch.checks.race_checks import launch_with_race_check
from octants.launch.dlpack_arguments import import_arguments
from octants.launch.gradients.kernel_gradient import Gradient
from octants.launch.specialisation import Specialisation
from octants.launch.streams import launching_in
from octants.launch.warm.changing_numbers import varying_reads
from octants.launch.warm.warm_call import Recogniser, WarmCall, make_entry, recogniser_of
from octants.launch.warm.warm_gradient import WarmGradients
from octants.runtime.arguments.kernel_signatures import (
    Signature,
    is_in_class,
    is_method,
    read_signature,
)
from octants.runtime.arguments.parameters import make_key_function
from octants.timeline import COMPILE, span
from octants.types.compile_time_reads import ReadKey

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    from octants.launch import inspection, pickling
    from octants.launch.inspection import Inspection
else:
    inspection = Deferred("octants.launch.inspection")
    pickling = Deferred("octants.launch.pickling")

if TYPE_CHECKING:
    P = ParamSpec("P", default=...)
    R_co = TypeVar("R_co", covariant=True, default=Any)
    Others = ParamSpec("Others")
    Result = TypeVar("Result")
    Owner = TypeVar("Owner")
else:
    from typing import ParamSpec, TypeVar

    P, R_co = ParamSpec("P"), TypeVar("R_co", covariant=True)

_state = driver.state
_MANY_VARIANTS = 16
_MOST_KNOWN = 8  # specialisations whose arguments are recognised one after the other


class Kernel(Generic[P, R_co]):
    """A kernel, which `octants.kernel` makes of a function; a call compiles and launches it.

    With ``qd_stream=stream`` it is launched in that stream; see `octants.Stream`. In a class, the
    kernel is a method.
    """

    octants_is_kernel = True  # the frontend refuses to call it in another kernel
    runs_in_segments = False  # whether the host runs it as several launches

    @internal
    def __init__(
        self,
        function: FunctionType,
        local_names: Callable[[], Mapping[str, Any]],
        *,
        wants_graph: bool = False,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = self.octants_function = function
        self.name = function.__name__
        self.is_method = is_method(function)
        self.wants_graph = wants_graph
        self._local_names = _needed_names(function, local_names)
        self._read_signature()

    def _read_signature(self) -> None:
        self.signature = read_signature(self.function, self._local_names, is_method=self.is_method)
        count = len(self.signature.names)
        self._count = -1 if self.function.__code__.co_kwonlyargcount else count  # by position
        self.leaves = self.signature.leaves()
        self._key = make_key_function(count, self.leaves)
        self.generation = -1
        self.entry: WarmCall = self._launch
        self._specialisations: dict[tuple[Any, ...], Specialisation] = {}
        self._variants: dict[tuple[Any, ...], list[Specialisation]] = {}
        self._constant_reads: dict[tuple[Any, ...], set[ReadKey]] = {}  # cannot be arguments
        self._known_entries: tuple[tuple[Recogniser, WarmCall], ...] = ()
        self.warm_gradients = WarmGradients()

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R_co:
        try:
            if named or len(arguments) != self._count:
                if "qd_stream" in named:
                    with launching_in(named.pop("qd_stream")):
                        return self(*arguments, **named)
                bound = self.bind(arguments, named)
                return self.entry(*bound)  # type: ignore[no-any-return]
            return self.entry(*arguments)  # type: ignore[no-any-return]
        except OctantsError as error:
            __tracebackhide__ = True  # pytest passes over this frame
            raise error.with_traceback(of_users(error))  # noqa: B904

    def _launch(self, *arguments: Any) -> Any:
        """Launch with arguments that the last entry does not recognise."""
        for recognise, entry in self._known_entries:
            if entry is not self.entry and recognise(*arguments):
                self.entry = entry
                return entry(*arguments)
        given, arguments = arguments, import_arguments(self.leaves, arguments)
        specialisation = self.specialisation(arguments)
        recognition = specialisation.recognition
        is_outlived = recognition is not None and recognition.is_outlived and arguments is given
        if specialisation.entry is None or is_outlived:
            generation, miss = self.generation, self._launch
            specialisation.entry = make_entry(specialisation, generation, miss, arguments)
        self.entry = specialisation.entry
        if 1 < len(self._specialisations) <= _MOST_KNOWN:
            self._remember_entry(specialisation)
        arguments = specialisation.complete(arguments)
        recorder = _state.recorder
        if recorder is not None:
            return recorder.launch(specialisation, arguments)
        return specialisation.run(arguments)

    def _remember_entry(self, specialisation: Specialisation) -> None:
        """Recognise the arguments of a specialisation whose launches alternate with others."""
        entry = specialisation.entry
        if entry is None or any(known is entry for _, known in self._known_entries):
            return
        own = [each.entry for each in self._specialisations.values()]
        others = [each for each in self._known_entries if each[1] in own]
        recognise = recogniser_of(specialisation, self.generation)
        self._known_entries = ((recognise, entry), *others)

    @internal
    def bind_arrays(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Bind arguments like `bind`, and import the arrays of other libraries."""
        return import_arguments(self.leaves, self.bind(arguments, named))

    @internal
    def specialisation(self, arguments: tuple[Any, ...]) -> Specialisation:
        """The kernel compiled for arguments like these, mostly found by their key."""
        if self.generation != _state.generation:
            self._renew()
        found = self._specialisations.get(self._key(*arguments))
        if found is None or (found.is_valid is not None and not found.is_valid()):
            return self.specialise(arguments)
        return found

    @internal
    def is_current(self, specialisation: Specialisation) -> bool:
        """Whether a call with arguments like those of a specialisation runs it now."""
        if self.generation != _state.generation:
            return False
        is_known = self._specialisations.get(specialisation.key) is specialisation
        return is_known and (specialisation.is_valid is None or specialisation.is_valid())

    @internal
    def check_gradient(
        self, specialisation: Specialisation, arguments: tuple[Any, ...], *, trusts: bool
    ) -> None:
        """Raise an error if ``grad`` cannot reverse the launches by the module of the kernel.

        Only kernels of several launches look at the module: what is cached has none yet.
        """

    @internal
    def check_draws(self, specialisation: Specialisation) -> None:
        """Raise an error if the reverse cannot draw the random numbers of the launches again."""

    @property
    def grad(self) -> Gradient[P]:
        """The reverse of the kernel, to be called with the same arguments."""
        return Gradient(self)

    def resume(self, *_: Any, from_checkpoint: int, **__: Any) -> Any:  # noqa: ARG002
        """Continue a launch that has paused at a checkpoint, from the beginning of its part.

        Args:
            from_checkpoint: the label of the checkpoint; what stands before it is skipped. The
                other arguments are those of the kernel.

        Returns:
            A `GraphStatus`, as the launch itself.

        Raises:
            OctantsRuntimeError: the kernel was not made with ``checkpoints=True``, or has no such
                checkpoint.
        """
        raise NotResumable(self.name, "it has no checkpoints").at(Definition(self.function).span)

    @internal
    def specialise(self, arguments: tuple[Any, ...]) -> Specialisation:
        """Compile the kernel for arguments like these."""
        if self.generation != _state.generation:
            self._renew()
        key = self._key(*arguments)
        with _state.compiling, Uncollected(), span(COMPILE, self.name):
            found = self._find(key)
            if found is None:
                found = self._variant(key, arguments)
                found.key = key
                if found.options.in_debug_mode and not is_from_octants(self.function):
                    found.launch = launch_with_race_check(found)
                self._add_variant(key, found)
            self._specialisations[key] = found
        return found

    def _variant(self, key: tuple[Any, ...], arguments: tuple[Any, ...]) -> Specialisation:
        """Compile the kernel again; numbers that keep changing become arguments if possible."""
        chosen = options.current()
        constant = self._constant_reads.setdefault(key, set())
        varying = varying_reads(self._variants.get(key, ())) - constant
        attempts = [varying, *(frozenset([each]) for each in sorted(varying) if len(varying) > 1)]
        for attempt in attempts if varying else ():
            try:
                made = Specialisation(self, self.signature, arguments, chosen, attempt)
            except Exception:  # it must be constant; a user's error is raised again below
                if len(attempt) == 1:
                    constant |= attempt
                continue
            if made.is_valid is None or made.is_valid():  # else the number is one of a kind
                return made
        return Specialisation(self, self.signature, arguments, chosen)

    def _add_variant(self, key: tuple[Any, ...], made: Specialisation) -> None:
        variants = self._variants.setdefault(key, [])
        variants.append(made)
        if len(variants) == _MANY_VARIANTS:
            warnings.warn(
                f"kernel `{self.name}` has been compiled {_MANY_VARIANTS} times for the same"
                " arguments, because a global, closure variable or attribute that it reads keeps"
                " changing; pass it as an argument",
                OctantsWarning,
                stacklevel=levels_to_the_user(),
            )
        del variants[:-_MANY_VARIANTS]

    @internal
    def forget(self, ended: Specialisation) -> None:
        """Drop a specialisation that can never be used again."""
        if self._specialisations.get(ended.key) is ended:
            del self._specialisations[ended.key]
        others = [each for each in self._variants.get(ended.key, ()) if each is not ended]
        if others:
            self._variants[ended.key] = others
        else:
            self._variants.pop(ended.key, None)
            self._constant_reads.pop(ended.key, None)
        if self.entry is ended.entry:
            self.entry = self._launch
        self._known_entries = tuple(
            each for each in self._known_entries if each[1] is not ended.entry
        )
        self.warm_gradients.forget(ended)
        ended.entry = None

    @internal
    def compile_in(self, ended: Specialisation, arguments: tuple[Any, ...]) -> Specialisation:
        """Compile the kernel with the hidden arguments of a specialisation as constants."""
        self.forget(ended)
        self._constant_reads.setdefault(ended.key, set()).update(ended.varying)
        return self.specialise(arguments)

    def _find(self, key: tuple[Any, ...]) -> Specialisation | None:
        """The specialisation for a key whose globals have their present values."""
        for found in self._variants.get(key, ()):
            if found.is_valid is None or found.is_valid():
                return found
        return None

    @shortens_tracebacks
    def inspect(self, *arguments: Any, mode: str = "primal", **named: Any) -> Inspection:
        """Show the compilation for arguments like these: IR after each pass, LLVM IR, assembly.

        Nothing is launched.

        Args:
            arguments: The kernel's arguments.
            mode: "primal", "reverse" or "forward".
            named: The kernel's arguments by name.
        """
        bound = self.bind_arrays(arguments, named)
        return inspection.inspect(self.specialise(bound), mode)

    @internal
    def current_signature(self) -> Signature:
        """The parameters and results, with the default types of the present `init`."""
        if self.generation != _state.generation:
            self._renew()
        return self.signature

    def _renew(self) -> None:
        """Drop everything that belongs to an earlier `init`."""
        options.current()
        self._read_signature()
        self.generation = _state.generation

    @internal
    def bind(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Bind the arguments of a call: return them in the order of the parameters."""
        if not named and len(arguments) == self._count:
            return tuple(arguments)
        if self.is_method and not arguments and self.signature.names[0] not in named:
            raise MissingMethodOwner(self.name).at(Definition(self.function).span)
        return self.signature.bind(arguments, named)

    @overload
    def __get__(self, owner: None, kind: type) -> Kernel[P, R_co]: ...
    @overload
    def __get__(
        self: Kernel[Concatenate[Owner, Others], Result], owner: object, kind: type | None = None
    ) -> BoundKernel[Others, Result]: ...
    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None:
            return self
        if self.is_method:
            return BoundKernel(self, owner)
        return KernelWithoutSelf(self, owner) if is_in_class(self.function) else self

    def __reduce_ex__(self, _: Any) -> Any:
        return pickling.reduce(self, self._local_names)

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, memo: object) -> Kernel:
        return self

    def __repr__(self) -> str:
        return f"<kernel {self.signature.text}>"


def _needed_names(
    function: FunctionType, local_names: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    """The local names around a function that its annotations, given as text, refer to.

    The locals of a frame are read only if needed, since reading them keeps them alive.
    """
    known = {*function.__globals__, *function.__code__.co_freevars, *dir(builtins)}
    pending = _names_in(function.__annotations__.values()) - known
    if not pending:
        return {}
    around, found = local_names(), {}
    while pending:
        name = pending.pop()
        if name in around and name not in found:
            found[name] = around[name]
            if dataclasses.is_dataclass(found[name]):
                types = [entry.type for entry in dataclasses.fields(found[name])]
                pending |= _names_in(types) - known
    return found


def _names_in(annotations: Iterable[Any]) -> set[str]:
    """The names that annotations given as texts refer to."""
    texts = [text for text in annotations if isinstance(text, str)]
    return {name for text in texts for name in re.findall(r"(?<![\w.])[^\W\d]\w*", text)}


class BoundKernel(Generic[P, R_co]):
    """A kernel that is a method, bound to an object."""

    __slots__ = ("kernel", "owner")

    def __init__(self, kernel: Kernel[..., Any], owner: Any) -> None:
        self.kernel = kernel
        self.owner = owner

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R_co:
        kernel = self.kernel
        try:
            if not named and len(arguments) == kernel._count - 1:
                return kernel.entry(self.owner, *arguments)  # type: ignore[no-any-return]
            return kernel(self.owner, *arguments, **named)  # type: ignore[no-any-return]
        except OctantsError as error:
            __tracebackhide__ = True  # pytest passes over this frame
            raise error.with_traceback(of_users(error))  # noqa: B904

    @property
    def grad(self) -> Gradient[P]:
        """The reverse of the kernel on this object."""
        return Gradient(self.kernel, (self.owner,))

    def resume(self, *arguments: Any, from_checkpoint: int, **named: Any) -> Any:
        """See `Kernel.resume`."""
        return self.kernel.resume(self.owner, *arguments, from_checkpoint=from_checkpoint, **named)

    def inspect(self, *arguments: Any, **named: Any) -> Inspection:
        """See `Kernel.inspect`."""
        return self.kernel.inspect(self.owner, *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return BoundKernel, (self.kernel, self.owner)

    def __copy__(self) -> BoundKernel:
        return BoundKernel(self.kernel, self.owner)

    def __deepcopy__(self, memo: dict[int, Any]) -> BoundKernel:
        return BoundKernel(self.kernel, copy.deepcopy(self.owner, memo))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, BoundKernel)
            and self.kernel is other.kernel
            and self.owner is other.owner
        )

    def __hash__(self) -> int:
        return hash((id(self.kernel), id(self.owner)))

    def __repr__(self) -> str:
        return f"<bound {self.kernel!r} of {self.owner!r}>"


class KernelWithoutSelf(BoundKernel):
    """A kernel that an object has as a method, and that cannot take the object."""

    __slots__ = ()

    def __call__(self, *_: Any, **__: Any) -> Any:
        definition = Definition(self.kernel.function)
        raise MethodWithoutSelf(self.kernel.name).at(definition.span)

    @property
    def grad(self) -> Any:
        return self()

    resume = inspect = __call__
