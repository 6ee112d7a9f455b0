"""Joins processes for `torch.distributed`: with a GPU each if there are enough, else on the CPU."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

import octants as qd


def join(rank: int, size: int, rendezvous: str) -> torch.device:
    """Begin Octants and the process group of one of `size` processes.

    Args:
        rank: the number of this process.
        size: the number of processes.
        rendezvous: a file through which they find each other.

    Returns:
        The device for tensors: a GPU, with the backend "nccl", or the CPU, with "gloo".
    """
    on_gpus = torch.cuda.device_count() >= size and dist.is_nccl_available()
    if on_gpus:  # before anything uses a GPU: this process sees one, its own
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(size)))
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[rank]
    backend, arch = ("nccl", qd.cuda) if on_gpus else ("gloo", qd.cpu)
    qd.init(arch=arch, default_fp=qd.f64, cpu_max_num_threads=1, log_level="error")
    dist.init_process_group(backend, init_method=f"file://{rendezvous}", rank=rank, world_size=size)
    return torch.device("cuda" if on_gpus else "cpu")
