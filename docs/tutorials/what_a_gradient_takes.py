# %% [markdown]
# # What a gradient takes
#
# A gradient takes time, and memory for what its loops record. Here is how to see both, line by
# line, and how to trade one for the other.

# %%
import octants as qd

qd.init(arch=qd.cpu, kernel_profiler=True, cpu_max_num_threads=2)

# %% [markdown]
# ## A program
#
# Each work item integrates a pendulum. The loop carries two variables, and both are needed
# backward.

# %%
N = 2048
angle = qd.field(qd.f32, shape=N, needs_grad=True)
friction = qd.field(qd.f32, shape=(), needs_grad=True)
total = qd.field(qd.f32, shape=(), needs_grad=True)


@qd.kernel
def swing(steps: int):
    for i in angle:
        a, speed = angle[i], 0.0
        for _ in range(steps):
            speed -= 0.01 * (qd.sin(a) + friction[None] * speed)
            a += 0.01 * speed
        total[None] += a * a


friction[None] = 0.1
angle.fill(1.0)

# %% [markdown]
# ## What is recorded
#
# `explain` runs the gradient, counts what it records, and leaves all memory as it was.

# %%
print(swing.grad.explain(1000))

# %% [markdown]
# ## Where the time goes

# %%
for _ in range(5):
    with qd.ad.Tape(loss=total):
        swing(1000)
qd.profiler.print_kernel_profiler_info()

# %% [markdown]
# ## Less memory for more time
#
# A budget cuts the loop into blocks: only the first state of each is kept, and a block is run
# again just before it is reversed. The gradient has the same bits.

# %%
expected = angle.grad.to_numpy()
qd.init(arch=qd.cpu, kernel_profiler=True, cpu_max_num_threads=2, ad_stack_budget_bytes=100_000)
angle = qd.field(qd.f32, shape=N, needs_grad=True)
friction = qd.field(qd.f32, shape=(), needs_grad=True)
total = qd.field(qd.f32, shape=(), needs_grad=True)
friction[None] = 0.1
angle.fill(1.0)
for _ in range(5):
    with qd.ad.Tape(loss=total):
        swing(1000)
assert (angle.grad.to_numpy() == expected).all()
(loop,) = swing.grad.explain(1000).loops
print(f"{loop.policy}: {loop.nbytes} bytes for a work item; {loop.runs:.2f} runs")
qd.profiler.print_kernel_profiler_info()

# %% [markdown]
# ## What else takes memory

# %%
qd.profiler.print_memory_profiler_info()

# %% [markdown]
# Go on: [what a gradient takes](../autodiff.md#what-a-gradient-takes), [the
# profiler](../profiler.md), [performance on a CPU](../performance.md).
