"""Which set of jobs to measure next: the one that would teach the predictor most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, combinations_with_replacement
from math import comb

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor
from sklearn.impute import SimpleImputer

from eaco_datasets.errors import InputError
from eaco_datasets.schema import COLUMN_NAMES
from eaco_datasets.types import MAX_JOBS, CoLocation, Job, SharingMode
from eaco_features.examples import examples_from_profiles
from eaco_features.matrix import feature_matrix
from eaco_features.sets import FloatArray, sets_from_colocations
from eaco_predictor.solos import SoloTable

DEFAULT_SHARES: Mapping[int, float] = {2: 0.75, 3: 0.2, 4: 0.05}
"""Shares of the sets of each size (choice): pairs teach most a second, larger sets show whether their sums hold."""

_LEAST_SETS = 20  # measured before the forest is asked (choice)
_REFIT_EVERY = 10  # sets measured between fits (choice): a fit takes about as long as measuring one set
_N_CANDIDATES = 400  # drawn where a size has more sets than that
_N_TREES, _LEAST_LEAF = 60, 3

_Set = tuple[int, ...]
_Key = tuple[str, str, int, str, str]


class LearningPlanner:
    """Draws a set with a probability proportional to uncertainty x coverage; the same inputs and seed give the same.

    *Uncertainty* is the spread of the predicted relative speed over the trees of a random forest fitted on what is
    measured so far, mean over the jobs of the set (query by committee, Seung et al. 1992). *Coverage* is the mean over
    the set's pairs of families of ``1 / sqrt(1 + times measured together)``, times the same of its single families.
    Drawn, since always taking the highest score goes after noise, which nobody can learn. Until ``_LEAST_SETS`` sets
    are measured the highest coverage is taken, and among equals the seed decides.

    Args:
        seed: seeds the forest, the drawing of candidates and ties.
        shares: how large a share of the measured sets each number of jobs is to have; sizes not named are never
            chosen.

    Raises:
        InputError: a size outside 2 to ``MAX_JOBS``, or no share above 0.
    """

    def __init__(self, seed: int = 0, shares: Mapping[int, float] = DEFAULT_SHARES) -> None:
        if any(not 2 <= size <= MAX_JOBS or share < 0 for size, share in shares.items()) or not any(shares.values()):
            raise InputError(f"shares {dict(shares)}", expected=f"shares above 0 of sets of 2 to {MAX_JOBS} jobs")
        self.seed, self.shares = seed, {size: share for size, share in sorted(shares.items()) if share}
        self._fitted: tuple[tuple[str, ...], _Committee | None] = ((), None)

    def choose(
        self, configs: Sequence[Job], measured: pd.DataFrame, among: Collection[tuple[int, ...]] | None = None
    ) -> tuple[int, ...] | None:
        """The next set as indices into ``configs``, in order; None when every set of the sizes in question is measured.

        Args:
            configs: the job configs; one of which a solo measurement failed or ran out of memory takes no part.
            measured: the profile table so far, of one GPU type (``eaco_datasets.schema``).
            among: the only sets to choose from, each in order; any when None.
        """
        measured = measured if len(measured) else measured.reindex(columns=COLUMN_NAMES)
        keys = [_key_of_job(job) for job in configs]
        shared = measured[measured["role"] == "colocated"]
        done = Counter(_tried_sets(shared, keys))
        out_of_memory = _tried_sets(shared[shared["outcome"] == "oom"], keys)
        fit, solo_mib = _fitting(measured, keys), _solo_mib(measured, keys)
        for size in self._sizes(done):
            draw = np.random.default_rng([self.seed, done.total(), size])
            drawn = _candidates(fit, size, draw) if among is None else _of_size(among, size, fit)
            new = [jobs for jobs in drawn if jobs not in done]
            candidates = _in_memory(new, solo_mib, out_of_memory)
            if candidates:
                coverage = _coverage(candidates, [job.family for job in configs], done)
                committee = self._committee(measured)
                if committee is None:
                    order = draw.permutation(len(candidates))
                    return candidates[int(order[np.argmax(coverage[order])])]
                score = coverage * committee.spread(configs, candidates, measured)
                return candidates[int(draw.choice(len(candidates), p=_shares(score)))]
        return None

    def _sizes(self, done: Counter[_Set]) -> list[int]:
        """Set sizes, the one furthest below its share first."""
        counts = Counter(len(members) for members in done.elements())
        return sorted(self.shares, key=lambda size: ((counts[size] + 1) / self.shares[size], size))

    def _committee(self, measured: pd.DataFrame) -> _Committee | None:
        """The forest of the latest multiple of ``_REFIT_EVERY`` measured sets; None before ``_LEAST_SETS``."""
        told = measured[(measured["role"] == "colocated") & measured["relative_speed"].notna()]
        ids = tuple(told["measurement_id"].astype(str).unique())
        ids = ids[: len(ids) - len(ids) % _REFIT_EVERY]
        if len(ids) < _LEAST_SETS:
            return None
        if self._fitted[0] != ids:
            known = measured[(measured["role"] == "solo") | measured["measurement_id"].astype(str).isin(ids)]
            self._fitted = ids, _Committee(known, self.seed)
        return self._fitted[1]


class _Committee:
    """A forest whose trees vote on relative speed."""

    def __init__(self, profiles: pd.DataFrame, seed: int) -> None:
        examples = examples_from_profiles(profiles, "relative_speed")
        target = examples.target[examples.sets.rows]
        known = np.isfinite(target)
        self._imputer = SimpleImputer(strategy="median", keep_empty_features=True)
        self._forest = RandomForestRegressor(
            _N_TREES, min_samples_leaf=_LEAST_LEAF, max_features=1 / 3, random_state=seed
        )
        features = self._imputer.fit_transform(feature_matrix(examples.sets)[known])
        self._forest.fit(features, np.clip(target[known], 0.0, 1.05))

    def spread(self, configs: Sequence[Job], candidates: Sequence[_Set], measured: pd.DataFrame) -> FloatArray:
        """Standard deviation over the trees, mean over the jobs of each candidate ``(n_candidates,)``."""
        gpu, mode = str(measured["gpu"].iloc[-1]), _mode(measured)
        sets = [CoLocation(gpu, mode, tuple(configs[i] for i in members)) for members in candidates]
        batch, _ = SoloTable.from_profiles(measured).fill(sets_from_colocations(sets))
        features = self._imputer.transform(feature_matrix(batch))
        votes = np.stack([tree.predict(features) for tree in self._forest.estimators_])
        total = np.bincount(batch.rows[0], weights=votes.std(axis=0), minlength=len(sets))
        return np.asarray(total / batch.n_jobs, dtype=float)


def _shares(score: FloatArray) -> FloatArray:
    """The scores as probabilities; all alike where every score is 0."""
    total = score.sum()
    return score / total if total > 0 else np.full(len(score), 1.0 / len(score))


def _coverage(candidates: Sequence[_Set], families: Sequence[str], done: Counter[_Set]) -> FloatArray:
    """How little the families of each candidate and their pairs are measured yet, in (0, 1] ``(n_candidates,)``."""
    alone: Counter[str] = Counter()
    together: Counter[tuple[str, str]] = Counter()
    for members, times in done.items():
        for pair in _pairs(members, families):
            together[pair] += times
        for i in members:
            alone[families[i]] += times
    return np.array(
        [
            np.mean([(1 + alone[families[i]]) ** -0.5 for i in members])
            * np.mean([(1 + together[pair]) ** -0.5 for pair in _pairs(members, families)])
            for members in candidates
        ]
    )


def _pairs(members: _Set, families: Sequence[str]) -> Iterator[tuple[str, str]]:
    for i, j in combinations(members, 2):
        a, b = sorted((families[i], families[j]))
        yield a, b


def _candidates(indices: Sequence[int], size: int, draw: np.random.Generator) -> list[_Set]:
    """All sets of a size, a job with itself too, or ``_N_CANDIDATES`` of them drawn."""
    if comb(len(indices) + size - 1, size) <= _N_CANDIDATES:
        return list(combinations_with_replacement(indices, size))
    drawn = np.sort(draw.choice(np.asarray(indices), (_N_CANDIDATES, size)), axis=1)
    return list(dict.fromkeys(tuple(row) for row in drawn.tolist()))


def _of_size(among: Collection[_Set], size: int, fit: Collection[int]) -> list[_Set]:
    return [jobs for jobs in among if len(jobs) == size and set(jobs) <= set(fit)]


def _fitting(measured: pd.DataFrame, keys: Sequence[_Key]) -> list[int]:
    """Indices of the configs that did not only fail alone; of equal configs the first."""
    solo = measured[measured["role"] == "solo"]
    outcomes = list(zip(_keys(solo), solo["outcome"], strict=True))
    bad = {key for key, _ in outcomes} - {key for key, outcome in outcomes if outcome == "ok"}
    return [i for i, key in enumerate(keys) if key not in bad and keys.index(key) == i]


def _in_memory(candidates: Sequence[_Set], solo_mib: FloatArray, out_of_memory: Sequence[_Set]) -> list[_Set]:
    """Candidates whose solo memory does not add up to that of a set that ran out of it; unknown memory passes."""
    too_much_mib = min((total for jobs in out_of_memory if (total := solo_mib[list(jobs)].sum()) > 0), default=np.inf)
    return [jobs for jobs in candidates if not solo_mib[list(jobs)].sum() >= too_much_mib]


def _solo_mib(measured: pd.DataFrame, keys: Sequence[_Key]) -> FloatArray:
    """Median memory of each config alone ``(n_configs,)``, NaN where unknown."""
    solo = measured[(measured["role"] == "solo") & measured["mem_mib"].notna()]
    found: dict[_Key, list[float]] = {}
    for key, mib in zip(_keys(solo), solo["mem_mib"], strict=True):
        found.setdefault(key, []).append(float(mib))
    return np.array([np.median(found[key]) if key in found else np.nan for key in keys])


def _tried_sets(shared: pd.DataFrame, keys: Sequence[_Key]) -> list[_Set]:
    """The sets of known configs in co-located rows, one a measurement whatever came of it, as sorted indices."""
    index_of = {key: i for i, key in reversed(list(enumerate(keys)))}
    jobs: dict[str, list[int]] = {}
    for measurement, key in zip(shared["measurement_id"], _keys(shared), strict=True):
        jobs.setdefault(str(measurement), []).append(index_of.get(key, -1))
    return [tuple(sorted(members)) for members in jobs.values() if -1 not in members]


def _keys(rows: pd.DataFrame) -> list[_Key]:
    text = {name: rows[name].astype(object).where(rows[name].notna(), "") for name in ("dataset", "optimizer")}
    columns = (rows["family"], text["dataset"], rows["batch_size"], rows["precision"], text["optimizer"])
    return [(str(f), str(d), int(b), str(p), str(o)) for f, d, b, p, o in zip(*columns, strict=True)]


def _key_of_job(job: Job) -> _Key:
    return job.family, job.dataset or "", job.batch_size, job.precision, job.optimizer or ""


def _mode(measured: pd.DataFrame) -> SharingMode:
    mode: SharingMode = measured["sharing_mode"].iloc[-1]
    return mode
