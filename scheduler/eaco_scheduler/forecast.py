"""Every prediction that one decision needs, made in one batched call and read back per group of GPUs.

A co-location is what one GPU holds; distinct ones are predicted once. ``num_gpus`` of a co-location is the largest
number of GPUs that any of its jobs spans. A job on several GPUs runs at the slowest of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eaco_datasets.errors import EacoError
from eaco_datasets.types import CoLocation, Job, NodeSpec
from eaco_predictor.prediction import Estimate, JobPrediction, PredictsSets, SetPrediction
from eaco_scheduler.candidates import Candidate, Group, peak_per_gpu_mib
from eaco_scheduler.cluster import ClusterState, Resident, gpu_spec
from eaco_scheduler.decision import JobRequest
from eaco_scheduler.settings import PlacementSettings


@dataclass(frozen=True)
class Forecast:
    """Predictions by co-location, and where each resident runs."""

    request: JobRequest
    settings: PlacementSettings
    places: Mapping[str, tuple[CoLocation, ...]]  # job id -> the present co-location of each of its GPUs
    homes: Mapping[str, tuple[str, ...]]  # job id -> UUIDs, in the order of ``places``
    spans: Mapping[str, int]  # job id -> number of its GPUs
    answers: Mapping[CoLocation, SetPrediction]

    def alone(self, gpu: str, server: NodeSpec | None = None) -> SetPrediction:
        """The job by itself on this GPU type."""
        return self.answers[alone_set(self.request, gpu, self.settings, server)]

    def joined(self, group: Group) -> SetPrediction:
        """One GPU of this group after the job has joined; the job is the last of ``jobs``."""
        return self.answers[self.joined_set(group)]

    def joined_set(self, group: Group) -> CoLocation:
        """The co-location behind ``joined``."""
        return _joined(group, self.request, self.settings, self.spans)

    def present(self, group: Group) -> SetPrediction | None:
        """One GPU of this group as it is now; ``None`` when it holds no job."""
        if not group.residents:
            return None
        return self.answers[_present(group.gpu, group.server, group.residents, self.settings, self.spans)]

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
    alone: Candidate | None,
    predictor: PredictsSets,
    settings: PlacementSettings,
) -> Forecast:
    """Ask the predictor once for all that these groups, and the job alone, need.

    Raises:
        EacoError: the predictor answered another number of sets or jobs than it was asked for.
    """
    places, homes = _where_jobs_run(cluster, settings)
    spans = {job_id: len(uuids) for job_id, uuids in homes.items()}
    wanted: dict[CoLocation, None] = {}
    for group in groups:
        wanted[_joined(group, request, settings, spans)] = None
        wanted[alone_set(request, group.gpu, settings)] = None
        for resident in group.residents:
            wanted.update(dict.fromkeys(places[resident.job_id]))
    if alone is not None:
        first = alone.parts[0][0]
        wanted[alone_set(request, first.gpu, settings, first.server)] = None
    sets = list(wanted)
    answers = predictor.predict(sets) if sets else []
    if len(answers) != len(sets):
        raise EacoError(f"the predictor answered {len(answers)} of {len(sets)} sets")
    for asked, answer in zip(sets, answers, strict=True):
        if answer.abstained is None and len(answer.jobs) != len(asked.jobs):
            raise EacoError(f"the predictor answered {len(answer.jobs)} of {len(asked.jobs)} jobs of a set")
    return Forecast(request, settings, places, homes, spans, dict(zip(sets, answers, strict=True)))


def alone_set(request: JobRequest, gpu: str, settings: PlacementSettings, server: NodeSpec | None = None) -> CoLocation:
    """The job by itself on GPUs of this type."""
    return CoLocation(gpu, settings.sharing_mode, (_newcomer(request),), request.num_gpus, server)


def joined_sets(
    request: JobRequest, cluster: ClusterState, gpus: Sequence[str], settings: PlacementSettings
) -> tuple[CoLocation, ...]:
    """The co-location on each of these GPUs after the job has joined, in the order of ``gpus``."""
    _, homes = _where_jobs_run(cluster, settings)
    spans = {job_id: len(uuids) for job_id, uuids in homes.items()}
    by_uuid = {gpu.uuid: (node, gpu) for node in cluster.nodes for gpu in node.gpus}
    found: list[CoLocation] = []
    for uuid in gpus:
        node, gpu = by_uuid[uuid]
        slug, held = gpu_spec(node.gpu).slug, sorted(gpu.residents, key=lambda resident: resident.job_id)
        if held:
            found.append(_with_newcomer(_present(slug, node.server, held, settings, spans), request))
        else:
            found.append(alone_set(request, slug, settings))
    return tuple(found)


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
    homes: dict[str, list[str]] = defaultdict(list)
    for _, gpu, resident in cluster.placed():
        homes[resident.job_id].append(gpu.uuid)
    spans = {job_id: len(uuids) for job_id, uuids in homes.items()}
    places: dict[str, list[CoLocation]] = defaultdict(list)
    for node in cluster.nodes:
        slug = gpu_spec(node.gpu).slug
        for gpu in node.gpus:
            if gpu.residents:
                held = sorted(gpu.residents, key=lambda resident: resident.job_id)
                now = _present(slug, node.server, held, settings, spans)
                for resident in held:
                    places[resident.job_id].append(now)
    return {k: tuple(v) for k, v in places.items()}, {k: tuple(v) for k, v in homes.items()}


def _present(
    gpu: str,
    server: NodeSpec | None,
    residents: Sequence[Resident],
    settings: PlacementSettings,
    spans: Mapping[str, int],
) -> CoLocation:
    jobs = tuple(_on_one_gpu(resident, spans[resident.job_id]) for resident in residents)
    widest = max(spans[resident.job_id] for resident in residents)
    return CoLocation(gpu, settings.sharing_mode, jobs, widest, server)


def _joined(group: Group, request: JobRequest, settings: PlacementSettings, spans: Mapping[str, int]) -> CoLocation:
    if not group.residents:
        return alone_set(request, group.gpu, settings)
    return _with_newcomer(_present(group.gpu, group.server, group.residents, settings, spans), request)


def _with_newcomer(now: CoLocation, request: JobRequest) -> CoLocation:
    return replace(now, jobs=(*now.jobs, _newcomer(request)), num_gpus=max(now.num_gpus, request.num_gpus))


def _newcomer(request: JobRequest) -> Job:
    """The job with its memory per GPU."""
    solo = replace(request.job.solo, mem_mib=peak_per_gpu_mib(request))
    return replace(request.job, solo=solo)


def _on_one_gpu(resident: Resident, span: int) -> Job:
    """A resident with its memory per GPU."""
    job = resident.job
    if resident.parallelism == "data" or job.solo.mem_mib is None:
        return job
    return replace(job, solo=replace(job.solo, mem_mib=job.solo.mem_mib / span))


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
