"""Regenerate ``docs/evaluation.md``: every out-of-sample figure of this project, beside the in-sample one.

    EACO_DATA_DIR=/path/to/data python docs/make_evaluation.py

Most of the time goes to the graph neural network. What is done is kept in a folder, under
a hash of the code, the libraries and the data: a run that was stopped goes on where it was, and nothing of older code
is taken. Same data, same versions, same seed: same tables.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from evaluation_sections import SECTIONS, Data, Line

from eaco_training.report import write_text
from eaco_training.tracking import library_versions
from eaco_training.transfer import plot

HERE = Path(__file__).parent
CODE = ("datasets", "features", "predictor", "training")
UNUSED = ("profiling",)
"""Folders of ``CODE`` that no table depends on."""
DATA = ("lucid", "gavel", "zeus", "eaco")


def main() -> int:
    options = _options()
    if options.data_dir is None:
        print("make_evaluation: name the data folder with --data-dir or EACO_DATA_DIR", file=sys.stderr)
        return 2
    network = not options.without_network
    made = made_lines(options.section or list(SECTIONS), options.data_dir, network, options.cache, options.jobs)
    curves = [line for line in made.get("transfer", ()) if isinstance(line, dict) and line["model"] != "gnn"]
    if curves:
        write_text(plot(curves), options.out.with_name("transfer.svg"))
    texts = {name: "\n".join(line for line in lines if isinstance(line, str)) for name, lines in made.items()}
    if options.section:
        print("\n\n".join(texts.values()))
        return 0
    page = (HERE / "evaluation.template.md").read_text(encoding="utf-8")
    for name, text in texts.items():
        page = page.replace(f"<!-- {name} -->", text)
    left_out = " The graph neural network's rows were left out of this run (`--without-network`)."
    page = page.replace("<!-- date -->", f"{date.today():%Y-%m-%d}")
    page = page.replace("<!-- left out -->", "" if network else left_out)
    write_text(page, options.out)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("EACO_DATA_DIR"))
    parser.add_argument("--out", type=Path, default=HERE / "evaluation.md", help="transfer.svg is written beside it")
    parser.add_argument("--cache", type=Path, default=HERE / ".evaluation-cache", help="where finished parts are kept")
    parser.add_argument(
        "--section", action="append", choices=list(SECTIONS), help="print this section only; several may be given"
    )
    parser.add_argument("--without-network", action="store_true", help="leave the graph neural network's rows out")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    return parser.parse_args()


def made_lines(names: list[str], folder: Path, network: bool, cache: Path, jobs: int) -> dict[str, list[Line]]:
    """The lines of each section, those of parts that were finished before out of the cache."""
    state = state_sha256(Path(folder), network)
    parts = [(part.cost, name, number) for name in names for number, part in enumerate(SECTIONS[name].parts)]
    kept = {(name, number): cache / f"{_slug(name, number)}.{state[:16]}.json" for _, name, number in parts}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: dict[Future[None], tuple[str, int]] = {
            pool.submit(make_part, name, number, Path(folder), network, kept[name, number]): (name, number)
            for _, name, number in sorted(parts, key=lambda part: -part[0])
            if not kept[name, number].exists()
        }
        for done, (name, number) in running.items():
            done.result()
            print(f"{_slug(name, number)} done", file=sys.stderr, flush=True)
    return {name: [*SECTIONS[name].head, *_read(kept, name)] for name in names}


def make_part(name: str, number: int, folder: Path, network: bool, into: Path) -> None:
    """Compute one part and keep its lines in a file."""
    lines = list(SECTIONS[name].parts[number].lines(Data(folder, network)))
    write_text(json.dumps(lines, allow_nan=False), into)


def _read(kept: dict[tuple[str, int], Path], name: str) -> Iterator[Any]:
    for number in range(len(SECTIONS[name].parts)):
        yield from json.loads(kept[name, number].read_text(encoding="utf-8"))


def _slug(name: str, number: int) -> str:
    part = SECTIONS[name].parts[number].name
    return f"{name}-{''.join(c if c.isalnum() else '-' for c in part)}"


def state_sha256(folder: Path, network: bool) -> str:
    """A hash of all that a table depends on: code, library versions, data files and whether the network is asked."""
    digest = hashlib.sha256(json.dumps([library_versions(), network]).encode())
    roots = [*(HERE.parent / name for name in CODE), *(folder / name for name in DATA)]
    files = [HERE / "make_evaluation.py", HERE / "evaluation_sections.py"]
    files += [file for root in roots for file in sorted(root.rglob("*")) if file.is_file()]
    for file in files:
        if not {"__pycache__", *UNUSED} & set(file.parts):
            digest.update(f"{file.name}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


if __name__ == "__main__":
    raise SystemExit(main())
