"""Weak scaling of a grid that is cut into parts: ``python bench/weak_scaling.py``.

Each process has the same number of rows. A step of `examples/many_devices/halo_exchange.py`,
forwards and backwards, is measured where one process runs alone, and where all run at the same time
and exchange rows. Rounds of both alternate. The times of steps are those of the process: other
programs of the machine do not change them, and waiting does not count. Beside them is the time on
the clock of an exchange; a step takes one forwards and one backwards. The table goes to the screen
and to bench/results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "examples" / "many_devices"))

import halo_exchange  # noqa: E402

import octants as qd  # noqa: E402

SIZES = (64, 256), (256, 1024), (1024, 1024), (2048, 2048)


def alone(rows: torch.Tensor) -> torch.Tensor:
    """What an exchange gives if there is no neighbour."""
    return torch.nn.functional.pad(rows, (0, 0, 1, 1))


def seconds(run: Callable[[], object]) -> float:
    """The time of the process, which other programs of the machine do not change."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def seconds_on_the_clock(run: Callable[[], object]) -> float:
    """The time that passes, also while the process waits."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def worker(rank: int, size: int, folder: str, rounds: int) -> None:
    """One of the processes; the first one writes what was measured."""
    torch.set_num_threads(1)
    rendezvous = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=size)
    qd.init(arch=qd.cpu, default_fp=qd.f64, cpu_max_num_threads=1, log_level="error")
    shape = {"after": lambda u: (u.shape[0] - 2, u.shape[1])}
    step = qd.torch.function(halo_exchange.diffuse, out=shape)
    found = {}
    for height, width in SIZES:
        rows = torch.rand(height, width, dtype=torch.float64, requires_grad=True)

        def run(
            exchange: Callable[[torch.Tensor], torch.Tensor], rows: torch.Tensor = rows
        ) -> None:
            rows.grad = None
            step(exchange(rows)).square().sum().backward()

        times: dict[str, list[float]] = {"alone": [], "together": [], "row": []}
        for _ in range(rounds):
            dist.barrier()
            if rank == 0:
                times["alone"].append(seconds(lambda: run(alone)))
            dist.barrier()
            times["together"].append(seconds(lambda: run(halo_exchange.Exchange.apply)))
            dist.barrier()
            line = rows.detach()[0]
            swap = partial(halo_exchange.swap, line, line)
            times["row"].append(seconds_on_the_clock(swap))
        found[f"{height} x {width}"] = times
    if rank == 0:
        Path(folder, "times.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(options.processes, folder, options.rounds), nprocs=options.processes)
        found = json.loads(Path(folder, "times.json").read_text())
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    lines = [
        "# Weak scaling: the same rows in each process\n",
        f"{options.processes} processes, gloo, {machine}; the least time, medians in parentheses\n",
        "| rows x columns | alone / ms | together / ms | ratio | an exchange / ms | two / alone |",
        "|---|---|---|---|---|---|",
    ]
    for name, times in found.items():
        one, all_, row = (1e3 * min(times[key][3:]) for key in ("alone", "together", "row"))
        mid = [1e3 * statistics.median(times[key][3:]) for key in ("alone", "together", "row")]
        lines.append(
            f"| {name} | {one:.2f} ({mid[0]:.2f}) | {all_:.2f} ({mid[1]:.2f}) |"
            f" {all_ / one:.2f} | {row:.3f} ({mid[2]:.3f}) | {2 * row / one:.3f} |"
        )
    text = "\n".join([*lines, ""])
    path = HERE / "results" / f"weak_scaling-{time.strftime('%Y-%m-%d-%H%M%S')}.md"
    path.write_text(text)
    print(text, path)


if __name__ == "__main__":
    main()
