"""Domain decomposition: each process has some rows of a grid, and gradients cross the borders.

Before each step, processes exchange the rows at their borders. The exchange is a function of
PyTorch with a gradient: the adjoint of a row that was received goes back to the process that sent
it, and is added there. So a gradient through all steps is right on every process. With two GPUs
each process has one, and NCCL sends; else the processes are on the CPU. Run it:
``python examples/many_devices/halo_exchange.py``, which starts two processes.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from process_group import join

import octants as qd

Tensor = torch.Tensor
grid = qd.types.ndarray(qd.f64, 2)
ROWS, COLUMNS, STEPS = 12, 8, 10


@qd.kernel
def diffuse(u: grid, after: grid):
    """A step of a nonlinear diffusion; u has a row more at both ends."""
    for i, j in after:
        left, right = qd.max(j - 1, 0), qd.min(j + 1, after.shape[1] - 1)
        here = u[i + 1, j]
        around = u[i, j] + u[i + 2, j] + u[i + 1, left] + u[i + 1, right]
        after[i, j] = here + 0.2 * (1.0 + 0.1 * here * here) * (around - 4.0 * here)


def swap(first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """Send one row to the process before and one to that behind; gives what they send, or zeros."""
    rank, size = dist.get_rank(), dist.get_world_size()
    before, behind = torch.zeros_like(first), torch.zeros_like(last)
    transfers = []
    for sent, received, other in ((first, before, rank - 1), (last, behind, rank + 1)):
        if 0 <= other < size:
            transfers.append(dist.P2POp(dist.isend, sent.contiguous(), other))
            transfers.append(dist.P2POp(dist.irecv, received, other))
    for transfer in dist.batch_isend_irecv(transfers) if transfers else ():
        transfer.wait()
    return before, behind


class Exchange(torch.autograd.Function):
    """The rows of a process with those of its neighbours at both ends."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:  # noqa: ARG004
        before, behind = swap(rows[0], rows[-1])
        return torch.cat([before[None], rows, behind[None]])

    @staticmethod
    def backward(ctx: Any, adjoint: Tensor) -> Tensor:  # noqa: ARG004
        own = adjoint[1:-1].clone()
        before, behind = swap(adjoint[0], adjoint[-1])
        own[0] += before
        own[-1] += behind
        return own


def start() -> Tensor:
    """The whole grid."""
    return torch.sin(torch.arange(ROWS * COLUMNS, dtype=torch.float64)).reshape(ROWS, COLUMNS)


def solve(rank: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Run all steps on some rows, with the gradient of a loss of the whole grid.

    Returns:
        The loss, and its gradient by the rows of this process at the start.
    """
    step = qd.torch.function(diffuse, out={"after": lambda u: (u.shape[0] - 2, u.shape[1])})
    first = start().chunk(size)[rank].to(device, copy=True).requires_grad_()
    rows = first
    for _ in range(STEPS):
        rows = step(Exchange.apply(rows))
    loss = (rows**2).sum()
    loss.backward()
    total = loss.detach()
    dist.all_reduce(total)
    return total.cpu(), first.grad.cpu()


def worker(rank: int, size: int, rendezvous: str, results: str) -> None:
    """One of `size` processes; the file `rendezvous` is where they find each other."""
    device = join(rank, size, rendezvous)
    torch.save(solve(rank, size, device), f"{results}/{rank}.pt")
    dist.destroy_process_group()


def run(size: int) -> tuple[Tensor, Tensor]:
    """The loss and its gradient by the whole grid, computed by `size` processes."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(size, f"{folder}/rendezvous", folder), nprocs=size)
        parts = [torch.load(f"{folder}/{rank}.pt") for rank in range(size)]
    return parts[0][0], torch.cat([gradient for _, gradient in parts])


if __name__ == "__main__":
    loss, gradient = run(2)
    alone, expected = run(1)
    print(f"loss {loss:.6f}, alone {alone:.6f}")
    print(f"largest difference of the gradients: {(gradient - expected).abs().max():.1e}")
