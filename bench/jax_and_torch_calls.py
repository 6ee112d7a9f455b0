"""Times calls of kernels as functions of JAX and PyTorch, beside launches and the libraries alone.

``python bench/jax_and_torch_calls.py [--elements N] [--library jax] [--arch cuda]`` prints a
table, on one thread of the CPU or on CUDA: the least time of a call in microseconds, and how many
functions of Python a call enters. ``--rounds`` of 20 calls alternate.
``--calls "jax, value of a kernel"`` also lists these functions.
"""
# mypy: ignore-errors

from __future__ import annotations

import argparse
import collections
import sys
import threading
import time
from pathlib import Path

import octants as qd

CALLS = 20


@qd.kernel
def wave(x: qd.types.ndarray(qd.f32, 1), y: qd.types.ndarray(qd.f32, 1)):
    for i in x:
        y[i] = qd.sin(x[i]) * x[i]


@qd.kernel
def scaled(x: qd.types.ndarray(qd.f32, 1), factor: qd.f32, y: qd.types.ndarray(qd.f32, 1)):
    for i in x:
        y[i] = factor * x[i] * x[i]


@qd.kernel
def energy(x: qd.types.ndarray(qd.f32, 1), factor: qd.f32) -> qd.f32:
    total = 0.0
    for i in x:
        total += factor * x[i] ** 2
    return total


@qd.kernel
def square(x: qd.types.ndarray(qd.f32, 1)):
    for i in x:
        x[i] = x[i] * x[i]


def twice(x):
    square(x)
    square(x)


def ten_times(x):
    for _ in range(10):
        square(x)


def launches(elements, _):
    """A launch of the kernel and of its reverse."""
    x, y = (qd.ndarray(qd.f32, elements, needs_grad=True) for _ in range(2))
    return {"value": lambda: wave(x, y), "gradient": lambda: wave.grad(x, y)}


def jax_calls(elements, arch):
    """Calls of functions of JAX."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_platforms", arch)
    x = jnp.linspace(0.0, 1.0, elements, dtype=jnp.float32)
    own = qd.jax.function(wave, out={"y": "x"})
    with_number = qd.jax.function(scaled, out={"y": "x"})
    returned, updated = qd.jax.function(energy), qd.jax.function(twice, inout="x")
    updated_often = qd.jax.function(ten_times, inout="x")
    summed = lambda function: lambda *given: function(*given).sum()  # noqa: E731
    functions = {
        "no kernel, value": (lambda x: jnp.sin(x) * x, (x,)),
        "no kernel, gradient": (jax.grad(lambda x: (jnp.sin(x) * x).sum()), (x,)),
        "value of a kernel": (own, (x,)),
        "gradient of a kernel": (jax.grad(summed(own)), (x,)),
        "value and gradient of a kernel": (jax.value_and_grad(summed(own)), (x,)),
        "gradient by an array and a number": (jax.grad(summed(with_number), (0, 1)), (x, 2.0)),
        "gradient of a returned number": (jax.grad(returned), (x, 2.0)),
        "gradient of two launches": (jax.grad(summed(updated)), (x,)),
        "gradient of ten launches": (jax.grad(summed(updated_often)), (x,)),
    }
    calls = {}
    for name, (function, given) in functions.items():
        for kind, call in ((name, function), (f"{name}, compiled", jax.jit(function))):
            calls[kind] = lambda call=call, given=given: jax.block_until_ready(call(*given))
    return calls


def torch_calls(elements, arch):
    """Calls of functions of PyTorch."""
    import torch

    torch.set_num_threads(1)
    x = torch.linspace(0.0, 1.0, elements, device=arch).requires_grad_()
    factor = torch.tensor(2.0, device=arch).requires_grad_()
    own = qd.torch.function(wave, out={"y": "x"})
    with_number = qd.torch.function(scaled, out={"y": "x"})
    returned, updated = qd.torch.function(energy), qd.torch.function(twice, inout="x")
    updated_often = qd.torch.function(ten_times, inout="x")
    grad = lambda function, *given: torch.autograd.grad(function(*given).sum(), given)  # noqa: E731
    return {
        "no kernel, value": lambda: torch.sin(x) * x,
        "no kernel, gradient": lambda: grad(lambda x: torch.sin(x) * x, x),
        "value of a kernel": lambda: own(x),
        "gradient of a kernel": lambda: grad(own, x),
        "gradient by an array and a number": lambda: grad(with_number, x, factor),
        "gradient of a returned number": lambda: grad(returned, x, factor),
        "gradient of two launches": lambda: grad(updated, x),
        "gradient of ten launches": lambda: grad(updated_often, x),
    }


LIBRARIES = {"octants": launches, "jax": jax_calls, "torch": torch_calls}


def least_times(calls, rounds):
    """The least seconds of each call; the rounds of all calls alternate."""
    found = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        for _ in range(5):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            for _ in range(CALLS):
                start = time.perf_counter()
                call()
                found[name] = min(found[name], time.perf_counter() - start)
    return found


def entered_functions(call):
    """The functions of Python that a call enters, in all threads, with how often."""
    counts = collections.Counter()

    def count(frame, event, _):
        if event == "call":
            code = frame.f_code
            counts[f"{Path(code.co_filename).name}:{code.co_qualname}"] += 1

    threading.setprofile_all_threads(count) if sys.version_info >= (3, 12) else None
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile_all_threads(None) if sys.version_info >= (3, 12) else None
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--elements", type=int, default=1000)
    parser.add_argument("--library", choices=LIBRARIES, action="append")
    parser.add_argument("--calls", default="")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--arch", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    qd.init(arch=getattr(qd, options.arch), cpu_max_num_threads=1)
    calls = {}
    for library in options.library or LIBRARIES:
        found = LIBRARIES[library](options.elements, options.arch)
        calls.update({f"{library}, {name}": call for name, call in found.items()})
    times = least_times(calls, options.rounds)
    print("| call | microseconds | functions of Python entered |\n|---|---|---|")
    for name, call in calls.items():
        counts = entered_functions(call)
        print(f"| {name} | {times[name] * 1e6:.1f} | {counts.total()} |")
        if name == options.calls:
            print("\n".join(f"  {times:4} {each}" for each, times in counts.most_common()))


if __name__ == "__main__":
    main()
