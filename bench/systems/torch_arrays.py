"""torch: operations of whole arrays, one after the other, which autograd keeps for the gradient."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import torch

from systems import NotOffered


class System:
    """torch on a GPU."""

    def __init__(self, threads: int, arch: str) -> None:
        if arch != "cuda" or not torch.cuda.is_available():
            raise NotOffered("torch has no GPU here")

    def describe(self):
        """What it ran with."""
        return {
            "version": torch.__version__,
            "flags": "eager",
            "accuracy": "no fast math",
            "tape": "what autograd keeps, for all items at once",
        }

    def sync(self) -> None:
        """Wait until all is done."""
        torch.cuda.synchronize()

    def program(self, problem):
        """The workload."""
        if problem.name not in FUNCTIONS:
            raise NotOffered("no fitting program")
        return Program(problem, FUNCTIONS[problem.name])

    def launches(self):
        """An operation that does next to nothing."""
        x = torch.zeros(64, device="cuda")
        return {"one array": lambda: x.add_(1.0)}


class Program:
    """A function of tensors; a backward run includes the forward run."""

    is_paired = False

    def __init__(self, problem, function) -> None:
        self.problem, self.function = problem, function
        self.inputs = [torch.tensor(x, device="cuda", requires_grad=True) for x in problem.inputs]

    def forward(self) -> None:
        """The output."""
        with torch.no_grad():
            self.output = self.function(self.problem, *self.inputs)

    def seed(self) -> None:
        """Gradients are made anew."""

    def backward(self) -> None:
        """The gradients."""
        output = self.function(self.problem, *self.inputs)
        self.gradients = torch.autograd.grad(output.sum(), self.inputs)

    def value(self):
        """The output."""
        return self.output.cpu().numpy().ravel()

    def gradient(self):
        """The gradients of the inputs, one after the other."""
        return np.concatenate([array.cpu().numpy().ravel() for array in self.gradients])


def recurrence(problem, x):
    for _ in range(problem.steps):
        x = torch.sin(x) * 0.95 + 0.01
    return x


def affine(problem, x, a):
    for _ in range(problem.steps):
        x = torch.addcmul(OFFSET, x, a)
    return x


def pairwise(problem, x):
    d = x[None, :, :] - x[:, None, :]
    r2 = (d * d).sum(2) + 0.01
    force = (d / (r2 * torch.sqrt(r2))[:, :, None]).sum(1)
    return force * force


def decay(problem, x):
    for _ in range(problem.steps):
        x = 0.95 * x + 0.01
    return x


OFFSET = torch.tensor(0.01, device="cuda" if torch.cuda.is_available() else "cpu")
FUNCTIONS = {"recurrence": recurrence, "affine": affine, "pairwise": pairwise, "decay": decay}
