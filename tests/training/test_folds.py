"""Protocols hold out what they say, as a job and as a co-runner."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eaco_datasets.errors import InputError, UnknownNameError
from eaco_predictor.fitting import training_target
from eaco_training.folds import PROTOCOLS, RANDOM_FOLDS, protocol

FAMILIES = ["resnet18", "resnet50", "vgg16", "bert-base"]
HOLDING_OUT = [name for name in PROTOCOLS if name.startswith("leave-one")]

jobs = st.tuples(
    st.sampled_from(FAMILIES),
    st.sampled_from([16, 32]),
    st.floats(0.1, 1.2),
    st.sampled_from(["measured", "imputed", "simulated"]),
)
tables = st.lists(st.lists(jobs, min_size=1, max_size=4), min_size=2, max_size=25)
relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def folds_of(name, examples):
    try:
        return protocol(name).folds(examples)
    except InputError:
        return []


@pytest.mark.parametrize("name", HOLDING_OUT)
@relaxed
@given(table=tables, data=st.data())
def test_nothing_held_out_is_trained_on(name, table, data, make_examples):
    gpus = data.draw(st.lists(st.sampled_from(["k80", "p100", "a40"]), min_size=len(table), max_size=len(table)))
    examples = make_examples(table, gpus=gpus)
    groups = PROTOCOLS[name].groups(examples)
    for fold in folds_of(name, examples):
        held_out = groups.names.index(fold.name)
        trained = groups.codes[fold.train][examples.sets.present[fold.train]]
        assert held_out not in trained
        assert set(groups.codes[fold.test]) == {held_out}


@pytest.mark.parametrize("name", list(PROTOCOLS))
@relaxed
@given(table=tables)
def test_every_known_row_is_tested_once_and_imputed_rows_never_train(name, table, make_examples):
    examples = make_examples(table)
    folds = folds_of(name, examples)
    if folds:
        times = np.sum([fold.test for fold in folds], axis=0)
        asked = examples.sets.n_jobs[:, None] > 1 if name == "solo-to-shared" else True
        assert (times == (np.isfinite(examples.target) & asked)).all()
    learned = training_target(examples)
    assert np.isnan(learned[examples.provenance == "imputed"]).all()
    for fold in folds:
        assert np.isfinite(learned[fold.train]).any(axis=1).all()


def test_only_jobs_alone_teach_what_shared_sets_are_tested_on(make_examples):
    examples = make_examples(
        [
            [("vgg16", 32, 0.7, "measured")],
            [("resnet18", 32, 0.9, "measured")],
            [("vgg16", 32, 0.7, "measured"), ("resnet18", 32, 0.8, "measured")],
        ]
    )
    (fold,) = protocol("solo-to-shared").folds(examples)
    assert fold.train.tolist() == [0, 1]
    assert fold.test.any(axis=1).tolist() == [False, False, True]


def test_a_family_is_out_as_a_co_runner_too(make_examples):
    examples = make_examples(
        [
            [("vgg16", 32, 0.7, "measured"), ("resnet18", 32, 0.8, "measured")],
            [("resnet18", 32, 0.9, "measured"), ("resnet50", 32, 0.9, "measured")],
            [("bert-base", 32, 0.9, "measured"), ("bert-base", 32, 0.9, "measured")],
        ]
    )
    fold = next(f for f in protocol("leave-one-model-out").folds(examples) if f.name == "vgg16")
    assert fold.train.tolist() == [1, 2]
    assert np.argwhere(fold.test).tolist() == [[0, 0]]  # the co-runner's row is not vgg16's


def test_related_families_go_out_together(make_examples):
    examples = make_examples(
        [
            [("resnet18", 32, 0.7, "measured"), ("vgg16", 32, 0.8, "measured")],
            [("resnet50", 32, 0.9, "measured"), ("vgg16", 32, 0.9, "measured")],
            [("bert-base", 32, 0.9, "measured"), ("vgg16", 32, 0.9, "measured")],
            [("bert-base", 32, 0.9, "measured"), ("bert-base", 16, 0.9, "measured")],
        ]
    )
    folds = protocol("leave-one-family-group-out").folds(examples)
    by_test = {tuple(np.flatnonzero(f.test.any(axis=1))): f for f in folds}
    assert by_test[0, 1].train.tolist() == [2, 3]  # both ResNets are tested, neither is trained on


def test_random_folds_keep_measurements_whole(make_examples):
    pair = [("resnet18", 32, 0.7, "measured"), ("vgg16", 32, 0.8, "measured")]
    ids = [f"m{i // 2}" for i in range(40)]
    examples = make_examples([pair] * 40, ids=ids)
    folds = protocol("random").folds(examples, seed=3)
    assert len(folds) == RANDOM_FOLDS
    for fold in folds:
        tested = {ids[i] for i in np.flatnonzero(fold.test.any(axis=1))}
        assert tested
        assert not tested & {ids[i] for i in fold.train}
    again = protocol("random").folds(examples, seed=4)
    assert any((a.test != b.test).any() for a, b in zip(folds, again, strict=True))


def test_in_sample_trains_on_what_it_tests(make_examples):
    examples = make_examples([[("vgg16", 32, 0.7, "measured"), ("resnet18", 32, 0.8, "measured")]])
    (fold,) = protocol("in-sample").folds(examples)
    assert fold.train.tolist() == [0]
    assert fold.test.sum() == 2


def test_one_gpu_type_cannot_be_left_out(make_examples):
    examples = make_examples([[("vgg16", 32, 0.7, "measured")], [("resnet18", 32, 0.7, "measured")]])
    with pytest.raises(InputError, match="nothing is left to train on when rtx3090 is held out"):
        protocol("leave-one-gpu-out").folds(examples)


def test_unknown_protocol_is_named():
    with pytest.raises(UnknownNameError, match="leave-one-model-out"):
        protocol("leave-one-modle-out")
