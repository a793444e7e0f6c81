"""Between the wire and the domain: wire models in, domain values; domain values in, plain JSON data out."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from eaco_datasets.errors import InputError
from eaco_datasets.gpus import gpu_slug, gpu_specs
from eaco_datasets.names import dataset_slug, family_of
from eaco_datasets.types import CoLocation, Job, NodeSpec, SoloProfile
from eaco_predictor.prediction import Estimate, SetPrediction
from eaco_scheduler.cluster import ClusterState, Gpu, Node, Resident
from eaco_scheduler.decision import Decision, JobRequest
from eaco_scheduler.settings import PlacementSettings, policy_settings
from eaco_serving.schemas import JobIn, NodeIn, SetIn, SoloIn
from eaco_serving.schemas_place import ClusterIn, ClusterNodeIn, GpuIn, PlaceIn, PlaceJobIn, ResidentIn

UNKNOWN_SOLO = SoloProfile()

_family = lru_cache(maxsize=8192)(family_of)
_dataset = lru_cache(maxsize=8192)(dataset_slug)
_slug = lru_cache(maxsize=1024)(gpu_slug)


def co_location(wire: SetIn, where: str = "") -> CoLocation:
    """A set as the predictor takes it.

    Args:
        where: JSON pointer of the set in the request.

    Raises:
        InputError: at the field that names an unknown GPU or no model at all.
    """
    return CoLocation(
        gpu=_gpu(wire.gpu, f"{where}/gpu"),
        sharing_mode=wire.sharing_mode,
        jobs=tuple([job(j, where, "/jobs/", i) for i, j in enumerate(wire.jobs)]),
        num_gpus=wire.num_gpus,
        node=None if wire.node is None else node_spec(wire.node),
    )


def job(wire: JobIn, *where: str | int) -> Job:
    """A job with its family looked up; ``where`` are the parts of its JSON pointer."""
    try:
        family = _family(wire.model, wire.dataset)
    except InputError as error:
        raise error.at("".join(map(str, where)) + "/model") from None
    return Job(
        model=wire.model,
        family=family,
        batch_size=wire.batch_size,
        precision=wire.precision,
        job_id=wire.job_id,
        dataset=None if wire.dataset is None else _named(wire.dataset, where),
        optimizer=wire.optimizer,
        num_workers=wire.num_workers,
        solo=UNKNOWN_SOLO if wire.solo is None else solo_profile(wire.solo),
        samples_per_epoch=wire.samples_per_epoch,
        remaining_epochs=wire.remaining_epochs,
        deadline_s=wire.deadline_s,
        exclusive=wire.exclusive,
    )


def solo_profile(wire: SoloIn) -> SoloProfile:
    """A solo profile."""
    return SoloProfile(
        wire.throughput_samples_s, wire.epoch_s, wire.gpu_util_pct, wire.mem_util_pct, wire.mem_mib, wire.gpu_power_w
    )


def node_spec(wire: NodeIn) -> NodeSpec:
    """A node's server part."""
    return NodeSpec(wire.cpu_idle_w, wire.cpu_busy_w, wire.cpu_util_pct)


class Placement(NamedTuple):
    """A request for a placement."""

    request: JobRequest
    cluster: ClusterState
    settings: PlacementSettings


def placement(wire: PlaceIn) -> Placement:
    """A request for a placement as the policy takes it.

    Raises:
        InputError: at the field that is impossible or contradicts another.
    """
    return Placement(job_request(wire.job), cluster_state(wire.cluster), placement_settings(wire))


def job_request(wire: PlaceJobIn) -> JobRequest:
    """The job to place."""
    return JobRequest(
        job=job(wire, "/job"),
        num_gpus=wire.num_gpus,
        gpu=None if wire.gpu is None else _gpu(wire.gpu, "/job/gpu"),
        parallelism=wire.parallelism,
        waited_s=wire.waited_s,
    )


def cluster_state(wire: ClusterIn) -> ClusterState:
    """The cluster.

    Raises:
        InputError: at the node, GPU or resident that is impossible or contradicts another.
    """
    return ClusterState(tuple(_node(node, f"/cluster/nodes/{i}") for i, node in enumerate(wire.nodes)))


def placement_settings(wire: PlaceIn) -> PlacementSettings:
    """The policy's settings with those of the request over them."""
    given = {} if wire.settings is None else wire.settings.model_dump(exclude_none=True)
    return policy_settings(wire.policy, given)


def prediction_wire(prediction: SetPrediction) -> dict[str, Any]:
    """A prediction as JSON data (``PredictionOut``)."""
    return {
        "jobs": [
            {
                "job_id": j.job_id,
                "relative_speed": _estimate(j.relative_speed),
                "epoch_s": _estimate(j.epoch_s),
                "jct_s": _estimate(j.jct_s),
                "deadline_miss_probability": j.deadline_miss_probability,
                "solo_profile": j.solo_profile,
            }
            for j in prediction.jobs
        ],
        "gpu_power_w": _estimate(prediction.gpu_power_w),
        "node_power_w": _estimate(prediction.node_power_w),
        "gpu_util_pct": _estimate(prediction.gpu_util_pct),
        "mem_mib": _estimate(prediction.mem_mib),
        "oom_probability": prediction.oom_probability,
        "energy_j_per_epoch": _estimate(prediction.energy_j_per_epoch),
        "out_of_distribution": prediction.out_of_distribution,
        "nearest_families": prediction.nearest_families,
        "abstained": prediction.abstained,
        "predictor_version": prediction.predictor_version,
        "schema_version": prediction.schema_version,
        "provenance": prediction.provenance,
    }


def decision_wire(decision: Decision, in_full: int) -> dict[str, Any]:
    """A decision as JSON data (``DecisionOut``), with the predictions of its ``in_full`` best alternatives by rank."""
    held = decision.reservation
    return {
        "decision": decision.decision,
        "phase": decision.phase,
        "gpus": decision.gpus,
        "co_residents": decision.co_residents,
        "prediction": _maybe(decision.prediction),
        "alternatives": [
            {
                "gpus": a.gpus,
                "rank": a.rank,
                "score": a.score,
                "prediction": _maybe(a.prediction) if a.rank <= in_full else None,
                "refused": a.refused,
                "co_residents": a.co_residents,
            }
            for a in decision.alternatives
        ],
        "refusals": [{"gpus": r.gpus, "reason": r.reason} for r in decision.refusals],
        "reservation": held and {"job_id": held.job_id, "gpus": held.gpus, "since_s": held.since_s},
        "explanation": decision.explanation,
        "settings": decision.settings,
    }


def gpus_wire() -> dict[str, Any]:
    """The GPU catalogue as JSON data (``GpusOut``)."""
    return {"gpus": [{name: getattr(s, name) for name in s.__dataclass_fields__} for s in gpu_specs().values()]}


def _named(dataset: str, where: tuple[str | int, ...]) -> str:
    slug = _dataset(dataset)
    if not slug:
        at = "".join(map(str, where)) + "/dataset"
        raise InputError(
            f"dataset name {dataset!r} holds no letter or digit", where=at, expected="a name such as imagenet"
        )
    return slug


def _gpu(name: str, where: str) -> str:
    try:
        return _slug(name)
    except InputError as error:
        raise error.at(where) from None


def _node(wire: ClusterNodeIn, where: str) -> Node:
    return Node(
        node_id=wire.node_id,
        gpu=_gpu(wire.gpu, f"{where}/gpu"),
        gpus=tuple(_cluster_gpu(gpu, f"{where}/gpus/{i}") for i, gpu in enumerate(wire.gpus)),
        state=wire.state,
        server=None if wire.server is None else node_spec(wire.server),
    )


def _cluster_gpu(wire: GpuIn, where: str) -> Gpu:
    residents = tuple(_resident(r, f"{where}/residents/{i}") for i, r in enumerate(wire.residents))
    return Gpu(wire.uuid, residents, wire.core_util_pct, wire.mem_util_pct)


def _resident(wire: ResidentIn, where: str) -> Resident:
    return Resident(job(wire, where), wire.phase, wire.placed_epoch, wire.parallelism)


def _estimate(value: Estimate | None) -> dict[str, float] | None:
    return None if value is None else {"mean": value.mean, "lower": value.lower, "upper": value.upper}


def _maybe(prediction: SetPrediction | None) -> dict[str, Any] | None:
    return None if prediction is None else prediction_wire(prediction)
