"""Data-parallel training: each process has a share of the data, PyTorch sums the gradients.

Each process runs a kernel on its share and calls `backward`; `all_reduce` adds the gradients up, so
that all processes take the same step. With two GPUs each process has one, and NCCL sums; else the
processes are on the CPU. Run it: ``python examples/many_devices/data_parallel.py``, which starts
two processes.
"""

from __future__ import annotations

import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from process_group import join

import octants as qd

Tensor = torch.Tensor
vec = qd.types.ndarray(qd.f64, 1)


@qd.kernel
def misfit(time: vec, measured: vec, law: vec, loss: qd.types.ndarray(qd.f64, 0)):
    """The squared errors of a damped oscillation: law has its amplitude, damping and frequency."""
    for i in time:
        position, speed = law[0], -law[1] * law[0]
        steps = qd.cast(time[i] * 100.0, qd.i32)
        for _ in range(steps):
            speed -= 0.01 * (law[2] * position + law[1] * speed)
            position += 0.01 * speed
        loss[None] += (position - measured[i]) ** 2


def data(count: int = 64) -> tuple[Tensor, Tensor]:
    """Times and measured positions, the same in each process."""
    time = torch.linspace(0.5, 6.0, count, dtype=torch.float64)
    return time, torch.exp(-0.3 * time) * torch.cos(2.0 * time)


def sum_over_processes(tensors: list[Tensor]) -> None:
    """Replace each tensor by its sum over all processes."""
    if dist.is_initialized():
        for tensor in tensors:
            dist.all_reduce(tensor)


def train(
    rank: int, size: int, device: torch.device, iterations: int = 60
) -> tuple[list[float], Tensor, Tensor]:
    """Fit the law to the data.

    Returns:
        The losses, the first gradient, and the law that was found.
    """
    error = qd.torch.function(misfit, out={"loss": ()})
    time, measured = (each[rank::size].contiguous().to(device) for each in data())
    law = torch.tensor([0.8, 0.1, 3.0], dtype=torch.float64, device=device, requires_grad=True)
    optimiser = torch.optim.Adam([law], lr=0.03)
    losses: list[float] = []
    first = torch.zeros(3)
    for _ in range(iterations):
        optimiser.zero_grad()
        loss = error(time, measured, law)
        loss.backward()
        total = loss.detach()
        sum_over_processes([law.grad, total])
        first = first if losses else law.grad.clone()
        losses.append(float(total))
        optimiser.step()
    return losses, first.cpu(), law.detach().cpu()


def worker(rank: int, size: int, rendezvous: str, results: str) -> None:
    """One of `size` processes; the file `rendezvous` is where they find each other."""
    device = join(rank, size, rendezvous)
    torch.save(train(rank, size, device), f"{results}/{rank}.pt")
    dist.destroy_process_group()


def run(size: int) -> list[tuple[list[float], Tensor, Tensor]]:
    """What each of `size` processes found."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(size, f"{folder}/rendezvous", folder), nprocs=size)
        return [torch.load(f"{folder}/{rank}.pt") for rank in range(size)]


if __name__ == "__main__":
    losses, _, law = run(2)[0]
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.5f}: amplitude, damping, frequency {law.tolist()}")
