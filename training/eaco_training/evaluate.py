"""Out-of-sample error of models, beside the in-sample one: the evaluation report (schema 1).

``overall`` holds measured and published rows only. Simulated rows are scored too, in ``overall_simulated``; imputed
rows appear only as groups of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from eaco_datasets.errors import InputError
from eaco_features.examples import Examples, examples_from_profiles
from eaco_features.sets import BoolArray
from eaco_predictor.targets import target_spec
from eaco_training.choices import ABLE, checked_target, known_model
from eaco_training.folds import PROTOCOLS, EvaluationProtocol, RowGroups, protocol
from eaco_training.metrics import (
    CI_LEVEL,
    Figures,
    ScoredRows,
    interval_figures,
    macro_figures,
    macro_mean,
    overall_figures,
    paired_difference,
    point_figures,
)
from eaco_training.study import (
    ObservationPlan,
    PipelineFactory,
    Progress,
    Study,
    TestedRows,
    no_progress,
    pipeline_factory,
)
from eaco_training.units import N_DRAWS, SOLO_TARGETS, noise_floor, unit_name

Report = dict[str, Any]

SCHEMA = 1
COUNTED: tuple[str, ...] = ("measured", "published")
"""Provenances that ``overall`` is made of."""
BESIDE: tuple[str, ...] = ("in-sample", "random")
"""Protocols whose figures stand beside every report."""


class Evaluation:
    """One dataset, target and protocol, on which models are evaluated one after the other.

    Args:
        examples: co-locations with the measured target.
        dataset: the dataset's name, as reports state it.
        protocol_name: a name of ``eaco_training.folds.PROTOCOLS``.
        target: a name of ``eaco_features.examples.TARGETS``.
        baselines: models that are evaluated on the same rows, for comparison.
        make: makes pipelines; the product's own by default.
        stated: further facts for the head of each report (the data's hash).
        cold: nothing but the graph is known of the tested families' jobs; ``examples`` must be cold ones.
    """

    def __init__(
        self,
        examples: Examples,
        *,
        dataset: str,
        protocol_name: str,
        target: str,
        baselines: Sequence[str],
        seed: int = 0,
        make: PipelineFactory | None = None,
        progress: Progress = no_progress,
        stated: dict[str, str] | None = None,
        cold: bool = False,
    ) -> None:
        self.examples, self.dataset, self.target, self.seed = examples, dataset, target, seed
        self.protocol: EvaluationProtocol = protocol(protocol_name)
        self._baselines, self._stated = tuple(baselines), stated or {}
        self._clip = target_spec(target).clip
        self._groups: RowGroups = self.protocol.groups(examples)
        self.cold = cold
        factory = make or pipeline_factory(target, seed, cold=cold)

        def study_of(name: str) -> Study:
            return Study(examples, target, PROTOCOLS[name], factory, seed=seed, cold=cold, progress=progress)

        self._study_of: Callable[[str], Study] = study_of
        self._studies = {protocol_name: study_of(protocol_name)}

    def report(self, model: str, *, ks: Sequence[int] = (0,), n_draws: int = N_DRAWS) -> list[Report]:
        """One report for each K of ``ks``, all scored on the same rows: those left at the largest K."""
        plan = ObservationPlan(tuple(ks), n_draws)
        tested = self._tested(model, plan, intervals=True)
        # a correction is shrunken by the errors that calibration finds, so rivals that get one are calibrated too
        calibrated = plan.k_max > 0
        rivals = {name: self._tested(name, plan, intervals=calibrated) for name in self._baselines}
        return [self._one(model, k, plan, tested, rivals) for k in plan.ks]

    def _tested(self, model: str, plan: ObservationPlan, *, intervals: bool) -> dict[int, TestedRows]:
        study = self._studies[self.protocol.name]
        if plan.k_max == 0:
            return dict.fromkeys(plan.ks, study.tested(model, intervals=intervals))
        with_zero = ObservationPlan((0, *(k for k in plan.ks if k > 0)), plan.n_draws)
        return study.tested_with_observations(model, with_zero, intervals=intervals)

    def _one(
        self,
        model: str,
        k: int,
        plan: ObservationPlan,
        tested: dict[int, TestedRows],
        rivals: dict[str, dict[int, TestedRows]],
    ) -> Report:
        at = tested[k]
        answered = np.isfinite(at.bounds.mean)
        if not answered.any():
            raise InputError(f"{model} answers no tested row", where="--model", expected=ABLE)
        counted = self._of_provenance(at, COUNTED) & answered
        simulated = self._of_provenance(at, ("simulated",)) & answered
        rows = self._scored(at, self._groups)
        scored = counted if counted.any() else simulated
        ours = {name: self._scored(parts[k], self._groups) for name, parts in rivals.items()}
        report: Report = {
            "schema": SCHEMA,
            "dataset": self.dataset,
            **self._stated,
            "protocol": self.protocol.name,
            "target": self.target,
            "model": model,
            "cold": self.cold,
            "observations": k,
            "observations_max": plan.k_max,
            "observed_unit": unit_name(self.target) if plan.k_max else None,
            "n_draws": plan.n_draws if plan.k_max else None,
            "seed": self.seed,
            "target_clip": self._clip,
            "ci_level": CI_LEVEL,
            "provenance": self._provenance_counts(),
            "rows_tested": _distinct_rows(at, np.ones(len(at.at_set), dtype=bool)),
            "unanswered": int((~answered).sum()),
            "overall": _counted_once(overall_figures(rows.where(counted), self.seed), at, counted),
            "overall_simulated": _counted_once(overall_figures(rows.where(simulated), self.seed), at, simulated),
            "groups": self._group_figures(at, rows, answered),
            "gpus": self._gpu_figures(at, scored),
            "baselines": {name: _brief(some.where(scored)) for name, some in ours.items()},
            "versus_best_baseline": self._versus(
                rows.where(scored), {name: some for name, some in ours.items() if name != model}, scored
            ),
        }
        for name in BESIDE:
            report[name.replace("-", "_")] = self._beside(name, model)
        if k > 0:
            nothing = self._scored(tested[0], self._groups)
            report["without_observations"] = _brief(nothing.where(scored))
            if self.target in SOLO_TARGETS:
                report["same_batch_size"] = _brief(rows.where(scored & at.same_batch))
        report["noise_floor"] = noise_floor(self.examples, self._clip)
        return report

    def _scored(self, tested: TestedRows, groups: RowGroups) -> ScoredRows:
        at = (tested.at_set, tested.at_job)
        return ScoredRows(
            self.examples.target[at],
            *tested.bounds,
            groups.codes[at],
            self.examples.sets.family[at],
            self._clip,
        )

    def _of_provenance(self, tested: TestedRows, names: Sequence[str]) -> BoolArray:
        chosen: BoolArray = np.isin(self.examples.provenance[tested.at_set, tested.at_job], list(names))
        return chosen

    def _provenance_counts(self) -> dict[str, int]:
        of_row = self.examples.provenance[np.isfinite(self.examples.target)].astype(str)
        names, counts = np.unique(of_row, return_counts=True)
        return {str(name): int(count) for name, count in zip(names, counts, strict=True)}

    def _group_figures(self, tested: TestedRows, rows: ScoredRows, answered: BoolArray) -> list[Report]:
        figures = []
        of_row = self.examples.provenance[tested.at_set, tested.at_job].astype(str)
        for code in sorted(set(rows.group.tolist()), key=lambda c: self._groups.names[c]):
            for provenance in sorted(set(of_row[rows.group == code])):
                here = (rows.group == code) & (of_row == provenance) & answered
                if here.any():
                    figures.append(
                        {
                            "held_out": self._groups.names[code],
                            "n": _distinct_rows(tested, here),
                            **point_figures(rows.where(here)),
                            **interval_figures(rows.where(here)),
                            "provenance": provenance,
                        }
                    )
        return figures

    def _gpu_figures(self, tested: TestedRows, scored: BoolArray) -> list[Report]:
        """Figures of each GPU type; macro ones over the protocol's groups on it."""
        of_row = self.examples.sets.gpu[tested.at_set]
        rows = self._scored(tested, self._groups)
        parts = [(name, scored & (of_row == code)) for code, name in enumerate(self.examples.sets.gpus)]
        return [{"gpu": name, **_brief(rows.where(here))} for name, here in sorted(parts) if here.any()]

    def _versus(self, rows: ScoredRows, rivals: dict[str, ScoredRows], scored: BoolArray) -> Report | None:
        """The paired difference from the baseline with the lowest macro MAE."""
        whole = {
            name: some.where(scored)
            for name, some in rivals.items()
            if np.isfinite(some.mean[scored]).all() and scored.any()
        }
        if not whole:
            return None
        best = min(whole, key=lambda name: macro_mean(whole[name], whole[name].abs_error))
        return {"baseline": best, **paired_difference(rows, whole[best], self.seed)}

    def _beside(self, name: str, model: str) -> Figures | None:
        """The same model's figures under another protocol, grouped by family, nothing observed.

        ``None`` where there are too few measurements to split.
        """
        if name not in self._studies:
            try:
                self._studies[name] = self._study_of(name)
            except InputError:
                return None
        study = self._studies[name]
        tested = study.tested(model, intervals=name == self.protocol.name)
        rows = self._scored(tested, study.protocol.groups(self.examples))
        counted = self._of_provenance(tested, COUNTED)
        return _brief(rows.where(counted if counted.any() else self._of_provenance(tested, ("simulated",))))


def _distinct_rows(tested: TestedRows, chosen: BoolArray) -> int:
    """How many rows these are, each counted once however many draws tested it."""
    places = np.column_stack([tested.at_set[chosen], tested.at_job[chosen]])
    return len(np.unique(places, axis=0))


def _counted_once(figures: Figures | None, tested: TestedRows, chosen: BoolArray) -> Figures | None:
    """The figures with ``n`` as distinct rows, beside the row-draws that they average over."""
    return figures and {**figures, "n": _distinct_rows(tested, chosen), "n_row_draws": figures["n"]}


def _brief(rows: ScoredRows) -> Figures:
    """Pooled and macro errors over the rows that were answered."""
    answered = rows.where(np.isfinite(rows.mean))
    if len(answered) == 0:
        return {"n": 0}
    return {"n": len(answered), **point_figures(answered), **macro_figures(answered)}


def evaluation_of(
    profiles: pd.DataFrame,
    *,
    dataset: str,
    protocol_name: str,
    target: str,
    seed: int = 0,
    cold: bool = False,
    progress: Progress = no_progress,
) -> Evaluation:
    """An evaluation of a profile table with the product's baselines.

    ``cold`` gives nothing of the held-out work but its model graph: no solo profile.

    Raises:
        UnknownNameError: the protocol or the target is unknown.
        InputError: nothing to test, nothing left to train on, or a ``cold`` target that no graph tells of.
    """
    from eaco_datasets.schema import profiles_sha256
    from eaco_predictor.registry import baselines

    protocol(protocol_name)
    checked_target(target, cold=cold)
    return Evaluation(
        examples_from_profiles(profiles, target, cold=cold),
        dataset=dataset,
        protocol_name=protocol_name,
        target=target,
        baselines=baselines(target, cold=cold),
        seed=seed,
        progress=progress,
        stated={"data_sha256": profiles_sha256(profiles)},
        cold=cold,
    )


def evaluate_observations(
    profiles: pd.DataFrame,
    *,
    dataset: str,
    protocol: str,
    target: str,
    model: str | None = None,
    ks: Sequence[int] = (0,),
    seed: int = 0,
    cold: bool = False,
    progress: Progress = no_progress,
) -> list[Report]:
    """One report for each number of observations, all on the rows left at the largest."""
    evaluation = evaluation_of(
        profiles, dataset=dataset, protocol_name=protocol, target=target, seed=seed, cold=cold, progress=progress
    )
    return evaluation.report(known_model(target, model, cold=cold), ks=ks)


def evaluate(
    profiles: pd.DataFrame,
    *,
    dataset: str,
    protocol: str,
    target: str,
    model: str | None = None,
    observations: int = 0,
    seed: int = 0,
    cold: bool = False,
    progress: Progress = no_progress,
) -> Report:
    """The evaluation report of one model. Same profiles and seed: same report.

    Raises:
        UnknownNameError: protocol, target or model is unknown.
        InputError: nothing to test, or nothing left to train on.
    """
    return evaluate_observations(
        profiles,
        dataset=dataset,
        protocol=protocol,
        target=target,
        model=model,
        ks=(observations,),
        seed=seed,
        cold=cold,
        progress=progress,
    )[0]
