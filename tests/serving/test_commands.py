"""``eaco predict`` and ``eaco place``: answers for people and for programs, one line for what is wrong."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from eaco_datasets.errors import InputError
from eaco_datasets.types import CoLocation, Job
from eaco_serving import cli, default
from eaco_serving.commands._common import console
from eaco_serving.commands.predict import parse_job
from eaco_serving.convert import prediction_wire
from eaco_serving.demo import PLACEMENT
from eaco_serving.schemas import PredictionOut
from eaco_serving.schemas_place import DecisionOut
from eaco_serving.tables import prediction_tables

PREDICT = ["predict", "--gpu", "v100", "--sharing-mode", "time-slice", "--job", "resnet50:64:amp", "--job", "vgg16:32"]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch, predictor: Any) -> list[str]:
    """The fake predictor is what is registered; remembers how often it was loaded."""
    loads: list[str] = []

    def load(settings: Any, _say: object) -> Any:
        loads.append(f"{settings.predictor_name}@{settings.predictor_alias}")
        return predictor

    monkeypatch.setattr(default, "load_default", load)
    return loads


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("resnet50:64:amp", {"model": "resnet50", "batch_size": 64, "precision": "amp"}),
        ("vgg16:32", {"model": "vgg16", "batch_size": 32}),
        (" bert-base : 8 : BF16 ", {"model": "bert-base", "batch_size": 8, "precision": "bf16"}),
    ],
)
def test_job_syntax(text: str, job: dict[str, Any]) -> None:
    assert parse_job(text) == job


@pytest.mark.parametrize(
    "text", ["", "resnet50", ":64", "a:b", "a:1:amp:x", "a:-1", "a:1.5", "a:", "a:٣", "a:" + "9" * 40]
)
def test_wrong_job_syntax_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^--job: .*MODEL:BATCH_SIZE"):
        parse_job(text)


def test_predict_prints_a_table_and_says_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(PREDICT) == 0
    out, err = capsys.readouterr()
    for said in ("resnet50:64:amp", "vgg16:32", "0.5 (0.45 .. 0.55)", "200 (180 .. 220) W", "simulated 75%", "fake-1"):
        assert said in out
    assert "NOTE simulated: 75%" in err


def test_predict_writes_only_json_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*PREDICT, "--json", "-"]) == 0
    out, _ = capsys.readouterr()
    assert len(PredictionOut.model_validate_json(out).jobs) == 2


def test_predict_writes_json_to_a_file_beside_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*PREDICT, "--json", str(tmp_path / "answer.json")]) == 0
    assert "relative speed" in capsys.readouterr().out
    PredictionOut.model_validate_json((tmp_path / "answer.json").read_bytes())


def test_predict_says_when_it_abstains(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["predict", "--gpu", "cpu-8core", "--sharing-mode", "time-slice", "--job", "vgg16:32"]) == 0
    assert "no prediction: no rows of a CPU" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--gpu", "v1000"], "eaco: --gpu: unknown GPU type 'v1000'"),
        (["--sharing-mode", "half"], "eaco: --sharing-mode: "),
        (["--num-gpus", "0"], "eaco: --num-gpus: "),
        (["--job", "resnet50:0"], "eaco: --job resnet50:0 (batch_size): "),
        (["--job", "resnet50:64:fp64"], "eaco: --job resnet50:64:fp64 (precision): "),
        (["--job", "???:64"], "eaco: --job ???:64 (model): "),
        (["--job", "resnet50"], "--job: cannot read 'resnet50'"),
        (["--job", "a:1", "--job", "b:1", "--job", "c:1"], "eaco: --job: "),
        (["--predictor", ""], "eaco: --predictor: "),
        (["--predictor-dir", "/nonexistent/predictor"], "/nonexistent/predictor"),
        (["--json", "/nonexistent/answer.json"], "/nonexistent/answer.json"),
    ],
)
def test_a_wrong_prediction_is_one_line_and_exit_2(
    args: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*PREDICT, *args]) == 2
    assert said in error_line(capsys)


def test_what_is_wrong_is_said_before_a_predictor_is_loaded(registered: list[str]) -> None:
    assert cli.run([*PREDICT, "--gpu", "v1000"]) == 2
    assert registered == []
    assert cli.run([*PREDICT, "--predictor", "other", "--alias", "candidate"]) == 0
    assert registered == ["other@candidate"]


def test_place_prints_the_decision_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(PLACEMENT))
    assert cli.run(["place", str(file)]) == 0
    out, err = capsys.readouterr()
    assert "share (provisional)" in out
    assert "GPU-a0" in out
    assert "NOTE simulated" in err


def test_place_reads_stdin_and_writes_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(PLACEMENT).encode())))
    assert cli.run(["place", "-", "--json", "-"]) == 0
    assert DecisionOut.model_validate_json(capsys.readouterr().out).decision == "share"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"job": NaN}', "not JSON"),
        ("[]", "request.json:/: "),
        ("{}", "request.json:/job: "),
        (json.dumps({**PLACEMENT, "policy": "best"}), "request.json:/policy: unknown policy 'best'"),
        (json.dumps({**PLACEMENT, "job": {"model": "a", "batch_size": 0}}), "request.json:/job/batch_size"),
        (json.dumps({**PLACEMENT, "cluster": {"nodes": []}}), "request.json:/cluster/nodes"),
        (json.dumps({**PLACEMENT, "settings": {"alpha": 2}}), "request.json:/settings/alpha: "),
        (json.dumps(PLACEMENT).replace("v100", "v1000", 1), "request.json:/cluster/nodes/0/gpu: unknown GPU type"),
        (json.dumps(PLACEMENT).replace("vision", "speech"), "request.json:/job/job_id: "),
        ('{"job": {"model": "a", "model": "b"}}', "request.json:/job/model: the key stands twice in its object"),
    ],
)
def test_a_wrong_placement_is_one_line_and_exit_2(
    tmp_path: Path, text: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "request.json"
    if text is not None:
        file.write_text(text)
    assert cli.run(["place", str(file)]) == 2
    assert said in error_line(capsys)


def test_names_that_look_like_markup_are_printed_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"speech": "n[/b]", "vision": "[red]:fire:", "GPU-a0": "[/]", "GPU-b0": "[bold]x[/bold]"}
    text = json.dumps(PLACEMENT)
    for before, after in names.items():
        text = text.replace(f'"{before}"', f'"{after}"')
    file = tmp_path / "request.json"
    file.write_text(text)
    assert cli.run(["place", str(file)]) == 0
    out, _ = capsys.readouterr()
    assert "n[/b]" in out
    assert "[/]" in out
    large = json.loads(text)
    large["job"]["num_gpus"] = 64
    file.write_text(json.dumps(large))
    assert cli.run(["place", str(file)]) == 0
    assert "wait" in capsys.readouterr().out


def test_a_table_of_any_console_reads_no_markup_in_names(predictor: Any) -> None:
    (told,) = predictor.predict([CoLocation("v100-sxm", "time-slice", (Job("vgg16", "vgg16", 8),))])
    tables = prediction_tables(prediction_wire(told), ["n[/b] [red]x[/red] :fire:"])
    plain = Console(file=io.StringIO(), width=120)
    plain.print(tables)
    assert "n[/b] [red]x[/red] :fire:" in plain.file.getvalue()  # type: ignore[attr-defined]


def test_what_the_console_prints_is_never_markup(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("[b]heading of the table[/b]", title="runs/[/a].csv :fire:")
    table.add_row("[red]cell[/red]")
    console().print(table)
    out, _ = capsys.readouterr()
    for said in ("[b]heading of the table[/b]", "runs/[/a].csv :fire:", "[red]cell[/red]"):
        assert said in out


def test_place_shows_every_set_and_as_many_predictions_as_are_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EACO_ALTERNATIVES_IN_FULL", "0")
    file = tmp_path / "request.json"
    file.write_text(json.dumps(PLACEMENT))
    assert cli.run(["place", str(file), "--json", "-"]) == 0
    told = DecisionOut.model_validate_json(capsys.readouterr().out)
    assert told.prediction is not None
    assert [a.prediction for a in told.alternatives] == [None]


def test_listed_predictors_say_what_they_err_on_families_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from eaco_training import registry

    def versions(_home: Path, _uri: str | None, *, name: str) -> list[registry.RegisteredVersion]:
        known = registry.RegisteredVersion(name, 1, (), "r", "v-1", "mean", "lucid [a/]", {"measured": 1.0}, {})
        held_out = {
            "relative_speed_out_of_family_macro_mae": 0.0675,
            "relative_speed_in_sample_macro_mae": 0.0631,
            "gpu_power_out_of_family_macro_mape_pct": 12.25,
            "n_families": 7.0,
        }
        return [known, replace(known, version=2, held_out=held_out)]

    monkeypatch.setattr(registry, "list_versions", versions)
    assert cli.run(["predictors", "list", "--predictor", "mine"]) == 0
    out, _ = capsys.readouterr()
    for said in ("speed MAE 0.0675", "in-sample 0.0631", "power MAPE 12.25 %", "unknown", "lucid [a/]"):
        assert said in out
    assert cli.run(["predictors", "list", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)["versions"]
    assert told[1]["held_out"]["n_families"] == 7.0


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of what is wrong; a note about simulated data may stand before it."""
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if not line.startswith("NOTE ")]
    assert len(lines) == 1, err
    return lines[0]
