"""A predictor's answers for jobs of which only the model graph is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eaco_datasets.types import CoLocation, Job, SoloProfile
from eaco_features.job_graphs import CATALOGUE
from eaco_features.zoo.recorded import catalogue_graph
from eaco_predictor.predictor import Predictor

COLD = Job("ResNet-50", "resnet50", 48, dataset="imagenet", remaining_epochs=2.0, deadline_s=1e5)
KNOWN = replace(
    COLD, solo=SoloProfile(throughput_samples_s=300.0, gpu_util_pct=90.0, mem_util_pct=60.0, mem_mib=6000.0)
)
PARTNER = Job("m", "vgg16", 16, solo=SoloProfile(200.0, None, 80.0, 50.0, 5000.0))


def _ask(*jobs: Job, num_gpus: int = 1) -> CoLocation:
    return CoLocation("rtx3090", "mps", jobs, num_gpus=num_gpus)


def test_every_number_is_there_and_wider_than_a_profiled_job_s(predictor: Predictor) -> None:
    cold, known = predictor.predict([_ask(COLD, PARTNER), _ask(KNOWN, PARTNER)])
    assert cold.abstained is None
    job, profiled = cold.jobs[0], known.jobs[0]
    assert job.epoch_s is not None
    assert profiled.epoch_s is not None
    assert job.epoch_s.upper / job.epoch_s.lower > 1.5 * profiled.epoch_s.upper / profiled.epoch_s.lower
    assert job.jct_s is not None
    assert job.jct_s.mean == pytest.approx(2.0 * job.epoch_s.mean)
    assert 0.0 <= (job.deadline_miss_probability or 0.0) <= 1.0
    assert cold.mem_mib is not None
    assert cold.mem_mib.lower < cold.mem_mib.mean < cold.mem_mib.upper
    assert cold.oom_probability is not None
    assert cold.gpu_power_w is not None


def test_alone_its_speed_is_sure_and_its_time_is_not(predictor: Predictor) -> None:
    (alone,) = predictor.predict([_ask(COLD)])
    assert alone.jobs[0].relative_speed == (1.0, 1.0, 1.0)
    epoch = alone.jobs[0].epoch_s
    assert epoch is not None
    assert epoch.lower < epoch.mean < epoch.upper
    assert alone.mem_mib is not None
    assert alone.mem_mib.lower < alone.mem_mib.upper


def test_it_says_where_each_profile_is_from(predictor: Predictor) -> None:
    measured = Job("m", "vgg16", 16)
    (answer,) = predictor.predict([_ask(COLD, PARTNER, measured)])
    assert [job.solo_profile for job in answer.jobs] == ["predicted", "stated", "measured"]


def test_what_the_caller_states_is_not_doubted(predictor: Predictor) -> None:
    timed = replace(COLD, solo=SoloProfile(epoch_s=5000.0, mem_mib=6000.0))
    cold, stated = predictor.predict([_ask(COLD), _ask(timed)])
    assert stated.jobs[0].solo_profile == "predicted"
    assert stated.jobs[0].epoch_s == (5000.0, 5000.0, 5000.0)
    assert stated.mem_mib is not None
    assert cold.mem_mib is not None
    assert stated.mem_mib.upper / stated.mem_mib.lower < cold.mem_mib.upper / cold.mem_mib.lower


def test_the_doubt_about_its_utilisation_reaches_its_power(predictor: Predictor) -> None:
    cold, known = predictor.predict([_ask(COLD), _ask(KNOWN)])
    assert cold.gpu_power_w is not None
    assert cold.gpu_util_pct is not None
    assert known.gpu_power_w is not None
    at_least = replace(KNOWN, solo=replace(KNOWN.solo, gpu_util_pct=cold.gpu_util_pct.lower))
    (least,) = predictor.predict([_ask(at_least)])
    assert least.gpu_power_w is not None
    assert cold.gpu_power_w.lower <= least.gpu_power_w.lower * (1 + 1e-9)
    assert cold.gpu_power_w.upper - cold.gpu_power_w.lower > known.gpu_power_w.upper - known.gpu_power_w.lower


def test_a_time_without_its_doubt_is_not_given(predictor: Predictor) -> None:
    unsure = Predictor(predictor.info, replace(predictor.parts, cold={}))
    cold, known = unsure.predict([_ask(COLD), _ask(replace(KNOWN, samples_per_epoch=1e5))])
    assert cold.jobs[0].epoch_s is None
    assert cold.jobs[0].deadline_miss_probability is None
    assert cold.mem_mib is None
    assert cold.oom_probability is None
    assert cold.gpu_power_w is None
    assert known.jobs[0].epoch_s is not None
    assert known.mem_mib is not None


def test_the_size_of_data_nobody_named_is_not_guessed(predictor: Predictor) -> None:
    named = Job("b", "bert-base", 3, dataset="sentiment140")
    (unnamed, sized) = predictor.predict([_ask(replace(named, dataset=None)), _ask(named)])
    assert unnamed.abstained is None
    assert unnamed.jobs[0].epoch_s is None  # SQuAD's or Sentiment140's?
    assert sized.jobs[0].epoch_s is not None


def test_the_partner_s_times_stay_those_of_its_profile(predictor: Predictor) -> None:
    (cold,) = predictor.predict([_ask(COLD, replace(PARTNER, samples_per_epoch=2e5))])
    partner = cold.jobs[1]
    assert partner.epoch_s is not None
    assert partner.epoch_s.mean == pytest.approx(2e5 / 200.0 / partner.relative_speed.mean)
    assert partner.epoch_s.upper == pytest.approx(2e5 / 200.0 / partner.relative_speed.lower)


def test_a_job_without_a_graph_is_abstained_on_until_one_is_registered(predictor: Predictor) -> None:
    mine = Job("mine", "my-own-net", 16)
    (without,) = predictor.predict([_ask(mine, PARTNER)])
    assert without.abstained is not None
    assert "graph" in without.abstained
    book = CATALOGUE.with_graph("my-own-net", catalogue_graph("dcgan-lsun"))
    (answered,) = predictor.predict([_ask(mine, PARTNER)], graphs=book)
    assert answered.abstained is None
    assert answered.jobs[0].epoch_s is None  # nobody said how large its data are
    (sized,) = predictor.predict([_ask(replace(mine, samples_per_epoch=1e4), PARTNER)], graphs=book)
    assert sized.jobs[0].epoch_s is not None


def test_more_gpus_than_any_job_was_measured_on_are_not_guessed(predictor: Predictor) -> None:
    (answer,) = predictor.predict([_ask(COLD, num_gpus=4)])
    assert answer.abstained is not None
    assert "4 x rtx3090" in answer.abstained


def test_order_and_company_do_not_matter(predictor: Predictor) -> None:
    sets = [_ask(COLD, PARTNER), _ask(KNOWN), _ask(PARTNER, COLD)]
    together = predictor.predict(sets)
    assert together == [predictor.predict([wanted])[0] for wanted in sets]
    assert together[0].jobs == together[2].jobs[::-1]
