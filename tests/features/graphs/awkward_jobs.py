"""Jobs that are hard to record, each a ``build_job``: some do their worst to whoever runs them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from eaco_features.graphs.job import TrainingJob

WIDTH = 8


def _job(model: nn.Module, loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer | None = None) -> TrainingJob:
    stepper = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        stepper.zero_grad()
        loss().backward()
        stepper.step()

    return TrainingJob(step, [model], [stepper])


def _plain(batch_size: int, model: nn.Module | None = None) -> TrainingJob:
    layers = model or nn.Linear(WIDTH, WIDTH)
    x = torch.randn(batch_size, WIDTH)
    return _job(layers, lambda: layers(x).square().mean())


class _Branching(nn.Module):
    """Control flow on data."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0.5:
            return self.high(x)
        return self.low(x)


def control_flow(batch_size: int) -> TrainingJob:
    return _plain(batch_size, _Branching())


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)  # type: ignore[attr-defined]
        return x**3

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return 3 * x**2 * grad


def custom_autograd(batch_size: int) -> TrainingJob:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(batch_size, WIDTH)
    return _job(model, lambda: _Cube.apply(model(x)).mean())


def shared_weights(batch_size: int) -> TrainingJob:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    model[1].weight = model[0].weight
    return _plain(batch_size, model)


def complex_input(batch_size: int) -> TrainingJob:
    model = nn.Linear(WIDTH, WIDTH, dtype=torch.complex64)
    x = torch.randn(batch_size, WIDTH, dtype=torch.complex64)
    return _job(model, lambda: model(x).abs().mean())


def fourier(batch_size: int) -> TrainingJob:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(batch_size, WIDTH)
    return _job(model, lambda: torch.fft.irfft(torch.fft.rfft(model(x)), n=WIDTH).square().mean())


def integer_input(batch_size: int) -> TrainingJob:
    model, x = nn.Embedding(100, WIDTH), torch.randint(100, (batch_size, 4))
    return _job(model, lambda: model(x).square().mean())


def sparse_gradient(batch_size: int) -> TrainingJob:
    model, x = nn.Embedding(100, WIDTH, sparse=True), torch.arange(4 * batch_size).unflatten(0, (batch_size, 4))
    return _job(model, lambda: model(x).square().mean(), torch.optim.SparseAdam(model.parameters()))


def checkpointed(batch_size: int) -> TrainingJob:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    x = torch.randn(batch_size, WIDTH)
    return _job(model, lambda: checkpoint(model, x, use_reentrant=False).mean())


def on_cuda(batch_size: int) -> TrainingJob:
    model = nn.Linear(WIDTH, WIDTH).cuda()
    x = torch.randn(batch_size, WIDTH, device="cuda:0").pin_memory().to("cuda", non_blocking=True)
    return _job(model, lambda: (model(x) * torch.ones(WIDTH, device=torch.device("cuda"))).mean())  # noqa: PLW0108


def mixed_precision(batch_size: int) -> TrainingJob:
    model = nn.Linear(WIDTH, WIDTH).to("cuda")
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
    x = torch.randn(batch_size, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = model(x).float().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return TrainingJob(step, [model], [optimizer])


def compiled(batch_size: int) -> TrainingJob:
    return _plain(batch_size, torch.compile(nn.Linear(WIDTH, WIDTH)))  # type: ignore[arg-type]


def no_optimizer(batch_size: int) -> TrainingJob:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(batch_size, WIDTH)
    return TrainingJob(lambda: model(x).mean().backward(), [model])


def inference_only(batch_size: int) -> TrainingJob:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(batch_size, WIDTH)

    def step() -> None:
        with torch.no_grad():
            model(x)

    return TrainingJob(step, [model])


def hand_written_update(batch_size: int) -> TrainingJob:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(batch_size, WIDTH)

    def step() -> None:
        model.zero_grad()
        model(x).mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.sub_(0.1 * parameter.grad)

    return TrainingJob(step, [model])


def accumulation(batch_size: int) -> TrainingJob:
    model = nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.Adam(model.parameters())
    parts = [torch.randn(batch_size, WIDTH) for _ in range(4)]

    def step() -> None:
        optimizer.zero_grad()
        for part in parts:
            (model(part).mean() / len(parts)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return TrainingJob(step, [model], [optimizer], samples_per_step=batch_size * len(parts))


def masked(batch_size: int) -> TrainingJob:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(batch_size, WIDTH)

    def loss() -> Tensor:
        y = model(x)
        rows = (y > 0).any(dim=1).nonzero().flatten()
        return y[y > 0].mean() + y.masked_select(y < 0).mean() + y[rows].mean()

    return _job(model, loss)


def per_sample_loop(batch_size: int) -> TrainingJob:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(batch_size, WIDTH)
    return _job(model, lambda: torch.stack([model(row).mean() for row in x]).mean())


def ctc(batch_size: int) -> TrainingJob:
    model, x = nn.Linear(WIDTH, 5), torch.randn(12, batch_size, WIDTH)
    targets = torch.randint(1, 5, (batch_size, 3))
    frames, letters = torch.full((batch_size,), 12), torch.full((batch_size,), 3)
    return _job(model, lambda: F.ctc_loss(model(x).log_softmax(-1), targets, frames, letters))


def packed_lstm(batch_size: int) -> TrainingJob:
    model, x = nn.LSTM(WIDTH, WIDTH, batch_first=True), torch.randn(batch_size, 6, WIDTH)
    lengths = torch.full((batch_size,), 6)

    def loss() -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(model(packed)[0], batch_first=True)
        return out.mean()

    return _job(model, loss)


def deep_copied_transformer(batch_size: int) -> TrainingJob:
    model = nn.Transformer(WIDTH, 2, 1, 1, 16, batch_first=True)
    x = torch.randn(batch_size, 5, WIDTH)
    return _job(model, lambda: model(x, x).mean())


def gradient_penalty(batch_size: int) -> TrainingJob:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    x = torch.randn(batch_size, WIDTH, requires_grad=True)

    def loss() -> Tensor:
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (slope.norm(dim=1) - 1).square().mean()

    return _job(model, loss)


def lbfgs(batch_size: int) -> TrainingJob:
    model, x = nn.Linear(WIDTH, 1), torch.randn(batch_size, WIDTH)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    return TrainingJob(lambda: optimizer.step(closure), [model], [optimizer])  # type: ignore[arg-type]


def logs_its_loss(batch_size: int) -> TrainingJob:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(batch_size, WIDTH)
    history: list[float] = []

    def loss() -> Tensor:
        value = model(x).mean()
        history.append(value.item())
        sys.stdout.write(f"loss {history[-1]}\n")
        return value

    return _job(model, loss)


def formats_its_loss(batch_size: int) -> TrainingJob:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(batch_size, WIDTH)

    def loss() -> Tensor:
        value = model(x).mean()
        sys.stdout.write(f"loss {value:.3f}\n")
        return value

    return _job(model, loss)


def times_itself(batch_size: int) -> TrainingJob:
    """CUDA events and a stream of its own."""
    model, x = nn.Linear(WIDTH, WIDTH).cuda(), torch.randn(batch_size, WIDTH)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream = torch.cuda.Stream()

    def loss() -> Tensor:
        start.record()
        with torch.cuda.stream(stream):
            value = model(x).mean()
        torch.cuda.current_stream().wait_stream(stream)
        end.record()
        torch.cuda.synchronize()
        return value * batch_size / start.elapsed_time(end)

    return _job(model, loss)


def teacher_in_inference_mode(batch_size: int) -> TrainingJob:
    """What inference mode hands over whole, as no autograd splits it: layers, attention, an LSTM."""
    model, teacher, memory = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.LSTM(WIDTH, WIDTH)
    x = torch.randn(batch_size, 5, WIDTH)

    @torch.inference_mode()
    def target() -> Tensor:
        hidden: Tensor = memory(teacher(x).transpose(0, 1))[0].transpose(0, 1)
        return F.scaled_dot_product_attention(hidden, hidden, hidden)

    return _job(model, lambda: (model(x) - target()).square().mean())


def per_sample_gradients(batch_size: int) -> TrainingJob:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(batch_size, WIDTH)
    weights = dict(model.named_parameters())

    def loss_of(given: dict[str, Tensor], row: Tensor) -> Tensor:
        return torch.func.functional_call(model, given, row).square().sum()

    def step() -> None:
        slopes = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0))(dict(weights), x)
        with torch.no_grad():
            for name, parameter in weights.items():
                parameter.sub_(0.1 * slopes[name].mean(0))

    return TrainingJob(step, [model])


def sparse_adjacency(batch_size: int) -> TrainingJob:
    """Graphs of 10 nodes and 30 edges side by side: their matrix is 10 batches square, its nonzeros are 30 a graph."""
    model, nodes, edges = nn.Linear(WIDTH, WIDTH), 10 * batch_size, 30 * batch_size
    adjacency = torch.sparse_coo_tensor(torch.randint(nodes, (2, edges)), torch.ones(edges), (nodes, nodes))
    x = torch.randn(nodes, WIDTH)
    return _job(model, lambda: torch.sparse.mm(adjacency, model(x)).mean())


def bilinear(batch_size: int) -> TrainingJob:
    model, x, y = nn.Bilinear(3, 5, 7), torch.randn(batch_size, 3), torch.randn(batch_size, 5)
    return _job(model, lambda: model(x, y).mean())


_GLOBAL_MODEL = nn.Linear(WIDTH, WIDTH)


def model_made_at_import(batch_size: int) -> TrainingJob:
    return _plain(batch_size, _GLOBAL_MODEL)


def numpy_inside(batch_size: int) -> TrainingJob:
    """Asks a tensor for its memory: only a real run can answer."""
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(batch_size, WIDTH)
    return _job(model, lambda: model(x).mean() * float(np.asarray(model(x).detach().numpy()).std() > 0))


def bidirectional_gru(batch_size: int) -> TrainingJob:
    model, x = nn.GRU(WIDTH, WIDTH, num_layers=2, bidirectional=True), torch.randn(6, batch_size, WIDTH)
    return _job(model, lambda: model(x)[0].mean())  # noqa: PLW0108


def learned_attention_bias(batch_size: int) -> TrainingJob:
    model = nn.Linear(WIDTH, WIDTH)
    model.bias_table = nn.Parameter(torch.zeros(2, 5, 5))
    x = torch.randn(batch_size, 5, WIDTH)

    def loss() -> Tensor:
        heads = model(x).unflatten(-1, (2, 4)).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=model.bias_table).mean()

    return _job(model, loss)


def wrong_shapes(batch_size: int) -> TrainingJob:
    return _plain(batch_size, nn.Linear(WIDTH + 1, WIDTH))


def not_a_job(_batch_size: int) -> object:
    return nn.Linear(WIDTH, WIDTH)


def nothing_done(_batch_size: int) -> TrainingJob:
    return TrainingJob(lambda: None, [])


def raises(_batch_size: int) -> TrainingJob:
    raise LookupError("the data set\nis not here")


def leaves_by_the_door(_batch_size: int) -> TrainingJob:
    sys.exit("bye")


def never_returns(batch_size: int) -> TrainingJob:
    def step() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            pass

    return TrainingJob(step, [nn.Linear(batch_size, 1)])


def waits_for_a_value(batch_size: int) -> TrainingJob:
    """Loops until a value changes, which it never does."""
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(batch_size, WIDTH)

    def loss() -> Tensor:
        value = model(x).square().sum()
        while value.item() >= 0.5:
            value = value * 0.5
        return value

    return _job(model, loss)


def forks(batch_size: int) -> TrainingJob:
    """Both processes go on, and the parent leaves a third one behind that would never end."""
    if os.fork() == 0 and os.fork() == 0:
        while True:
            signal.pause()
    return _plain(batch_size)


def leaves_a_daemon(batch_size: int) -> TrainingJob:
    """Starts a process that leaves the group and the session, as servers do that trackers start."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                signal.pause()
        os._exit(0)
    return _plain(batch_size)


def allocates_a_terabyte(batch_size: int) -> TrainingJob:
    hoard = np.ones(2**37)
    return _plain(batch_size + len(hoard))


def terabyte_on_fake_tensors(batch_size: int) -> TrainingJob:
    """A job too large for this machine, but not for a recording."""
    model, x = nn.Linear(2**19, 2**19, bias=False), torch.randn(batch_size, 2**19)
    return _job(model, lambda: model(x).mean())


def exits_at_once(_batch_size: int) -> TrainingJob:
    os._exit(7)


def crashes(_batch_size: int) -> TrainingJob:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError("not reached")
