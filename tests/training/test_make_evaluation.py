"""The script behind ``docs/evaluation.md``: sections on demand, finished parts kept and only current ones reused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def script(tmp_path):
    """Runs the script on a copy of the public data's place, with nothing in it; returns the finished process."""
    folder = tmp_path / "data"
    (folder / "eaco").mkdir(parents=True)

    def call(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(DOCS / "make_evaluation.py"), "--data-dir", str(folder), *args]
        command += ["--cache", str(tmp_path / "kept"), "--out", str(tmp_path / "page.md"), "--jobs", "1"]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    return call


def test_a_section_is_made_once_and_anew_when_the_data_change(script, tmp_path):
    made = script("--section", "published")
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("| job set | `fan`, error % | `line`, error % |\n|---|---|---|\n| J1+J2+J3 |")
    assert not (tmp_path / "page.md").exists()
    (kept,) = (tmp_path / "kept").iterdir()
    kept.write_text(json.dumps(["from the cache"]))
    assert script("--section", "published").stdout == "from the cache\n"
    (tmp_path / "data" / "eaco" / "new.csv").write_text("a,b\n")
    assert script("--section", "published").stdout == made.stdout


def test_an_unknown_section_is_refused(script):
    refused = script("--section", "nothing")
    assert refused.returncode == 2
    assert "'nothing'" in refused.stderr


def test_every_section_has_its_place_on_the_page(script):
    listed = re.search(r"--section \{(.+?)\}", script("--help").stdout.replace("\n", "").replace(" " * 2, ""))
    assert listed is not None
    names = {name.strip() for name in listed[1].split(",")}
    places = re.findall(r"<!-- ([a-z0-9-]+) -->", (DOCS / "evaluation.template.md").read_text(encoding="utf-8"))
    assert sorted(places) == sorted([*names, "date"])
