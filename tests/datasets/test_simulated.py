"""Simulated profiles: marked as such, inside physical limits, reproducible, and plain about their parameters."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaco_datasets.errors import InputError, UnknownNameError
from eaco_datasets.gpus import gpu, gpu_specs
from eaco_datasets.names import family_of, is_known_family
from eaco_datasets.schema import validate_profiles
from eaco_datasets.simulated import describe_simulation, simulate_profiles
from eaco_datasets.simulated_jobs import (
    DEFAULT_PARAMETERS,
    SimulatedSets,
    simulate_sets,
    simulated_families,
    simulated_jobs,
)
from eaco_datasets.types import MAX_JOBS, MAX_RELATIVE_SPEED

CONFIG = ["gpu", "model", "dataset", "batch_size", "precision"]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return simulate_profiles()


@pytest.fixture(scope="module")
def exact() -> pd.DataFrame:
    return simulate_profiles(noise=0.0, n_sets_per_gpu=120)


def rows(table: pd.DataFrame, role: str, outcome: str = "ok") -> pd.DataFrame:
    return table[(table["role"] == role) & (table["outcome"] == outcome)]


def limit_of(table: pd.DataFrame, field: str) -> pd.Series:
    return table["gpu"].map({slug: getattr(spec, field) for slug, spec in gpu_specs().items()})


def test_it_is_a_valid_profile_table_that_says_it_is_simulated(table: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(validate_profiles(table, where="again"), table)
    assert set(table["provenance"]) == {"simulated"}
    assert set(table["source"]) == {"simulated"}
    assert table["measurement_id"].str.startswith("simulated-").all()


def test_it_covers_every_gpu_and_family(table: pd.DataFrame) -> None:
    assert set(table["gpu"]) == set(gpu_specs())
    for gpu_rows in (g for _, g in rows(table, "colocated").groupby("gpu")):
        assert gpu_rows["family"].nunique() >= 20
        assert gpu_rows["measurement_id"].nunique() >= 100
    sizes = table[table["role"] == "colocated"].groupby("measurement_id").size()
    assert set(sizes) == {2, 3, 4}


def test_families_are_those_of_the_alias_table() -> None:
    assert len(simulated_families()) >= 20
    for family in simulated_families():
        assert is_known_family(family.slug)
        assert family_of(family.slug, family.dataset) == family.slug
        assert len(family.source) > 10


def test_speeds_powers_and_utilisations_are_possible(table: pd.DataFrame) -> None:
    shared = rows(table, "colocated")
    assert ((shared["relative_speed"] > 0) & (shared["relative_speed"] <= MAX_RELATIVE_SPEED)).all()
    ok = table[table["outcome"] == "ok"]
    assert ok[["throughput_samples_s", "epoch_s", "gpu_util_pct", "mem_mib", "gpu_power_w"]].notna().all().all()
    assert (ok["gpu_power_w"] >= limit_of(ok, "idle_w")).all()
    assert (ok["gpu_power_w"] <= limit_of(ok, "power_limit_w")).all()
    assert ok["gpu_util_pct"].between(0, 100).all()
    assert ok["mem_util_pct"].between(0, 100).all()
    assert shared["relative_speed"].std() > 0.1  # not a constant


def test_every_shared_config_was_measured_alone_and_fits(table: pd.DataFrame) -> None:
    alone = set(rows(table, "solo")[CONFIG].itertuples(index=False, name=None))
    shared = set(table.loc[table["role"] == "colocated", CONFIG].itertuples(index=False, name=None))
    assert shared
    assert shared <= alone


def test_out_of_memory_exactly_when_the_solo_peaks_exceed_the_memory(table: pd.DataFrame) -> None:
    peaks = rows(table, "solo").groupby(CONFIG)["mem_mib"].first().rename("peak_mib")
    shared = table[table["role"] == "colocated"].join(peaks, on=CONFIG)
    sets = shared.groupby("measurement_id").agg(
        needed_mib=("peak_mib", "sum"), outcome=("outcome", "first"), gpu=("gpu", "first"), mem_mib=("mem_mib", "first")
    )
    over = sets["needed_mib"] > limit_of(sets, "memory_mib")
    assert 0.01 < over.mean() < 0.5
    assert ((sets["outcome"] == "oom") == over).all()
    np.testing.assert_allclose(sets.loc[~over, "mem_mib"], sets.loc[~over, "needed_mib"])


def test_a_failed_measurement_has_neither_speed_nor_readings(table: pd.DataFrame) -> None:
    failed = table[table["outcome"] == "oom"]
    assert set(failed["role"]) == {"solo", "colocated"}
    readings = ["throughput_samples_s", "epoch_s", "relative_speed", "gpu_util_pct", "mem_mib", "gpu_power_w"]
    assert failed[readings].isna().all().all()


def test_relative_speed_is_throughput_over_solo_throughput(table: pd.DataFrame) -> None:
    solo = rows(table, "solo").groupby(CONFIG)["throughput_samples_s"].mean().rename("solo_samples_s")
    shared = rows(table, "colocated").join(solo, on=CONFIG)
    quotient = shared["throughput_samples_s"] / shared["solo_samples_s"]
    unclipped = shared["relative_speed"] < MAX_RELATIVE_SPEED
    np.testing.assert_allclose(quotient[unclipped], shared.loc[unclipped, "relative_speed"], rtol=1e-3)


def test_repeats_give_a_noise_floor_of_the_size_asked_for() -> None:
    noisy = rows(simulate_profiles(gpus=["a100-80"], noise=0.02), "colocated")
    set_id = noisy["measurement_id"].str.rsplit("-", n=1).str[0]
    repeated = noisy.assign(set_id=set_id).groupby(["set_id", "job_index"])["throughput_samples_s"]
    spread = (repeated.std() / repeated.mean()).dropna()
    assert len(spread) > 50
    assert 0.014 < np.sqrt((spread**2).mean()) < 0.026


def test_without_noise_repeats_agree_and_nothing_gains_from_sharing(exact: pd.DataFrame) -> None:
    shared = rows(exact, "colocated")
    assert shared["relative_speed"].max() <= 1.0
    set_id = shared["measurement_id"].str.rsplit("-", n=1).str[0]
    assert shared.groupby([set_id, "job_index"])["relative_speed"].nunique().max() == 1
    assert (shared["repeat"] > 0).any()


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not() -> None:
    def written(seed: int) -> bytes:
        return simulate_profiles(seed=seed, gpus=["t4", "v100"], n_sets_per_gpu=40).to_csv(index=False).encode()

    assert written(3) == written(3)
    assert written(3) != written(4)


def test_a_gpus_rows_do_not_depend_on_the_other_gpus() -> None:
    alone = simulate_profiles(seed=5, gpus=["l4"], n_sets_per_gpu=20)
    among = simulate_profiles(seed=5, gpus=["k80", "l4"], n_sets_per_gpu=20)
    pd.testing.assert_frame_equal(among[among["gpu"] == "l4"].reset_index(drop=True), alone)


def test_mps_only_where_the_gpu_has_it(table: pd.DataFrame) -> None:
    modes = table[table["role"] == "colocated"].groupby("gpu")["sharing_mode"].agg(set)
    assert modes["k80"] == modes["p100"] == {"time-slice"}
    assert modes["v100-sxm"] == modes["h200"] == {"time-slice", "mps"}


def test_bf16_only_where_the_gpu_has_it(table: pd.DataFrame) -> None:
    with_bf16 = set(table.loc[table["precision"] == "bf16", "gpu"])
    assert with_bf16 == {slug for slug, spec in gpu_specs().items() if spec.year >= 2020}


def test_fast_gpus_are_less_utilised_by_the_same_job_and_never_slower(exact: pd.DataFrame) -> None:
    solo = rows(exact, "solo")
    pair = solo[solo["gpu"] == "k80"].merge(
        solo[solo["gpu"] == "h200"], on=[*CONFIG[1:], "repeat"], suffixes=("_k80", "_h200")
    )
    assert len(pair) > 200
    assert (pair["gpu_util_pct_h200"] <= pair["gpu_util_pct_k80"] + 1e-6).all()
    assert (pair["throughput_samples_s_h200"] >= pair["throughput_samples_s_k80"]).all()
    assert pair["gpu_util_pct_h200"].mean() < pair["gpu_util_pct_k80"].mean() - 10


def test_solo_speeds_are_of_the_order_that_public_profiles_show(exact: pd.DataFrame) -> None:
    # Published figures, not inputs of the model: ResNet-50 at batch 64 reaches about 436 (fp32) and 709 samples/s
    # (amp) on an RTX 3090 and 168 samples/s on a P100; within a factor of 2.
    solo = rows(exact, "solo").set_index(["gpu", "model", "batch_size", "precision"])["throughput_samples_s"]
    for key, published in {
        ("rtx3090", "resnet50", 64, "fp32"): 436,
        ("rtx3090", "resnet50", 64, "amp"): 709,
        ("p100", "resnet50", 64, "fp32"): 168,
    }.items():
        assert 0.5 < solo.loc[key].iloc[0] / published < 2


config_lists = st.lists(st.integers(0, 10_000), min_size=2, max_size=MAX_JOBS)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(gpu_specs())), config_lists, st.booleans(), st.randoms(use_true_random=False))
def test_order_of_jobs_does_not_matter_and_fewer_jobs_never_run_slower(
    slug: str, configs: list[int], mps: bool, random: object
) -> None:
    spec, jobs = gpu(slug), simulated_jobs(gpu(slug))
    chosen = [c % len(jobs) for c in configs]
    order = list(range(len(chosen)))
    random.shuffle(order)  # type: ignore[attr-defined]
    config = np.full((3, MAX_JOBS), -1)
    config[0, : len(chosen)] = chosen
    config[1, : len(chosen)] = [chosen[i] for i in order]
    config[2, : len(chosen) - 1] = chosen[:-1]
    truth = simulate_sets(spec, jobs, SimulatedSets(config, np.full(3, mps)))
    speed = truth.relative_speed
    np.testing.assert_allclose(speed[1, : len(chosen)], speed[0, order], rtol=1e-9)
    np.testing.assert_allclose(truth.gpu_power_w[1], truth.gpu_power_w[0], rtol=1e-9)
    assert truth.mem_mib[1] == pytest.approx(truth.mem_mib[0])
    assert (speed[0, : len(chosen) - 1] <= speed[2, : len(chosen) - 1] + 1e-12).all()
    assert truth.mem_mib[2] < truth.mem_mib[0]
    assert np.isnan(speed[0, len(chosen) :]).all()


def test_a_parameter_changes_what_it_says() -> None:
    jobs = simulated_jobs(gpu("v100"))
    slower_host = simulated_jobs(gpu("v100"), replace(DEFAULT_PARAMETERS, launch_us=40.0))
    assert (slower_host.step_s >= jobs.step_s).all()
    assert (slower_host.step_s > jobs.step_s * 1.01).any()
    bigger = simulated_jobs(gpu("v100"), replace(DEFAULT_PARAMETERS, context_mib=1500.0))
    np.testing.assert_allclose(bigger.memory_mib - jobs.memory_mib, 1000.0)


def test_the_description_holds_every_parameter_and_is_json() -> None:
    described = json.loads(json.dumps(describe_simulation()))
    assert described["provenance"] == "simulated"
    assert "not a measurement" in described["note"]
    assert described["parameters"]["time_slice"]["switch_loss"] == DEFAULT_PARAMETERS.time_slice.switch_loss
    assert {f["slug"] for f in described["families"]} == {f.slug for f in simulated_families()}
    assert "max-min" in described["contention"]


def test_docstrings_say_it_loudly() -> None:
    assert (simulate_profiles.__doc__ or "").startswith("SIMULATED")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"seed": -1}, "seed"),
        ({"n_sets_per_gpu": -5}, "n_sets_per_gpu"),
        ({"noise": 0.9}, "noise"),
        ({"noise": float("nan")}, "noise"),
        ({"gpus": []}, "gpus"),
        ({"gpus": ["v100", "v100-sxm"]}, "gpus"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        simulate_profiles(**arguments)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_gpu_nobody_knows_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="v101"):
        simulate_profiles(gpus=["v101"])


def test_no_sets_leaves_the_solo_rows() -> None:
    assert set(simulate_profiles(gpus=["t4"], n_sets_per_gpu=0)["role"]) == {"solo"}
