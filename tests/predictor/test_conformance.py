"""What every model of every target promises (``eaco_predictor.protocol``)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaco_datasets.errors import DataError, UnknownNameError
from eaco_datasets.gpus import gpu_specs
from eaco_datasets.simulated import simulate_profiles
from eaco_datasets.types import MAX_JOBS, MAX_RELATIVE_SPEED
from eaco_features.examples import Examples, examples_from_profiles
from eaco_features.sets import SOLO_FIELDS, ConfigKey, FloatArray, SetBatch
from eaco_predictor.protocol import TargetModel
from eaco_predictor.registry import default_model, make_model, model_names
from eaco_predictor.targets import MIN_RELATIVE_SPEED, TARGET_SPECS

ALL = [(target, name) for target in TARGET_SPECS for name in model_names(target)]
MONOTONE = [name for name in model_names("relative_speed") if make_model("relative_speed", name).monotone]
ORDERS = ([1, 0, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1])

Fitted = Callable[[str, str], tuple[TargetModel, Examples]]


@pytest.fixture(scope="module", autouse=True)
def short_training() -> Iterator[None]:
    """What every model promises does not hang on how long the network trains."""
    if find_spec("torch") is None or find_spec("torch_geometric") is None:
        yield
        return
    from eaco_predictor.gnn import model

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(model, "STEPS", 5)
        yield


@pytest.fixture(scope="module")
def fitted(examples_of: Callable[[str], Examples]) -> Fitted:
    """Each model fitted once on the small examples of its target."""

    @cache
    def of(target: str, name: str) -> tuple[TargetModel, Examples]:
        examples = examples_of(target)
        return make_model(target, name, seed=3).fit(examples.sets, examples.target), examples

    return of


def _same(left: FloatArray, right: FloatArray) -> bool:
    return left.dtype == right.dtype and np.array_equal(left, right, equal_nan=True)


def _copies(sets: SetBatch) -> dict[str, object]:
    values = {f.name: getattr(sets, f.name) for f in fields(sets)}
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in values.items()}


def _untouched(sets: SetBatch, before: dict[str, object]) -> bool:
    for name, value in before.items():
        now = getattr(sets, name)
        if isinstance(value, np.ndarray):
            if not np.array_equal(now, value, equal_nan=value.dtype.kind == "f"):
                return False
        elif now != value:
            return False
    return True


@pytest.mark.parametrize(("target", "name"), ALL)
class TestEveryModel:
    def test_honours_the_protocol_under_its_name(self, target: str, name: str) -> None:
        model = make_model(target, name)
        assert isinstance(model, TargetModel)
        assert model.name == name
        assert isinstance(model.monotone, bool)

    def test_fit_returns_itself_and_leaves_its_inputs_untouched(
        self, target: str, name: str, examples_of: Callable[[str], Examples]
    ) -> None:
        examples = examples_of(target)
        sets, known = _copies(examples.sets), examples.target.copy()
        model = make_model(target, name, seed=3)
        assert model.fit(examples.sets, examples.target) is model
        model.predict(examples.sets)
        assert _untouched(examples.sets, sets)
        assert _same(examples.target, known)

    def test_the_same_seed_gives_the_same_bits(self, target: str, name: str, fitted: Fitted) -> None:
        model, examples = fitted(target, name)
        again = make_model(target, name, seed=3).fit(examples.sets, examples.target)
        assert _same(again.predict(examples.sets), model.predict(examples.sets))

    def test_pickles_to_the_same_bits(self, target: str, name: str, fitted: Fitted) -> None:
        model, examples = fitted(target, name)
        loaded = pickle.loads(pickle.dumps(model))
        assert _same(loaded.predict(examples.sets), model.predict(examples.sets))

    def test_answers_where_there_is_a_job_and_nowhere_else(self, target: str, name: str, fitted: Fitted) -> None:
        model, examples = fitted(target, name)
        out = model.predict(examples.sets)
        assert out.shape == examples.sets.present.shape
        assert np.array_equal(np.isfinite(out), examples.sets.present)

    def test_stays_inside_the_physical_limits(self, target: str, name: str, fitted: Fitted) -> None:
        model, examples = fitted(target, name)
        low, high = _limits(target, examples.sets)
        out = model.predict(examples.sets)
        at = examples.sets.present
        assert (out[at] >= np.broadcast_to(low, at.shape)[at]).all()
        assert (out[at] <= np.broadcast_to(high, at.shape)[at]).all()

    @pytest.mark.parametrize("order", ORDERS)
    def test_permuting_the_jobs_permutes_the_answers(
        self, target: str, name: str, order: list[int], fitted: Fitted
    ) -> None:
        model, examples = fitted(target, name)
        moved = model.predict(examples.sets.permute_jobs(order))
        assert _same(moved, model.predict(examples.sets)[:, order])

    def test_learns_the_same_whatever_the_order_of_the_jobs(self, target: str, name: str, fitted: Fitted) -> None:
        model, examples = fitted(target, name)
        order = ORDERS[2]
        moved = make_model(target, name, seed=3).fit(examples.sets.permute_jobs(order), examples.target[:, order])
        here, there = model.predict(examples.sets), moved.predict(examples.sets)
        at = examples.sets.present
        # what draws rows, or drops units of them, at random draws others; all else agrees to rounding
        drawn_by_row = name in ("forest", "shallow-forest", "ensemble", "gnn", "gnn-solo")
        spread = float(np.nanstd(examples.target))
        assert np.abs(here - there)[at].mean() <= (0.15 if drawn_by_row else 1e-3) * spread

    def test_the_order_of_the_sets_does_not_matter(self, target: str, name: str, fitted: Fitted) -> None:
        model, examples = fitted(target, name)
        order = np.random.default_rng(0).permutation(len(examples))
        assert _same(model.predict(examples.sets.take(order)), model.predict(examples.sets)[order])

    def test_splitting_the_batch_changes_nothing(self, target: str, name: str, fitted: Fitted) -> None:
        model, examples = fitted(target, name)
        n = len(examples)
        parts = [range(1), range(1, n // 3), range(n // 3, n)]
        out = [model.predict(examples.sets.take(np.array(part))) for part in parts]
        assert _same(np.concatenate(out), model.predict(examples.sets))

    def test_an_empty_batch_is_answered_with_nothing(self, target: str, name: str, fitted: Fitted) -> None:
        model, examples = fitted(target, name)
        empty = examples.sets.take(np.array([], dtype=np.int64))
        assert model.predict(empty).shape == (0, MAX_JOBS)

    def test_nothing_known_to_learn_from_is_refused(self, target: str, name: str, fitted: Fitted) -> None:
        _, examples = fitted(target, name)
        with pytest.raises(DataError, match="expected at least one") as refused:
            make_model(target, name).fit(examples.sets, np.full_like(examples.target, np.nan))
        assert "\n" not in str(refused.value)

    def test_learns_from_very_little(self, target: str, name: str, fitted: Fitted) -> None:
        _, examples = fitted(target, name)
        few = np.flatnonzero(np.isfinite(examples.target).any(axis=1))[:2]
        model = make_model(target, name).fit(examples.sets.take(few), examples.target[few])
        assert np.array_equal(np.isfinite(model.predict(examples.sets)), examples.sets.present)

    def test_names_never_seen_are_answered(self, target: str, name: str, fitted: Fitted) -> None:
        model, examples = fitted(target, name)
        sets = examples.sets
        strange = replace(
            sets,
            gpus=tuple(("h200", "l4", "t4")[i] for i, _ in enumerate(sets.gpus)),
            families=tuple(f"unseen{i}" for i, _ in enumerate(sets.families)),
            configs=tuple(ConfigKey(f"unseen{i}", "d", 7, "bf16", "o") for i, _ in enumerate(sets.configs)),
            power_limit_w=np.full(len(sets), np.nan),
        )
        out = model.predict(strange)
        assert np.array_equal(np.isfinite(out), sets.present)
        low, high = _limits(target, strange)
        assert (out >= low)[sets.present].all()
        assert (out <= high)[sets.present].all()


def _limits(target: str, sets: SetBatch) -> tuple[FloatArray, FloatArray]:
    """Written down again, apart from the product's own: what no prediction may leave, ``(n_sets, 1)``."""
    one = np.ones((len(sets), 1))
    if target == "gpu_power_w":
        specs = [gpu_specs()[sets.gpus[code]] for code in sets.gpu]
        limit = np.array([s.power_limit_w for s in specs])
        high = np.where(np.isnan(sets.power_limit_w), limit, sets.power_limit_w)
        return np.minimum([s.idle_w for s in specs], high)[:, None], high[:, None]
    bounds = {"relative_speed": (MIN_RELATIVE_SPEED, MAX_RELATIVE_SPEED), "gpu_util_pct": (0.0, 100.0)}
    low, high_value = bounds.get(target, (0.0, np.inf))
    return low * one, high_value * one


@pytest.mark.parametrize("name", model_names("relative_speed"))
class TestEverySpeedModel:
    def test_a_job_alone_runs_at_its_own_speed(self, name: str, fitted: Fitted, simulated_solos: SetBatch) -> None:
        model, _ = fitted("relative_speed", name)
        out = model.predict(simulated_solos)
        assert (out[simulated_solos.present] == 1.0).all()

    def test_jobs_of_which_nothing_is_known_are_answered(self, name: str, fitted: Fitted) -> None:
        model, examples = fitted("relative_speed", name)
        blind = examples.sets.with_solo(np.full_like(examples.sets.solo, np.nan))
        assert np.array_equal(np.isfinite(model.predict(blind)), examples.sets.present)

    def test_too_few_rows_to_split_on_still_give_the_mean(self, name: str, fitted: Fitted) -> None:
        _, examples = fitted("relative_speed", name)
        few = examples.take(np.arange(8))
        model = make_model("relative_speed", name).fit(few.sets, few.target)
        known = np.isfinite(few.target)
        error = np.abs(model.predict(few.sets) - few.target)[known].mean()
        assert error < (0.6 if name in ("no-interference", "time-slice") else 0.25)

    def test_trained_blind_it_answers_all_the_same(self, name: str, fitted: Fitted) -> None:
        _, examples = fitted("relative_speed", name)
        blind = examples.sets.with_solo(np.full_like(examples.sets.solo, np.nan)).take(np.arange(40))
        model = make_model("relative_speed", name).fit(blind, examples.target[:40])
        assert np.array_equal(np.isfinite(model.predict(examples.sets)), examples.sets.present)


@pytest.fixture(scope="module")
def simulated_solos() -> SetBatch:
    """Jobs that have the GPU to themselves."""
    table = simulate_profiles(gpus=["v100-sxm"], n_sets_per_gpu=5)
    return examples_from_profiles(table[table["role"] == "solo"].assign(role="colocated"), "relative_speed").sets


@pytest.mark.parametrize("name", MONOTONE)
@settings(max_examples=60, deadline=None)
@given(
    which=st.integers(0, 10**6),
    places=st.tuples(st.integers(0, MAX_JOBS - 1), st.integers(0, MAX_JOBS - 1)),
    load=st.tuples(
        st.sampled_from(["gpu_util_pct", "mem_util_pct", "mem_mib"]), st.floats(1.0, 20.0), st.floats(0.0, 80.0)
    ),
)
def test_more_load_on_a_co_runner_never_speeds_a_job_up(
    fitted: Fitted, name: str, which: int, places: tuple[int, int], load: tuple[str, float, float]
) -> None:
    model, examples = fitted("relative_speed", name)
    field, factor, add = load
    at = which % len(examples)
    sets = examples.sets.take(np.array([at, at]))
    n = int(sets.n_jobs[0])
    job, other = places[0] % n, places[1] % n
    if job == other:
        other = (job + 1) % n
    solo = sets.solo.copy()
    raised = solo[1, other, SOLO_FIELDS.index(field)] * factor + add
    solo[1, other, SOLO_FIELDS.index(field)] = raised if field == "mem_mib" else min(raised, 100.0)
    before, after = model.predict(sets.with_solo(solo))[:, job]
    assert after <= before


def test_monotone_models_are_those_that_can_promise_it() -> None:
    assert set(MONOTONE) == set(model_names("relative_speed")) - {"ridge", "forest", "gnn", "gnn-solo"}
    assert default_model("relative_speed") in MONOTONE


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="unknown target 'speed'"):
        model_names("speed")
    with pytest.raises(UnknownNameError, match="unknown model of relative_speed 'lightgmb'; expected perhaps lightgbm"):
        make_model("relative_speed", "lightgmb")
