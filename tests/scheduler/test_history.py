"""Observed epochs replace predicted ones, for the same configs anywhere on the GPU type."""

from types import SimpleNamespace

import pytest

from eaco_datasets.errors import InputError
from eaco_datasets.types import CoLocation
from eaco_predictor.prediction import Estimate
from eaco_scheduler.history import History, HistoryPredictor, miss_probability


def _pair(kit: SimpleNamespace, first: str = "a", second: str = "b") -> CoLocation:
    jobs = (kit.job(first, util=40.0), kit.job(second, util=40.0, model="vgg16", family="vgg16", deadline_s=1400.0))
    return CoLocation("v100-sxm", "time-slice", jobs)


def test_an_observed_epoch_is_believed_whoever_runs_it(kit: SimpleNamespace) -> None:
    history = History()
    predictor = HistoryPredictor(kit.Predictor(), history)
    before = predictor.predict([_pair(kit)])[0]
    assert before.jobs[1].deadline_miss_probability == pytest.approx(0.0, abs=1e-6)
    history.record(_pair(kit), 1, 150.0)
    kept, slowed = predictor.predict([_pair(kit, "other", "names")])[0].jobs
    assert kept.epoch_s == before.jobs[0].epoch_s
    assert slowed.epoch_s is not None
    assert slowed.epoch_s.mean == 150.0
    assert slowed.relative_speed.mean == pytest.approx(100.0 / 150.0)
    assert slowed.jct_s is not None
    assert slowed.jct_s.mean == pytest.approx(1500.0)
    assert (slowed.deadline_miss_probability or 0.0) > 0.9


def test_the_order_of_the_others_does_not_matter_but_the_company_does(kit: SimpleNamespace) -> None:
    where = _pair(kit)
    history = History()
    history.record(where, 0, 120.0)
    turned = CoLocation(where.gpu, where.sharing_mode, where.jobs[::-1])
    seen = history.observed(turned, 1)
    assert seen is not None
    assert (seen.epoch_s, seen.epochs) == (120.0, 1)
    assert history.observed(turned, 0) is None
    assert history.observed(CoLocation("t4", where.sharing_mode, where.jobs), 0) is None
    assert history.observed(CoLocation(where.gpu, "mps", where.jobs), 0) is None
    assert history.observed(CoLocation(where.gpu, where.sharing_mode, where.jobs[:1]), 0) is None


def test_more_epochs_mean_their_mean_and_a_narrower_interval(kit: SimpleNamespace) -> None:
    history = History()
    predictor = HistoryPredictor(kit.Predictor(), history)
    widths = []
    for epoch_s in (100.0, 140.0, 120.0):
        history.record(_pair(kit), 0, epoch_s)
        seen = predictor.predict([_pair(kit)])[0].jobs[0].epoch_s
        assert seen is not None
        assert seen.lower <= seen.mean <= seen.upper
        widths.append((seen.upper - seen.lower) / seen.mean)
    assert seen.mean == pytest.approx(120.0)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == pytest.approx(0.1 / 2)
    assert len(history) == 3


def test_a_speed_above_the_physical_limit_is_noise(kit: SimpleNamespace) -> None:
    history = History()
    history.record(_pair(kit), 0, 50.0)
    speed = HistoryPredictor(kit.Predictor(), history).predict([_pair(kit)])[0].jobs[0].relative_speed
    assert speed.lower <= speed.mean == speed.upper == 1.05


def test_abstentions_pass_through(kit: SimpleNamespace) -> None:
    history = History()
    history.record(_pair(kit), 0, 120.0)
    shy = kit.Predictor(abstain=lambda _: "no")
    assert HistoryPredictor(shy, history).predict([_pair(kit)])[0].abstained == "no"


@pytest.mark.parametrize("epoch_s", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_epoch_is_refused(kit: SimpleNamespace, epoch_s: float) -> None:
    history = History()
    with pytest.raises(InputError) as caught:
        history.record(_pair(kit), 0, epoch_s)
    assert caught.value.where == "/epoch_s"
    assert len(history) == 0


def test_the_miss_probability_follows_the_interval() -> None:
    jct = Estimate(100.0, 90.0, 110.0)
    assert miss_probability(jct, 100.0) == pytest.approx(0.5)
    assert miss_probability(jct, 110.0) == pytest.approx(0.05, abs=1e-6)
    assert miss_probability(jct, None) is None
    assert miss_probability(None, 5.0) is None
    assert miss_probability(Estimate(9.0, 9.0, 9.0), 9.0) == 0.0
    assert miss_probability(Estimate(9.0, 9.0, 9.0), 8.9) == 1.0
    assert miss_probability(Estimate(9.0, 0.0, 90.0), 0.0) == 1.0


def test_each_side_of_the_interval_has_its_own_width() -> None:
    """Two pieces, as the predictor has them: a long tail above says nothing about finishing early."""
    skewed = Estimate(100.0, 90.0, 200.0)
    assert miss_probability(skewed, 100.0) == pytest.approx(0.5)
    assert miss_probability(skewed, 90.0) == pytest.approx(0.95, abs=1e-6)
    assert miss_probability(skewed, 200.0) == pytest.approx(0.05, abs=1e-6)


def test_who_has_nothing_left_to_do_is_never_late() -> None:
    assert miss_probability(Estimate(0.0, 0.0, 0.0), -1.0) == 0.0
