"""Reports written as JSON and HTML."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from eaco_datasets.errors import EacoError
from eaco_training.evaluate import Evaluation
from eaco_training.report import headline, to_html, to_json, write_text


@pytest.fixture
def report(make_pairs, spies):
    pairs = make_pairs(0, 60, ["vgg16", "resnet18", "<script>alert(1)</script>"])
    evaluation = Evaluation(
        pairs,
        dataset="made-up",
        protocol_name="leave-one-model-out",
        target="relative_speed",
        baselines=("mean",),
        make=spies,
    )
    return evaluation.report("lightgbm")[0]


def test_json_has_the_shape_that_is_promised(report):
    read = json.loads(to_json([report]))
    assert read == report
    head = {"schema", "dataset", "protocol", "target", "model", "observations", "seed", "target_clip", "baselines"}
    assert head | {"overall", "groups", "in_sample", "random", "noise_floor"} <= set(read)
    promised = {"n", "n_groups", "mae", "mae_raw", "mae_ci", "macro_mae", "mape_pct", "r2", "coverage_pct"}
    assert promised | {"interval_width"} <= set(read["overall"])
    assert {"held_out", "n", "mae", "mae_raw", "mape_pct", "coverage_pct", "provenance"} <= set(read["groups"][0])
    assert {"mae", "mae_raw"} <= set(read["baselines"]["mean"]) & set(read["in_sample"])


def test_several_reports_are_one_document(report):
    read = json.loads(to_json([report, report]))
    assert read["schema"] == 1
    assert read["reports"] == [report, report]


def test_html_is_balanced_escaped_and_self_contained(report):
    page = to_html([report])
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page

    class Balance(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open, self.rows = [], 0

        def handle_starttag(self, tag, attrs):
            if tag != "meta":
                assert "src" not in dict(attrs)
                self.open.append(tag)
            self.rows += tag == "tr"

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    # two heads, a row a group, and the model beside its baseline, its random and its in-sample figures
    assert balance.rows == 2 + len(report["groups"]) + 4


def test_headline_is_the_simulated_block_where_nothing_was_measured():
    assert headline({"overall": None, "overall_simulated": {"n": 3}}) == {"n": 3}
    assert headline({"overall": {"n": 2}, "overall_simulated": {"n": 3}}) == {"n": 2}


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(EacoError, match="cannot be written"):
        write_text("text", tmp_path / "file" / "report.json")


def test_writing_replaces_whole(tmp_path):
    path = tmp_path / "new" / "report.json"
    write_text("first", path)
    write_text("second", path)
    assert path.read_text() == "second"
    assert [p.name for p in path.parent.iterdir()] == ["report.json"]
