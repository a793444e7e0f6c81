"""``eaco predict`` and ``eaco place``: answers for people and for programs, one line for what is wrong."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from eaco_datasets.errors import InputError
from eaco_serving import cli, default
from eaco_serving.commands.predict import parse_job
from eaco_serving.demo import PLACEMENT
from eaco_serving.schemas import PredictionOut
from eaco_serving.schemas_place import DecisionOut

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
        (["--gpu", "v1000"], "/gpu: unknown GPU type 'v1000'"),
        (["--sharing-mode", "half"], "/sharing_mode"),
        (["--num-gpus", "0"], "/num_gpus"),
        (["--job", "resnet50:0"], "/jobs/2/batch_size"),
        (["--job", "resnet50:64:fp64"], "/jobs/2/precision"),
        (["--job", "resnet50"], "--job: cannot read 'resnet50'"),
        (["--job", "a:1", "--job", "b:1", "--job", "c:1"], "/jobs"),
        (["--model-dir", "/nonexistent/predictor"], "/nonexistent/predictor"),
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
    assert cli.run([*PREDICT, "--model", "other", "--alias", "candidate"]) == 0
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
        (json.dumps({**PLACEMENT, "policy": "best"}), "unknown policy 'best'"),
        (json.dumps({**PLACEMENT, "job": {"model": "a", "batch_size": 0}}), "request.json:/job/batch_size"),
        (json.dumps({**PLACEMENT, "cluster": {"nodes": []}}), "request.json:/cluster/nodes"),
        (json.dumps({**PLACEMENT, "settings": {"alpha": 2}}), "/settings/alpha"),
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


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of what is wrong; a note about simulated data may stand before it."""
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if not line.startswith("NOTE ")]
    assert len(lines) == 1, err
    return lines[0]
