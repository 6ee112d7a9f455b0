"""Reverse mode over several launches: ``with qd.ad.Tape(loss=loss): ...``.

`Tape.launch` records a launch in the first of these ways that applies:

1. Following an earlier tape, which began with the same launches (`repeated_tapes`): a launch only
   runs, after the same copies at the same addresses (`_follow`). The end of the tape replays the
   earlier reversal as a whole (`repeated_reversals`).
2. On the fast path: the identities of its arrays tell that it overwrites nothing that is needed
   (`fast_recording`).
3. By a prefix: an earlier tape began with the same launches, and this one makes the same copies
   before it without asking the ledger, but elsewhere.
4. On the slow path: the ledger saves what the launch overwrites (`overwrite_ledger`), and learns
   what its reverse needs.

A launch that follows no earlier tape ends the first way: those so far get entries
(`_end_following`). Anything else that happens, such as a host write or a launch of another thread,
ends the third way, too (`_diverge`): the ledger learns of all launches so far, and is asked from
then on.
"""

from __future__ import annotations

import functools
import threading
from _thread import RLock
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from octants import driver, options, timeline
from octants.ad.clear_gradients import clear_gradients as clear
from octants.ad.overwrites.needed_contents import Content
from octants.ad.overwrites.overwrite_ledger import MemoryRegion, OverwriteLedger, Phase, SavedPart
from octants.ad.overwrites.packed_copies import PackedCopies, PackedLaunch
from octants.ad.overwrites.repeated_tapes import Observation, Prefix, Touched
from octants.ad.overwrites.snapshot_report import TapeExplanation
from octants.ad.tapes.backward_guard import BackwardGuard
from octants.ad.tapes.block_ends import EndOfBlock
from octants.ad.tapes.fast_recording import FastPath, find_fast_path
from octants.ad.tapes.memory_overlaps import MemoryOverlaps
from octants.ad.tapes.scalar_argument_gradients import ArgumentGradients
from octants.ad.tapes.tape_entries import CustomCall, HostEntry, LaunchEntry, TapeEntry, freeze
from octants.ad.tapes.tape_losses import Loss, make_losses
from octants.ad.tapes.untracked_writes import UntrackedWrites
from octants.analysis.indices.index_ranges import ArrayRegion
from octants.cached_property import cached_property
from octants.data.array_base import Tensor
from octants.data.host_access_events import HostWrite, before_share, forget, host_writes
from octants.deferred_import import Deferred
from octants.diagnostics.absent_names import method_error
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.tape_errors import (
    NestedTape,
    OverwrittenUnderTape,
    TapeIsUsed,
    TapeNotEntered,
)
from octants.diagnostics.tracebacks import of_users, shortens_tracebacks
from octants.internal_members import internal
from octants.ir.core import Companion
from octants.launch.checks.race_checks import check_before_gradient, validate_launch
from octants.launch.gradients.derivative_variants import TapePlan, differentiable, tape_plan
from octants.launch.gradients.lost_gradient_warnings import (
    GradientEnds,
    flow_of,
    warn_if_replaced_last,
    warn_if_unreached,
)
from octants.launch.gradients.taped_memory import (
    TapedMemory,
    memories_of,
    memory_at,
    memory_of,
    memory_of_write,
    region_of_write,
    written_regions,
)
from octants.launch.persistent_storage import PersistentStorage
from octants.launch.specialisation import HeldFields, Specialisation
from octants.launch.warm.alias_free_launches import has_distinct_arrays
from octants.launch.warm.changing_numbers import with_constants
from octants.runtime.capture import captures, refuse
from octants.runtime.memory.array_access import HOST

if TYPE_CHECKING:
    from typing_extensions import Self

    from octants.ad.tapes import gradient_check as differences
else:
    differences = Deferred("octants.ad.tapes.gradient_check")

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _one_at_a_time(method: _Method) -> _Method:
    """Let threads call a method of a tape one after the other."""

    @functools.wraps(method)
    def alone(self: Any, *args: Any, **named: Any) -> Any:
        with self._lock:
            return method(self, *args, **named)

    return alone  # type: ignore[return-value]


FollowedLaunch = tuple[Touched, PackedLaunch | None, FastPath, tuple[Any, ...], int, int]
"""A launch that followed a prefix, and has no entry: its arrays, the copies before it, its kernel,
the arguments, the number of the launch, the seed of random numbers.
"""
ON_OVERWRITE = ("save", "error", "trust")
_NO_ARGUMENTS = ArgumentGradients(requested=False)
_USUAL_OPTIONS = False, False, 1


class Tape:
    """Record the launches in its body; at the end, propagate the adjoints of a loss back.

    ``with Tape(loss=loss):`` sets the loss and all gradients of fields and ndarrays of Octants to
    zero; then the body runs. At its end ``loss.grad`` is set to one, and the recorded launches run
    in reverse, last first. If the body raises, nothing is reversed. Example::

        with qd.ad.Tape(loss=loss):
            step()
        print(x.grad.to_numpy())

    The body may overwrite arrays: the tape copies what a reverse kernel needs, restores it for that
    kernel, and leaves all arrays as the body left them. A host write (`fill`, ``x[i] = v``,
    `from_numpy`, `copy_from`) ends the adjoints of what it overwrites.

    Args:
        loss: a field, an ndarray or a torch tensor of one element, a kernel that returns a float
            and is launched once in the body, an `octants.torch.loss` or `octants.jax.loss`, or a
            list of these. Without a loss, the adjoints that the body has set are propagated.
        clear_gradients: set all gradients to zero first; otherwise they accumulate.
        validation: check before each reverse run that it reads what the launch read, in arrays of
            every kind: this finds writes through pointers, and wrong uses of "trust".
        grad_check: arrays whose gradients are compared with central differences.
        seed: the adjoint of the loss, instead of one. With a number for each element, the loss may
            be an array of several elements, or a returned vector. For a list of losses, a list.
        on_overwrite: "save" copies what is overwritten; "error" makes such a write an error;
            "trust" copies nothing, and is right only if the arrays hold at the end what the
            launches read.
        argument_gradients: a kernel, a list of kernels, or True for all, whose launches compute the
            gradients that the method `argument_gradients` returns.

    Raises:
        OctantsRuntimeError: for a wrong loss, within another tape or forward mode, or for an
            untracked write to what is needed.
        OctantsAssertionError: if `validation` or `grad_check` finds a difference.
        OctantsMemoryError: if the copies exceed ``init(ad_snapshot_budget_bytes=...)``.
    """

    _uses_fast_path = True
    _repeats = True  # may be reversed as an earlier tape was
    _adjoints = 1
    # The state of a tape that has recorded nothing, and the usual options.
    validation = False
    grad_check: Sequence[Any] = ()
    paused = 0
    _custom: CustomCall | None = None
    _guard: BackwardGuard | None = None  # once the backward pass has begun
    _launches = 0
    _done = False
    is_entered = False  # see `block_ends`
    _is_abandoned = False
    block: Any = None
    _observes = False
    _prefix: Prefix | None = None  # the launches before `_since_prefix`
    _divergences = 0  # calls of `_diverge`
    _matches_prefix = False  # of an earlier tape; the ledger has only deferred entries
    _packed: PackedCopies | None = None
    _unexplained: Prefix | None = None  # launches whose copies the ledger has not counted
    _followed: Prefix | None = None  # which all launches so far have followed
    _check: differences.GradientCheck | None = None
    _requested = _NO_ARGUMENTS

    @shortens_tracebacks
    def __init__(
        self,
        loss: Any = None,
        clear_gradients: bool = True,
        validation: bool = False,
        grad_check: Sequence[Any] | None = None,
        *,
        seed: Any = None,
        on_overwrite: str = "save",
        argument_gradients: Any = False,
    ) -> None:
        if on_overwrite not in ON_OVERWRITE:
            raise ValueError(f"on_overwrite is one of {ON_OVERWRITE}, not {on_overwrite!r}")
        self.losses: list[Loss] = make_losses(loss, seed)
        self.clear_gradients = clear_gradients
        self.on_overwrite = on_overwrite
        self.thread = threading.get_ident()
        self._lock = RLock()  # held while a thread changes what is recorded, or launches for it
        if validation:
            self.validation = True
        if grad_check:
            self.grad_check = list(grad_check)
            self._check = differences.GradientCheck(self.grad_check, self.losses)
        if argument_gradients is not False:
            self._requested = ArgumentGradients(argument_gradients)
        self._all_entries: list[TapeEntry] = []
        self._touched_arrays: set[Any] = set()
        self._may_use_fast_path = simple = self._uses_fast_path and not (validation or grad_check)
        self._may_match_prefix = follows = simple and on_overwrite == "save"
        self._may_follow = follows and self._repeats and argument_gradients is False
        self._followed_launches: list[FollowedLaunch] = []
        self._since_prefix: list[Touched] = []
        self._fast_paths: dict[Specialisation, FastPath] = {}
        self._held: dict[Specialisation, HeldFields] = {}

    # A tape that repeats as a whole needs none of these.

    @cached_property
    def _replaced(self) -> dict[Any, TapedMemory]:
        """The losses that the host has written."""
        return {}

    @cached_property
    def _copied(self) -> dict[int, tuple[Any, Any]]:
        """Arrays of numpy that launches were given, by identity, and the tape's copies of them."""
        return {}

    @cached_property
    def _whole_ledger(self) -> OverwriteLedger:
        return OverwriteLedger(
            saves=self.on_overwrite != "trust",
            validates=self.validation,
            budget=driver.snapshot_budget(),
        )

    @cached_property
    def _gradient_ends(self) -> GradientEnds:
        return GradientEnds()

    @cached_property
    @internal
    def untracked(self) -> UntrackedWrites:
        """Detects untracked writes to arrays with gradients."""
        return UntrackedWrites()

    @cached_property
    def _overlaps(self) -> MemoryOverlaps:
        return MemoryOverlaps()

    @property
    def snapshot_bytes(self) -> int:
        """The bytes of overwritten contents that the tape has copied."""
        return self._ledger.saved_bytes

    def explain(self) -> TapeExplanation:
        """Explain what the tape has copied so far: what, how much, and why.

        Returns:
            A table when printed; as data, `saved` has an entry for each array, the kernel that was
            about to overwrite it, and the kernel whose reverse needs it.
        """
        self._resolve_ledger()
        if self._unexplained is not None:
            self._unexplained.note_copies(self._ledger.account)
            self._unexplained = None
        return TapeExplanation(self._launches, self._ledger.account.entries())

    def argument_gradients(self, kernel: Any) -> list[dict[str, Any]]:
        """The gradients of the by-value float arguments of each launch of a kernel.

        Args:
            kernel: a kernel for which the tape was asked to compute them.

        Returns:
            For each launch, in order, a dictionary from parameter names to numbers, vectors and
            matrices. It is complete after the body.

        Raises:
            OctantsRuntimeError: the tape was not asked for them.
        """
        return self._requested.gradients_of(kernel)

    # -- the context ---------------------------------------------------------------------------

    @shortens_tracebacks
    def __enter__(self) -> Self:
        if driver.state.recorder is not None:
            raise NestedTape().at()
        if self.is_entered:
            raise TapeIsUsed().at()
        if self.validation or self._check is not None:
            refuse("a tape cannot check its gradients", "check them before the capture")
        self.is_entered = True
        self._generation = driver.state.generation
        self.thread = threading.get_ident()
        losses = [array for loss in self.losses if (array := loss.array) is not None]
        cleared = (Companion.ADJOINT,) if self.clear_gradients else ()
        clear(*cleared, and_arrays=losses)
        for loss in self.losses:
            loss.reset()
        try:
            self._observes = True
            driver.state.recorder = self
            host_writes.observe(self.before_write)
            before_share.observe(self.before_share)
        except BaseException:  # such as Ctrl-C: there is no `__exit__` then
            self._stop()
            raise
        return self

    def _exit(self, kind: object, error: object, traceback: object) -> None:  # noqa: ARG002
        try:
            self._stop()
            self.block = None
            if kind is None:
                if self._is_abandoned:
                    raise TapeNotEntered().at()
                self._propagate()
        except OctantsError as problem:
            __tracebackhide__ = True  # pytest passes over this frame
            raise problem.with_traceback(of_users(problem))  # noqa: B904

    if TYPE_CHECKING:

        def __exit__(self, kind: object, error: object, traceback: object) -> None: ...
    else:
        __exit__ = EndOfBlock(_exit)

    @internal
    def abandon(self, _: Any) -> None:
        """Stop recording: the ``with`` statement was interrupted before it called `__exit__`."""
        self.block = None
        if self.is_entered:
            self._is_abandoned = True
            self._stop()

    def _stop(self) -> None:
        if driver.state.recorder is self:
            driver.state.recorder = None
        if self._observes:
            forget(self.before_write, self.before_share)
            self._observes = False

    @shortens_tracebacks
    def grad(self) -> None:
        """Propagate the adjoints back; the end of the body does so too, and only one call acts.

        Raises:
            OctantsRuntimeError: if the tape was not entered, so that it has recorded nothing.
        """
        if not self.is_entered or self._is_abandoned:
            raise TapeNotEntered().at()
        self._propagate()

    # -- recording -----------------------------------------------------------------------------

    @internal
    def launch(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        """Run a launch and record how to reverse it; launches of other threads only run."""
        if self.paused or threading.get_ident() != self.thread:
            return self._run_unrecorded(specialisation, arguments)
        path = self._fast_paths.get(specialisation) or self._cached_fast_path(specialisation)
        touched: Touched | None = None
        if path is not None and self._may_follow:
            touched, followed = path.known_touched(*arguments), self._followed
            known = None if followed is None else followed.usual
            if touched and known and known.touched is touched and known.is_plain:
                state = driver.state  # the following is as `_follow`, with fewer calls
                seed, number = state.seed, next(state.numbers)
                specialisation.number = number
                results = path.steps[0].forward.launch(seed, number, 0, *arguments)
                self._followed = known
                self._followed_launches.append((touched, None, path, arguments, number, seed))
                return specialisation.wrap(results) if results else None
        with self._lock:  # other threads may overwrite what the tape needs
            if self._may_follow:
                if path is not None and touched is not None and path.can_repeat and not captures:
                    known = self._next_followed(touched)
                    if known is not None:
                        return self._follow(touched, known, path, specialisation, arguments)
                self._end_following()
            return self._launch(path, specialisation, arguments)

    def _launch(
        self, path: FastPath | None, specialisation: Specialisation, arguments: tuple[Any, ...]
    ) -> Any:
        """Run a launch that does not follow an earlier tape."""
        by_value: Collection[int] = ()
        if path is not None and not self._gradient_ends.holds:
            touched = path.known_touched(*arguments) or path.touched(arguments)
            if touched is not None and path.by_value:
                if self._may_pass_copies:
                    arguments = self._pass_copies(path, specialisation, arguments)
                    by_value = path.by_value
                else:
                    touched = None
            if touched is not None:
                saves_nothing = path.saves_nothing and not self._matches_prefix
                if saves_nothing and self._ledger.may_overwrite(touched.written):
                    return self._launch_on_fast_path(path, touched, specialisation, arguments)
                if self._may_match_prefix and touched.is_known:
                    return self._launch_by_prefix(path, touched, specialisation, arguments)
        return self._launch_on_slow_path(specialisation, arguments, by_value)

    def _cached_fast_path(self, specialisation: Specialisation) -> FastPath | None:
        """The fast path that an earlier launch found."""
        if not self._may_use_fast_path:
            return None
        path: FastPath | None = specialisation.fast_paths.get(self._fast_path_key(specialisation))
        if path is not None:
            self._fast_paths[specialisation] = path
            self._held[specialisation] = specialisation.holding()
        return path

    def _cache_fast_path(self, specialisation: Specialisation, plan: TapePlan) -> None:
        """Find the fast path of a kernel, if there is one, and cache it for all tapes."""
        path = find_fast_path(specialisation, plan, flow_of(specialisation))
        specialisation.fast_paths[self._fast_path_key(specialisation)] = path

    def _fast_path_key(self, specialisation: Specialisation) -> Any:
        """The options of a tape on which the fast path of a kernel depends."""
        if self._may_match_prefix and self._requested is _NO_ARGUMENTS and self._adjoints == 1:
            return _USUAL_OPTIONS
        wants = self._requested is not _NO_ARGUMENTS and self.wants_arguments_of(specialisation)
        return wants, self.on_overwrite == "trust", self._adjoints

    def _launch_on_fast_path(
        self,
        path: FastPath,
        touched: Touched,
        specialisation: Specialisation,
        arguments: tuple[Any, ...],
    ) -> Any:
        """Run a launch that overwrites nothing that is needed."""
        persistent, address = None, 0
        if path.freezes:
            arguments = freeze(specialisation, arguments)
        if path.persistent is not None:
            persistent = PersistentStorage(path.persistent, specialisation.device)
            address = persistent.address
        number = specialisation.number = next(driver.state.numbers)
        if path.may_race:
            self._check_races(specialisation, number, arguments)
        (step,) = path.steps
        entry = LaunchEntry(specialisation, step, arguments, number, persistent, path.by_value)
        results = step.forward.launch(entry.seed, number, address, *arguments)
        if touched.needed:
            self._ledger.note(entry, touched.needed)
        self._touched.update(touched.every)
        self._entries.append(entry)
        self._since_prefix.append(touched)
        self._launches += 1
        return specialisation.wrap(results) if results else None

    def _launch_on_slow_path(
        self,
        given: Specialisation,
        arguments: tuple[Any, ...],
        by_value: Collection[int] = (),
        *,
        is_tracked: bool = False,
    ) -> Any:
        """Run a launch after saving the needed contents that it overwrites.

        Unless it `is_tracked`, later tapes cannot follow this one from here on. The arrays that are
        passed `by_value` are those of a fast path, which recognised the launch.
        """
        memories = memories_of(given, arguments)
        is_own = bool(by_value) or has_distinct_arrays(given, arguments)
        exported: Sequence[TapedMemory] = ()
        specialisation = given if is_own else differentiable(given, memories)
        try:
            plan = self._plan(specialisation)
        except OctantsError as error:
            return self.launch(*with_constants(given, arguments, error))
        if (
            self._may_use_fast_path
            and specialisation is given
            and self._fast_path_key(given) not in given.fast_paths
        ):
            self._cache_fast_path(given, plan)
            return self.launch(given, arguments)
        if not is_tracked:
            self._diverge()
        if not is_own:
            needed = {k for step in plan.steps for k in step.needed}
            self._overlaps.see(specialisation, memories, needed)
            exported = self.untracked.see(given, memories)
        self.check_gradient_ends(given, memories)
        layout = plan.persistent
        persistent = PersistentStorage(layout, specialisation.device) if layout.size else None
        frozen = freeze(specialisation, arguments)
        number = specialisation.number = next(driver.state.numbers)
        self._check_races(specialisation, number, arguments)
        results: tuple[Any, ...] = ()
        for position, memory in memories.items():
            if position not in by_value:
                self.touch(memory)
        self._held[specialisation] = specialisation.holding()
        entries = [
            LaunchEntry(specialisation, step, frozen, number, persistent, by_value)
            for step in plan.steps
        ]
        for entry in entries[1:]:
            entry.is_first = False
        phases = [phase for entry in entries for phase in entry.prepare(memories)]
        self._prepare_writes(f"kernel `{specialisation.signature.kernel}`", phases)
        for entry in entries:
            results = entry.run(self)
            self._entries.append(entry)
            self._launches += entry.is_first
        if exported:
            self.untracked.know_contents(exported)
        return self._wrap(specialisation, persistent, results, len(plan.steps))

    def _plan(self, specialisation: Specialisation) -> TapePlan:
        """How a launch runs and is reversed."""
        return tape_plan(
            specialisation,
            arguments=self.wants_arguments_of(specialisation),
            trusts=self.on_overwrite == "trust",
            validates=self.validation,
            adjoints=self._adjoints,
        )

    def _check_races(
        self, specialisation: Specialisation, number: int, arguments: tuple[Any, ...]
    ) -> None:
        """Raise an error if the derivative of a launch depends on which work item is first."""
        always = self.validation or options.current().in_debug_mode
        if always or self.on_overwrite != "trust":
            check_before_gradient(specialisation, number, arguments, always=always)
        if self.validation:
            validate_launch(specialisation, number, arguments)

    def _wrap(
        self,
        specialisation: Specialisation,
        persistent: PersistentStorage | None,
        results: tuple[Any, ...],
        steps: int,
    ) -> Any:
        """The returned value of a launch; that of several steps is in their persistent storage."""
        if steps != 1 and persistent is not None:
            results = persistent.results(specialisation)
        return specialisation.wrap(results) if specialisation.returned else None

    @property
    def _may_pass_copies(self) -> bool:
        """Whether arrays of numpy may be overwritten, and share memory with no other array."""
        may_share = self._overlaps or self._gradient_ends.has_shared
        return self.on_overwrite == "save" and not may_share

    def _pass_copies(
        self, path: FastPath, specialisation: Specialisation, arguments: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """The arguments of a launch with copies of the arrays of numpy that its reverse reads.

        Launches have one copy while an array does not change. Of other arrays of numpy, the reverse
        knows the shape: it gets views, which nothing changes in place.
        """
        given = list(arguments)
        for number in path.by_value.values():
            given[number] = arguments[number].view()
        for position, number in path.copied:
            array = arguments[number]
            known = self._copied.get(id(array))
            if known is None or known[0] is not array or not _holds(array, known[1]):
                memory = memory_at(specialisation, position, arguments)
                copy = self._ledger.copy_argument(specialisation.signature.kernel, memory)
                known = self._copied[id(array)] = array, copy
            given[number] = known[1]
        return tuple(given)

    # -- launches that follow an earlier tape ---------------------------------------------------

    def _next_followed(self, touched: Touched) -> Prefix | None:
        """The prefix that is longer by a launch; None if that cannot be followed."""
        prefix = self._followed
        if prefix is None:
            prefix = touched.start
            if prefix is None or not (self._may_match_prefix and self._is_new):
                return None
        known = prefix.usual = prefix.longer.get(touched)
        if known is None or known.is_plain or not any(known.copies) or self._can_copy(known):
            return known
        return None

    @property
    def _is_new(self) -> bool:
        """Whether nothing has been recorded, and nothing is needed."""
        return not self._all_entries and "_whole_ledger" not in self.__dict__

    def _can_copy(self, known: Prefix) -> bool:
        """Whether the copies before the last launch of a prefix can be where an earlier tape had
        them.
        """
        packed = self._packed = self._packed or known.copies_of(self)
        if known.packed is None or not (packed.is_stable and known.packed.has_one_order):
            return False
        return self._whole_ledger.has_budget_for(known.total_bytes)

    def _follow(
        self,
        touched: Touched,
        known: Prefix,
        path: FastPath,
        specialisation: Specialisation,
        arguments: tuple[Any, ...],
    ) -> Any:
        """Run the last launch of a known prefix, after the same copies at the same addresses."""
        state, steps, packed = driver.state, path.steps, known.packed
        seed, number = state.seed, next(state.numbers)
        specialisation.number = number
        launch = touched, packed, path, arguments, number, seed
        results: tuple[Any, ...] = ()
        count = 0
        try:
            for step in steps:
                if packed is not None:
                    packed.save(count)
                results = step.forward.launch(seed, number, 0, *arguments)
                count += 1
        except BaseException:
            if count or packed is not None:
                self._end_following(has_copies=True)
                self._enter_followed(launch, count)
                self._diverge()
            raise
        self._followed = known
        self._followed_launches.append(launch)
        return specialisation.wrap(results) if results else None

    @_one_at_a_time
    def _end_following(self, *, has_copies: bool = False) -> None:
        """Enter the launches that have followed a prefix, and follow it no more.

        Unless one of them, or the next one, ``has_copies``, they are as if recorded on the fast
        path. If another thread calls it, the thread of the tape may add one more meanwhile.
        """
        self._may_follow = False
        followed, count = self._followed, 0
        if has_copies or not (followed is None or followed.is_plain):
            self._matches_prefix, self._prefix = True, followed
        while launches := self._followed_launches[count:]:
            for launch in launches:  # at any time, each of its arrays is in one of both
                self._touched_arrays |= launch[0].every
            for launch in launches:
                self._enter_followed(launch)
            count += len(launches)
        del self._followed_launches[:count]

    def _enter_followed(self, launch: FollowedLaunch, count: int | None = None) -> None:
        """Enter a launch, or ``count`` of its steps; the next one has failed."""
        touched, packed, path, arguments, number, seed = launch
        for k, step in enumerate(path.steps if count is None else path.steps[: count + 1]):
            entry = LaunchEntry(path.specialisation, step, arguments, number, None)
            entry.seed, entry.is_first = seed, k == 0
            if not self._matches_prefix:
                self._since_prefix.append(touched)
                if touched.needed:
                    self._whole_ledger.note(entry, touched.needed)
            elif packed is None:
                entry.ran_again(self._whole_ledger, (), ())
            else:
                entry.ran_again(self._whole_ledger, packed.copies[k], packed.steps[k])
                if self._packed is not None:
                    self._packed.adopt(packed.steps[k])
            if k != count:
                self._all_entries.append(entry)
        self._launches += count is None

    @internal
    def launched(self) -> Iterator[tuple[Specialisation, tuple[Any, ...]]]:
        """The kernels that were launched, with their arguments."""
        for _, _, path, arguments, *_ in self._followed_launches:
            yield path.specialisation, arguments
        for entry in self._all_entries:
            if isinstance(entry, LaunchEntry):
                yield entry.specialisation, entry.arguments

    @property
    def _entries(self) -> list[TapeEntry]:
        """The recorded entries, in order."""
        if self._followed_launches:
            self._end_following()
        return self._all_entries

    @property
    def _ledger(self) -> OverwriteLedger:
        """The contents that launches have read and their reverse needs."""
        if self._followed_launches:
            self._end_following()
        return self._whole_ledger

    @property
    def _touched(self) -> set[Any]:
        """The keys of the arrays that launches use."""
        if self._followed_launches:
            self._end_following()
        return self._touched_arrays

    @internal
    def uses(self, key: Hashable) -> bool:
        """Whether a launch so far has used an array, by its key."""
        launches = tuple(self._followed_launches)  # before `_touched_arrays`: see `_end_following`
        return key in self._touched_arrays or any(key in each[0].every for each in launches)

    def _reverse_as_followed(self, keys: Sequence[Hashable], reverse: Callable[[], None]) -> bool:
        """Reverse the tape as an earlier one, in one submission, or so that later ones can be.

        Args:
            keys: of the losses whose adjoints ``reverse`` sets.
            reverse: reverses it launch by launch.

        Returns:
            False if nothing was done.
        """
        launches, prefix, packed = self._followed_launches, self._followed, self._packed
        if prefix is None or captures or timeline.active() is not None:
            return False
        is_known = prefix.is_plain or prefix.reversal is not None
        if not is_known or not (packed is None or packed.is_stable):
            return False
        replays = prefix.replays or prefix.replays_of([each[0] for each in launches])
        numbers = replays.numbers(launches)
        if numbers is None:
            return False
        key = *keys, *numbers
        if not replays.replay(key):
            losses = self.losses if keys else ()
            arrays = [loss.array for loss in losses if loss.array is not None]
            paths = [each[2] for each in launches]
            steps = [(path.specialisation, step) for path in paths for step in path.steps]
            return replays.capture(key, reverse, steps, arrays, packed and packed.arena)
        for loss in self.losses if keys else ():
            loss.note_seed()
        self._launches += len(launches)
        self._may_follow = False
        launches.clear()
        if prefix.total_bytes:
            self._whole_ledger.saved_bytes = prefix.total_bytes
            self._unexplained = prefix
        self._held.clear()
        self._release_copies()
        return True

    def _release_copies(self) -> None:
        """Let other tapes use the memory of the copies."""
        if self._packed is not None and self._packed.arena is not None:
            self._packed.arena.release()
        self._packed = None

    # -- launches by a prefix ------------------------------------------------------------------

    def _launch_by_prefix(
        self,
        path: FastPath,
        touched: Touched,
        specialisation: Specialisation,
        arguments: tuple[Any, ...],
    ) -> Any:
        """Run a launch as an earlier tape did that has the same prefix.

        If there was none, take the slow path, and remember the prefix for later tapes.
        """
        prefix, ledger = self._prefix, self._ledger
        if prefix is None:
            first = self._since_prefix[0] if self._since_prefix else touched
            prefix = first.start = first.start or Prefix()
            if prefix.is_full:
                return self._launch_on_slow_path(specialisation, arguments, path.by_value)
        if self._since_prefix:
            prefix = self._advance(prefix)
        known = None if prefix is None else prefix.longer.get(touched)
        may_match = self._matches_prefix or ledger.is_new
        if known is not None and may_match and ledger.has_budget_for(known.nbytes):
            self._matches_prefix = True
            return self._launch_in_known_prefix(path, touched, known, specialisation, arguments)
        self._diverge()  # also if the launch fails
        number, divergences = len(self._entries), self._divergences
        results = self._launch_on_slow_path(
            specialisation, arguments, path.by_value, is_tracked=True
        )
        is_alone = self._divergences == divergences  # no other thread has launched meanwhile
        if prefix is not None and is_alone:
            launched: Any = self._entries[number:]
            self._prefix = known or prefix.add(touched, tuple(entry.copies() for entry in launched))
        self._may_match_prefix = self._prefix is not None
        return results

    def _advance(self, prefix: Prefix) -> Prefix | None:
        """The prefix that is longer by the launches since, which copied nothing."""
        recent, self._since_prefix = self._since_prefix, []
        return prefix.advance(recent)

    def _launch_in_known_prefix(
        self,
        path: FastPath,
        touched: Touched,
        known: Prefix,
        specialisation: Specialisation,
        arguments: tuple[Any, ...],
    ) -> Any:
        """Run the last launch of a known prefix, after the same copies."""
        divergences = self._divergences
        if path.freezes:
            arguments = freeze(specialisation, arguments)
        persistent = None
        if path.persistent is not None:
            persistent = PersistentStorage(path.persistent, specialisation.device)
        number = specialisation.number = next(driver.state.numbers)
        if path.may_race:
            self._check_races(specialisation, number, arguments)
        packed = self._packed = self._packed or known.copies_of(self)
        results: tuple[Any, ...] = ()
        is_first = True
        made = []
        try:
            for step, copies in zip(path.steps, known.copies, strict=True):
                entry = LaunchEntry(
                    specialisation, step, arguments, number, persistent, path.by_value
                )
                if not is_first:
                    entry.is_first = False
                results = entry.run_again(self._ledger, copies, packed)
                self._entries.append(entry)
                made.append(tuple([saved.values for _, saved in entry.saved or ()]))
                is_first = False
        except BaseException:
            self._diverge()
            raise
        self._prefix = known if self._divergences == divergences else None
        if known.packed is None and packed.is_stable:
            written = [step.written for step in path.steps]
            known.packed = PackedLaunch(made, known.copies, written)
        self._touched.update(touched.every)
        self._launches += 1
        return self._wrap(specialisation, persistent, results, len(path.steps))

    def _resolve_ledger(self) -> None:
        """Let the ledger know of the launches that ran without it."""
        if self._followed_launches:
            self._end_following()
        if self._matches_prefix:
            self._matches_prefix = False
            self._ledger.resolve()

    def _diverge(self) -> None:
        """Take the ledger from here on, since what happens now is not in the prefix."""
        if self._may_follow:
            self._end_following()
        self._resolve_ledger()
        self._may_match_prefix, self._prefix = False, None
        self._divergences += 1

    # -- launches that are not recorded --------------------------------------------------------

    def _run_unrecorded(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        """Run a launch unrecorded, after saving the needed contents that it overwrites."""
        memories = memories_of(specialisation, arguments)
        if self._has_nothing_of(memories[position] for position in specialisation.written):
            return specialisation.run(arguments)
        with self._lock:
            if self._guard is not None:  # the body has ended meanwhile
                return self._guard.launch(specialisation, arguments)
            self._held[specialisation] = specialisation.holding()
            writes = written_regions(specialisation, arguments, memories)
            if not self._is_foreign_to([memory for memory, _ in writes]):
                self._diverge()
                kernel = specialisation.signature.kernel
                self._prepare_writes(f"kernel `{kernel}`", [((), writes)])
                for memory, region in writes:
                    self.overwrite(memory, region, kernel)
            if self._custom is not None:
                for memory in memories.values():
                    if memory.key not in self._custom.memories:
                        self.untracked.check(memory)
                self._custom.add(memories.values(), (memory for memory, _ in writes))
            changed = self.untracked.see(specialisation, memories, differentiates=False)
        results = specialisation.run(arguments)
        self.untracked.know_contents(changed)
        return results

    def _has_nothing_of(self, written: Iterable[TapedMemory]) -> bool:
        """Whether another thread writes arrays that the tape has nothing to do with.

        The thread may run at any time, so it must not change the tape then. It may also be a part
        of a function with a custom gradient.
        """
        is_own = threading.get_ident() == self.thread or self._custom is not None
        if is_own or self._check is not None:
            return False
        return not any(memory.may_share or self.uses(memory.key) for memory in written)

    def _is_foreign_to(self, written: list[TapedMemory]) -> bool:
        """Whether another thread writes arrays of numpy or torch that the tape needs nothing of.

        The ledger does not get to know them, so that the thread may write them in the backward
        pass, too.
        """
        if threading.get_ident() == self.thread or self._custom is not None or self._check:
            return False
        is_foreign = all(memory.is_foreign for memory in written)
        return is_foreign and not any(map(self._ledger.may_lose, written))

    @contextmanager
    @internal
    def custom_call(self) -> Iterator[CustomCall]:
        """Run launches unrecorded inside the context, and collect the arrays that they access."""
        with self._lock:
            self._diverge()
            self.paused += 1
            call = self._custom = CustomCall()
        try:
            yield call
        finally:
            with self._lock:
                self._custom = None
                self.paused -= 1
                self._touched.update(call.memories)
                self.untracked.see_custom_call(call.memories.values())

    # -- writes of the host --------------------------------------------------------------------

    @internal
    def before_write(self, write: HostWrite) -> None:
        """Save what a host write is about to overwrite, and record the write."""
        if self._is_before_uses(write):
            return
        memory = memory_of_write(write)
        if memory is None or self._has_nothing_of((memory,)):
            return
        with self._lock:
            if self._guard is None:
                self._record_write(write, memory)
            else:  # the body has ended meanwhile, in another thread
                self._guard.before_write(write)

    def _is_before_uses(self, write: HostWrite) -> bool:
        """Whether an array is written that nothing recorded so far uses, nor the memory of it.

        So programs may set initial values in the body, and still follow an earlier tape.
        """
        is_plain = write.source is None and not write.is_done
        is_own = getattr(write.array, "explicit_identity", None) is not None
        if not (is_plain and is_own and self._custom is None and self._check is None):
            return False
        return not self._followed_launches and write.array.identity not in self._touched_arrays

    def _record_write(self, write: HostWrite, memory: TapedMemory) -> None:
        self._diverge()
        if self._check is not None:
            self._check.touch(memory)
        self.untracked.see_host_write(memory, write)
        self._overlaps.see_host_write(write.array, write.region)
        if write.is_done:
            self._ledger.resolve()
        else:
            region = region_of_write(write)
            self.check_budget(f"a host write to `{memory.name}`", [(memory, region)])
            self._ledger.overwrite_by_host(memory, region)
        if self.paused:
            if self._custom is not None:
                self._custom.written.add(memory.key)
            return
        if not write.region:
            self._gradient_ends.forget(memory)
        touched = memory.key in self._touched
        if (
            touched
            and write.source is None
            and any(each.array is write.array for each in self.losses)
        ):
            self._replaced[memory.key] = memory
        if touched or write.source is not None or self._check is not None:
            self._entries.append(HostEntry(write, ends=touched))
        if write.source is not None:
            self._touched.update((memory.key, write.source.identity))

    @internal
    def before_share(self, array: Any, becomes_untracked: bool) -> None:
        """Note that others are to see an array, and may write it, and pass it as another array.

        Torch counts its writes, in the version of the array. If the array ``becomes_untracked``,
        nothing counts those of others.
        """
        memory = memory_of(array, array.describe())
        if self._has_nothing_of((memory,)):
            return
        with self._lock:
            self._diverge()
            self._ledger.resolve()
            if becomes_untracked:
                self._ledger.save_untracked(memory)
            is_used = memory.key in self._touched
            if is_used and array.has_grad():
                self.untracked.know(memory)
                if becomes_untracked:
                    self.untracked.know_contents([memory])
            self._overlaps.see_export(array, self._writer_of(memory), is_used=is_used)

    def _writer_of(self, memory: TapedMemory) -> str | None:
        """The last recorded launch that has written an array."""
        for entry in reversed(self._entries):
            find = getattr(entry, "writer_of", None)
            writer: str | None = None if find is None else find(memory)
            if writer is not None:
                return writer
        return None

    # -- what entries of the tape call ---------------------------------------------------------

    @internal
    @_one_at_a_time
    def overwrite(
        self, memory: TapedMemory, region: ArrayRegion = None, writer: str = ""
    ) -> list[SavedPart]:
        """Save the needed contents of a region before ``writer`` overwrites it."""
        return self._ledger.overwrite(memory, region, writer)

    @internal
    @_one_at_a_time
    def need(self, memory: TapedMemory, region: ArrayRegion = None, reader: str = "") -> Content:
        """The present content of a region, which the reverse of ``reader`` needs."""
        return self._ledger.need(memory, region, reader)

    @internal
    @_one_at_a_time
    def need_all(self, memories: Iterable[TapedMemory], reader: str) -> list[Content]:
        """The present contents of arrays, which the reverse of ``reader`` needs."""
        ledger = self._ledger
        return [ledger.need(memory, reader=reader) for memory in memories]

    @internal
    @_one_at_a_time
    def check_budget(
        self, writer: str, writes: Sequence[MemoryRegion], needs: Sequence[MemoryRegion] = ()
    ) -> None:
        """Check that the copies which some writes require fit the budget.

        Args:
            writer: what writes, for the error.
            writes: the regions to be written.
            needs: the regions whose contents after the writes are needed.

        Raises:
            OctantsMemoryError: the copies exceed the budget.
        """
        self._diverge()
        self._prepare_writes(writer, [((), writes), (needs, ())])

    def _prepare_writes(self, writer: str, phases: Sequence[Phase]) -> None:
        """Raise an error, before any write, if what is needed cannot or must not be saved."""
        if self.on_overwrite == "error":
            for memory in self._ledger.overwritten(phases):
                raise OverwrittenUnderTape(memory.name).at()
        self._ledger.check_budget(writer, phases)

    @internal
    @_one_at_a_time
    def count_log(self, kernel: str, nbytes: int) -> None:
        """Count the bytes of the log of a launch.

        Raises:
            OctantsMemoryError: they exceed the budget.
        """
        self._ledger.count_log(kernel, nbytes)

    @internal
    @_one_at_a_time
    def count_copies(self, nbytes: int) -> None:
        """Count copies that an entry holds itself."""
        self._ledger.saved_bytes += nbytes

    @internal
    @_one_at_a_time
    def touch(self, memory: TapedMemory) -> None:
        """Note that launches use an array: from now on a host write ends its adjoint."""
        self._touched.add(memory.key)
        if self._check is not None:
            self._check.touch(memory)

    @property
    @internal
    def touched(self) -> AbstractSet[Any]:
        """The keys of the arrays that launches use."""
        return self._touched

    @internal
    @_one_at_a_time
    def append(self, entry: TapeEntry) -> None:
        """Record an event that is not a launch."""
        self._diverge()
        self._entries.append(entry)

    @internal
    def refuse_gradient_ends(self) -> None:
        """Raise errors where the gradient ends at an array without one, in place of warnings."""
        self._gradient_ends.are_errors = True

    @internal
    def check_gradient_ends(
        self, specialisation: Specialisation, memories: Mapping[int, TapedMemory]
    ) -> None:
        """Warn if the gradient ends at an array without one."""
        self._gradient_ends.observe(specialisation, memories)

    @internal
    def check_overlaps(
        self, specialisation: Specialisation, memories: Mapping[int, TapedMemory]
    ) -> None:
        """Raise an error if a derivative would have to pass between arrays that share memory."""
        self._overlaps.see(specialisation, memories)

    @internal
    def wants_arguments_of(self, specialisation: Specialisation) -> bool:
        """Whether the gradients of the arguments of a kernel were requested."""
        return self._requested.wants(specialisation.kernel)

    # -- the reversal --------------------------------------------------------------------------

    def _propagate(self) -> None:
        if self._done:
            return
        self._done = True
        if self._observes:
            self._stop()
        if driver.state.generation != self._generation:
            self._require_fields()
        keys: list[Hashable] = [loss.key for loss in self.losses]
        reverse = self._reverse
        if None in keys:  # what sets this adjoint is no part of a replay
            self._seed_losses()
            keys, reverse = [], self._reverse_seeded
        with self._lock:
            if self._followed_launches and self._reverse_as_followed(keys, reverse):
                return
        self._remember_launches()
        reverse()

    def _require_fields(self) -> None:
        """Raise an error if the body has destroyed a field whose address launches know."""
        self._diverge()
        known = {getattr(entry, "specialisation", None): None for entry in self._entries}
        for specialisation in filter(None, known):
            for reference in specialisation.field_references:
                if isinstance(field := reference(), Tensor):
                    field.require_alive()

    def _remember_launches(self) -> None:
        """Remember a tape that recorded nothing but plain launches: later ones may follow it."""
        entries, launches = self._entries, self._since_prefix
        is_all = self._may_match_prefix and self._prefix is None and len(launches) == len(entries)
        if not (is_all and launches and self._repeats and self._requested is _NO_ARGUMENTS):
            return
        if not all(each.is_plain for each in launches):
            return
        first = launches[0]
        first.start = first.start or Prefix()
        first.start.add_plain(tuple(launches))

    def _reverse(self) -> None:
        """Set the adjoints of the losses, and reverse what was recorded, launch by launch."""
        self._seed_losses()
        self._reverse_seeded()

    def _seed_losses(self) -> None:
        """Set the adjoints of the losses."""
        for loss in self.losses if self._overlaps else ():
            array = loss.array
            if array is not None:
                self._overlaps.see_loss(array)
        entries = () if self._followed_launches else self._entries  # results are in entries only
        for loss in self.losses:
            loss.seed(entries)

    def _reverse_seeded(self) -> None:
        """Reverse what was recorded, launch by launch."""
        for memory in self._replaced.values():
            warn_if_replaced_last(memory, self._entries)
        if self._all_entries:
            is_touched = self._touched_arrays.__contains__
            warn_if_unreached([loss.array for loss in self.losses], is_touched)
        self._requested.collect(self._entries)
        with self._lock:
            guard = self._guard = BackwardGuard(self._ledger, self._lock)
        entries = list(self._entries) if self._check is not None else []
        try:
            driver.state.recorder = guard
            host_writes.observe(guard.before_write)
            if self._prefix is not None:
                self._reverse_alike(self._prefix)
            while self._entries:  # frees what only one launch needs when it has been reversed
                self._entries.pop().reverse(self._ledger)
        finally:
            driver.state.recorder = None
            forget(guard.before_write)
            guard.end()
            self._ledger.finish()
            self._entries.clear()
            self._held.clear()
            self._copied.clear()
            self._release_copies()
        if self._check is not None:
            self._check.run(entries)

    def _reverse_alike(self, prefix: Prefix) -> None:
        """Reverse the launches of a prefix: like those of an earlier tape, or for later ones."""
        reached = self._advance(prefix)
        launches: Any = self._entries  # all of them, since a prefix is known
        copies = [saved.values for entry in launches for _, saved in entry.saved or ()]
        if self._matches_prefix and reached is not None and reached.reversal is not None:
            self._matches_prefix, self._unexplained = False, reached
            reached.reversal.run(launches, copies)
            return
        self._resolve_ledger()
        if reached is None:
            return
        ledger = self._ledger
        ledger.observation = observation = Observation(launches, copies)
        while self._entries:
            observation.next_entry()
            self._entries.pop().reverse(ledger)
        reversal = observation.reversal()
        if reversal is not None:
            reached.remember(reversal)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise method_error("ad.Tape", name)


def _holds(array: Any, copy: Any) -> bool:
    """Whether an array of numpy still has the shape, the type and the contents of its copy."""
    is_alike = array.shape == copy.shape and array.dtype == copy.dtype
    return is_alike and HOST.holds(array, copy)
