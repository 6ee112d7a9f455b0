# %% [markdown]
# # Find the heat
#
# Somewhere on a plate it was hot. A minute later, a few sensors read temperatures. Where was it?
# You simulate the plate forward, step by step, and descend along the gradient of what the sensors
# would have read by the temperatures at the start: by every one of them.

# %%
import matplotlib.pyplot as plt
import numpy as np

import octants as qd

qd.init(arch=qd.cpu)

# %% [markdown]
# ## The plate
#
# One kernel makes one step. It reads `now` and writes `then`; a second one copies it back. The
# plate loses heat at its edges.

# %%
N, STEPS = 48, 60
initial = qd.field(qd.f32, shape=(N, N), needs_grad=True)
now = qd.field(qd.f32, shape=(N, N), needs_grad=True)
then = qd.field(qd.f32, shape=(N, N), needs_grad=True)
measured = qd.field(qd.f32, shape=(N, N))
loss = qd.field(qd.f32, shape=(), needs_grad=True)


@qd.func
def at(i, j):
    result = 0.0
    if 0 <= i < N and 0 <= j < N:
        result = now[i, j]
    return result


@qd.kernel
def begin():
    for i, j in now:
        now[i, j] = initial[i, j]


@qd.kernel
def spread():
    for i, j in now:
        around = at(i - 1, j) + at(i + 1, j) + at(i, j - 1) + at(i, j + 1)
        then[i, j] = now[i, j] + 0.2 * (around - 4.0 * now[i, j])


@qd.kernel
def advance():
    for i, j in now:
        now[i, j] = then[i, j]


@qd.kernel
def compare():
    for i, j in now:
        if i % 6 == 3 and j % 6 == 3:  # here is a sensor
            loss[None] += (now[i, j] - measured[i, j]) ** 2


def simulate():
    begin()
    for _ in range(STEPS):
        spread()
        advance()


# %% [markdown]
# ## What the sensors read
#
# Two spots were hot. The sensors see 64 of 2,304 temperatures, after they have blurred.

# %%
i, j = np.mgrid[:N, :N]
truth = 9.0 * (np.hypot(i - 15, j - 30) < 5) + 6.0 * (np.hypot(i - 34, j - 14) < 4)
initial.from_numpy(truth.astype(np.float32))
simulate()
measured.from_numpy(now.to_numpy())

# %% [markdown]
# ## Descend
#
# `now` and `then` are overwritten 60 times. The tape keeps what the reverse run needs, which here
# is nothing: the step is linear. Temperatures are not below zero, so negative ones are cut off.

# %%
guess, velocity = np.zeros((N, N), np.float32), np.zeros((N, N), np.float32)
losses = []
for _ in range(150):
    initial.from_numpy(guess)
    with qd.ad.Tape(loss=loss) as tape:
        simulate()
        compare()
    losses.append(loss[None])
    velocity = 0.9 * velocity - 8.0 * initial.grad.to_numpy()
    guess = np.maximum(guess + velocity, 0.0)
print(f"loss {losses[0]:.1f} -> {losses[-1]:.4f}; the tape has copied {tape.snapshot_bytes} bytes")

# %%
figure, axes = plt.subplots(1, 3, figsize=(8, 2.8))
pictures = {"it was": truth, "the sensors read": measured.to_numpy(), "found": guess}
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    if title == "the sensors read":
        picture = np.where((i % 6 == 3) & (j % 6 == 3), picture, np.nan)
    axis.imshow(picture, cmap="inferno", vmin=0)
    axis.set(title=title, xticks=[], yticks=[])
figure.tight_layout()
plt.show()

# %% [markdown]
# Both spots are where they were. How sharp they can be depends on what diffusion has left; more
# sensors, or an earlier reading, sharpen them. Go on: [long loops of launches in the memory of a
# few](../autodiff.md), and the example [wave_inversion](../examples.md).
