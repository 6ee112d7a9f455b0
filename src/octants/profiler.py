"""Times of kernels and what memory is used for: ``qd.profiler``, by the names of Quadrants.

Example::

    qd.init(arch=qd.gpu, kernel_profiler=True)
    ...
    qd.profiler.print_kernel_profiler_info()

On the CPU, the host's clock times launches; on NVIDIA and AMD GPUs, events in their stream do; on
other devices the host waits for each launch to time it. Without ``kernel_profiler``
nothing is timed, launches cost what they cost without this module, and queries warn and find
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from octants import driver, options, timeline
from octants.data import current_runtime
from octants.data.element_types import check_device
from octants.diagnostics.absent_names import attribute_error
from octants.diagnostics.byte_counts import format_bytes
from octants.diagnostics.launch_errors import ProfilerIsOff
from octants.diagnostics.user_frames import warn_at_caller
from octants.timeline import KERNEL, Timeline, TimelineEntry
from octants.types.companions import Companion

__all__ = [
    "KernelTimes",
    "MemoryUse",
    "clear_kernel_profiler_info",
    "get_kernel_profiler_total_time",
    "memory_report",
    "print_kernel_profiler_info",
    "print_memory_profiler_info",
    "query_kernel_profiler_info",
    "save_trace",
]


class KernelTimes(NamedTuple):
    """The launches of a kernel: how many, and how long they took.

    Attributes:
        counter: how many launches there were.
        min: the shortest, in milliseconds.
        max: the longest, in milliseconds.
        avg: the mean, in milliseconds.
    """

    counter: int
    min: float
    max: float
    avg: float


class MemoryUse(NamedTuple):
    """The bytes of one kind of memory.

    Attributes:
        kind: what it is for, in words.
        parts: the number of arrays or buffers.
        nbytes: their bytes.
    """

    kind: str
    parts: int
    nbytes: int


def print_kernel_profiler_info(mode: str = "count") -> None:
    """Print the times of kernels, the longest total first.

    The reverse of a kernel has a line of its own, as have its compilations, and the copies between
    the host and a device with its own memory.

    Args:
        mode: "count" for a line per kernel, "trace" for a line per launch.

    Raises:
        ValueError: for another mode.
    """
    if mode not in ("count", "trace"):
        raise ValueError(f'mode is "count" or "trace", not {mode!r}')
    records = _records()
    print("\n".join(_trace(records) if mode == "trace" else _table(records)))


def query_kernel_profiler_info(name: str) -> KernelTimes:
    """The times of a kernel's launches since the last `clear_kernel_profiler_info`.

    Args:
        name: the name of the kernel; "<name>_reverse" is that of its gradient.

    Returns:
        How many there were, and their least, greatest and mean time in milliseconds; zeros if
        there were none.
    """
    return _times(r for r in _records() if r.kind == KERNEL and r.name == name)


def get_kernel_profiler_total_time() -> float:
    """The seconds that all launches took since the last `clear_kernel_profiler_info`."""
    return sum(r.nanoseconds() for r in _records() if r.kind == KERNEL) / 1e9


def clear_kernel_profiler_info() -> None:
    """Forget all records."""
    _records().clear()


def save_trace(path: Any) -> None:
    """Write the records for a trace viewer: https://ui.perfetto.dev, or Chrome's about:tracing.

    A launch on a GPU begins in it when the host has queued it, and has the length that it had on
    the GPU. Launches carry the bytes of the record buffers, copies their bytes.

    Args:
        path: the file, in JSON.
    """
    events = [
        {
            "name": record.name,
            "cat": record.kind,
            "ph": "X",
            "ts": record.start / 1e3,
            "dur": record.nanoseconds() / 1e3,
            "pid": 0,
            "tid": record.thread,
            "args": {"bytes": record.nbytes},
        }
        for record in _records()
    ]
    Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))


def memory_report(device: int | None = None) -> list[MemoryUse]:
    """The use of a device's memory; needs no profiler.

    Args:
        device: The number of the GPU, where there are several; by default that of `init`.

    Returns:
        An entry for fields, ndarrays, their gradients and duals, the record buffers of loops, and,
        within a `qd.ad.Tape`, the copies of what was overwritten. On a GPU also for other
        allocations, such as buffers of messages and temporaries, for memory that the pool keeps for
        later ones, and for the staging buffers of copies on the host. `parts` is 0 where parts are
        not counted.
    """
    found: dict[str, list[int]] = {}
    check_device("memory_report()", device)
    reported: Any = driver.device() if device is None else driver.device_at(device)
    for array in current_runtime.runtime().arrays():
        if not array.is_allocated or array.device != reported.number:
            continue
        words = {Companion.PRIMAL: "", Companion.ADJOINT: ", gradients"}
        kind = f"{array._kind}s{words.get(array.companion, ', duals')}"
        found.setdefault(kind, []).append(array.nbytes)
    records = int(getattr(reported, "record_buffer_bytes", 0))
    if records:
        found["record buffers"] = [records]
    saved = int(getattr(driver.state.recorder, "snapshot_bytes", 0))
    if saved:
        found["copies for a Tape"] = [saved]
    uses = [MemoryUse(kind, len(sizes), sum(sizes)) for kind, sizes in sorted(found.items())]
    if hasattr(reported, "pools"):
        pools = [MemoryUse(kind, 0, nbytes) for kind, nbytes in reported.pools().items()]
        others = reported.live_bytes() - sum(use.nbytes for use in uses)
        uses += [MemoryUse("other allocations", 0, max(0, others)), *pools]
    return uses


def print_memory_profiler_info() -> None:
    """Print what `memory_report` returns."""
    uses = memory_report()
    total = MemoryUse("total", sum(use.parts for use in uses), sum(use.nbytes for use in uses))
    for use in (*uses, total):
        print(f"{use.kind:<24}{use.parts or '':>8}{format_bytes(use.nbytes):>14}")


def _records() -> list[TimelineEntry]:
    """The records so far; none, with a warning, without a profiler."""
    options.current()
    found = timeline.active()
    if found is None:
        warn_at_caller(ProfilerIsOff())
        return []
    return found.records


def __getattr__(name: str) -> Any:
    raise attribute_error(__name__, name)


def begin(device: Any) -> None:
    """Start to record what happens on a device, for `init`."""
    made = Timeline()
    timeline.record_copies(device, made)
    timeline.activate(made)


def _times(records: Iterable[TimelineEntry]) -> KernelTimes:
    times = [record.nanoseconds() / 1e6 for record in records]
    if not times:
        return KernelTimes(0, 0.0, 0.0, 0.0)
    return KernelTimes(len(times), min(times), max(times), sum(times) / len(times))


def _table(records: list[TimelineEntry]) -> list[str]:
    """A line per kernel, compilation and direction of copies."""
    groups: dict[tuple[str, str], list[TimelineEntry]] = {}
    for record in records:
        groups.setdefault((record.kind, record.name), []).append(record)
    totals = {key: sum(r.nanoseconds() for r in each) / 1e6 for key, each in groups.items()}
    whole = sum(total for (kind, _), total in totals.items() if kind == KERNEL) or 1.0
    columns = f"{'total':>8}{'count':>8}{'min':>11}{'avg':>11}{'max':>11}{'bytes':>12}"
    lines = [f"{'':<36}{columns}   (milliseconds)"]
    for key in sorted(groups, key=lambda key: (key[0] != KERNEL, -totals[key])):
        kind, name = key
        times = _times(groups[key])
        title = name if kind == KERNEL else f"{kind} {name}"
        share = f"{100 * totals[key] / whole:.1f}%" if kind == KERNEL else ""
        most = max(record.nbytes for record in groups[key])
        lines.append(
            f"{title:<36}{share:>8}{times.counter:>8}{times.min:>11.3f}{times.avg:>11.3f}"
            f"{times.max:>11.3f}{format_bytes(most) if most else '':>12}"
        )
    launches = [record for record in records if record.kind == KERNEL]
    total = sum(record.nanoseconds() for record in launches) / 1e6
    return [*lines, f"{len(launches)} launches, {total:.3f} ms"]


def _trace(records: list[TimelineEntry]) -> list[str]:
    """A line per record, in order of time."""
    first = min((record.start for record in records), default=0)
    return [f"{'begin':>12}{'time':>12}   (milliseconds)"] + [
        f"{(record.start - first) / 1e6:>12.3f}{record.nanoseconds() / 1e6:>12.3f}   "
        f"{record.kind} {record.name}"
        for record in sorted(records, key=lambda record: record.start)
    ]
