"""`eaco evaluate`, `train` and `predictors` as a shell sees them: exit codes, streams, one line for what is wrong."""

from __future__ import annotations

import json

import pytest

from eaco_datasets.schema import write_profiles
from eaco_datasets.simulated import simulate_profiles
from eaco_predictor import registry
from eaco_predictor.registry import model_names
from eaco_training.choices import models_left_out


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A small simulated profile table of four families in a file."""
    rows = simulate_profiles(seed=0, gpus=["t4"], n_sets_per_gpu=3000)
    few = (
        rows["family"]
        .isin(["resnet50", "vgg16", "bert-base", "dcgan"])
        .groupby(rows["measurement_id"])
        .transform("all")
    )
    path = tmp_path_factory.mktemp("profiles") / "small.parquet"
    write_profiles(rows[few].reset_index(drop=True), path)
    return str(path)


def test_json_to_stdout_is_all_of_stdout_and_repeats(eaco, table):
    command = ("evaluate", "--dataset", table, "--model", "time-slice", "--json", "-")
    code, out, err = eaco(*command)
    report = json.loads(out)
    assert code == 0
    assert err == ""
    assert report["protocol"] == "leave-one-model-out"
    assert report["overall"] is None  # nothing in the table was measured
    assert report["overall_simulated"]["n"] > 0
    assert set(report["baselines"]) == {"mean", "no-interference", "time-slice", "forest"}
    assert eaco(*command)[1] == out


def test_tables_and_files(eaco, table, tmp_path):
    command = ("evaluate", "--dataset", table, "--target", "mem_mib", "--observations", "0,1")
    code, out, _ = eaco(*command, "--json", "out/report.json", "--html", "out/report.html")
    assert code == 0
    assert "macro MAE less that of mean" in out
    assert "every figure above is of simulated rows" in out
    reports = json.loads((tmp_path / "out/report.json").read_text())["reports"]
    assert [r["observations"] for r in reports] == [0, 1]
    assert (tmp_path / "out/report.html").read_text().startswith("<!doctype html>")


def test_every_model_in_one_call(eaco, table):
    code, out, _ = eaco(
        "evaluate",
        "--dataset",
        table,
        "--target",
        "mem_mib",
        "--protocol",
        "in-sample",
        "--model",
        "all",
        "--json",
        "-",
    )
    assert code == 0
    assert [r["model"] for r in json.loads(out)["reports"]] == list(model_names("mem_mib"))


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("target", ["relative_speed", "gpu_power_w", "mem_mib", "epoch_s"])
def test_what_the_missing_extra_leaves_out_is_what_it_brings(monkeypatch, target, cold):
    pytest.importorskip("torch_geometric")
    whole = set(model_names(target, cold=cold))
    assert models_left_out(target, cold=cold) == {}
    monkeypatch.setattr(registry, "find_spec", lambda _name: None)
    assert set(models_left_out(target, cold=cold)) == whole - set(model_names(target, cold=cold))


def test_a_model_without_its_extra_is_refused_by_the_extra_s_name(eaco, table, monkeypatch):
    monkeypatch.setattr(registry, "find_spec", lambda _name: None)
    for command in ("evaluate", "train"):
        code, out, err = eaco(command, "--dataset", table, "--model", "gnn")
        assert (code, out) == (2, "")
        assert err == "eaco: torch is not installed; install it with: pip install 'eaco[gnn]'\n"


def test_every_model_names_those_that_an_extra_is_missing_for(eaco, table, monkeypatch):
    monkeypatch.setattr(registry, "find_spec", lambda _name: None)
    command = (
        "evaluate",
        "--dataset",
        table,
        "--target",
        "mem_mib",
        "--cold",
        "--protocol",
        "in-sample",
        "--json",
        "-",
    )
    code, out, err = eaco(*command, "--model", "all")
    assert code == 0
    assert "gnn" not in {report["model"] for report in json.loads(out)["reports"]}
    assert err == "NOTE gnn left out: torch is not installed; install it with: pip install 'eaco[gnn]'\n"


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("evaluate", "--protocol", "leave-none-out"), "--protocol"),
        (("evaluate", "--target", "speed"), "--target"),
        (("evaluate", "--model", "lightgmb"), "lightgbm"),
        (("evaluate", "--observations", "one"), "--observations"),
        (("evaluate", "--observations", "-1"), "--observations"),
        (("evaluate", "--dataset", "lucid"), "--data-dir"),
        (("evaluate", "--dataset", "lucidd"), "lucid"),
        (("evaluate", "--dataset", "missing.csv"), "missing.csv"),
        (("evaluate", "--dataset", "eaco"), "relative_speed"),
        (("evaluate", "--seed", "-1"), "--seed"),
        (("train", "--protocol", "leave-none-out"), "--protocol"),
        (("train", "--model", "lightgmb"), "lightgbm"),
        (("train", "--register", "a/b"), "--register"),
        (("train", "--promote"), "--promote without --register"),
        (("evaluate", "--target", "node_power_w", "--cold"), "--cold: node_power_w"),
        (("predictors", "promote", "one"), "version"),
        (("predictors", "promote", "0"), "version"),
        (("predictors", "list", "--predictor", "a:b"), "--predictor: 'a:b'"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(eaco, args, named):
    code, out, err = eaco(*args)
    assert code == 2
    assert out == ""
    assert named in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err


def test_one_gpu_type_cannot_be_left_out(eaco, table):
    code, _, err = eaco("evaluate", "--dataset", table, "--protocol", "leave-one-gpu-out", "--model", "mean")
    assert code == 2
    assert "nothing is left to train on when t4 is held out" in err


def test_more_observations_than_measurements(eaco, table):
    code, _, err = eaco("evaluate", "--dataset", table, "--model", "mean", "--observations", "9999")
    assert code == 2
    assert "no row is left to test" in err


@pytest.mark.slow
def test_train_register_promote_roll_back(eaco, table):
    for seed, alias in ((0, "champion"), (1, "challenger")):
        code, out, err = eaco(
            "train", "--dataset", table, "--model", "soft-minimum", "--register", "eaco", "--seed", seed, "--json", "-"
        )
        assert code == 0
        assert "simulated" in err
        summary = json.loads(out)
        assert summary["registered"] == {"name": "eaco", "version": seed + 1, "alias": alias}
        assert summary["provenance"] == {"simulated": 1.0}
        assert "relative_speed" in summary["evaluation"]
    assert eaco("predictors", "promote", "2")[:2] == (0, "eaco@champion: version 2, was 1\n")
    assert eaco("predictors", "rollback")[:2] == (0, "eaco@champion: back to version 1 from 2\n")
    code, out, _ = eaco("predictors", "list", "--json", "-")
    listed = json.loads(out)["versions"]
    assert [(v["version"], v["aliases"]) for v in listed] == [(1, ["champion"]), (2, ["challenger"])]
    code, out, _ = eaco("predictors", "compare", "1", "2")
    assert code == 0
    assert "relative_speed/leave-one-model-out-simulated/macro_mae" in out
    code, _, err = eaco("predictors", "rollback")
    assert code == 1
    assert "nothing to roll back to" in err
    code, _, err = eaco("predictors", "promote", "7")
    assert code == 2
    assert "unknown version of eaco '7'" in err
