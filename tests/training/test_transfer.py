"""Transfer curves: same rows at every K, nothing of the new type before a sample is given, drawn as SVG."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pandas as pd
import pytest

from eaco_datasets.errors import InputError, UnknownNameError
from eaco_datasets.schema import write_profiles
from eaco_datasets.simulated import simulate_profiles
from eaco_training.transfer import plot, transfer_curve


@pytest.fixture(scope="module")
def profiles() -> pd.DataFrame:
    return simulate_profiles(gpus=["t4", "a40"], n_sets_per_gpu=60)


@pytest.fixture(scope="module")
def curve(profiles):
    return transfer_curve(
        profiles,
        dataset="made-up",
        target="relative_speed",
        gpu="t4",
        model="soft-minimum",
        samples=(0, 5, 20),
        n_draws=3,
    )


def test_holds_what_it_claims(curve):
    assert (curve["gpu"], curve["trained_on"], curve["n_draws"]) == ("t4", ["a40"], 3)
    assert [point["samples"] for point in curve["points"]] == [0, 5, 20]
    assert curve["points"][0]["scratch"] is None
    for point in curve["points"]:
        assert set(point["adapted"]) == {"mae", "macro_mae", "mape_pct", "coverage_pct"}
        assert 0 <= point["adapted"]["coverage_pct"] <= 100
    assert "coverage_pct" not in curve["points"][1]["scratch"]
    assert json.loads(json.dumps(curve, allow_nan=False)) == curve


def test_the_same_seed_gives_the_same_curve_and_another_does_not(profiles, curve):
    asked = {"dataset": "made-up", "target": "relative_speed", "gpu": "t4", "model": "soft-minimum", "n_draws": 3}
    assert transfer_curve(profiles, samples=(0, 5, 20), **asked) == curve
    assert transfer_curve(profiles, samples=(0, 5, 20), seed=1, **asked) != curve


def test_nothing_of_the_new_type_reaches_the_model_before_a_sample(profiles):
    spoiled = profiles.copy()
    at = (spoiled["gpu"] == "t4") & (spoiled["role"] == "colocated") & spoiled["relative_speed"].notna()
    spoiled.loc[at, "relative_speed"] = 1.0
    moved = transfer_curve(
        spoiled, dataset="made-up", target="relative_speed", gpu="t4", model="mean", samples=(0,), n_draws=1
    )
    straight = transfer_curve(
        profiles, dataset="made-up", target="relative_speed", gpu="t4", model="mean", samples=(0,), n_draws=1
    )
    shift = (1.0 - profiles.loc[at, "relative_speed"]).mean()
    assert moved["points"][0]["adapted"]["mae"] != straight["points"][0]["adapted"]["mae"]
    assert shift > 0.1  # had the model seen it, its error would be next to nothing
    assert moved["points"][0]["adapted"]["mae"] > 0.5 * shift


def test_cold_knows_no_solo_profile_on_the_new_type(profiles):
    asked = {"dataset": "made-up", "target": "relative_speed", "gpu": "t4", "model": "soft-minimum", "n_draws": 2}
    other = profiles.copy()
    alone = (other["gpu"] == "t4") & (other["role"] == "solo")
    for name in ("gpu_util_pct", "mem_util_pct", "throughput_samples_s", "epoch_s"):
        other.loc[alone, name] *= 0.5
    cold = transfer_curve(profiles, samples=(0, 5), cold=True, **asked)
    assert cold["cold"]
    assert transfer_curve(other, samples=(0, 5), cold=True, **asked) == cold
    told = transfer_curve(profiles, samples=(0, 5), **asked)["points"]
    assert transfer_curve(other, samples=(0, 5), **asked)["points"] != told  # what was spoiled is read
    assert cold["points"] != told


def test_refusals(profiles):
    asked = {"dataset": "made-up", "target": "relative_speed", "model": "mean"}
    with pytest.raises(UnknownNameError, match="h200"):
        transfer_curve(profiles, gpu="h200", **asked)
    with pytest.raises(InputError, match="samples of"):
        transfer_curve(profiles, gpu="t4", samples=(5000,), **asked)
    with pytest.raises(InputError, match="every row is of t4"):
        transfer_curve(profiles[profiles["gpu"] == "t4"], gpu="t4", **asked)


def test_the_plot_is_one_drawing_and_repeats(curve):
    drawing = plot([curve, curve])
    assert ElementTree.fromstring(drawing.encode()).tag.endswith("svg")
    assert plot([curve, curve]) == drawing


def test_the_plot_without_a_measurement_shows_a_point_and_no_curve_from_scratch(profiles, curve):
    nothing = transfer_curve(
        profiles, dataset="made-up", target="relative_speed", gpu="t4", model="mean", samples=(0,), n_draws=1
    )
    assert nothing["points"][0]["scratch"] is None
    assert _lines_drawn(nothing) == 1
    assert _lines_drawn(curve) == 2


def _lines_drawn(curve) -> int:
    """How many curves the axes hold, ticks and legend left out."""
    axes = ElementTree.fromstring(plot([curve]).encode()).find(".//*[@id='axes_1']")
    return sum(str(child.get("id")).startswith("line2d") for child in axes)


def test_from_the_command_line(eaco, profiles, tmp_path):
    t4, a40 = tmp_path / "t4.parquet", tmp_path / "a40.parquet"
    write_profiles(profiles[profiles["gpu"] == "t4"].reset_index(drop=True), t4)
    write_profiles(profiles[profiles["gpu"] == "a40"].reset_index(drop=True), a40)
    code, *_ = eaco("train", "--dataset", a40, "--model", "soft-minimum", "--protocol", "none", "--register", "old")
    assert code == 0
    code, out, err = eaco(
        "train", "--dataset", t4, "--from", "old", "--gpu", "T4", "--samples", 5, "--register", "new", "--json", "-"
    )
    assert code == 0, err
    assert json.loads(out)["registered"] == {"name": "new", "version": 1, "alias": "champion"}
    job = ("--sharing-mode", "time-slice", "--job", "resnet50:48", "--job", "vgg16:16", "--json", "-")
    code, out, err = eaco("predict", "--predictor", "new", "--gpu", "t4", *job)
    assert code == 0, err
    assert json.loads(out)["abstained"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "--from", "eaco"), "all three, or none"),
        (("train", "--from", "eaco", "--gpu", "t4", "--samples", "5", "--model", "ridge"), "--model"),
        (("train", "--from", "eaco", "--gpu", "t4", "--samples", "0"), "--samples"),
        (("train", "--from", "nobody", "--gpu", "t4", "--samples", "5"), "nobody"),
        (("evaluate", "--samples", "5"), "leave-one-gpu-out"),
        (("evaluate", "--protocol", "leave-one-gpu-out", "--samples", "many"), "--samples"),
        (("evaluate", "--gpu", "t4"), "--gpu"),
        (("evaluate", "--protocol", "leave-one-gpu-out", "--samples", "5", "--observations", "1"), "--observations"),
        (
            ("train", "--from", "eaco", "--gpu", "t4", "--samples", "5", "--protocol", "random"),
            "--protocol: --protocol with --from",
        ),
    ],
)
def test_a_wrong_call_gets_one_line(eaco, arguments, said):
    code, out, err = eaco(*arguments)
    assert code in {1, 2}
    assert out == ""
    assert said in err
    assert "Traceback" not in err
