"""The tables of ``docs/evaluation.md``: sections, each made of parts that can be computed one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from eaco_datasets.errors import DataError
from eaco_datasets.sources import load_dataset
from eaco_features.examples import examples_from_profiles
from eaco_features.sets import FloatArray, SetBatch, others_sum
from eaco_predictor.models import solo_power
from eaco_predictor.pipeline import TargetPipeline
from eaco_predictor.registry import baselines, model_names
from eaco_training.evaluate import Evaluation, Report
from eaco_training.transfer import N_DRAWS, transfer_curve

KS = (0, 1, 2, 3, 5, 10)
Line = str | dict[str, Any]
"""A line of the page, or a transfer curve for the drawing beside it."""


@dataclass(frozen=True)
class Part:
    """Some lines of a section; ``cost`` is rough, in minutes of one core: what costs most is begun first."""

    name: str
    lines: Callable[[Data], Iterator[Line]]
    cost: float = 0.5


@dataclass(frozen=True)
class Section:
    """Parts in the order of the page, under the head of their table."""

    parts: tuple[Part, ...]
    head: tuple[str, ...] = ()


def _table(columns: str, parts: Sequence[Part]) -> Section:
    return Section(tuple(parts), (columns, "|---" * (columns.count("|") - 1) + "|"))


def _whole(lines: Callable[[Data], Iterator[Line]], cost: float = 0.5) -> Section:
    return Section((Part("whole", lines, cost),))


class Data:
    """Profile tables and evaluations of one data folder."""

    def __init__(self, folder: Path, network: bool = True) -> None:
        self.folder, self.network = folder, network

    def models(self, *names: str) -> list[str]:
        """The names, without the graph neural network's where it is left out."""
        return [name for name in names if self.network or not name.startswith("gnn")]

    def evaluation(
        self, dataset: str, target: str, protocol: str = "leave-one-model-out", *, cold: bool = False, **asked: Any
    ) -> Evaluation:
        """Without rivals, unless ``baselines`` names some."""
        return Evaluation(
            examples_from_profiles(self.profiles(dataset), target, cold=cold),
            dataset=dataset,
            protocol_name=protocol,
            target=target,
            cold=cold,
            **{"baselines": (), **asked},
        )

    def unfilled(self, dataset: str) -> Evaluation:
        """Of relative speed, with models that are told only the solo profile that the data state."""

        def make(name: str, intervals: bool) -> TargetPipeline:
            return TargetPipeline("relative_speed", name, intervals=intervals, fill=False)

        return self.evaluation(dataset, "relative_speed", make=make)

    def profiles(self, dataset: str) -> pd.DataFrame:
        return _profiles(dataset, self.folder)


@cache
def _profiles(dataset: str, folder: Path) -> pd.DataFrame:
    return load_dataset(dataset, folder)


def speeds(dataset: str) -> Any:
    """Every model of relative speed on one dataset."""

    def section(data: Data) -> Iterator[Line]:
        evaluation = data.evaluation(dataset, "relative_speed", baselines=baselines("relative_speed"))
        told_graphs = ("gnn", "gnn-solo", "lightgbm-graph", "lightgbm-both")  # in a table of their own
        names = [name for name in model_names("relative_speed") if name not in told_graphs]
        reports = [evaluation.report(name)[0] for name in names]
        yield from _speed_table(reports)
        yield ""
        yield _families_line(reports[0])

    return section


def _speed_table(reports: list[Report]) -> Iterator[str]:
    yield "| model | macro MAE | 95 % CI | MAE | raw MAE | coverage % | width | random split | in-sample |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for r in reports:
        o = r["overall"]
        low, high = o["macro_mae_ci"]
        yield (
            f"| `{r['model']}` | **{o['macro_mae']:.4f}** | {low:.3f} to {high:.3f} | {o['mae']:.4f} "
            f"| {o['mae_raw']:.4f} | {o['coverage_pct']:.0f} | {o['interval_width']:.2f} "
            f"| {r['random']['macro_mae']:.4f} | {r['in_sample']['macro_mae']:.4f} |"
        )


def _families_line(report: Report) -> str:
    parts = [f"{g['held_out']} {g['mae']:.3f} ({g['coverage_pct']:.0f} %)" for g in report["groups"]]
    versus = report["versus_best_baseline"]
    low, high = versus["macro_mae_difference_ci"]
    return (
        f"`{report['model']}`, MAE (coverage) of each held-out family: {', '.join(parts)}. Macro MAE less that of the "
        f"best baseline, `{versus['baseline']}`: {versus['macro_mae_difference']:+.4f} (paired bootstrap over "
        f"families, 95 %: {low:+.4f} to {high:+.4f})."
    )


TOLD = {
    "utilisation only": ("lightgbm", "shallow-forest", "soft-minimum"),
    "utilisation, completed from graphs": ("lightgbm", "shallow-forest", "soft-minimum"),
    "graph only": ("lightgbm-graph", "gnn"),
    "both": ("lightgbm-both", "gnn-solo", "ensemble"),
    "graph only (`--cold`)": ("lightgbm-both", "ensemble"),
    "neither": ("mean",),
}


def inputs() -> Section:
    """Relative speed by what a model is told of a job."""
    parts = []
    for dataset in ("lucid", "gavel-k80", "gavel-p100"):
        for told, models in TOLD.items():
            for network in (False, True):
                some = tuple(model for model in models if model.startswith("gnn") == network)
                lines = partial(_told, dataset, told, some)
                name = f"{dataset} {told}{', network' if network else ''}"
                parts += [Part(name, lines, cost=8.0 if network else 2.0 if "--cold" in told else 1.0)] if some else []
    return _table("| data | told | model | macro MAE, unseen families | random split | in-sample |", parts)


def _told(dataset: str, told: str, models: tuple[str, ...], data: Data) -> Iterator[Line]:
    if told == "utilisation only":
        evaluation = data.unfilled(dataset)
    else:
        evaluation = data.evaluation(dataset, "relative_speed", cold="--cold" in told)
    for model in data.models(*models):
        yield f"| {dataset} | {told} | `{model}` | {_speeds_of(evaluation, model)} |"


def _speeds_of(evaluation: Evaluation, model: str) -> str:
    """Macro MAE on unseen families, on a random split and in sample."""
    try:
        report = evaluation.report(model)[0]
    except DataError:  # the data state nothing that it reads
        return "**-** | - | -"
    unseen, *beside = (f"{report[block]['macro_mae']:.4f}" for block in ("overall", "random", "in_sample"))
    return " | ".join((f"**{unseen}**", *beside))


SOLO = (
    ("epoch_s", "lucid"),
    ("epoch_s", "gavel-k80"),
    ("epoch_s", "gavel-p100"),
    ("epoch_s", "zeus"),
    ("gpu_util_pct", "lucid"),
    ("mem_util_pct", "lucid"),
    ("mem_mib", "lucid"),
)
SOLO_OF_NETWORK = {("epoch_s", "lucid"), ("epoch_s", "gavel-p100"), ("gpu_util_pct", "lucid")}
"""Where the network is trained: a fit a family each, so the others are left out for their cost."""


def solo() -> Section:
    """Solo quantities from graph and data sheet alone."""
    parts = []
    for target, dataset in SOLO:
        lines = partial(_solo, target, dataset, ("roofline", "lightgbm-graph", "roofline-lightgbm", "mean"))
        parts.append(Part(f"{target} {dataset}", lines, cost=2.0 if dataset == "zeus" else 1.0))
        if (target, dataset) in SOLO_OF_NETWORK:
            parts.append(Part(f"{target} {dataset}, network", partial(_solo, target, dataset, ("gnn",)), cost=6.0))
        else:
            parts.append(Part(f"{target} {dataset}, network", partial(_no_network, target, dataset), cost=0.0))
    return _table(
        "| target | data | model | macro MAPE % | median family, MAPE % | macro MAE | random, macro MAE | in-sample |",
        parts,
    )


def _solo(target: str, dataset: str, models: tuple[str, ...], data: Data) -> Iterator[Line]:
    evaluation = data.evaluation(dataset, target, cold=True)
    for model in data.models(*models):
        yield f"| `{target}` | {dataset} | `{model}` | {_solo_cells(evaluation, model)} |"


def _no_network(target: str, dataset: str, data: Data) -> Iterator[Line]:
    for model in data.models("gnn"):
        yield f"| `{target}` | {dataset} | `{model}` | not run | | | | |"


def _solo_cells(evaluation: Evaluation, model: str) -> str:
    report = evaluation.report(model)[0]
    overall = report["overall"]
    middle = np.median([group["mape_pct"] for group in report["groups"] if group["provenance"] != "imputed"])
    beside = [report["random"]["macro_mae"], report["in_sample"]["macro_mae"]]
    return (
        f"**{overall['macro_mape_pct']:.1f}** | {middle:.1f} | {overall['macro_mae']:.1f} | {beside[0]:.1f} "
        f"| {beside[1]:.1f}"
    )


def cold_power() -> Section:
    """GPU power on Zeus from graph, data sheet and power limit alone."""
    models = ("roofline", "roofline-lightgbm", "lightgbm-graph", "gnn", "lightgbm", "mean")
    costs = {"gnn": 10.0, "roofline": 0.5, "mean": 0.1}
    return _table(
        "| model | leave-one-workload-out, macro MAPE % | leave-one-model-out | macro MAE W | random | in-sample |",
        [
            *(Part(model, partial(_cold_power, model), costs.get(model, 2.0)) for model in models),
            Part("by workload", _by_workload),
        ],
    )


def _cold_power(model: str, data: Data) -> Iterator[Line]:
    for name in data.models(model):
        workload = data.evaluation("zeus", "gpu_power_w", "leave-one-workload-out", cold=True).report(name)[0]
        family = data.evaluation("zeus", "gpu_power_w", cold=True).report(name)[0]
        yield (
            f"| `{name}` | **{workload['overall']['macro_mape_pct']:.1f}** "
            f"| {family['overall']['macro_mape_pct']:.1f} | {workload['overall']['macro_mae']:.1f} "
            f"| {workload['random']['macro_mape_pct']:.1f} | {workload['in_sample']['macro_mape_pct']:.1f} |"
        )


def _by_workload(data: Data) -> Iterator[Line]:
    best = data.evaluation("zeus", "gpu_power_w", "leave-one-workload-out", cold=True).report("roofline")[0]
    parts = [f"{g['held_out']} {g['mape_pct']:.1f} % (coverage {g['coverage_pct']:.0f} %)" for g in best["groups"]]
    yield ""
    yield f"`roofline`, each held-out workload: {', '.join(parts)}."


CURVES = {("relative_speed", "ensemble"): 4.0, ("relative_speed", "gnn"): 6.0} | {
    ("epoch_s", "roofline"): 1.0,
    ("epoch_s", "gnn"): 3.0,
}
"""Target and model of each transfer curve, and its rough cost."""
N_DRAWS_OF_NETWORK = 2
"""Draws for the network (choice: each trains it from scratch for every number of samples)."""


def transfer() -> Section:
    """Carried to a new GPU type by K measurements, against trained from scratch on them."""
    return _table(
        "| target | model | to | draws | K | error | coverage % | from scratch |",
        [
            Part(f"{target} {model} {gpu}", partial(_transfer, target, model, gpu), cost)
            for (target, model), cost in CURVES.items()
            for gpu in ("k80", "p100")
        ],
    )


def _transfer(target: str, model: str, gpu: str, data: Data) -> Iterator[Line]:
    for name in data.models(model):
        n_draws = N_DRAWS_OF_NETWORK if name == "gnn" else N_DRAWS
        curve = transfer_curve(
            data.profiles("gavel"), dataset="gavel", target=target, gpu=gpu, model=name, n_draws=n_draws
        )
        yield curve
        for point in curve["points"]:
            ours, scratch = point["adapted"], point["scratch"]
            yield (
                f"| `{target}` | `{name}` | {gpu} | {n_draws} | {point['samples']} | **{_error(target, ours)}** "
                f"| {ours['coverage_pct']:.0f} | {_error(target, scratch)} |"
            )


def _error(target: str, figures: dict[str, float] | None) -> str:
    if figures is None:
        return "-"
    return f"{figures['mape_pct']:.1f} %" if target == "epoch_s" else f"{figures['mae']:.4f}"


PROTOCOLS = (
    ("lucid", "in-sample"),
    ("lucid", "random"),
    ("lucid", "leave-one-config-out"),
    ("lucid", "leave-one-model-out"),
    ("lucid", "leave-one-family-group-out"),
    ("gavel", "leave-one-gpu-out"),
)


def protocols() -> Section:
    """The default under every protocol."""
    return _table(
        "| dataset | protocol | groups | macro MAE | MAE | coverage % | width |",
        [Part(f"{dataset} {protocol}", partial(_protocol, dataset, protocol), 1.0) for dataset, protocol in PROTOCOLS],
    )


def _protocol(dataset: str, protocol: str, data: Data) -> Iterator[Line]:
    o = data.evaluation(dataset, "relative_speed", protocol).report("ensemble")[0]["overall"]
    yield (
        f"| {dataset} | {protocol} | {o['n_groups']} | {o['macro_mae']:.4f} | {o['mae']:.4f} "
        f"| {o['coverage_pct']:.0f} | {o['interval_width']:.2f} |"
    )


def observations(data: Data) -> Iterator[Line]:
    rivals = baselines("relative_speed")
    reports = data.evaluation("lucid", "relative_speed", baselines=rivals).report("ensemble", ks=KS)
    yield "| K | macro MAE | raw MAE | coverage % | width | best baseline at the same K |"
    yield "|---|---|---|---|---|---|"
    for r in reports:
        o = r["overall"]
        best = min(r["baselines"].items(), key=lambda item: item[1]["macro_mae"])
        yield (
            f"| {r['observations']} | **{o['macro_mae']:.4f}** | {o['mae_raw']:.4f} | {o['coverage_pct']:.0f} "
            f"| {o['interval_width']:.2f} | `{best[0]}` {best[1]['macro_mae']:.4f} |"
        )


def zeus(data: Data) -> Iterator[Line]:
    evaluation = data.evaluation("zeus", "gpu_power_w")
    yield "| model | K | macro MAPE % | MAPE % | same batch size, macro | coverage % | random split | in-sample |"
    yield "|---|---|---|---|---|---|---|---|"
    told_graphs = ("gnn", "roofline", "lightgbm-graph", "roofline-lightgbm")  # in a table of their own
    for name in (name for name in model_names("gpu_power_w") if name not in told_graphs):
        for r in evaluation.report(name, ks=(0, 1, 2)):
            o, same = r["overall"], r.get("same_batch_size")
            at_same = f"{same['macro_mape_pct']:.1f}" if same else ""
            yield (
                f"| `{name}` | {r['observations']} | **{o['macro_mape_pct']:.1f}** | {o['mape_pct']:.1f} "
                f"| {at_same} | {o['coverage_pct']:.0f} "
                f"| {r['random']['macro_mape_pct']:.1f} | {r['in_sample']['macro_mape_pct']:.1f} |"
            )


def zeus_by_gpu(data: Data) -> Iterator[Line]:
    (report,) = data.evaluation("zeus", "gpu_power_w").report("soft-cap", ks=(1,))
    yield "| GPU | K | macro MAPE % | MAPE % |"
    yield "|---|---|---|---|"
    for g in report["gpus"]:
        yield f"| {g['gpu']} | 1 | {g['macro_mape_pct']:.1f} | {g['mape_pct']:.1f} |"
    yield ""
    parts = [f"{g['held_out']} {g['mape_pct']:.1f} % (coverage {g['coverage_pct']:.0f} %)" for g in report["groups"]]
    yield f"Held-out families at K = 1: {', '.join(parts)}."


def exponents(data: Data) -> Iterator[Line]:
    """What the choice of ``BATCH_EXPONENT`` costs."""
    yield "| exponent | K | macro MAPE % |"
    yield "|---|---|---|"
    chosen = solo_power.BATCH_EXPONENT
    try:
        for exponent in (0.0, 0.25, 0.5, 0.75, 1.0):
            solo_power.BATCH_EXPONENT = exponent
            (report,) = data.evaluation("zeus", "gpu_power_w").report("soft-cap", ks=(1,))
            yield f"| {exponent} | 1 | {report['overall']['macro_mape_pct']:.1f} |"
    finally:
        solo_power.BATCH_EXPONENT = chosen


NEAR_IDLE_PCT = 15.0


class Rebased(TargetPipeline):
    """The soft minimum fitted on speeds divided by the config's median beside near-idle co-runners."""

    def fit(self, sets: SetBatch, target: FloatArray) -> Rebased:
        beside_idle = others_sum(sets.solo_of("gpu_util_pct"), sets.present) <= NEAR_IDLE_PCT
        rebased = target.copy()
        for config in np.unique(sets.config[sets.present]):
            mine = sets.config == config
            base = target[mine & beside_idle & np.isfinite(target)]
            rebased[mine] /= np.median(base) if len(base) else 1.0
        super().fit(sets, rebased)
        return self


def rebased(data: Data) -> Iterator[Line]:
    tried: dict[str, type[TargetPipeline]] = {"soft minimum": TargetPipeline, "the same, rebased": Rebased}
    for name, pipeline in tried.items():

        def make(_name: str, intervals: bool, pipeline: type[TargetPipeline] = pipeline) -> TargetPipeline:
            return pipeline("relative_speed", "soft-minimum", intervals=intervals)

        report = data.evaluation("lucid", "relative_speed", make=make).report(name)[0]
        yield f"- {name}: {report['overall']['macro_mae']:.4f}"


def published(data: Data) -> Iterator[Line]:
    evaluation = data.evaluation("eaco", "node_power_w", "solo-to-shared")
    fan, line = evaluation.report("fan")[0], evaluation.report("line")[0]
    lines = {g["held_out"]: g["mape_pct"] for g in line["groups"]}
    yield "| job set | `fan`, error % | `line`, error % |"
    yield "|---|---|---|"
    for g in fan["groups"]:
        yield f"| {g['held_out'].removeprefix('eaco-').upper()} | {g['mape_pct']:.1f} | {lines[g['held_out']]:.1f} |"
    yield f"| mean | {fan['overall']['macro_mape_pct']:.1f} | {line['overall']['macro_mape_pct']:.1f} |"


def sets(data: Data) -> Iterator[Line]:
    yield "| target | model | macro MAE | macro MAPE % | coverage % |"
    yield "|---|---|---|---|---|"
    for target in ("mem_mib", "gpu_util_pct"):
        evaluation = data.evaluation("lucid", target)
        for name in model_names(target):
            o = evaluation.report(name)[0]["overall"]
            figures = f"{o['macro_mae']:.1f} | {o['macro_mape_pct']:.1f} | {o['coverage_pct']:.0f}"
            yield f"| `{target}` | `{name}` | {figures} |"


SECTIONS: dict[str, Section] = {
    "lucid": _whole(speeds("lucid"), 3.0),
    "rebased": _whole(rebased),
    "protocols": protocols(),
    "observations": _whole(observations, 2.0),
    "gavel-k80": _whole(speeds("gavel-k80"), 3.0),
    "gavel-p100": _whole(speeds("gavel-p100"), 3.0),
    "inputs": inputs(),
    "solo": solo(),
    "cold-power": cold_power(),
    "transfer": transfer(),
    "zeus": _whole(zeus, 3.0),
    "zeus-by-gpu": _whole(zeus_by_gpu),
    "exponents": _whole(exponents),
    "published": _whole(published, 0.1),
    "sets": _whole(sets),
}
