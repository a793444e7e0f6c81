"""The examples of docs/graphs.md: each block of code is run as it stands, and its job is recorded."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed (eaco[gnn])")

from eaco_features.graphs.graph import ModelGraph
from eaco_features.graphs.recorder import record

PAGE = Path(__file__).parents[3] / "docs" / "graphs.md"
EXAMPLES = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S))

BERT = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
LIT_CLASSIFIER = """
from torch import nn, optim


class LitClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 56 * 56, 1000))

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return optim.SGD(self.parameters(), lr=0.1)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that code is imported from and run in."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def recorded(title: str) -> ModelGraph:
    names: dict[str, object] = {}
    exec(compile(EXAMPLES[title], f"{PAGE.name}: {title}", "exec"), names)
    return record(names["build_job"], 4, allow_real=False)  # type: ignore[arg-type]


def check(graph: ModelGraph, optimizer: str, n_parameters: int | None = None) -> None:
    assert {"fwd", "bwd", "opt"} == set(graph.phase)
    assert graph.recording.affine
    assert graph.recording.optimizers == (optimizer,)
    if n_parameters is not None:
        assert graph.recording.parameter_count == n_parameters


def test_every_example_has_its_test() -> None:
    assert set(EXAMPLES) == {"Plain PyTorch", "Hugging Face transformers", "Lightning-style code"}


def test_plain_pytorch() -> None:
    check(recorded("Plain PyTorch"), "AdamW", 3 * 16 * 9 + 16 + 16 * 900 * 10 + 10)


@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed: pip install transformers")
def test_transformers(project: Path) -> None:
    (project / "my-model-folder").mkdir()
    (project / "my-model-folder" / "config.json").write_text(json.dumps(BERT), encoding="utf-8")
    check(recorded("Hugging Face transformers"), "AdamW")


def test_lightning_style(project: Path) -> None:
    (project / "my_project.py").write_text(LIT_CLASSIFIER, encoding="utf-8")
    check(recorded("Lightning-style code"), "SGD", 4 * 3 * 9 + 4 + 4 * 56 * 56 * 1000 + 1000)
