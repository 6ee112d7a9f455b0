"""Train a neural field: a small network in a kernel, its weights PyTorch's, its optimiser Adam.

A work item evaluates the network at one place of the picture: Fourier features, a hidden layer, a
sine, three colours. The weights are leaf tensors; `kernel.grad` adds to their `.grad`, and
`torch.optim.Adam` does the rest. Run it: ``python examples/neural_field.py``.
"""

from __future__ import annotations

import argparse
from typing import Any, Literal

import numpy as np

import octants as qd

FREQUENCIES = 8
FEATURES = 4 * FREQUENCIES
HIDDEN = 32


@qd.kernel
def evaluate(
    inner: qd.types.NDArray[Any, Literal[2]],
    bias: qd.types.NDArray[Any, Literal[1]],
    outer: qd.types.NDArray[Any, Literal[2]],
    target: qd.types.NDArray[Any, Literal[3]],
    colours: qd.types.NDArray[Any, Literal[3]],
    loss: qd.types.NDArray[Any, Literal[1]],
):
    for i, j in qd.ndrange(target.shape[0], target.shape[1]):
        x = (i + 0.5) / target.shape[0]
        y = (j + 0.5) / target.shape[1]
        colour = qd.Vector([0.0, 0.0, 0.0])
        for h in range(HIDDEN):
            s = bias[h]
            for k in range(FREQUENCIES):
                a, b = (k + 1) * np.pi * x, (k + 1) * np.pi * y
                s += inner[h, 4 * k] * qd.sin(a) + inner[h, 4 * k + 1] * qd.cos(a)
                s += inner[h, 4 * k + 2] * qd.sin(b) + inner[h, 4 * k + 3] * qd.cos(b)
            active = qd.sin(s)
            for c in qd.static(range(3)):
                colour[c] += outer[c, h] * active
        for c in qd.static(range(3)):
            colours[i, j, c] = colour[c]
            error = colour[c] - target[i, j, c]
            loss[0] += error * error / (target.shape[0] * target.shape[1])


def picture(size: int) -> np.ndarray:
    """What the field learns: rings and stripes in colour, of shape (size, size, 3), f32."""
    x, y = np.mgrid[:size, :size] / size
    r = np.hypot(x - 0.5, y - 0.5)
    rings = 0.5 + 0.5 * np.cos(30.0 * r)
    disc = (r < 0.35).astype(float)
    red, green, blue = rings * disc + 0.15, x * disc + 0.2 * y, 1.0 - disc * (1.0 - y)
    return np.stack([red, green, blue], -1).astype(np.float32)


class Field:
    """The network, its weights, and the picture it is to learn.

    Args:
        target: Of shape (rows, columns, 3), f32.
    """

    def __init__(self, target: np.ndarray) -> None:
        import torch

        generator = torch.Generator().manual_seed(3)
        self.target = torch.from_numpy(target)
        self.colours = torch.zeros_like(self.target)
        spread = FEATURES**-0.5
        self.inner = spread * torch.randn(HIDDEN, FEATURES, generator=generator)
        self.bias = torch.randn(HIDDEN, generator=generator)
        self.outer = HIDDEN**-0.5 * torch.randn(3, HIDDEN, generator=generator)
        self.weights = [w.requires_grad_() for w in (self.inner, self.bias, self.outer)]
        self.loss = torch.zeros(1, requires_grad=True)

    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the kernel."""
        return (*self.weights, self.target, self.colours, self.loss)

    def forward(self) -> float:
        """The mean squared error; `colours` is the picture then."""
        import torch

        with torch.no_grad():
            self.loss.zero_()
        evaluate(*self.arguments())
        return self.loss.item()

    def backward(self) -> None:
        """Add the gradient to the `.grad` of the weights, which `zero_grad` has cleared."""
        import torch

        for weight in self.weights:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        self.loss.grad = torch.ones(1)
        evaluate.grad(*self.arguments())


def train(field: Field, steps: int) -> list[float]:
    """The losses of some steps of Adam."""
    import torch

    optimiser = torch.optim.Adam(field.weights, lr=0.02)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        losses.append(field.forward())
        field.backward()
        optimiser.step()
    return losses


def workload():
    """The forward run and the gradient that ``bench/examples.py`` times."""
    field = Field(picture(128))

    def gradient():
        for weight in field.weights:
            weight.grad = None
        field.backward()
        assert field.bias.grad is not None
        return field.bias.grad.numpy()

    return field.forward, gradient


def draw(field: Field, losses: list[float], path: str) -> None:
    """The picture, what was learnt, and the loss."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.5), layout="constrained")
    axes = figure.subplots(1, 3)
    for axis, image in zip(axes, (field.target, field.colours), strict=False):
        axis.imshow(np.clip(image.numpy(), 0.0, 1.0))
        axis.set(xticks=[], yticks=[])
    axes[0].set_title("the picture")
    axes[1].set_title("the field")
    axes[2].semilogy(losses, color="#b3311d")
    axes[2].set(xlabel="step", title="loss")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Train the field, print the loss, draw what it learnt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--output", default="neural-field.png", help="the picture")
    options = parser.parse_args()
    qd.init(arch=qd.cpu)
    field = Field(picture(96))
    losses = train(field, options.steps)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    draw(field, losses, options.output)


if __name__ == "__main__":
    main()
