"""A trained predictor comes back from the registry, natively and through MLflow, the same to the last bit."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from eaco_datasets.simulated import simulate_profiles
from eaco_training import longform, registry, tracking
from eaco_training.train import train


@pytest.mark.slow
def test_the_same_to_the_last_bit(tmp_path):
    profiles = simulate_profiles(seed=0, gpus=["v100-sxm"], n_sets_per_gpu=80)
    result = train(profiles, dataset="small", model="lightgbm", home=tmp_path, register_as="eaco", evaluate_under=None)
    frame = longform.example_frame()
    frame = frame.drop(columns="solo_gpu_util_pct")
    sets, places = longform.sets_from_frame(frame)
    trained = result.predictor.predict(sets)
    assert trained[0].abstained is None
    assert registry.load_champion(tmp_path).predict(sets) == trained

    import mlflow

    client = tracking.client_of(tracking.store_of(tmp_path))
    found = client.get_model_version_by_alias("eaco", "champion")
    answered = mlflow.pyfunc.load_model(found.source).predict(frame)
    expected = longform.frame_from_predictions(["a", "a"], places, trained)
    for column in longform.OUTPUT:
        same = np.array_equal(answered[column], expected[column], equal_nan=expected[column].dtype == float)
        assert same, column
    params = client.get_run(result.run_id).data.params
    assert params["data_sha256"] == result.predictor.info.data_sha256
    assert params["library/numpy"] == np.__version__


@pytest.mark.slow
def test_a_first_champion_needs_neither_torch_nor_git_nor_words_from_mlflow(tmp_path):
    program = """
import sys
from pathlib import Path
from eaco_datasets.simulated import simulate_profiles
import eaco_datasets.sources
eaco_datasets.sources.load_dataset = lambda name: simulate_profiles(gpus=["t4"], n_sets_per_gpu=40)
from eaco_training.registry import ensure_champion
said = []
predictor = ensure_champion(Path("home"), None, said.append)
assert ensure_champion(Path("home"), None, said.append).info == predictor.info
assert len(said) == 2 and "simulated" in said[0], said
assert "torch" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PATH": "/nonexistent", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr == ""
