"""Programs with local vectors by Vulkan and CUDA on one GPU: ``python bench/vulkan_vectors.py``.

It prints microseconds of a call, forward / gradient, of 8 calls in a row with their wait: the least
of several, in two rounds, after the clock of the GPU has recovered from the compilation. The
programs are those of `bench/local_vectors.py` (f32). A GPU that has nothing to do lowers its clock
after two seconds, and takes 0.15 to 0.3 s to raise it again; with CUDA it keeps its clock. So a
kernel that compiles for two seconds would else be timed at a quarter of the clock.

``--clock PROGRAM COMPONENTS ITEMS`` prints microseconds of the gradient by the milliseconds since
its first call has ended, with the clock in MHz, if NVIDIA's library for that is there.
"""
# mypy: ignore-errors

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time

from local_vectors import programs

ROWS = [
    ("layers", 64, 2048),
    ("product", 64, 4096),
    ("recurrence", 64, 1024),
    ("lstm", 64, 256),
    ("layers", 65, 2048),
    ("layers", 79, 2000),
    ("layers", 127, 512),
    ("product", 65, 4096),
    ("recurrence", 33, 131072),
    ("lstm", 65, 256),
    ("lstm", 96, 113),
    ("recurrence", 100, 500),
    ("recurrence", 128, 256),
    ("product", 128, 1024),
    ("product", 18, 65536),
    ("product", 8, 262144),
    ("product", 32, 16384),
    ("layers", 16, 32768),
    ("layers", 32, 8192),
    ("recurrence", 16, 16384),
    ("lstm", 8, 16384),
    ("lstm", 32, 1024),
    ("lstm", 30, 1000),
    ("in place", 16, 65536),
    ("in place", 32, 65536),
]
CALLS, SECONDS, RECOVERY, SERIES = 8, 0.05, 0.4, 1.0
ARCHS, PROCESSES = ("vulkan", "cuda"), 4


def least(qd, call, seconds, count=CALLS):
    """The least microseconds of a call."""
    best, end = float("inf"), time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        for _ in range(count):
            call()
        qd.sync()
        best = min(best, (time.perf_counter() - begin) / count)
    return 1e6 * best


def made(qd, name, length, items):
    """A kernel that has run, and the seconds of its first calls."""
    kernels, result = programs(qd, length, items, "f32")
    kernel, seconds = kernels[name], []
    result.grad.fill(1.0)
    for call in (kernel, kernel.grad):
        qd.sync()
        begin = time.perf_counter()
        call()
        qd.sync()
        seconds.append(time.perf_counter() - begin)
    return kernel, seconds


def initialised(arch):
    import octants as qd

    qd.init(arch=getattr(qd, arch), offline_cache=False, log_level="error")
    return qd


def work(arch, position):
    """Compile some rows, then answer each line of standard input, a row's number, by its times."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    qd = initialised(arch)
    found = {k: made(qd, *ROWS[k]) for k in range(position, len(ROWS), PROCESSES)}
    print("ready", file=answers)
    pause = RECOVERY  # the GPU is busy from then on
    for line in sys.stdin:
        kernel, seconds = found[int(line)]
        least(qd, kernel, pause)
        pause = SECONDS
        times = [least(qd, call, SECONDS) for call in (kernel, kernel.grad)]
        print(json.dumps([*times, *seconds]), file=answers)


def table():
    """Measure all rows in turn."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    workers = {
        (arch, k): subprocess.Popen([sys.executable, __file__, "--work", arch, str(k)], **pipes)
        for arch in ARCHS
        for k in range(PROCESSES)
    }
    for worker in workers.values():
        worker.stdout.readline()
    found = {}
    for _ in range(2):
        for number in range(len(ROWS)):
            for arch in ARCHS:
                worker = workers[arch, number % PROCESSES]
                print(number, file=worker.stdin, flush=True)
                times = json.loads(worker.stdout.readline())
                known = found.setdefault((arch, number), times)
                found[arch, number] = list(map(min, known, times))
    print("| program | components | work items | Vulkan | CUDA |\n|---|---|---|---|---|")
    for number, (name, length, items) in enumerate(ROWS):
        cells = ("{:.1f} / {:.1f}".format(*found[arch, number]) for arch in ARCHS)
        print(f"| {name} | {length} | {items} | {' | '.join(cells)} |")
    for worker in workers.values():
        worker.stdin.close()
        worker.wait()


def clock():
    """A function that returns the GPU's clock in MHz; 0 if it is not known."""
    number, device = ctypes.c_uint(), ctypes.c_void_p()
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return lambda: 0
    library.nvmlInit_v2()
    library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))

    def read():
        library.nvmlDeviceGetClockInfo(device, 1, ctypes.byref(number))
        return number.value

    return read


def series(arch, name, length, items):
    """Print the time of a gradient, and the clock, after its first call."""
    read, qd = clock(), initialised(arch)
    kernel, seconds = made(qd, name, length, items)
    begin, found = time.perf_counter(), []
    while (now := time.perf_counter() - begin) < SERIES:
        found.append(f"{1e3 * now:.0f}: {least(qd, kernel.grad, 0.03, 2):.0f} at {read()}")
    print(f"{arch}, {name} {length}, first calls {seconds[0]:.2f}, {seconds[1]:.2f} s: ", end="")
    print(", ".join(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", default="vulkan")
    parser.add_argument("--clock", nargs=3, metavar=("PROGRAM", "COMPONENTS", "ITEMS"))
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work[0], int(options.work[1]))
    elif options.clock:
        name, length, items = options.clock
        series(options.arch, name, int(length), int(items))
    else:
        table()


if __name__ == "__main__":
    main()
