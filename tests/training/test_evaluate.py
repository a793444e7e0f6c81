"""Reports hold what they claim: no leak, the same rows for all, imputed and simulated rows apart."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from eaco_datasets.errors import InputError
from eaco_training.evaluate import Evaluation

FAMILIES = ["vgg16", "resnet18", "bert-base", "dcgan"]


def evaluation(examples, spies, *, protocol="leave-one-model-out", baselines=("mean",), target="relative_speed"):
    return Evaluation(
        examples,
        dataset="made-up",
        protocol_name=protocol,
        target=target,
        baselines=baselines,
        make=spies,
    )


def families_in(sets):
    return {sets.families[code] for code in sets.family[sets.present]}


def test_no_spy_ever_saw_the_family_it_was_asked_about(make_pairs, spies):
    evaluation(make_pairs(0, 80, FAMILIES), spies).report("lightgbm")
    held_out = [spy for spy in spies.made if families_in(spy.fitted_on[0][0]) != set(FAMILIES)]
    assert len(held_out) == 2 * len(FAMILIES)  # the model and the baseline, a fold each
    for spy in held_out:
        (sets, target) = spy.fitted_on[0]
        (missing,) = set(FAMILIES) - families_in(sets)
        assert all(
            missing in families_in(asked.take(np.array([i]))) for asked in spy.predicted for i in range(len(asked))
        )
        assert np.isfinite(target[sets.present]).all()


def test_a_baseline_that_is_reported_itself_gets_intervals(make_pairs):
    """Several models in one evaluation share fits; one that was fitted as a baseline is calibrated all the same."""
    shared = Evaluation(
        make_pairs(0, 80, FAMILIES),
        dataset="made-up",
        protocol_name="leave-one-model-out",
        target="relative_speed",
        baselines=("mean",),
    )
    shared.report("no-interference")
    assert shared.report("mean")[0]["overall"]["interval_width"] > 0


def test_a_smuggled_family_is_detected(make_pairs, spies):
    """The check above is able to fail: an in-sample fit does see what it is asked about."""
    evaluation(make_pairs(0, 80, FAMILIES), spies, protocol="in-sample", baselines=()).report("lightgbm")
    sets, _ = spies.made[0].fitted_on[0]
    assert families_in(sets) & families_in(spies.made[0].predicted[0])


def test_figures_of_the_mean_by_hand(make_examples, spies):
    examples = make_examples([[("a", 1, 0.4, "measured")], [("a", 1, 0.6, "measured")], [("b", 1, 1.2, "measured")]])
    report = evaluation(examples, spies).report("mean-like")[0]
    # a is held out: predicted 1.2 (clipped to 1.05); b is held out: predicted 0.5, its target clipped to 1.05
    assert report["overall"]["n"] == 3
    assert report["overall"]["mae"] == pytest.approx((0.65 + 0.45 + 0.55) / 3)
    assert report["overall"]["mae_raw"] == pytest.approx((0.8 + 0.6 + 0.7) / 3)
    assert report["overall"]["macro_mae"] == pytest.approx((0.55 + 0.55) / 2)
    assert [g["held_out"] for g in report["groups"]] == ["a", "b"]
    assert report["in_sample"]["mae"] == pytest.approx((1 / 3 + 2 / 15 + (1.05 - 11 / 15)) / 3, abs=1e-6)
    assert report["baselines"]["mean"]["mae"] == report["overall"]["mae"]
    assert report["versus_best_baseline"]["macro_mae_difference"] == 0.0


def test_imputed_rows_stay_out_of_training_and_overall_but_are_shown(make_examples, spies):
    examples = make_examples(
        [
            [("a", 1, 0.5, "measured"), ("ppo", 1, 1.0, "imputed")],
            [("b", 1, 0.7, "measured"), ("ppo", 1, 1.0, "imputed")],
            [("c", 1, 0.6, "measured"), ("b", 1, 0.6, "measured")],
        ]
    )
    report = evaluation(examples, spies).report("m")[0]
    assert report["overall"]["n"] == 4
    assert report["provenance"] == {"imputed": 2, "measured": 4}
    assert {(g["held_out"], g["provenance"]) for g in report["groups"]} >= {("ppo", "imputed"), ("a", "measured")}
    assert report["baselines"]["mean"]["n"] == 4
    assert report["in_sample"]["n"] == 4
    for spy in spies.made:
        sets, target = spy.fitted_on[0]
        assert np.isnan(target[sets.family == sets.families.index("ppo")]).all()


def test_simulated_rows_have_a_block_of_their_own(make_pairs, spies):
    pairs = make_pairs(0, 60, FAMILIES)
    simulated = replace(pairs, provenance=np.where(pairs.sets.present, "simulated", "").astype(object))
    report = evaluation(simulated, spies).report("m")[0]
    assert report["overall"] is None
    assert report["overall_simulated"]["n"] == 120
    assert {g["provenance"] for g in report["groups"]} == {"simulated"}
    assert report["in_sample"]["n"] == 120


def test_same_seed_same_bytes(make_pairs, spies):
    pairs = make_pairs(0, 60, FAMILIES)
    first, second = (json.dumps(evaluation(pairs, spies).report("m", ks=(0, 2), n_draws=3)) for _ in range(2))
    assert first == second


def test_every_k_is_scored_on_the_same_rows_without_refitting(make_pairs, spies):
    reports = evaluation(make_pairs(0, 120, FAMILIES), spies).report("m", ks=(0, 1, 3), n_draws=4)
    assert len({r["overall"]["n"] for r in reports}) == 1
    assert len({json.dumps([g["n"] for g in r["groups"]]) for r in reports}) == 1
    assert reports[2]["without_observations"]["mae"] == reports[0]["overall"]["mae"]
    assert reports[2]["overall"]["mae"] < reports[0]["overall"]["mae"]  # families differ, so observing helps
    assert all(len(spy.fitted_on) == 1 for spy in spies.made)
    assert len(spies.made) == (len(FAMILIES) * 2) + 1 + 5  # leave-one-out twice, in-sample, random


def test_observations_are_of_the_unit_only_and_never_tested(make_pairs, spies):
    pairs = make_pairs(0, 120, FAMILIES)
    numbered = replace(pairs, sets=replace(pairs.sets, num_gpus=np.arange(120.0)))  # so that a spy can tell sets apart
    evaluation(numbered, spies, baselines=()).report("m", ks=(2,), n_draws=3)
    corrected = [(fitted, spy) for fitted in spies.made for spy in fitted.corrected]
    assert corrected
    for fitted, spy in corrected:
        ((sets, target),) = spy.observed
        assert 1 <= len(sets) <= 2
        assert len(set(sets.config[np.isfinite(target)])) == 1  # one job config's own rows
        assert np.isfinite(target).any(axis=1).all()
        asked = {number for batch in spy.predicted for number in batch.num_gpus}
        assert asked
        assert not asked & set(sets.num_gpus)
        assert not asked & set(fitted.fitted_on[0][0].num_gpus)


def test_too_many_observations_is_one_line(make_pairs, spies):
    with pytest.raises(InputError, match="no row is left to test with 500 observations"):
        evaluation(make_pairs(0, 30, FAMILIES), spies).report("m", ks=(500,), n_draws=2)
    with pytest.raises(InputError, match="0 or more"):
        evaluation(make_pairs(0, 30, FAMILIES), spies).report("m", ks=(-1,))


def test_one_workload_observed_once_answers_for_its_other_batch_sizes(make_examples, spies):
    rows = [
        [(family, batch, 100.0 + 50 * code + batch / 16, "measured")]
        for code, family in enumerate(["a", "b", "c"])
        for batch in (16, 32, 64)
        for _ in range(2)
    ]
    report = evaluation(make_examples(rows), spies, target="gpu_power_w").report("m", ks=(1,), n_draws=5)[0]
    assert report["target_clip"] is None
    assert report["overall"]["mape_pct"] < 5 < report["without_observations"]["mape_pct"]
    assert 0 < report["same_batch_size"]["n"] < report["overall"]["n"]
    assert report["same_batch_size"]["mae"] == 0.0  # its repeat
    assert report["noise_floor"]["mae"] == 0.0


def test_a_model_that_answers_nothing_is_refused(make_pairs, spies):
    def mute(model, intervals):
        spy = spies(model, intervals)
        spy.fit = lambda _sets, _target: spy  # its mean stays unknown
        return spy

    with pytest.raises(InputError, match="--model: m answers no tested row; expected"):
        evaluation(make_pairs(0, 60, FAMILIES), mute).report("m")


def test_leave_one_gpu_out_groups_by_gpu(make_examples, spies):
    pair = [("a", 1, 0.5, "measured"), ("b", 1, 0.7, "measured")]
    examples = make_examples([pair] * 4, gpus=["k80", "k80", "p100", "p100"])
    report = evaluation(examples, spies, protocol="leave-one-gpu-out").report("m")[0]
    assert [g["held_out"] for g in report["groups"]] == ["k80", "p100"]
    assert [g["gpu"] for g in report["gpus"]] == ["k80", "p100"]
    assert report["random"] is not None


def test_cold_takes_the_tested_family_s_solo_profiles_away_and_no_other_s(make_pairs, spies):
    examples = make_pairs(0, 60, FAMILIES)
    examples = replace(examples, sets=examples.sets.with_solo(np.ones_like(examples.sets.solo)))
    Evaluation(
        examples,
        dataset="made-up",
        protocol_name="leave-one-model-out",
        target="relative_speed",
        baselines=(),
        make=spies,
        cold=True,
    ).report("lightgbm", ks=(0, 1))
    held_out = [spy for spy in spies.made if families_in(spy.fitted_on[0][0]) != set(FAMILIES)]
    assert len(held_out) == len(FAMILIES)
    for spy in held_out:
        (missing,) = set(FAMILIES) - families_in(spy.fitted_on[0][0])
        assert np.isfinite(spy.fitted_on[0][0].solo).all()
        shown = [*spy.predicted, *(sets for seen in spy.corrected for sets, _ in seen.observed)]
        assert shown
        for sets in shown:
            tested = (sets.family == sets.families.index(missing)) & sets.present
            assert np.isnan(sets.solo[tested]).all()
            assert np.isfinite(sets.solo[~tested]).all()
