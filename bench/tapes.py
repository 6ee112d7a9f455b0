"""Times a chain of masses and springs on a tape: ``python bench/tapes.py``.

Each of 64 steps is a launch, on the rows of fields, on ndarrays, or on torch tensors. With 64
masses a launch computes next to nothing, so that the time is that of the tape. Prints, as JSON,
seconds of the processor: the least of many runs of the launches with no tape, of the launches on a
tape, and of the whole with the gradient.
"""
# mypy: ignore-errors

from __future__ import annotations

import importlib.util
import json
import time

import octants as qd

MASSES, STEPS, RUNS = 64, 64, 40


def fields():
    """One launch steps from a row of two fields to the next."""
    x, v = (qd.field(qd.f32, shape=(STEPS + 1, MASSES), needs_grad=True) for _ in range(2))
    loss = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def step(t: qd.i32):
        for i in range(MASSES):
            force = -4.0 * x[t, i]
            if i > 0:
                force += 10.0 * (x[t, i - 1] - x[t, i])
            if i < MASSES - 1:
                force += 10.0 * (x[t, i + 1] - x[t, i])
            velocity = v[t, i] + 0.01 * force
            v[t + 1, i] = velocity
            x[t + 1, i] = x[t, i] + 0.01 * velocity

    @qd.kernel
    def measure():
        for i in range(MASSES):
            loss[None] += x[STEPS, i] * x[STEPS, i]

    def run():
        for t in range(STEPS):
            step(t)
        measure()

    return run, loss


def arrays(make):
    """One launch steps from two arrays to two others."""
    Array = qd.types.ndarray(qd.f32, ndim=1)
    x, v = ([make(MASSES) for _ in range(STEPS + 1)] for _ in range(2))
    loss = make(1)

    def step(x, v, new_x, new_v):
        for i in range(MASSES):
            force = -4.0 * x[i]
            if i > 0:
                force += 10.0 * (x[i - 1] - x[i])
            if i < MASSES - 1:
                force += 10.0 * (x[i + 1] - x[i])
            velocity = v[i] + 0.01 * force
            new_v[i] = velocity
            new_x[i] = x[i] + 0.01 * velocity

    def measure(x, loss):
        for i in range(MASSES):
            loss[0] += x[i] * x[i]

    step.__annotations__ = dict.fromkeys(("x", "v", "new_x", "new_v"), Array)
    measure.__annotations__ = dict.fromkeys(("x", "loss"), Array)
    step, measure = qd.kernel(step), qd.kernel(measure)

    def run():
        for t in range(STEPS):
            step(x[t], v[t], x[t + 1], v[t + 1])
        measure(x[STEPS], loss)

    return run, loss


def ndarray(size):
    """An array of Octants."""
    return qd.ndarray(qd.f32, (size,), needs_grad=True)


def tensor(size):
    """A tensor of torch with its gradient."""
    import torch

    found = torch.zeros(size, requires_grad=True)
    found.grad = torch.zeros(size)
    return found


def least(action):
    """The least seconds of the processor of some runs, after two others."""
    times = []
    for _ in range(RUNS):
        begin = time.process_time()
        action()
        times.append(time.process_time() - begin)
    return min(times[2:])


def times(run, loss):
    """Seconds by what was run."""
    on_tape = []

    def whole():
        with qd.ad.Tape(loss=loss):
            begin = time.process_time()
            run()
            on_tape.append(time.process_time() - begin)

    found = {"whole": least(whole), "no tape": least(run)}
    return {**found, "launches": min(on_tape)}


def main():
    """Print the times of all kinds of arrays."""
    qd.init(arch=qd.cpu, cpu_max_num_threads=1, offline_cache=False)
    found = {"fields": times(*fields()), "ndarrays": times(*arrays(ndarray))}
    if importlib.util.find_spec("torch"):
        found["tensors"] = times(*arrays(tensor))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
