"""Training every part on one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from eaco_datasets.errors import DataError, UnknownNameError
from eaco_datasets.gpus import gpu
from eaco_datasets.types import CoLocation, Job, SoloProfile
from eaco_features.examples import examples_from_profiles
from eaco_predictor.fitting import LIBRARIES, fit_predictor, training_target
from eaco_predictor.prediction import SetPrediction
from eaco_predictor.predictor import Predictor

Make = Callable[[list[dict[str, Any]]], pd.DataFrame]
SOLO = SoloProfile(gpu_util_pct=60.0, mem_util_pct=20.0, mem_mib=5000.0, epoch_s=100.0)
SETS = [
    CoLocation("rtx3090", "time-slice", (Job("x", "x", 16, solo=SOLO), Job("y", "y", 32, solo=SOLO))),
    CoLocation("rtx3090", "time-slice", (Job("x", "x", 16, solo=SOLO),)),
]


def _numbers(predictor: Predictor) -> list[tuple[object, ...]]:
    """Answers without the version, which names the data."""

    def of(answer: SetPrediction) -> tuple[object, ...]:
        return answer.jobs, answer.gpu_power_w, answer.gpu_util_pct, answer.mem_mib, answer.abstained

    return [of(answer) for answer in predictor.predict(SETS)]


def _with_imputed(table: pd.DataFrame, value: float) -> pd.DataFrame:
    """One family's co-located rows are imputed at a made-up speed."""
    family = table.loc[table["role"] == "colocated", "family"].iloc[0]
    filled_in = (table["family"] == family) & (table["role"] == "colocated") & (table["outcome"] == "ok")
    spoiled = table.assign(provenance="measured")
    spoiled.loc[filled_in, "provenance"] = "imputed"
    spoiled.loc[filled_in, "relative_speed"] = value
    return spoiled


@pytest.mark.parametrize("model", ["soft-minimum", "lightgbm"])
def test_imputed_rows_are_never_learned_from(simulated: pd.DataFrame, model: str) -> None:
    table = simulated[simulated["gpu"] == "rtx3090"].reset_index(drop=True)
    low, high = (fit_predictor(_with_imputed(table, value), model=model) for value in (0.1, 1.0))
    assert _numbers(low) == _numbers(high)
    assert low.info.version != high.info.version  # other data all the same
    learned = fit_predictor(table, model=model)
    assert low.info.n_rows < learned.info.n_rows
    assert set(learned.info.families) - set(low.info.families) == {
        table.loc[table["role"] == "colocated", "family"].iloc[0]
    }
    assert low.info.provenance == {"measured": 1.0}


def test_training_target_leaves_out_what_was_imputed_and_nothing_else(simulated: pd.DataFrame) -> None:
    examples = examples_from_profiles(_with_imputed(simulated, 0.5), "relative_speed")
    out = training_target(examples)
    imputed = examples.provenance == "imputed"
    assert imputed.any()
    assert np.isnan(out[imputed]).all()
    assert np.array_equal(out[~imputed], examples.target[~imputed], equal_nan=True)
    assert np.isfinite(examples.target[imputed]).any()


def test_the_same_table_and_seed_give_the_same_predictor(simulated: pd.DataFrame) -> None:
    one, two = (fit_predictor(simulated, model="lightgbm", seed=4) for _ in range(2))
    assert one.info == two.info
    assert one.predict(SETS) == two.predict(SETS)
    other = fit_predictor(simulated, model="lightgbm", seed=5)
    assert other.info.version != one.info.version


def test_what_it_was_trained_on_is_recorded(predictor: Predictor, simulated: pd.DataFrame) -> None:
    info = predictor.info
    learned = simulated[(simulated["role"] == "colocated") & (simulated["outcome"] == "ok")]
    assert info.n_rows == len(learned)
    assert info.families == tuple(sorted(learned["family"].unique()))
    assert info.datasets == ("simulated",)
    assert set(info.libraries) == set(LIBRARIES)
    assert info.version.startswith("ensemble-")
    assert info.model == "ensemble"


def test_measured_data_carries_no_warning(simulated: pd.DataFrame) -> None:
    assert fit_predictor(simulated.assign(provenance="measured"), model="mean").info.notes == ()
    half = simulated["measurement_id"].str.endswith("-0")
    mixed = simulated.assign(provenance=np.where(half, "measured", "simulated"))
    (note,) = fit_predictor(mixed, model="mean").info.notes
    assert "SIMULATED" in note
    assert not note.startswith("100%")


def test_a_table_without_power_answers_with_the_whole_span(simulated: pd.DataFrame) -> None:
    """As the public pairs of one RTX 3090 are: no watts anywhere."""
    table = simulated.assign(gpu_power_w=np.nan, power_limit_w=np.nan, provenance="measured")
    answer = fit_predictor(table, model="soft-minimum").predict(SETS)[0]
    power = answer.gpu_power_w
    assert power is not None
    spec = gpu("rtx3090")
    assert (power.lower, power.upper) == (spec.idle_w, spec.power_limit_w)
    assert spec.idle_w < power.mean <= spec.power_limit_w
    assert answer.provenance == {"measured": 0.5, "imputed": 0.5}


def test_a_table_of_speeds_only_answers_with_speeds_only(simulated: pd.DataFrame) -> None:
    """As tables of throughputs are: neither utilisation nor memory nor power is stated."""
    nothing = dict.fromkeys(("gpu_util_pct", "mem_util_pct", "mem_mib", "gpu_power_w"), np.nan)
    predictor = fit_predictor(simulated.assign(**nothing), model="lightgbm")
    row = simulated[(simulated["role"] == "colocated") & (simulated["gpu"] == "rtx3090")].iloc[0]
    known = Job("m", row["family"], int(row["batch_size"]), row["precision"], dataset=row["dataset"])
    (answer,) = predictor.predict([CoLocation("rtx3090", "time-slice", (known, known))])
    assert answer.abstained is None
    assert 0 < answer.jobs[0].relative_speed.mean < 1.05
    assert answer.jobs[0].epoch_s is not None
    assert (answer.gpu_util_pct, answer.mem_mib, answer.gpu_power_w, answer.oom_probability) == (None,) * 4


def test_memory_without_shared_measurements_is_still_the_sum(simulated: pd.DataFrame) -> None:
    shared = simulated["role"] == "colocated"
    table = simulated.assign(mem_mib=simulated["mem_mib"].mask(shared))
    memory = fit_predictor(table, model="mean").predict(SETS)[0].mem_mib
    assert memory is not None
    assert memory.mean == pytest.approx(10_000.0)


def test_a_config_that_did_not_fit_alone_is_abstained_on(simulated: pd.DataFrame) -> None:
    solo = simulated[(simulated["role"] == "solo") & (simulated["gpu"] == "rtx3090")].iloc[:1]
    unfit = solo.assign(measurement_id="unfit", batch_size=4096, outcome="oom")
    table = pd.concat([simulated, unfit], ignore_index=True)
    row = solo.iloc[0]
    job = Job(row["model"], row["family"], 4096, row["precision"], dataset=row["dataset"])
    (answer,) = fit_predictor(table, model="mean").predict([CoLocation("rtx3090", "time-slice", (job,))])
    assert answer.abstained is not None
    assert answer.abstained.endswith("ran out of memory alone on rtx3090")


def test_a_sum_that_was_never_measured_is_not_certain(simulated: pd.DataFrame) -> None:
    unshared = simulated.assign(mem_mib=simulated["mem_mib"].where(simulated["role"] == "solo"))
    solo = SoloProfile(gpu_util_pct=40.0, mem_mib=3000.0)
    pair = CoLocation("rtx3090", "time-slice", (Job("a", "a", 8, solo=solo), Job("b", "b", 8, solo=solo)))
    (answer,) = fit_predictor(unshared, model="soft-minimum").predict([pair])
    memory = answer.mem_mib
    assert memory is not None
    assert (memory.lower, memory.mean, memory.upper) == pytest.approx((4200.0, 6000.0, 7800.0))


def test_errors_on_held_out_families_are_recorded(predictor: Predictor) -> None:
    held_out = predictor.info.held_out
    assert held_out["relative_speed_in_sample_macro_mae"] < held_out["relative_speed_out_of_family_macro_mae"] < 0.2
    assert 0 < held_out["gpu_power_out_of_family_macro_mape_pct"] < 30
    assert held_out["n_families"] == len(predictor.info.families)


def test_memory_that_no_solo_profile_explains_is_not_answered(simulated: pd.DataFrame) -> None:
    """A sum of solo peaks that was never compared with anything would look certain."""
    shared = simulated["role"] == "colocated"
    predictor = fit_predictor(simulated.assign(mem_mib=simulated["mem_mib"].where(shared)), model="mean")
    assert predictor.parts.memory is None
    assert predictor.predict(SETS)[0].mem_mib is None


def test_a_table_without_shared_speeds_is_refused(make_table: Make, simulated: pd.DataFrame) -> None:
    with pytest.raises(DataError, match="no colocated row has relative_speed"):
        fit_predictor(make_table([{"gpu_util_pct": 4.0}]))
    every = simulated.assign(provenance="imputed")
    with pytest.raises(DataError, match="no row has a known target"):
        fit_predictor(every)


def test_an_unknown_model_is_refused(simulated: pd.DataFrame) -> None:
    with pytest.raises(UnknownNameError, match="unknown model of relative_speed 'gpt'"):
        fit_predictor(simulated, model="gpt")


def test_the_table_is_left_as_it_was(simulated: pd.DataFrame) -> None:
    before = simulated.copy(deep=True)
    fit_predictor(simulated, model="time-slice")
    pd.testing.assert_frame_equal(simulated, before)
