"""The network behind the protocol of all models: several tasks in one fit, embeddings kept by job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from eaco_datasets.physics import CUDA_CONTEXT_MIB
from eaco_features.job_graphs import graphs_of, roofline_columns, steps_per_epoch
from eaco_features.matrix import gpu_columns
from eaco_features.sets import SOLO_FIELDS, BoolArray, FloatArray, IntArray, SetBatch
from eaco_predictor.families import family_weights
from eaco_predictor.gnn.encode import EncodedGraph, JobKey, encode
from eaco_predictor.gnn.network import WIDTH, Encoder, GraphBatch, Head
from eaco_predictor.gnn.tasks import SET_TASKS, SOLO_TASKS, TASKS
from eaco_predictor.models.base import known_targets
from eaco_predictor.models.roofline import HOST_S_PER_KERNEL, HOST_S_PER_SAMPLE, INEFFICIENCY
from eaco_predictor.models.solo_power import each_alone
from eaco_predictor.targets import power_bounds_w, target_spec

STEPS, ADAPT_STEPS = 120, 60
LEARNING_RATE, WEIGHT_DECAY = 5e-3, 1e-3
AUXILIARY_WEIGHT = 0.3
"""Choices of cost and custom, not tuned on any held-out figure."""
DECIMALS = 9
"""Answers are rounded to this, so that the place of a job in a batch cannot change the last bit."""
MAX_EMBEDDINGS = 10_000
"""Kept embeddings (of 64 numbers); the oldest make room."""

_SHARES = ("relative_speed", "gpu_util_pct", "mem_util_pct", "gpu_power_w")
"""Tasks whose output is the log odds of a share of their range; those of the others are logarithms."""


class Gnn:
    """Learns a target from the jobs' graphs, and beside it whatever the solo profiles state.

    A job without a graph has an embedding of zeros; without any graph in training, answers are the training mean. With
    ``told_solo`` the head also reads the jobs' solo profiles. The weights are drawn from ``seed``; nothing else is
    random but dropout, which is drawn from it too. While it computes, torch's number of threads, which is the whole
    process's, is one.
    """

    name: ClassVar[str] = "gnn"
    monotone: ClassVar[bool] = False
    told_solo: ClassVar[bool] = False
    embeds_graphs: ClassVar[bool] = True
    calibration_folds: ClassVar[int] = 3

    def __init__(self, target: str = "relative_speed", seed: int = 0) -> None:
        self.target, self.seed = target, seed
        self._embeddings: dict[JobKey, Tensor] = {}
        self._heads: dict[str, Head] = {}

    def fit(self, sets: SetBatch, target: FloatArray) -> Self:
        known_targets(sets, target)
        with _repeatable(self.seed):
            self._encoder, self._head = Encoder(), Head(self._context(sets).shape[2])
            self._centre = np.zeros(len(TASKS))
            self._embeddings, self._heads = {}, {}
            self._train(sets, target)
        return self

    def predict(self, sets: SetBatch) -> FloatArray:
        outputs = self._outputs(sets)[:, :, TASKS.index(self.target)]
        value = self._unlink(sets, self.target, outputs)
        return target_spec(self.target).limit(sets, np.where(np.isnan(value), self._fallback, value))

    def adapt(self, gpu: str, sets: SetBatch, target: FloatArray) -> Gnn:
        """A copy with a head of its own for this GPU type, trained on with these few rows; the encoder stays as it is.

        Itself where no row on that type states the target beside what it is learned relative to (a graph, for times).
        """
        here = _on(sets, gpu)
        sets, target = sets.take(here), target[here]
        batch = self._batch(sets, {self.target: target}, {self.target: 1.0})
        if not batch.tasks:
            return self
        head = deepcopy(self._heads.get(gpu, self._head)).train()
        with _repeatable(self.seed):
            embedded = self._embedded(sets)
            optimizer = torch.optim.AdamW(head.parameters(), lr=LEARNING_RATE / 5, weight_decay=0.0)
            for _ in range(ADAPT_STEPS):
                _step(optimizer, _loss(head, [embedded], [batch]))
        adapted = copy(self)
        adapted._heads = {**self._heads, gpu: head.eval()}
        return adapted

    def embed(self, graphs: dict[JobKey, EncodedGraph]) -> dict[JobKey, Tensor]:
        """Embeddings of all known jobs and of these, those that are new encoded one by one and kept."""
        known = self._embeddings
        new = {key: graph for key, graph in graphs.items() if key not in known}
        if not new:
            return known
        with torch.no_grad(), _one_thread():
            found = {key: self._encoder(GraphBatch([graph])).double()[0].clone() for key, graph in new.items()}
        known = {**known, **found}
        self._embeddings = dict(list(known.items())[-MAX_EMBEDDINGS:])
        return known

    def _train(self, sets: SetBatch, target: FloatArray) -> None:
        alone, _ = each_alone(sets, target)
        _, first = np.unique(np.stack([alone.gpu, alone.config[:, 0]]), axis=1, return_index=True)
        jobs = alone.take(np.sort(first))
        auxiliary = {task: values for task, values in _solo_targets(jobs).items() if task != self.target}
        usual = target[sets.present & np.isfinite(target)]
        self._fallback = float(np.mean(usual))
        data = [(sets, {self.target: target}, 1.0), (jobs, auxiliary, AUXILIARY_WEIGHT)]
        batches = []
        for chosen, targets, weight in data:
            self._set_centre(chosen, targets)
            batches.append(self._batch(chosen, targets, dict.fromkeys(targets, weight)))
        keys, graphs, places = _jobs([chosen for chosen, _, _ in data])
        self._encoder.eval()
        self._head.eval()
        if not keys or not any(batch.tasks for batch in batches):
            return  # no graph to learn from: every job is a usual one
        self._encoder.train()
        self._head.train()
        batch = GraphBatch(graphs)
        parameters = [*self._encoder.parameters(), *self._head.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        for _ in range(STEPS):
            encoded = self._encoder(batch)
            padded = torch.cat([encoded, encoded.new_zeros(1, WIDTH)])
            embeddings = [padded[torch.from_numpy(place)] for place in places]
            _step(optimizer, _loss(self._head, embeddings, batches))
            schedule.step()
        self._encoder.eval()
        self._head.eval()
        self.embed(dict(zip(keys, graphs, strict=True)))

    def _outputs(self, sets: SetBatch) -> FloatArray:
        """Outputs of all tasks ``(n_sets, MAX_JOBS, len(TASKS))``, in double precision and rounded."""
        if not len(sets):
            return np.zeros((*sets.present.shape, len(TASKS)))
        context, present = torch.from_numpy(self._context(sets)), torch.from_numpy(sets.present.astype(np.float64))
        out = np.empty((*sets.present.shape, len(TASKS)))
        adapted = {gpu: _on(sets, gpu) for gpu in self._heads}
        usual = ~np.any([*adapted.values(), np.zeros(len(sets), dtype=bool)], axis=0)
        with torch.no_grad(), _one_thread():
            embedded = self._embedded(sets)
            for head, here in [(self._head, usual), *((self._heads[gpu], at) for gpu, at in adapted.items())]:
                if here.any():
                    at = torch.from_numpy(here)
                    out[here] = deepcopy(head).double()(embedded[at], context[at], present[at]).numpy()
        answers: FloatArray = np.round(out, DECIMALS) + self._centre
        return answers

    def _embedded(self, sets: SetBatch) -> Tensor:
        """Embedding of every job ``(n_sets, MAX_JOBS, WIDTH)``; zeros without a graph. Encodes only new jobs."""
        known = self._embeddings
        keys, graphs, (place,) = _jobs([sets], known=known)
        found = known | self.embed({key: graph for key, graph in zip(keys, graphs, strict=True) if graph is not None})
        table = torch.stack([*(found[key] for key in keys), torch.zeros(WIDTH, dtype=torch.float64)])
        return table[torch.from_numpy(place)]

    def _batch(self, sets: SetBatch, targets: dict[str, FloatArray], weight: dict[str, float]) -> _Batch:
        tasks = {}
        for task, values in targets.items():
            linked = self._link(sets, task, values) - self._centre[TASKS.index(task)]
            known = sets.present & np.isfinite(linked)
            if known.any():
                weights = family_weights(sets.family[known])
                weights = weight[task] * weights / weights.sum()
                tasks[task] = (torch.from_numpy(known), _float(linked[known]), _float(weights))
        return _Batch(_float(self._context(sets)), _float(sets.present), tasks)

    def _set_centre(self, sets: SetBatch, targets: dict[str, FloatArray]) -> None:
        for task, values in targets.items():
            linked = self._link(sets, task, values)
            known = sets.present & np.isfinite(linked)
            if known.any():
                self._centre[TASKS.index(task)] = np.average(linked[known], weights=family_weights(sets.family[known]))

    def _context(self, sets: SetBatch) -> FloatArray:
        """What the head knows beside the graph ``(n_sets, MAX_JOBS, n)``: roofline, GPU, set; unknown is 0."""
        roofline, gpu = roofline_columns(sets), gpu_columns(sets)
        host_s = roofline.launches * HOST_S_PER_KERNEL.value
        per_set = [np.log(gpu[name]) / 5.0 for name in ("fp32_tflops", "bandwidth_gbs", "memory_mib", "sms")]
        limit = np.where(np.isnan(sets.power_limit_w), gpu["power_limit_w"], sets.power_limit_w)
        per_set += [limit / 300.0, limit / gpu["power_limit_w"], np.log(sets.num_gpus)]
        columns = [
            np.log(roofline.busy_s) / 5.0,
            np.log(roofline.busy_s / roofline.launches) / 5.0,
            np.log(roofline.launches) / 5.0,
            roofline.busy_s / (roofline.busy_s + host_s),
            roofline.compute_s / (roofline.compute_s + roofline.memory_s),
            roofline.memory_mib / gpu["memory_mib"][:, None],
            np.log(sets.batch_size) / 5.0,
            (sets.precision > 0).astype(float),
            *(np.broadcast_to(column[:, None], sets.present.shape) for column in per_set),
        ]
        if self.told_solo:
            columns += _solo_columns(sets)
        stacked = np.stack(columns, axis=2)
        return np.where(np.isfinite(stacked) & sets.present[:, :, None], stacked, 0.0)

    def _link(self, sets: SetBatch, task: str, values: FloatArray) -> FloatArray:
        """A target as the network learns it ``(n_sets, MAX_JOBS)``."""
        with np.errstate(divide="ignore", invalid="ignore"):
            if task in _SHARES:
                low, high = _range(sets, task)
                share = np.clip((values - low) / (high - low), 0.01, 0.99)
                return np.log(share / (1.0 - share))
            return np.log(values / self._usual(sets, task))

    def _unlink(self, sets: SetBatch, task: str, outputs: FloatArray) -> FloatArray:
        if task in _SHARES:
            low, high = _range(sets, task)
            return low + (high - low) / (1.0 + np.exp(-outputs))
        return np.exp(outputs) * self._usual(sets, task)

    def _usual(self, sets: SetBatch, task: str) -> FloatArray:
        """What times and memory are learned relative to: the roofline with usual host costs, the graph's peak."""
        roofline = roofline_columns(sets)
        if task == "mem_mib":
            return CUDA_CONTEXT_MIB + roofline.memory_mib
        host_s = HOST_S_PER_KERNEL.value * roofline.launches + HOST_S_PER_SAMPLE.value * roofline.samples
        return (INEFFICIENCY.value * roofline.busy_s + host_s) * steps_per_epoch(sets)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Several threads would add up in any order, and on so small a network they wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _repeatable(seed: int) -> Iterator[None]:
    """One thread and the generator seeded; both as they were afterwards."""
    with torch.random.fork_rng(devices=[]), _one_thread():
        torch.manual_seed(seed)
        yield


class GnnSolo(Gnn):
    """The same with the jobs' solo profiles beside their graphs."""

    name: ClassVar[str] = "gnn-solo"
    told_solo: ClassVar[bool] = True


class _Batch:
    """Tensors of some sets: context, which jobs are there, and for each task where it is known, its value, weight."""

    def __init__(self, context: Tensor, present: Tensor, tasks: dict[str, tuple[Tensor, Tensor, Tensor]]) -> None:
        self.context, self.present, self.tasks = context, present, tasks


def _on(sets: SetBatch, gpu: str) -> BoolArray:
    """Which sets are on a GPU type ``(n_sets,)``."""
    here: BoolArray = np.array([slug == gpu for slug in sets.gpus] or [False])[sets.gpu]
    return here


def _loss(head: Head, embeddings: list[Tensor], batches: list[_Batch]) -> Tensor:
    """Huber loss of every task where its target is known, each weighted and its families alike."""
    total = torch.zeros(())
    for embedding, batch in zip(embeddings, batches, strict=True):
        out = head(embedding.float(), batch.context, batch.present)
        for task, (known, wanted, weights) in batch.tasks.items():
            found = out[:, :, TASKS.index(task)][known]
            error = torch.nn.functional.smooth_l1_loss(found, wanted, beta=0.1, reduction="none")
            total = total + (error * weights).sum()
    return total


def _jobs(batches: list[SetBatch], known: Any = ()) -> tuple[list[JobKey], list[Any], list[IntArray]]:
    """Distinct jobs with a graph over some batches, their encoded graphs, and the place of each job of each batch.

    A place without a graph is the last one, behind all jobs. Those ``known`` are not encoded (their graph is None).
    """
    order: dict[JobKey, int] = {}
    graphs: list[Any] = []
    codes = []
    for sets in batches:
        code = np.full(len(sets.configs) + 1, -1, dtype=np.int64)
        for at, graph in graphs_of(sets):
            config = sets.configs[at]
            key = JobKey(graph.content_hash, config.batch_size, config.precision)
            if key not in order:
                order[key] = len(order)
                graphs.append(None if key in known else encode(graph, config.batch_size, config.precision))
            code[at] = order[key]
        codes.append(code[sets.config])
    return list(order), graphs, [np.where(code < 0, len(order), code) for code in codes]


def _solo_targets(jobs: SetBatch) -> dict[str, FloatArray]:
    """Solo profiles of jobs as targets; an epoch of one step stands for the step time."""
    found = {task: jobs.solo_of(task) for task in SOLO_TASKS if task in SOLO_FIELDS}
    found["epoch_s"] = jobs.solo_step_s() * steps_per_epoch(jobs)
    return {task: values for task, values in found.items() if np.isfinite(values).any()}


def _solo_columns(sets: SetBatch) -> list[FloatArray]:
    """Solo profile for the head: shares, the log of the step time, and what of it is known."""
    memory_mib = gpu_columns(sets)["memory_mib"][:, None]
    columns = [
        sets.solo_of("gpu_util_pct") / 100.0,
        sets.solo_of("mem_util_pct") / 100.0,
        sets.solo_of("mem_mib") / memory_mib,
        np.log(sets.solo_step_s()) / 5.0,
    ]
    return [*columns, *(np.isfinite(column).astype(float) for column in columns)]


def _range(sets: SetBatch, task: str) -> tuple[FloatArray, FloatArray]:
    """Lowest and highest value of a share task ``(n_sets, 1)``."""
    if task == "gpu_power_w":
        low, high = power_bounds_w(sets)
        return low[:, None], high[:, None]
    top = 1.05 if task in SET_TASKS else 100.0
    return np.zeros((len(sets), 1)), np.full((len(sets), 1), top)


def _float(values: FloatArray | BoolArray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
