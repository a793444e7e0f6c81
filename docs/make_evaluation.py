"""Regenerate ``docs/evaluation.md``: every out-of-sample figure of this project, beside the in-sample one.

    EACO_DATA_DIR=/path/to/data python docs/make_evaluation.py

Takes about half an hour of CPU, most of it the graph neural network's. Same data, same versions, same seed: same
tables.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from eaco_datasets.sources import load_dataset
from eaco_features.examples import examples_from_profiles
from eaco_features.sets import FloatArray, SetBatch, others_sum
from eaco_predictor.models import solo_power
from eaco_predictor.pipeline import TargetPipeline
from eaco_predictor.registry import model_names
from eaco_training.evaluate import Evaluation, Report, evaluation_of
from eaco_training.transfer import N_DRAWS, plot, transfer_curve

HERE = Path(__file__).parent
KS = (0, 1, 2, 3, 5, 10)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("EACO_DATA_DIR"))
    parser.add_argument("--out", type=Path, default=HERE / "evaluation.md")
    parser.add_argument("--without-network", action="store_true", help="leave the graph neural network's rows out")
    options = parser.parse_args()
    if options.data_dir is None:
        print("make_evaluation: name the data folder with --data-dir or EACO_DATA_DIR", file=sys.stderr)
        return 2
    page = (HERE / "evaluation.template.md").read_text(encoding="utf-8")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        made = {
            name: pool.submit(section_lines, name, options.data_dir, not options.without_network) for name in SECTIONS
        }
        for name, lines in made.items():
            page = page.replace(f"<!-- {name} -->", "\n".join(lines.result()))
            print(f"{name} done", file=sys.stderr, flush=True)
    left_out = " The graph neural network's rows were left out of this run (`--without-network`)."
    page = page.replace("<!-- date -->", f"{date.today():%Y-%m-%d}")
    page = page.replace("<!-- left out -->", left_out if options.without_network else "")
    options.out.write_text(page, encoding="utf-8")
    return 0


def section_lines(name: str, folder: Path, network: bool) -> list[str]:
    """The lines of one section."""
    return list(SECTIONS[name](Data(folder, network)))


class Data:
    """Profile tables and evaluations of one data folder."""

    def __init__(self, folder: Path, network: bool = True) -> None:
        self.folder, self.network = folder, network

    def models(self, *names: str) -> list[str]:
        """The names, without the graph neural network's where it is left out."""
        return [name for name in names if self.network or not name.startswith("gnn")]

    def evaluation(
        self, dataset: str, target: str, protocol: str = "leave-one-model-out", *, cold: bool = False
    ) -> Evaluation:
        return evaluation_of(
            _profiles(dataset, self.folder), dataset=dataset, protocol_name=protocol, target=target, cold=cold
        )


@cache
def _profiles(dataset: str, folder: Path) -> pd.DataFrame:
    return load_dataset(dataset, folder)


def speeds(dataset: str) -> Any:
    """Every model of relative speed on one dataset."""

    def section(data: Data) -> Iterator[str]:
        evaluation = data.evaluation(dataset, "relative_speed")
        told_graphs = ("gnn", "gnn-solo", "lightgbm-graph", "lightgbm-both")  # in a table of their own
        names = [name for name in model_names("relative_speed") if name not in told_graphs]
        reports = [evaluation.report(name)[0] for name in names]
        yield from _speed_table(reports)
        yield ""
        yield _families_line(reports[0])

    return section


def inputs(data: Data) -> Iterator[str]:
    """Relative speed by what a model is told of a job."""
    told = {
        "utilisation only": ("lightgbm", "shallow-forest", "soft-minimum"),
        "graph only": ("lightgbm-graph", "gnn"),
        "both": ("lightgbm-both", "gnn-solo", "ensemble"),
        "neither": ("mean",),
    }
    datasets = ("lucid", "gavel-k80", "gavel-p100")
    evaluations = {name: data.evaluation(name, "relative_speed") for name in datasets}
    yield "| told | model | Lucid | random | in-sample | K80 | random | in-sample | P100 | random | in-sample |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for what, models in told.items():
        for model in data.models(*models):
            yield f"| {what} | `{model}` | {_three(evaluations.values(), model)} |"
    yield from _cold_speeds(data, datasets)


def _cold_speeds(data: Data, datasets: tuple[str, ...]) -> Iterator[str]:
    cold = [data.evaluation(name, "relative_speed", cold=True) for name in datasets]
    for model in ("ensemble", "lightgbm-both"):
        yield f"| graph only (`--cold`) | `{model}` | {_three(cold, model)} |"


def _three(evaluations: Iterable[Evaluation], model: str) -> str:
    """Macro MAE on unseen families, on a random split and in sample, of each dataset."""
    cells = []
    for evaluation in evaluations:
        report = evaluation.report(model)[0]
        figures = (report["overall"], report["random"], report["in_sample"])
        cells += [f"{block['macro_mae']:.4f}" for block in figures]
        cells[-3] = f"**{cells[-3]}**"
    return " | ".join(cells)


SOLO = (
    ("epoch_s", "lucid"),
    ("epoch_s", "gavel-k80"),
    ("epoch_s", "gavel-p100"),
    ("epoch_s", "zeus"),
    ("gpu_util_pct", "lucid"),
    ("mem_util_pct", "lucid"),
    ("mem_mib", "lucid"),
)


def solo(data: Data) -> Iterator[str]:
    """Solo quantities from graph and data sheet alone."""
    yield "| target | data | model | macro MAPE % | median family, MAPE % | macro MAE | random, macro MAE | in-sample |"
    yield "|---|---|---|---|---|---|---|---|"
    for target, dataset in SOLO:
        evaluation = data.evaluation(dataset, target, cold=True)
        for model in data.models("roofline", "lightgbm-graph", "roofline-lightgbm", "gnn", "mean"):
            if not (model == "gnn" and dataset == "zeus"):  # 1,600 rows x 6 refits: left out for its cost
                yield f"| `{target}` | {dataset} | `{model}` | {_solo_cells(evaluation, model)} |"


def _solo_cells(evaluation: Evaluation, model: str) -> str:
    report = evaluation.report(model)[0]
    overall = report["overall"]
    middle = np.median([group["mape_pct"] for group in report["groups"] if group["provenance"] != "imputed"])
    beside = [report["random"]["macro_mae"], report["in_sample"]["macro_mae"]]
    return (
        f"**{overall['macro_mape_pct']:.1f}** | {middle:.1f} | {overall['macro_mae']:.1f} | {beside[0]:.1f} "
        f"| {beside[1]:.1f}"
    )


def cold_power(data: Data) -> Iterator[str]:
    """GPU power on Zeus from graph, data sheet and power limit alone."""
    yield "| model | leave-one-workload-out, macro MAPE % | leave-one-model-out | macro MAE W | random | in-sample |"
    yield "|---|---|---|---|---|---|"
    by_workload = data.evaluation("zeus", "gpu_power_w", "leave-one-workload-out", cold=True)
    by_family = data.evaluation("zeus", "gpu_power_w", cold=True)
    for model in data.models("roofline", "roofline-lightgbm", "lightgbm-graph", "gnn", "lightgbm", "mean"):
        workload, family = by_workload.report(model)[0], by_family.report(model)[0]
        yield (
            f"| `{model}` | **{workload['overall']['macro_mape_pct']:.1f}** "
            f"| {family['overall']['macro_mape_pct']:.1f} | {workload['overall']['macro_mae']:.1f} "
            f"| {workload['random']['macro_mape_pct']:.1f} | {workload['in_sample']['macro_mape_pct']:.1f} |"
        )
    best = by_workload.report("roofline")[0]
    parts = [f"{g['held_out']} {g['mape_pct']:.1f} % (coverage {g['coverage_pct']:.0f} %)" for g in best["groups"]]
    yield ""
    yield f"`roofline`, each held-out workload: {', '.join(parts)}."


CURVES = (("relative_speed", "ensemble"), ("relative_speed", "gnn"), ("epoch_s", "roofline"), ("epoch_s", "gnn"))


def transfer(data: Data) -> Iterator[str]:
    """Carried to a new GPU type by K measurements, against trained from scratch on them."""
    profiles = _profiles("gavel", data.folder)
    yield "| target | model | to | K | error | coverage % | from scratch |"
    yield "|---|---|---|---|---|---|---|"
    drawn = []
    for target, model in (pair for pair in CURVES if data.models(pair[1])):
        metric = "mape_pct" if target == "epoch_s" else "mae"
        for slug in ("k80", "p100"):
            n_draws = 3 if model == "gnn" else N_DRAWS
            curve = transfer_curve(profiles, dataset="gavel", target=target, gpu=slug, model=model, n_draws=n_draws)
            if model != "gnn":
                drawn.append(curve)
            for point in curve["points"]:
                ours, scratch = point["adapted"], point["scratch"]
                figures = [
                    f"{some[metric]:.4f}" if metric == "mae" else f"{some[metric]:.1f} %"
                    for some in (ours, scratch or ours)
                ]
                yield (
                    f"| `{target}` | `{model}` | {slug} | {point['samples']} | **{figures[0]}** "
                    f"| {ours['coverage_pct']:.0f} | {figures[1] if scratch else '-'} |"
                )
    (HERE / "transfer.svg").write_text(plot(drawn), encoding="utf-8")


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


def protocols(data: Data) -> Iterator[str]:
    yield "| dataset | protocol | groups | macro MAE | MAE | coverage % | width |"
    yield "|---|---|---|---|---|---|---|"
    asked = [
        ("lucid", "in-sample"),
        ("lucid", "random"),
        ("lucid", "leave-one-config-out"),
        ("lucid", "leave-one-model-out"),
        ("lucid", "leave-one-family-group-out"),
        ("gavel", "leave-one-gpu-out"),
    ]
    for dataset, protocol in asked:
        o = data.evaluation(dataset, "relative_speed", protocol).report("ensemble")[0]["overall"]
        yield (
            f"| {dataset} | {protocol} | {o['n_groups']} | {o['macro_mae']:.4f} | {o['mae']:.4f} "
            f"| {o['coverage_pct']:.0f} | {o['interval_width']:.2f} |"
        )


def observations(data: Data) -> Iterator[str]:
    reports = data.evaluation("lucid", "relative_speed").report("ensemble", ks=KS)
    yield "| K | macro MAE | raw MAE | coverage % | width | best baseline at the same K |"
    yield "|---|---|---|---|---|---|"
    for r in reports:
        o = r["overall"]
        best = min(r["baselines"].items(), key=lambda item: item[1]["macro_mae"])
        yield (
            f"| {r['observations']} | **{o['macro_mae']:.4f}** | {o['mae_raw']:.4f} | {o['coverage_pct']:.0f} "
            f"| {o['interval_width']:.2f} | `{best[0]}` {best[1]['macro_mae']:.4f} |"
        )


def zeus(data: Data) -> Iterator[str]:
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


def zeus_by_gpu(data: Data) -> Iterator[str]:
    (report,) = data.evaluation("zeus", "gpu_power_w").report("soft-cap", ks=(1,))
    yield "| GPU | K | macro MAPE % | MAPE % |"
    yield "|---|---|---|---|"
    for g in report["gpus"]:
        yield f"| {g['gpu']} | 1 | {g['macro_mape_pct']:.1f} | {g['mape_pct']:.1f} |"
    yield ""
    parts = [f"{g['held_out']} {g['mape_pct']:.1f} % (coverage {g['coverage_pct']:.0f} %)" for g in report["groups"]]
    yield f"Held-out families at K = 1: {', '.join(parts)}."


def exponents(data: Data) -> Iterator[str]:
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


def rebased(data: Data) -> Iterator[str]:
    examples = examples_from_profiles(_profiles("lucid", data.folder), "relative_speed")
    tried: dict[str, type[TargetPipeline]] = {"soft minimum": TargetPipeline, "the same, rebased": Rebased}
    for name, pipeline in tried.items():
        evaluation = Evaluation(
            examples,
            dataset="lucid",
            protocol_name="leave-one-model-out",
            target="relative_speed",
            baselines=(),
            make=lambda _name, intervals, p=pipeline: p("relative_speed", "soft-minimum", intervals=intervals),
        )
        yield f"- {name}: {evaluation.report(name)[0]['overall']['macro_mae']:.4f}"


def published(data: Data) -> Iterator[str]:
    evaluation = data.evaluation("eaco", "node_power_w", "solo-to-shared")
    fan, line = evaluation.report("fan")[0], evaluation.report("line")[0]
    lines = {g["held_out"]: g["mape_pct"] for g in line["groups"]}
    yield "| job set | `fan`, error % | `line`, error % |"
    yield "|---|---|---|"
    for g in fan["groups"]:
        yield f"| {g['held_out'].removeprefix('eaco-').upper()} | {g['mape_pct']:.1f} | {lines[g['held_out']]:.1f} |"
    yield f"| mean | {fan['overall']['macro_mape_pct']:.1f} | {line['overall']['macro_mape_pct']:.1f} |"


def sets(data: Data) -> Iterator[str]:
    yield "| target | model | macro MAE | macro MAPE % | coverage % |"
    yield "|---|---|---|---|---|"
    for target in ("mem_mib", "gpu_util_pct"):
        evaluation = data.evaluation("lucid", target)
        for name in (name for name in model_names(target) if name not in model_names(target, cold=True)[:-1]):
            o = evaluation.report(name)[0]["overall"]
            figures = f"{o['macro_mae']:.1f} | {o['macro_mape_pct']:.1f} | {o['coverage_pct']:.0f}"
            yield f"| `{target}` | `{name}` | {figures} |"


SECTIONS: dict[str, Any] = {
    "transfer": transfer,
    "inputs": inputs,
    "solo": solo,
    "cold-power": cold_power,
    "lucid": speeds("lucid"),
    "gavel-k80": speeds("gavel-k80"),
    "gavel-p100": speeds("gavel-p100"),
    "protocols": protocols,
    "observations": observations,
    "zeus": zeus,
    "zeus-by-gpu": zeus_by_gpu,
    "exponents": exponents,
    "rebased": rebased,
    "published": published,
    "sets": sets,
}

if __name__ == "__main__":
    raise SystemExit(main())
