"""The GPU catalogue: complete, sourced, in agreement with facts stated elsewhere, and found under many names."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaco_datasets.errors import UnknownNameError
from eaco_datasets.gpus import FIGURES, gpu, gpu_aliases, gpu_slug, gpu_specs

SLUGS = [
    "k80",
    "p100",
    "v100-sxm",
    "v100-pcie",
    "t4",
    "rtx2080ti",
    "rtx3090",
    "rtx6000-turing",
    "titan-rtx",
    "a40",
    "a100-40",
    "a100-80",
    "l4",
    "h100-sxm",
    "h100-pcie",
    "h200",
]
TENSOR_CORES_SINCE = 2017

# Cores an SM (architecture whitepapers) and the boost clock that the fp32 figure rests on (data sheets), MHz.
CORES_AN_SM_AND_BOOST_MHZ = {
    "k80": (192, 875),
    "p100": (64, 1303),
    "v100-sxm": (64, 1530),
    "v100-pcie": (64, 1370),
    "t4": (64, 1590),
    "rtx2080ti": (64, 1545),
    "rtx3090": (128, 1695),
    "rtx6000-turing": (64, 1770),
    "titan-rtx": (64, 1770),
    "a40": (128, 1740),
    "a100-40": (64, 1410),
    "a100-80": (64, 1410),
    "l4": (128, 2040),
    "h100-sxm": (128, 1980),
    "h100-pcie": (128, 1755),
    "h200": (128, 1980),
}

# Memory bus (bit) and data rate (Gbit/s a pin) from the boards' specifications.
BUS_BIT_AND_RATE_GBIT = {
    "k80": (384, 5.0),
    "p100": (4096, 1.43),
    "v100-sxm": (4096, 1.752),
    "v100-pcie": (4096, 1.752),
    "t4": (256, 10.0),
    "rtx2080ti": (352, 14.0),
    "rtx3090": (384, 19.5),
    "rtx6000-turing": (384, 14.0),
    "titan-rtx": (384, 14.0),
    "a40": (384, 14.5),
    "a100-40": (5120, 2.43),
    "a100-80": (5120, 3.186),
    "l4": (192, 12.5),
    "h100-sxm": (5120, 5.2),
    "h100-pcie": (5120, 3.2),
    "h200": (6144, 6.25),
}


def test_catalogue_holds_every_slug_of_the_vocabulary() -> None:
    assert list(gpu_specs()) == SLUGS


@pytest.mark.parametrize("slug", SLUGS)
def test_every_figure_is_positive_and_sourced(slug: str) -> None:
    spec = gpu(slug)
    assert set(spec.sources) == set(FIGURES)
    assert all(len(text) > 5 for text in spec.sources.values())
    assert all(value > 0 for value in asdict(spec).values() if isinstance(value, int | float))


@pytest.mark.parametrize("slug", SLUGS)
def test_idle_is_well_under_the_limit(slug: str) -> None:
    spec = gpu(slug)
    assert 0.03 * spec.power_limit_w < spec.idle_w < 0.25 * spec.power_limit_w


@pytest.mark.parametrize("slug", SLUGS)
def test_fp32_rate_follows_from_cores_and_clock(slug: str) -> None:
    spec = gpu(slug)
    cores, boost_mhz = CORES_AN_SM_AND_BOOST_MHZ[slug]
    assert spec.fp32_tflops == pytest.approx(2 * spec.sms * cores * boost_mhz * 1e-6, rel=0.02)


@pytest.mark.parametrize("slug", SLUGS)
def test_bandwidth_follows_from_bus_and_data_rate(slug: str) -> None:
    bus_bit, rate_gbit = BUS_BIT_AND_RATE_GBIT[slug]
    assert gpu(slug).bandwidth_gbs == pytest.approx(bus_bit / 8 * rate_gbit, rel=0.03)


@pytest.mark.parametrize("slug", SLUGS)
def test_mixed_precision_gains_where_there_are_tensor_cores(slug: str) -> None:
    spec = gpu(slug)
    gain = spec.amp_tflops / spec.fp32_tflops
    if spec.year >= TENSOR_CORES_SINCE:
        assert 1.9 < gain < 17
    else:
        assert gain == pytest.approx(2 if slug == "p100" else 1, rel=0.02)


def test_known_relations_between_types() -> None:
    specs = gpu_specs()
    assert specs["a100-80"].memory_mib == 2 * specs["a100-40"].memory_mib
    assert specs["h200"].bandwidth_gbs > specs["h100-sxm"].bandwidth_gbs > specs["a100-80"].bandwidth_gbs
    assert specs["h200"].memory_mib > specs["h100-sxm"].memory_mib
    assert specs["h100-sxm"].fp32_tflops > specs["h100-pcie"].fp32_tflops > specs["a100-80"].fp32_tflops
    assert specs["v100-sxm"].power_limit_w == specs["v100-pcie"].power_limit_w + 50


@pytest.mark.parametrize(
    ("slug", "lowest_training_average_w", "highest_limit_w"),
    [("v100-pcie", 34.8, 250), ("p100", 33.3, 250), ("rtx6000-turing", 54.7, 260), ("a40", 79.9, 300)],
)
def test_agrees_with_what_zeus_measured(slug: str, lowest_training_average_w: float, highest_limit_w: float) -> None:
    assert gpu(slug).idle_w < lowest_training_average_w
    assert gpu(slug).power_limit_w == highest_limit_w


@pytest.mark.parametrize(("slug", "shown_mib"), [("a40", 46068), ("k80", 11441), ("h200", 143771), ("l4", 23034)])
def test_memory_is_what_the_driver_shows(slug: str, shown_mib: float) -> None:
    assert gpu(slug).memory_mib == pytest.approx(shown_mib, rel=0.01)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("v100", "v100-sxm"),
        ("V100", "v100-sxm"),
        ("Tesla V100-PCIE-16GB", "v100-pcie"),
        ("Tesla V100-SXM2-16GB", "v100-sxm"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("GeForce RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA A100-SXM4-80GB", "a100-80"),
        ("a100", "a100-40"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        ("Quadro RTX 6000", "rtx6000-turing"),
        ("rtx6000", "rtx6000-turing"),
        ("TITAN RTX", "titan-rtx"),
        ("Tesla_P100-PCIE-16GB", "p100"),
        (" Tesla K80 ", "k80"),
        ("cpu-2core", "cpu-2core"),
        ("CPU-64core", "cpu-64core"),
    ],
)
def test_names_and_aliases(name: str, slug: str) -> None:
    assert gpu_slug(name) == slug


def test_every_alias_leads_to_the_catalogue_and_hides_no_slug() -> None:
    assert gpu_aliases()
    for alias, slug in gpu_aliases().items():
        assert gpu_slug(alias) == slug
        assert slug in gpu_specs()
        assert alias not in gpu_specs()


@pytest.mark.parametrize(
    "name",
    ["", "  ", "v1000", "Tesla V100-SXM2-32GB", "NVIDIA A100-PCIE-40GB", "NVIDIA RTX 6000 Ada Generation", "cpu-0core"],
)
def test_a_card_that_is_not_there_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(UnknownNameError, match="unknown GPU type") as caught:
        gpu_slug(name)
    assert "\n" not in str(caught.value)


def test_a_near_miss_is_answered_with_suggestions() -> None:
    with pytest.raises(UnknownNameError, match=r"perhaps .*rtx3090"):
        gpu_slug("rtx3091")


def test_a_cpu_has_a_slug_but_no_data_sheet() -> None:
    with pytest.raises(UnknownNameError, match="cpu-8core"):
        gpu("cpu-8core")


@given(st.sampled_from(SLUGS), st.sampled_from(["", "NVIDIA ", "Tesla ", "nvidia_"]), st.booleans())
def test_spelling_does_not_matter(slug: str, prefix: str, upper: bool) -> None:
    name = prefix + (slug.upper() if upper else slug)
    assert gpu_slug(name.replace("-", " ")) == slug


def test_the_catalogue_cannot_be_changed_by_a_caller() -> None:
    with pytest.raises(TypeError):
        gpu_specs()["new"] = gpu("t4")  # type: ignore[index]
