"""Every prediction that one decision needs, made in one batched call and read back per group of GPUs.

A co-location is what one GPU holds; distinct ones are predicted once. ``num_gpus`` of a co-location is the largest
number of GPUs that any of its jobs spans. A job on several GPUs runs at the slowest of them. A model-parallel job's
memory on a GPU depends on the set that it would take, so it is predicted for every share of the free memory
(``eaco_scheduler.memory.fill``) that a set could ask for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eaco_datasets.errors import EacoError
from eaco_datasets.types import CoLocation, Job, NodeSpec
from eaco_predictor.prediction import Estimate, JobPrediction, PredictsSets, SetPrediction
from eaco_scheduler.cluster import ClusterState, gpu_spec
from eaco_scheduler.decision import JobRequest
from eaco_scheduler.groups import Candidate, Group
from eaco_scheduler.memory import fill, fills, free_mib, jobs_by_gpu, peak_alone_mib, split_mib, with_memory
from eaco_scheduler.settings import PlacementSettings


@dataclass(frozen=True)
class Forecast:
    """Predictions by co-location, and where each resident runs.

    ``fill`` is the share of each GPU's free memory that a model-parallel job takes in what is read back.
    """

    request: JobRequest
    settings: PlacementSettings
    places: Mapping[str, tuple[CoLocation, ...]]  # job id -> the present co-location of each of its GPUs
    homes: Mapping[str, tuple[str, ...]]  # job id -> UUIDs, in the order of ``places``
    spans: Mapping[str, int]  # job id -> number of its GPUs
    answers: Mapping[CoLocation, SetPrediction]
    fills: tuple[float, ...] = (1.0,)
    fill: float = 1.0

    def at(self, value: float) -> Forecast:
        """The same predictions, read at this share of the free memory."""
        return replace(self, fill=value)

    def on(self, candidate: Candidate) -> Forecast:
        """The same predictions, read for this set."""
        return self.at(fill(self.request, candidate.free_mib))

    def alone(self, gpu: str, server: NodeSpec | None = None) -> SetPrediction:
        """The job by itself on this GPU type."""
        return self.answers[alone_set(self.request, gpu, self.settings, server)]

    def joined(self, group: Group) -> SetPrediction:
        """One GPU of this group after the job has joined; the job is the last of ``jobs``."""
        return self.answers[self.joined_set(group)]

    def joined_set(self, group: Group) -> CoLocation:
        """The co-location behind ``joined``."""
        return _joined(group, self.request, self.settings, self.spans, self.fill)

    def present(self, group: Group) -> SetPrediction | None:
        """One GPU of this group as it is now; ``None`` when it holds no job."""
        if not group.residents:
            return None
        return self.answers[_present(group.gpu, group.server, group.jobs, self.settings, self.spans)]

    def of_set(self, candidate: Candidate) -> SetPrediction:
        """The whole set after the job has joined.

        Energy and node power are those of jobs that hold the same GPUs: ``None`` when a resident spans another number
        of them; node power also when the set lies on several nodes.
        """
        told = self.on(candidate)
        counts: Counter[CoLocation] = Counter()
        for group, count in candidate.parts:
            counts[told.joined_set(group)] += count
        whole = merge_predictions([(self.answers[where], count) for where, count in counts.items()])
        spans = {self.spans[resident.job_id] for resident in candidate.residents}
        if spans != {self.request.num_gpus}:
            return replace(whole, node_power_w=None, energy_j_per_epoch=None)
        return replace(whole, node_power_w=None) if len(candidate.node_ids) > 1 else whole

    def alone_on(self, candidate: Candidate) -> SetPrediction:
        """The job by itself on this set; no node power when the set lies on several nodes."""
        first = candidate.parts[0][0]
        answer = self.alone(first.gpu, first.server)
        return replace(answer, node_power_w=None) if len(candidate.node_ids) > 1 else answer

    def resident(
        self, job_id: str, joined: Sequence[Group] = (), touched: Iterable[str] = ()
    ) -> list[JobPrediction] | None:
        """A resident's predictions on its GPUs: after the job's joining in ``joined``, as now outside ``touched``.

        Distinct co-locations once; ``None`` when one of them cannot be predicted.
        """
        gone = set(touched)
        left = [s for s, uuid in zip(self.places[job_id], self.homes[job_id], strict=True) if uuid not in gone]
        held = [self.joined_set(group) for group in joined if job_id in group.resident_ids]
        found: list[JobPrediction] = []
        for where in dict.fromkeys([*held, *left]):
            answer = self.answers[where]
            if answer.abstained is not None:
                return None
            found.append(answer.jobs[next(i for i, job in enumerate(where.jobs) if job.job_id == job_id)])
        return found


def forecast(
    request: JobRequest,
    cluster: ClusterState,
    groups: Sequence[Group],
    *,
    alone: Sequence[Candidate],
    predictor: PredictsSets,
    settings: PlacementSettings,
) -> Forecast:
    """Ask the predictor once for all that these groups, and the job alone on these sets, need.

    Raises:
        EacoError: the predictor answered another number of sets or jobs than it was asked for.
    """
    places, homes = _where_jobs_run(cluster, settings)
    spans = _spans(cluster)
    most_mib = max((group.free_mib or 0.0 for group in groups), default=0.0) * request.num_gpus
    shares = fills(request, most_mib)
    wanted: dict[CoLocation, None] = {}
    for group in groups:
        wanted.update(dict.fromkeys(_joined(group, request, settings, spans, share) for share in shares))
        wanted[alone_set(request, group.gpu, settings)] = None
        for resident in group.residents:
            wanted.update(dict.fromkeys(places[resident.job_id]))
    for candidate in alone:
        first = candidate.parts[0][0]
        wanted[alone_set(request, first.gpu, settings, first.server)] = None
    sets = list(wanted)
    answers = predictor.predict(sets) if sets else []
    if len(answers) != len(sets):
        raise EacoError(f"the predictor answered {len(answers)} of {len(sets)} sets")
    for asked, answer in zip(sets, answers, strict=True):
        if answer.abstained is None and len(answer.jobs) != len(asked.jobs):
            raise EacoError(f"the predictor answered {len(answer.jobs)} of {len(asked.jobs)} jobs of a set")
    return Forecast(request, settings, places, homes, spans, dict(zip(sets, answers, strict=True)), shares)


def alone_set(request: JobRequest, gpu: str, settings: PlacementSettings, server: NodeSpec | None = None) -> CoLocation:
    """The job by itself on GPUs of this type."""
    job = with_memory(request.job, peak_alone_mib(request))
    return CoLocation(gpu, settings.sharing_mode, (job,), request.num_gpus, server)


def joined_sets(
    request: JobRequest, cluster: ClusterState, gpus: Sequence[str], settings: PlacementSettings
) -> tuple[CoLocation, ...]:
    """The co-location on each of these GPUs after the job has joined, in the order of ``gpus``."""
    spans = _spans(cluster)
    held = jobs_by_gpu(cluster, settings)
    nodes = {gpu.uuid: node for node in cluster.nodes for gpu in node.gpus}
    peak_mib = request.job.solo.mem_mib
    peaks = [peak_mib] * len(gpus)
    if request.parallelism == "model" and peak_mib is not None:
        room = [free_mib(nodes[uuid].gpu, held[uuid], settings) or 0.0 for uuid in gpus]
        peaks = list(split_mib(peak_mib, room))
    found: list[CoLocation] = []
    for uuid, own_mib in zip(gpus, peaks, strict=True):
        node, newcomer = nodes[uuid], with_memory(request.job, own_mib)
        server = node.server if held[uuid] else None
        found.append(
            _with(_present(gpu_spec(node.gpu).slug, server, held[uuid], settings, spans), newcomer, request.num_gpus)
        )
    return tuple(found)


def present_sets(cluster: ClusterState, gpus: Sequence[str], settings: PlacementSettings) -> tuple[CoLocation, ...]:
    """The co-location on each of these occupied GPUs as it is now, in the order of ``gpus``."""
    spans = _spans(cluster)
    held = jobs_by_gpu(cluster, settings)
    nodes = {gpu.uuid: node for node in cluster.nodes for gpu in node.gpus}
    return tuple(
        _present(gpu_spec(nodes[uuid].gpu).slug, nodes[uuid].server, held[uuid], settings, spans) for uuid in gpus
    )


def slowest(found: Sequence[JobPrediction]) -> JobPrediction:
    """The prediction that binds a job which runs on several GPUs: lowest relative speed, highest risk of all."""
    worst = min(found, key=lambda job: job.relative_speed.mean)
    risks = [job.deadline_miss_probability for job in found]
    known = [risk for risk in risks if risk is not None]
    return replace(worst, deadline_miss_probability=max(known) if len(known) == len(risks) else None)


def merge_predictions(parts: Sequence[tuple[SetPrediction, int]]) -> SetPrediction:
    """One prediction of a set whose GPUs hold different jobs: each job at its slowest GPU.

    GPU power and utilisation are means over the GPUs, memory and risks those of the worst GPU; node power and energy
    per epoch are ``None`` when the GPUs differ. An abstention of any part is the answer of the whole.
    """
    distinct = [answer for answer, _ in parts]
    for answer in distinct:
        if answer.abstained is not None:
            return answer
    if len(distinct) == 1:
        return distinct[0]
    jobs: dict[str | None, list[JobPrediction]] = defaultdict(list)
    for answer in distinct:
        for job in answer.jobs:
            jobs[job.job_id].append(job)
    first = distinct[0]
    return replace(
        first,
        jobs=tuple(slowest(found) for found in jobs.values()),
        gpu_power_w=_mean([(answer.gpu_power_w, count) for answer, count in parts]),
        node_power_w=None,
        gpu_util_pct=_mean([(answer.gpu_util_pct, count) for answer, count in parts]),
        mem_mib=_largest([answer.mem_mib for answer in distinct]),
        oom_probability=_worst([answer.oom_probability for answer in distinct]),
        energy_j_per_epoch=None,
        out_of_distribution=_worst([answer.out_of_distribution for answer in distinct]),
        nearest_families=tuple(dict.fromkeys(name for answer in distinct for name in answer.nearest_families)),
    )


def _where_jobs_run(
    cluster: ClusterState, settings: PlacementSettings
) -> tuple[dict[str, tuple[CoLocation, ...]], dict[str, tuple[str, ...]]]:
    """Present co-location and UUID of each GPU of each resident."""
    spans = _spans(cluster)
    held = jobs_by_gpu(cluster, settings)
    homes: dict[str, list[str]] = defaultdict(list)
    places: dict[str, list[CoLocation]] = defaultdict(list)
    for node in cluster.nodes:
        slug = gpu_spec(node.gpu).slug
        for gpu in node.gpus:
            if gpu.residents:
                now = _present(slug, node.server, held[gpu.uuid], settings, spans)
                for resident in gpu.residents:
                    places[resident.job_id].append(now)
                    homes[resident.job_id].append(gpu.uuid)
    return {k: tuple(v) for k, v in places.items()}, {k: tuple(v) for k, v in homes.items()}


def _spans(cluster: ClusterState) -> Counter[str]:
    """Number of GPUs of each resident."""
    return Counter(resident.job_id for _, _, resident in cluster.placed())


def _present(
    gpu: str, server: NodeSpec | None, jobs: tuple[Job, ...], settings: PlacementSettings, spans: Mapping[str, int]
) -> CoLocation:
    widest = max((spans[job.job_id or ""] for job in jobs), default=1)
    return CoLocation(gpu, settings.sharing_mode, jobs, widest, server)


def _joined(
    group: Group, request: JobRequest, settings: PlacementSettings, spans: Mapping[str, int], share: float
) -> CoLocation:
    """One GPU of the group with the job, which takes this share of the free memory if it is model-parallel."""
    peak_mib = request.job.solo.mem_mib
    if request.parallelism == "model" and group.free_mib is not None:
        peak_mib = share * group.free_mib
    newcomer = with_memory(request.job, peak_mib)
    server = group.server if group.residents else None
    return _with(_present(group.gpu, server, group.jobs, settings, spans), newcomer, request.num_gpus)


def _with(now: CoLocation, newcomer: Job, num_gpus: int) -> CoLocation:
    return replace(now, jobs=(*now.jobs, newcomer), num_gpus=max(now.num_gpus, num_gpus))


def _mean(parts: Sequence[tuple[Estimate | None, int]]) -> Estimate | None:
    known = [(value, count) for value, count in parts if value is not None]
    if len(known) != len(parts):
        return None
    total = sum(count for _, count in known)
    return Estimate(
        sum(value.mean * count for value, count in known) / total,
        sum(value.lower * count for value, count in known) / total,
        sum(value.upper * count for value, count in known) / total,
    )


def _largest(values: Sequence[Estimate | None]) -> Estimate | None:
    known = [value for value in values if value is not None]
    return max(known, key=lambda value: value.mean) if len(known) == len(values) else None


def _worst(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None
