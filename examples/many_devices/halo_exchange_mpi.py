"""Domain decomposition with mpi4py: no PyTorch, and a gradient by a tape on each process.

Each process has some rows of a grid in ndarrays. Before each step, `Sendrecv` exchanges the rows at
the borders. To the tape an exchange is a function with a gradient of its own: the adjoint of a row
that was received goes back to the process that sent it. Run it:
``mpiexec -n 2 python examples/many_devices/halo_exchange_mpi.py``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI

import octants as qd

grid = qd.types.ndarray(qd.f64, 2)
ROWS, COLUMNS, STEPS = 12, 8, 10
world = MPI.COMM_WORLD


@qd.kernel
def diffuse(u: grid, after: grid):
    """A step of a nonlinear diffusion; both grids have a row more at both ends."""
    for i, j in qd.ndrange((1, u.shape[0] - 1), u.shape[1]):
        left, right = qd.max(j - 1, 0), qd.min(j + 1, u.shape[1] - 1)
        around = u[i - 1, j] + u[i + 1, j] + u[i, left] + u[i, right]
        after[i, j] = u[i, j] + 0.2 * (1.0 + 0.1 * u[i, j] ** 2) * (around - 4.0 * u[i, j])


@qd.kernel
def add_squares(u: grid, loss: qd.types.ndarray(qd.f64, 0)):
    for i, j in qd.ndrange((1, u.shape[0] - 1), u.shape[1]):
        loss[None] += u[i, j] ** 2


@qd.kernel
def take_rows(u: grid, rows: grid, first: qd.i32, last: qd.i32):
    for j in range(u.shape[1]):
        rows[0, j] = u[first, j]
        rows[1, j] = u[last, j]


@qd.kernel
def set_ends(u: grid, rows: grid):
    for j in range(u.shape[1]):
        u[0, j] = rows[0, j]
        u[u.shape[0] - 1, j] = rows[1, j]


@qd.kernel
def add_from_ends(adjoint: grid, rows: grid):
    """Add what the neighbours send; the adjoints of the rows at the ends are with them now."""
    last = adjoint.shape[0] - 1
    for j in range(adjoint.shape[1]):
        adjoint[1, j] += rows[0, j]
        adjoint[last - 1, j] += rows[1, j]
        adjoint[0, j] = 0.0
        adjoint[last, j] = 0.0


def swap(u: Any, first: int, last: int) -> Any:
    """Send a row to the process before and one to that behind.

    Returns:
        What these processes send, as two rows; zeros where there is no process.
    """
    rank, size = world.Get_rank(), world.Get_size()
    before = rank - 1 if rank > 0 else MPI.PROC_NULL
    behind = rank + 1 if rank + 1 < size else MPI.PROC_NULL
    rows = qd.ndarray(qd.f64, (2, u.shape[1]))
    take_rows(u, rows, first, last)
    sent = rows.to_numpy()
    received = np.zeros_like(sent)
    world.Sendrecv(sent[0], before, recvbuf=received[1], source=behind)
    world.Sendrecv(sent[1], behind, recvbuf=received[0], source=before)
    rows.from_numpy(received)
    return rows


@qd.ad.grad_replaced
def exchange(u: Any) -> None:
    """Fill the first and the last row of a grid with those of the neighbours."""
    set_ends(u, swap(u, 1, u.shape[0] - 2))


@qd.ad.grad_for(exchange)
def exchange_grad(u: Any) -> None:
    """Send the adjoints of the rows at the ends back to their owners, who add them."""
    add_from_ends(u.grad, swap(u.grad, 0, u.shape[0] - 1))


def start() -> np.ndarray:
    """The whole grid."""
    return np.sin(np.arange(ROWS * COLUMNS, dtype=np.float64)).reshape(ROWS, COLUMNS)


def solve(grid_at_start: np.ndarray, steps: int = STEPS) -> tuple[float, np.ndarray]:
    """The loss of the whole grid after all steps, and its gradient by the rows of this process."""
    own = np.array_split(grid_at_start, world.Get_size())[world.Get_rank()]
    shape = len(own) + 2, own.shape[1]
    grids = [qd.ndarray(qd.f64, shape, needs_grad=True) for _ in range(steps + 1)]
    loss = qd.ndarray(qd.f64, (), needs_grad=True)
    grids[0].from_numpy(np.pad(own, ((1, 1), (0, 0))))
    with qd.ad.Tape(loss=loss):
        for before, after in pairwise(grids):
            exchange(before)
            diffuse(before, after)
        add_squares(grids[-1], loss)
    total = world.allreduce(float(loss.to_numpy()))
    return total, grids[0].grad.to_numpy()[1:-1]


if __name__ == "__main__":
    qd.init(arch=qd.cpu, default_fp=qd.f64, cpu_max_num_threads=1, log_level="error")
    total, gradient = solve(start())
    parts = world.gather(gradient)
    if world.Get_rank() == 0:
        whole = np.concatenate(parts)
        print(f"{world.Get_size()} processes: loss {total!r}")
        print(f"gradient of {whole.shape[0]} rows, its norm {float(np.linalg.norm(whole))!r}")
