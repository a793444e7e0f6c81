"""The graph neural network: learns from graphs, ignores what is masked, encodes each job once, needs its extra."""

from __future__ import annotations

import pickle
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

from eaco_datasets.errors import MissingExtraError
from eaco_datasets.types import CoLocation, Job
from eaco_features.examples import examples_from_profiles
from eaco_features.job_graphs import roofline_columns, steps_per_epoch
from eaco_features.sets import SetBatch, sets_from_colocations
from eaco_features.zoo.catalogue import reference_jobs
from eaco_features.zoo.recorded import catalogue_graph
from eaco_predictor import registry
from eaco_predictor.fitting import fit_predictor
from eaco_predictor.gnn.encode import N_NODE_FEATURES, JobKey, encode
from eaco_predictor.gnn.tasks import CONSUMPTION_TASKS, TASKS
from eaco_predictor.pipeline import TargetPipeline
from eaco_predictor.predictor import Predictor
from eaco_predictor.registry import make_model, model_names

needs_torch = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("torch_geometric") is None,
    reason="torch and torch-geometric are not installed: extra gnn",
)


def solo_jobs() -> SetBatch:
    """Every reference job with a known data set size at two batch sizes, alone on one GPU type."""
    jobs = [
        Job(job.name, job.family, batch, dataset=job.dataset)
        for job in reference_jobs()
        if job.samples_per_epoch is not None
        for batch in (8, 64)
    ]
    return sets_from_colocations([CoLocation("v100-sxm", "time-slice", (job,)) for job in jobs])


class TestEncoding:
    @pytest.mark.parametrize("name", [job.name for job in reference_jobs()])
    def test_is_finite_and_joined_both_ways(self, name: str) -> None:
        encoded = encode(catalogue_graph(name), 16, "fp32")
        assert encoded.nodes.shape[1] == N_NODE_FEATURES
        assert np.isfinite(encoded.nodes).all()
        assert np.isfinite(encoded.totals).all()
        assert np.abs(encoded.nodes).max() < 5.0
        half = encoded.edges.shape[1] // 2
        assert np.array_equal(encoded.edges[:, :half], encoded.edges[::-1, half:])

    def test_knows_batch_size_and_precision(self) -> None:
        graph = catalogue_graph("resnet50-imagenet")
        small, large, half = encode(graph, 8, "fp32"), encode(graph, 64, "fp32"), encode(graph, 8, "amp")
        assert not np.array_equal(small.nodes, large.nodes)
        assert not np.array_equal(small.nodes, half.nodes)

    def test_twelve_tasks_are_driple_s(self) -> None:
        assert len(CONSUMPTION_TASKS) == 12
        assert len(set(TASKS)) == len(TASKS) == 18


def test_a_clear_line_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda _name: None)
    assert "gnn" not in model_names("relative_speed")
    assert "ensemble" in model_names("relative_speed")
    with pytest.raises(MissingExtraError, match="gnn") as refused:
        make_model("relative_speed", "gnn")
    assert "\n" not in str(refused.value)


@needs_torch
class TestLearning:
    def test_step_times_of_jobs_that_it_did_not_see(self) -> None:
        """Step time = roofline time with a host that costs four times the usual: told apart from the mean by far."""
        sets = solo_jobs()
        roofline = roofline_columns(sets)
        epoch_s = (1.5 * roofline.busy_s + 240e-6 * roofline.launches) * steps_per_epoch(sets)
        seen = sets.family[:, 0] % 3 != 0
        model = make_model("epoch_s", "gnn").fit(sets.take(seen), epoch_s[seen])
        error = np.abs(np.log(model.predict(sets) / epoch_s))[~seen, 0]
        usual = np.exp(np.log(epoch_s[seen, 0]).mean())
        assert np.median(error) < 0.4 * np.median(np.abs(np.log(usual / epoch_s[~seen, 0])))

    def test_a_task_without_a_target_moves_nothing(
        self, simulated: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The network's and burst outputs have no target in any table: their last weights stay where they began."""
        from eaco_predictor.gnn import model as module

        monkeypatch.setattr(module, "STEPS", 5)
        examples = examples_from_profiles(simulated, "relative_speed")
        model = make_model("relative_speed", "gnn").fit(examples.sets, examples.target)
        weight = model._head.out[-1].weight.detach().numpy()  # type: ignore[attr-defined]
        for task in CONSUMPTION_TASKS:
            assert not weight[TASKS.index(task)].any(), task
        for task in ("relative_speed", "epoch_s", "gpu_util_pct", "mem_mib"):
            assert weight[TASKS.index(task)].any(), task

    def test_known_jobs_are_not_encoded_again(self, simulated: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
        from eaco_predictor.gnn import model as module

        monkeypatch.setattr(module, "STEPS", 2)
        examples = examples_from_profiles(simulated, "relative_speed").take(np.arange(40))
        model = pickle.loads(pickle.dumps(make_model("relative_speed", "gnn").fit(examples.sets, examples.target)))
        encoded: list[int] = []
        plain = module.Encoder.forward
        monkeypatch.setattr(
            module.Encoder, "forward", lambda self, batch: encoded.append(batch.size) or plain(self, batch)
        )
        before = model.predict(examples.sets)
        assert encoded == []
        new = Job("vit", "vit-b16", 77, dataset="imagenet")
        sets = sets_from_colocations([CoLocation("rtx3090", "time-slice", (new, new))])
        assert np.isfinite(model.predict(sets)[0, :2]).all()
        assert encoded == [1]
        model.predict(sets)
        assert encoded == [1]
        assert JobKey(catalogue_graph("vit-b16-imagenet").content_hash, 77, "fp32") in model._embeddings
        assert np.array_equal(model.predict(examples.sets), before, equal_nan=True)

    def test_is_saved_with_each_embedding_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from eaco_predictor.gnn import model as module

        monkeypatch.setattr(module, "STEPS", 1)
        sets = solo_jobs()
        model = make_model("epoch_s", "gnn").fit(sets, np.ones(sets.present.shape))
        n_jobs = len(model._embeddings)  # type: ignore[attr-defined]
        assert n_jobs > 30
        whole = len(pickle.dumps(model))
        model._embeddings = {}  # type: ignore[attr-defined]
        assert whole - len(pickle.dumps(model)) < n_jobs * 1000

    def test_computes_on_one_thread_and_gives_the_others_back(
        self, simulated: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import torch

        from eaco_predictor.gnn import model as module

        monkeypatch.setattr(module, "STEPS", 2)
        threads: list[int] = []
        for part in (module.Encoder, module.Head):
            monkeypatch.setattr(
                part,
                "forward",
                lambda self, *given, _plain=part.forward: (
                    threads.append(torch.get_num_threads()) or _plain(self, *given)
                ),
            )
        examples = examples_from_profiles(simulated, "relative_speed").take(np.arange(20))
        usual = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            make_model("relative_speed", "gnn").fit(examples.sets, examples.target).predict(examples.sets)
            assert set(threads) == {1}
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(usual)

    def test_adapting_moves_the_head_and_not_the_encoder(self) -> None:
        sets = solo_jobs()
        roofline = roofline_columns(sets)
        epoch_s = (1.5 * roofline.busy_s + 60e-6 * roofline.launches) * steps_per_epoch(sets)
        model = make_model("epoch_s", "gnn").fit(sets, epoch_s)
        (gpu,) = sets.gpus
        assert model.adapt(gpu, sets, np.full_like(epoch_s, np.nan)) is model  # type: ignore[attr-defined]
        few = np.arange(0, len(sets), 4)
        adapted = model.adapt(gpu, sets.take(few), 3.0 * epoch_s[few])  # type: ignore[attr-defined]

        def error(fitted: object) -> float:
            return float(np.median(np.abs(np.log(fitted.predict(sets) / (3.0 * epoch_s)))[:, 0]))  # type: ignore[attr-defined]

        assert error(adapted) < 0.5 * error(model)
        assert adapted._encoder is model._encoder  # type: ignore[attr-defined]
        elsewhere = replace(sets, gpus=("p100",))
        assert np.array_equal(adapted.predict(elsewhere), model.predict(elsewhere), equal_nan=True)

    def test_jobs_without_a_graph_teach_it_the_mean(self) -> None:
        sets = sets_from_colocations([CoLocation("rtx3090", "time-slice", (Job("x", "my-own-net", 8),))] * 3)
        epoch_s = np.where(sets.present, 7.0, np.nan)
        model = make_model("epoch_s", "gnn").fit(sets, epoch_s)
        assert model.predict(sets)[:, 0] == pytest.approx(7.0)
        assert model.adapt("rtx3090", sets, epoch_s) is model  # type: ignore[attr-defined]

    def test_keeps_the_newest_embeddings_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from eaco_predictor.gnn import model as module

        monkeypatch.setattr(module, "STEPS", 1)
        sets = solo_jobs()
        model = make_model("epoch_s", "gnn").fit(sets, np.ones(sets.present.shape))
        before = model.predict(sets)
        monkeypatch.setattr(module, "MAX_EMBEDDINGS", 5)
        model._embeddings = {}  # type: ignore[attr-defined]
        assert np.array_equal(model.predict(sets), before, equal_nan=True)
        assert len(model._embeddings) == 5  # type: ignore[attr-defined]

    def test_a_predicted_profile_is_no_target(self, simulated: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
        from eaco_predictor.gnn import model as module

        monkeypatch.setattr(module, "STEPS", 1)
        told: list[frozenset[str]] = []
        plain = module._solo_targets
        monkeypatch.setattr(module, "_solo_targets", lambda jobs: told.append(frozenset(found := plain(jobs))) or found)
        examples = examples_from_profiles(simulated, "relative_speed").take(np.arange(40))
        blank = examples.sets.with_solo(np.full_like(examples.sets.solo, np.nan))
        for cold in (False, True):
            TargetPipeline("relative_speed", "gnn", cold=cold, intervals=False).fit(blank, examples.target)
        assert told == [frozenset(), frozenset()]


@needs_torch
def test_a_predictor_with_the_network_answers_and_is_saved(
    simulated: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eaco_predictor.gnn import model as module

    monkeypatch.setattr(module, "STEPS", 3)
    few = simulated[simulated["family"].isin(["resnet50", "vgg16", "bert-base", "dcgan"])]
    whole = few.groupby("measurement_id")["family"].transform("size") == simulated.groupby("measurement_id")[
        "family"
    ].transform("size").reindex(few.index)
    predictor = fit_predictor(few[whole].reset_index(drop=True), model="gnn")
    folder = tmp_path_factory.mktemp("saved")
    predictor.save(folder)
    loaded = Predictor.load(folder)
    job = Job("r", "resnet50", 48, dataset="imagenet")
    sets = [CoLocation("rtx3090", "time-slice", (job, replace(job, batch_size=16)))]
    assert loaded.predict(sets) == predictor.predict(sets)
    assert loaded.predict(sets)[0].abstained is None
    assert loaded.info.model == "gnn"
    assert {"torch", "torch-geometric"} <= set(loaded.info.libraries)
