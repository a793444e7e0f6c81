"""Evaluation protocols: what is held out, what is trained on, what is tested.

Each protocol is one entry of ``PROTOCOLS``. Every tested row (one job of one measurement) belongs to exactly one
fold, and a fold that holds something out trains on no set that contains it, as a job or as a co-runner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eaco_datasets.errors import InputError, UnknownNameError
from eaco_features.examples import Examples
from eaco_features.sets import BoolArray, IntArray
from eaco_predictor.fitting import training_target

RANDOM_FOLDS = 5


@dataclass(frozen=True)
class Fold:
    """One split: ``train`` holds set indices ``(n_train,)``, ``test`` marks the tested rows ``(n_sets, MAX_JOBS)``."""

    name: str
    train: IntArray
    test: BoolArray


@dataclass(frozen=True)
class RowGroups:
    """The group that each row is reported under: ``codes`` ``(n_sets, MAX_JOBS)`` into ``names``, -1 without a job."""

    codes: IntArray
    names: tuple[str, ...]


@dataclass(frozen=True)
class EvaluationProtocol:
    """A named way of splitting examples.

    ``groups`` says what a row is reported under; ``split`` takes examples, those groups and a seed.
    """

    name: str
    what: str
    groups: Callable[[Examples], RowGroups]
    split: Callable[[Examples, RowGroups, int], list[Fold]]

    def folds(self, examples: Examples, seed: int = 0) -> list[Fold]:
        """The folds of these examples. Raises ``InputError`` where nothing is left to train on."""
        folds = self.split(examples, self.groups(examples), seed)
        if not folds:
            raise InputError("no measured target to evaluate", where="dataset", expected="rows with this target")
        for fold in folds:
            if len(fold.train) == 0:
                raise InputError(
                    f"nothing is left to train on when {fold.name} is held out",
                    where=f"protocol {self.name}",
                    expected="a dataset with at least two of what the protocol holds out",
                )
        return folds


def family_groups(examples: Examples) -> RowGroups:
    """Rows by the model family of their own job."""
    return RowGroups(examples.sets.family, examples.sets.families)


def _config_groups(examples: Examples) -> RowGroups:
    names = tuple(
        "/".join([c.family, c.dataset or "-", str(c.batch_size), c.precision, *([c.optimizer] if c.optimizer else [])])
        for c in examples.sets.configs
    )
    return RowGroups(examples.sets.config, names)


def _family_group_groups(examples: Examples) -> RowGroups:
    from eaco_datasets.names import family_group

    of_family = [family_group(slug) for slug in examples.sets.families]
    names = tuple(sorted(set(of_family)))
    lookup = np.array([names.index(group) for group in of_family] + [-1], dtype=np.int64)
    return RowGroups(lookup[examples.sets.family], names)  # code -1 (no job) reads the last entry


def _workload_groups(examples: Examples) -> RowGroups:
    of_config = [f"{c.family}/{c.dataset or '-'}" for c in examples.sets.configs]
    names = tuple(sorted(set(of_config)))
    lookup = np.array([names.index(name) for name in of_config] + [-1], dtype=np.int64)
    return RowGroups(lookup[examples.sets.config], names)


def _gpu_groups(examples: Examples) -> RowGroups:
    sets = examples.sets
    return RowGroups(np.where(sets.present, sets.gpu[:, None], -1), sets.gpus)


def _trainable_sets(examples: Examples) -> BoolArray:
    """Sets with at least one target to learn, ``(n_sets,)``."""
    return np.asarray(np.isfinite(training_target(examples)).any(axis=1))


def _leave_each_out(examples: Examples, groups: RowGroups, seed: int) -> list[Fold]:
    """One fold a group: every set that contains the group, in whatever role, is out of training."""
    del seed
    known, trainable = np.isfinite(examples.target), _trainable_sets(examples)
    folds = []
    for code, name in enumerate(groups.names):
        contains = (groups.codes == code) & examples.sets.present
        test = contains & known
        if test.any():
            train = np.flatnonzero(trainable & ~contains.any(axis=1))
            folds.append(Fold(name, train, test))
    return folds


def _train_on_all(examples: Examples, groups: RowGroups, seed: int) -> list[Fold]:
    del groups, seed
    known = np.isfinite(examples.target)
    return [Fold("nothing", np.flatnonzero(_trainable_sets(examples)), known)] if known.any() else []


def _random_by_measurement(examples: Examples, groups: RowGroups, seed: int) -> list[Fold]:
    """Folds of whole measurements, so that a job's own co-runner is never trained on."""
    del groups
    known, trainable = np.isfinite(examples.target), _trainable_sets(examples)
    ids, code = np.unique(examples.measurement_id[known.any(axis=1)].astype(str), return_inverse=True)
    fold_of_id = np.random.default_rng(seed).permutation(len(ids)) % RANDOM_FOLDS
    fold_of_set = np.full(len(examples.sets), -1, dtype=np.int64)
    fold_of_set[known.any(axis=1)] = fold_of_id[code]
    return [
        Fold(f"fold {number}", np.flatnonzero(trainable & (fold_of_set != number)), known & inside[:, None])
        for number in range(RANDOM_FOLDS)
        if (inside := fold_of_set == number).any()
    ]


def _set_groups(examples: Examples) -> RowGroups:
    """Rows by their measurement."""
    codes = np.where(examples.sets.present, np.arange(len(examples.sets))[:, None], -1)
    return RowGroups(codes, tuple(str(name) for name in examples.measurement_id))


def _solo_to_shared(examples: Examples, groups: RowGroups, seed: int) -> list[Fold]:
    """One fold: what was measured of jobs alone predicts what was measured of them together."""
    del groups, seed
    alone = examples.sets.n_jobs == 1
    test = np.isfinite(examples.target) & ~alone[:, None]
    return [Fold("co-locations", np.flatnonzero(_trainable_sets(examples) & alone), test)] if test.any() else []


PROTOCOLS: dict[str, EvaluationProtocol] = {
    p.name: p
    for p in (
        EvaluationProtocol("in-sample", "trained on all, tested on the same rows", family_groups, _train_on_all),
        EvaluationProtocol("random", "5 random folds of measurements", family_groups, _random_by_measurement),
        EvaluationProtocol("leave-one-config-out", "each job config in turn", _config_groups, _leave_each_out),
        EvaluationProtocol("leave-one-model-out", "each model family in turn", family_groups, _leave_each_out),
        EvaluationProtocol(
            "leave-one-family-group-out", "each group of related families", _family_group_groups, _leave_each_out
        ),
        EvaluationProtocol("leave-one-workload-out", "each family on a data set", _workload_groups, _leave_each_out),
        EvaluationProtocol("leave-one-gpu-out", "each GPU type in turn", _gpu_groups, _leave_each_out),
        EvaluationProtocol("solo-to-shared", "every co-location, from solo measurements", _set_groups, _solo_to_shared),
    )
}


def protocol(name: str) -> EvaluationProtocol:
    """A protocol by name. Raises ``UnknownNameError``."""
    if name not in PROTOCOLS:
        raise UnknownNameError("protocol", name, PROTOCOLS, where="--protocol")
    return PROTOCOLS[name]
