"""``eaco features extract``: a file, a readable summary, and one line where it fails."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eaco_datasets.errors import InputError
from eaco_features.graphs import extract as extraction
from eaco_features.graphs.graph import ModelGraph
from eaco_features.graphs.store import read_graph
from eaco_serving.cli import run

HERE = Path(__file__).parent


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, small_graph: ModelGraph) -> list[tuple[Any, ...]]:
    """How extraction was called; it answers with the small graph."""
    calls: list[tuple[Any, ...]] = []

    def answer(job: str, batch_size: int, *, timeout_s: float, memory_mib: int) -> ModelGraph:
        calls.append((job, batch_size, timeout_s, memory_mib))
        return small_graph

    monkeypatch.setattr(extraction, "extract", answer)
    return calls


def test_options_reach_the_recorder_and_the_summary_is_readable(
    asked: list[tuple[Any, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str], small_graph: ModelGraph
) -> None:
    target = tmp_path / "g.json"
    options = ["--batch-size", "16", "--timeout", "5", "--memory-mib", "100"]
    assert run(["features", "extract", "m:build_job", "-o", str(target), *options]) == 0
    assert asked == [("m:build_job", 16, 5.0, 100)]
    assert read_graph(target) == small_graph
    out, err = capsys.readouterr()
    for part in ("by-hand at batch size 16", "GFLOP", "kernels", "SGD", "confidence", "1.00", "3 nodes when coarsened"):
        assert part in out
    assert err == "NOTE made by hand\n"


def test_a_target_that_cannot_be_written_is_one_line(
    asked: list[tuple[Any, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["features", "extract", "m:b", "-o", str(tmp_path / "no" / "g.json")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "No such file" in err
    assert asked


def test_a_job_that_fails_is_one_line_and_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> ModelGraph:
        raise InputError("the job failed: ValueError: no", where="m:b", expected="a training step that runs")

    monkeypatch.setattr(extraction, "extract", fail)
    assert run(["features", "extract", "m:b", "-o", str(tmp_path / "g.json")]) == 2
    assert capsys.readouterr().err == (
        "eaco: m:b: the job failed: ValueError: no; expected a training step that runs\n"
    )
    assert not (tmp_path / "g.json").exists()


@pytest.mark.parametrize("arguments", [["m:b"], ["-o", "g.json"], ["m:b", "-o", "g.json", "--batch-size", "0"]])
def test_a_wrong_call_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["features", "extract", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (eaco[gnn])")
def test_a_job_in_the_working_directory_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], example: Callable[[], str]
) -> None:
    (tmp_path / "my_train.py").write_text(example())
    monkeypatch.chdir(tmp_path)
    assert run(["features", "extract", "my_train:build_job", "-o", "g.json", "--batch-size", "8"]) == 0
    graph = read_graph(tmp_path / "g.json")
    assert graph.recording.mode == "fake"
    assert {"fwd", "bwd", "opt"} == set(graph.phase)
    assert "my_train:build_job at batch size 8" in capsys.readouterr().out


@pytest.fixture
def example() -> Callable[[], str]:
    """The plain PyTorch example of the documentation, as it stands there."""

    def read() -> str:
        page = (HERE.parents[2] / "docs" / "graphs.md").read_text(encoding="utf-8")
        return page.split("```python", 1)[1].split("```", 1)[0]

    return read
