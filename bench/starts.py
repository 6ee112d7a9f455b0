"""A program to its first gradient: ``python starts.py SYSTEM CACHE CLOCK ARCH`` prints when.

By the clock "wall" the time is that of the system, for who started the program to compare; by "cpu"
it is what the process has used.
"""
# mypy: ignore-errors
# Each system is imported by its own program only.

from __future__ import annotations

import importlib
import os
import sys
import time

STEPS = 100


def fields(name: str, cache: str, arch: str):
    """Octants, Quadrants, Taichi."""
    qd = importlib.import_module(name)
    more = {"quadrants": {"ad_stack_experimental_enabled": True}, "taichi": {"ad_stack_size": 256}}
    where = {"offline_cache": True, "offline_cache_file_path": cache}
    qd.init(arch=getattr(qd, arch), log_level="error", **where, **more.get(name, {}))
    x = qd.field(qd.f32, shape=8, needs_grad=True)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def run():
        for i in x:
            v = x[i]
            for _ in range(STEPS):
                v = qd.sin(v) * 0.95 + 0.01
            loss[None] += v

    x.fill(0.5)
    with qd.ad.Tape(loss=loss):
        run()
    return x.grad.to_numpy()


def warp(_, cache: str, arch: str):
    """Warp, with the steps in an array."""
    import warp as wp

    wp.config.quiet = True
    wp.config.kernel_cache_dir = cache

    @wp.kernel
    def run(x: wp.array(dtype=float), h: wp.array2d(dtype=float), loss: wp.array(dtype=float)):
        i = wp.tid()
        h[i, 0] = x[i]
        for t in range(100):
            h[i, t + 1] = wp.sin(h[i, t]) * 0.95 + 0.01
        wp.atomic_add(loss, 0, h[i, 100])

    wp.init()
    wp.set_device({"cpu": "cpu", "cuda": "cuda:0"}[arch])
    x = wp.full(8, value=0.5, dtype=float, requires_grad=True)
    steps = wp.zeros((8, STEPS + 1), dtype=float, requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    tape = wp.Tape()
    with tape:
        wp.launch(run, dim=8, inputs=[x, steps, loss])
    tape.backward(loss)
    return x.grad.numpy()


def jax(_, cache: str, arch: str):
    """JAX, with its cache for programs of any size."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    jax.config.update("jax_platforms", arch)
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

    @jax.jit
    def loss(x):
        step = lambda v, _: (jnp.sin(v) * 0.95 + 0.01, None)  # noqa: E731
        return jnp.sum(jax.lax.scan(step, x, None, length=STEPS)[0])

    return np.asarray(jax.jit(jax.grad(loss))(np.full(8, 0.5, np.float32)))


def drjit(_, cache: str, arch: str):
    """Dr.Jit, whose cache is in the folder of the user."""
    os.environ["HOME"] = cache
    import drjit as dr

    types = importlib.import_module(f"drjit.{'llvm' if arch == 'cpu' else arch}.ad")

    x = dr.full(types.Float, 0.5, 8)
    dr.enable_grad(x)
    step = lambda t, v: (t + 1, dr.sin(v) * 0.95 + 0.01)  # noqa: E731
    state = types.Int(0), +x
    v = dr.while_loop(state, lambda t, v: t < STEPS, step, max_iterations=STEPS)[1]
    dr.backward(dr.sum(v))
    return x.grad.numpy()


PROGRAMS = {
    "octants": fields,
    "quadrants": fields,
    "taichi": fields,
    "warp": warp,
    "jax": jax,
    "drjit": drjit,
}


def main() -> None:
    name, cache, clock, arch = sys.argv[1:]
    gradient = PROGRAMS[name](name, cache, arch)
    now = time.time() if clock == "wall" else time.process_time()
    # The map has a fixed point, so that its derivative after many steps is small, and positive.
    assert gradient.shape == (8,), gradient
    assert (gradient > 0).all(), gradient
    assert (gradient < 0.1).all(), gradient
    print(now)


if __name__ == "__main__":
    main()
