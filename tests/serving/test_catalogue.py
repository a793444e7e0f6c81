"""The catalogue over REST, and graphs that users register: kept, shared, refused when they are no use."""

from __future__ import annotations

import asyncio
import copy
import gzip
import json
import logging
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from eaco_datasets.errors import ConflictError, EacoError
from eaco_datasets.simulated import simulate_profiles
from eaco_features.graphs.graph import ModelGraph
from eaco_features.graphs.store import dumps, from_document, write_graph
from eaco_features.graphs.summary import totals
from eaco_features.sets import ConfigKey
from eaco_features.zoo.catalogue import reference_jobs
from eaco_features.zoo.recorded import catalogue_graph
from eaco_predictor.fitting import fit_predictor
from eaco_serving import cli, default, graph_store
from eaco_serving.app import create_app
from eaco_serving.default import RegisteredPredictor
from eaco_serving.demo import PLACEMENT
from eaco_serving.graph_store import GraphStore, registration
from eaco_serving.schemas_catalogue import CatalogueJobOut, CatalogueJobWithGraphOut, CatalogueOut
from eaco_serving.settings import Settings

SMALL, OTHER = catalogue_graph("autoencoder-ml-20m"), catalogue_graph("lstm-lm-wikitext2")


def document(graph: ModelGraph) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dumps(graph))
    return found


def body(model: str, graph: ModelGraph = SMALL, **more: Any) -> dict[str, Any]:
    return {"model": model, "graph": document(graph), **more}


def asked_set(model: str) -> dict[str, Any]:
    return {"gpu": "v100", "sharing_mode": "mps", "jobs": [{"model": model, "batch_size": 8}]}


def job(model: str) -> ConfigKey:
    return ConfigKey(family=model, batch_size=8, precision="fp32", dataset="")


def of_family(book: Any, family: str) -> ModelGraph | None:
    found: ModelGraph | None = book.registered.get(family)
    return found


def said(line: str) -> None:
    raise AssertionError(line)


# --- reading -------------------------------------------------------------------------------------------------------


def test_the_catalogue_lists_every_reference_job_with_its_totals(ask: Any) -> None:
    told = CatalogueOut.model_validate_json(ask("GET", "/catalogue").content)
    found = {one.name: one for one in told.jobs if one.kind == "reference"}
    assert set(found) == {one.name for one in reference_jobs()}
    resnet = found["resnet50-imagenet"]
    assert (resnet.family, resnet.dataset, resnet.samples_per_epoch) == ("resnet50", "imagenet", 1281167)
    assert resnet.parameters.value == 25557032
    assert (resnet.parameters.status, bool(resnet.parameters.source)) == ("published", True)
    expected = totals(catalogue_graph("resnet50-imagenet"), resnet.batch_sizes[0])
    assert resnet.totals.gflop.bwd == pytest.approx(expected.flops["bwd"] / 1e9)
    assert resnet.totals.peak_memory_mib == pytest.approx(expected.peak_memory_mib)
    assert resnet.content_hash == catalogue_graph("resnet50-imagenet").content_hash


@pytest.mark.parametrize("name", ["resnet18-cifar10", "ResNet-50", "resnet50"])
def test_one_job_is_found_by_its_name_or_by_what_its_model_is_called(ask: Any, name: str) -> None:
    told = CatalogueJobWithGraphOut.model_validate_json(ask("GET", f"/catalogue/{name}").content)
    assert told.name == ("resnet18-cifar10" if "cifar" in name else "resnet50-imagenet")
    assert told.graph is None


def test_totals_are_for_the_batch_size_asked_for(ask: Any) -> None:
    at_7 = CatalogueJobWithGraphOut.model_validate_json(ask("GET", "/catalogue/resnet50?batch_size=7").content).totals
    assert (at_7.batch_size, at_7.samples) == (7, 7.0)
    expected = totals(catalogue_graph("resnet50-imagenet"), 7)
    assert at_7.gflop.fwd == pytest.approx(expected.flops["fwd"] / 1e9)


def test_the_graph_itself_comes_when_asked_for_and_can_be_registered_again(ask: Any) -> None:
    told = ask("GET", "/catalogue/autoencoder-ml-20m?graph=true").json()
    assert from_document(told["graph"]) == SMALL
    assert ask("POST", "/catalogue", json={"model": "again", "graph": told["graph"]}).status_code == 201


def test_an_unknown_job_is_404_with_the_nearest_names(ask: Any) -> None:
    answer = ask("GET", "/catalogue/resnet5O")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert answer.json()["type"] == "unknown-name"
    assert "resnet50" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("query", "at"),
    [
        ("batch_size=0", "batch_size"),
        ("batch_size=1.5", "batch_size"),
        ("batch_size=ten", "batch_size"),
        ("batch_size=10000000000000000000000", "batch_size"),
        ("graph=maybe", "graph"),
        ("colour=red", "colour"),
    ],
)
def test_a_bad_query_is_refused_at_its_name(ask: Any, query: str, at: str) -> None:
    answer = ask("GET", f"/catalogue/resnet50?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["errors"][0]["pointer"] == f"/query/{at}"


def test_no_predictor_is_needed_to_read_or_register(serve: Any, tmp_path: Path) -> None:
    def fail() -> Any:
        raise EacoError("there is none")

    with serve(fail, home=tmp_path) as ask:
        assert ask("POST", "/catalogue", json=body("mine")).status_code == 201
        assert ask("GET", "/catalogue/mine").status_code == 200
        assert ask("GET", "/readyz").status_code == 503


# --- registering ---------------------------------------------------------------------------------------------------


def test_a_registered_graph_is_what_predictions_of_that_model_are_made_with(
    ask: Any, predictor: Any, home: Path
) -> None:
    assert ask("POST", "/predict", json=asked_set("My Net")).status_code == 200
    assert of_family(predictor.books[-1], "my-net") is None
    answer = ask("POST", "/catalogue", json=body("My Net", samples_per_epoch=640))
    assert (answer.status_code, answer.headers["location"]) == (201, "/catalogue/my-net")
    told = CatalogueJobOut.model_validate_json(answer.content)
    assert (told.name, told.kind, told.family, told.samples_per_epoch) == ("My Net", "registered", "my-net", 640.0)
    assert told.parameters.value == SMALL.recording.parameter_count
    assert (home / "graphs" / "my-net.json.gz").is_file()
    for asked in (asked_set("my.net"), {"candidates": [asked_set("MY NET")] * 3}):
        assert ask("POST", "/predict", json=asked).status_code == 200
        assert of_family(predictor.books[-1], "my-net") == SMALL
        assert predictor.asked[-1].jobs[0].samples_per_epoch == 640.0
    stated = asked_set("my-net")
    stated["jobs"][0]["samples_per_epoch"] = 7
    ask("POST", "/predict", json=stated)
    assert predictor.asked[-1].jobs[0].samples_per_epoch == 7.0


def test_a_placement_is_decided_with_the_registered_graphs(ask: Any, predictor: Any) -> None:
    ask("POST", "/catalogue", json=body("placed"))
    resident = {"job_id": "r", "model": "placed", "batch_size": 8, "phase": "final", "placed_epoch": 1}
    solo = {"mem_mib": 2000, "gpu_util_pct": 20, "mem_util_pct": 10, "epoch_s": 100}
    gpu = {"uuid": "G0", "residents": [{**resident, "solo": solo, "remaining_epochs": 3}]}
    cluster = {"nodes": [{"node_id": "n0", "gpu": "v100", "state": "active", "gpus": [gpu]}]}
    newcomer = {"job_id": "n", "model": "placed", "batch_size": 8, "num_gpus": 1, "solo": solo}
    before = len(predictor.books)
    assert ask("POST", "/place", json={"job": newcomer, "cluster": cluster}).status_code == 200
    assert len(predictor.books) > before
    assert of_family(predictor.books[-1], "placed") == SMALL


def test_the_same_graph_again_is_200_another_409_unless_it_replaces(ask: Any) -> None:
    assert ask("POST", "/catalogue", json=body("twice")).status_code == 201
    relabelled = body("Twice")
    relabelled["graph"]["name"] = "a label is not content"
    assert ask("POST", "/catalogue", json=relabelled).status_code == 200
    for other in (body("twice", OTHER), body("twice", samples_per_epoch=5)):
        answer = ask("POST", "/catalogue", json=other)
        assert (answer.status_code, answer.json()["type"]) == (409, "conflict")
        assert SMALL.content_hash in answer.json()["detail"]
    assert ask("GET", "/catalogue/twice").json()["content_hash"] == SMALL.content_hash
    answer = ask("POST", "/catalogue", json=body("twice", OTHER, replace=True))
    assert (answer.status_code, answer.json()["content_hash"]) == (200, OTHER.content_hash)
    assert ask("GET", "/catalogue/twice").json()["content_hash"] == OTHER.content_hash


def test_registered_graphs_survive_a_restart(serve: Any, predictor: Any, tmp_path: Path) -> None:
    with serve(lambda: predictor, home=tmp_path) as ask:
        ask("POST", "/catalogue", json=body("kept", samples_per_epoch=9.5))
    with serve(lambda: predictor, home=tmp_path) as ask:
        told = ask("GET", "/catalogue/kept").json()
        assert (told["content_hash"], told["samples_per_epoch"]) == (SMALL.content_hash, 9.5)
        ask("POST", "/predict", json=asked_set("kept"))
        assert of_family(predictor.books[-1], "kept") == SMALL
        assert ask("POST", "/catalogue", json=body("kept", samples_per_epoch=9.5)).status_code == 200


def test_services_of_one_home_see_each_others_graphs_at_once(serve: Any, predictor: Any, tmp_path: Path) -> None:
    with serve(lambda: predictor, home=tmp_path) as one, serve(lambda: predictor, home=tmp_path) as two:
        for i, graph in enumerate([SMALL, OTHER] * 4):  # faster than many a file system's clock ticks
            assert one("POST", "/catalogue", json=body(f"net{i}", graph)).status_code == 201
            assert two("GET", f"/catalogue/net{i}").json()["content_hash"] == graph.content_hash
            two("POST", "/predict", json=asked_set(f"net{i}"))
            assert of_family(predictor.books[-1], f"net{i}") == graph
        two("POST", "/catalogue", json=body("net0", OTHER, replace=True))
        assert one("GET", "/catalogue/net0").json()["content_hash"] == OTHER.content_hash
        (tmp_path / "graphs" / "net0.json.gz").unlink()
        assert one("GET", "/catalogue/net0").status_code == two("GET", "/catalogue/net0").status_code == 404


def test_a_file_is_read_once_unless_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    GraphStore(tmp_path, said).register(registration("net", SMALL))
    read: list[object] = []
    monkeypatch.setattr(graph_store, "graph_in", lambda wire: read.append(wire) or from_document(wire.graph))
    store = GraphStore(tmp_path, said)
    assert of_family(store.registered().book, "net") == SMALL
    store.register(registration("net2", OTHER))
    assert of_family(store.registered().book, "net2") == OTHER
    assert len(read) == 1


def test_a_folder_that_cannot_be_listed_for_once_loses_no_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    store = GraphStore(tmp_path, lines.append)
    store.register(registration("net", SMALL))

    def fail(_folder: Path) -> Any:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(graph_store.os, "scandir", fail)
        assert of_family(store.registered().book, "net") == SMALL
    assert lines == [f"{tmp_path / 'graphs'}: Too many open files; what was known before stays"]


def test_the_service_answers_others_while_it_reads_what_another_process_registered(
    predictor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slowly(wire: Any) -> ModelGraph:
        begun.set()
        assert may_end.wait(20)
        return from_document(wire.graph)

    async def story() -> None:
        app = create_app(Settings(home=tmp_path), lambda: predictor)
        transport = httpx.ASGITransport(app=app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
            await app.state.service.loaded()
            GraphStore(tmp_path, said).register(registration("net", SMALL))
            monkeypatch.setattr(graph_store, "graph_in", slowly)
            asked = asyncio.create_task(client.post("http://service/predict", json=asked_set("net")))
            assert await asyncio.to_thread(begun.wait, 20)
            assert (await client.get("http://service/healthz")).status_code == 200
            assert not asked.done()
            may_end.set()
            assert (await asked).status_code == 200
            assert of_family(predictor.books[-1], "net") == SMALL

    asyncio.run(story())


def test_of_many_who_register_one_name_at_once_one_wins(tmp_path: Path) -> None:
    stores = [GraphStore(tmp_path, said) for _ in range(4)]
    wanted = [registration("net", graph) for graph in (SMALL, OTHER)]

    def register(i: int) -> str:
        try:
            _, new = stores[i % 4].register(wanted[i % 2])
        except ConflictError:
            return "refused"
        return "new" if new else "the same"

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(register, range(16)))
    assert outcomes.count("new") == 1
    winner = outcomes.index("new") % 2
    assert all((outcome == "refused") == (i % 2 != winner) for i, outcome in enumerate(outcomes))
    for store in stores:
        assert of_family(store.registered().book, "net") == wanted[winner].graph
    assert sorted(p.name for p in (tmp_path / "graphs").iterdir()) == [".lock", "net.json.gz"]


def test_processes_that_register_at_once_do_not_lose_each_others_graphs(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from eaco_serving.graph_store import GraphStore, registration\n"
        "from eaco_features.zoo.recorded import catalogue_graph\n"
        "store, graph = GraphStore(Path(sys.argv[1]), sys.exit), catalogue_graph('autoencoder-ml-20m')\n"
        "for i in range(5): store.register(registration(f'net{sys.argv[2]}{i}', graph))\n"
        "assert 'torch' not in sys.modules\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name]) for name in "ab"]
    assert [process.wait() for process in started] == [0, 0]
    assert len(GraphStore(tmp_path, said).registered().by_family) == 10


def test_broken_files_are_named_in_one_line_and_passed_over(
    serve: Any, predictor: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    GraphStore(tmp_path, said).register(registration("whole", SMALL))
    folder = tmp_path / "graphs"
    whole = (folder / "whole.json.gz").read_bytes()
    tampered = json.loads(gzip.decompress(whole)) | {"model": "tampered"}
    tampered["graph"]["nodes"]["kernels"][0] += 1
    broken = {
        "half.json.gz": whole[: len(whole) // 2],
        "plain.json.gz": b"{}",
        "empty.json.gz": b"",
        "listed.json.gz": gzip.compress(b"[1]"),
        "nothing.json.gz": gzip.compress(b"no json"),
        "another.json.gz": whole,
        "tampered.json.gz": gzip.compress(json.dumps(tampered).encode()),
    }
    for name, raw in broken.items():
        (folder / name).write_bytes(raw)
    (folder / "folder.json.gz").mkdir()
    (folder / "loop.json.gz").symlink_to(folder / "loop.json.gz")
    (folder / ".unfinished").write_bytes(whole[:9])
    with caplog.at_level(logging.WARNING, "eaco.serving"), serve(lambda: predictor, home=tmp_path) as ask:
        assert ask("GET", "/readyz").status_code == 200
        assert ask("GET", "/catalogue/whole").status_code == 200
        reported = [r.message for r in caplog.records if "passed over" in r.message]
        assert len(reported) == len(broken) + 2
        for name in [*broken, "folder.json.gz", "loop.json.gz"]:
            assert sum(name in line and "\n" not in line for line in reported) == 1
        assert ask("POST", "/catalogue", json=body("half", OTHER)).status_code == 201
    assert of_family(GraphStore(tmp_path, [].append).registered().book, "half") == OTHER


def test_a_home_that_cannot_be_written_to_is_the_services_own_failure(
    serve: Any, predictor: Any, tmp_path: Path
) -> None:
    (tmp_path / "graphs").write_text("a file where the folder should be")
    with serve(lambda: predictor, home=tmp_path) as ask:
        assert ask("POST", "/catalogue", json=body("net")).status_code == 500
        assert ask("POST", "/predict", json=asked_set("net")).status_code == 200
    with pytest.raises(EacoError, match=r"^cannot write to .*graphs: "):
        GraphStore(tmp_path, [].append).register(registration("net", SMALL))


def test_there_is_a_most_that_can_be_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_store, "MAX_REGISTERED", 2)
    store = GraphStore(tmp_path, said)
    for name in ("a1", "b1", "a1"):
        store.register(registration(name, SMALL))
    with pytest.raises(ConflictError, match="2 graphs are registered"):
        store.register(registration("c1", SMALL))
    store.register(registration("b1", OTHER), over=True)


# --- refused -------------------------------------------------------------------------------------------------------


def rehashed(change: Any) -> dict[str, Any]:
    """A document with something changed and its hash made anew."""
    changed = document(SMALL)
    change(changed)
    try:
        from_document(changed)
    except EacoError as error:
        changed["content_hash"] = getattr(error, "expected", "")
    return changed


def forward_only(graph: dict[str, Any]) -> None:
    graph["nodes"]["phase"] = ["fwd"] * len(graph["nodes"]["phase"])


def slope(value: float) -> Any:
    def change(graph: dict[str, Any]) -> None:
        graph["nodes"]["flops"]["slope"][0] = value

    return change


def costless(graph: dict[str, Any]) -> None:
    for name in ("bytes_read", "bytes_written"):
        graph["nodes"][name] = {part: [0] * len(graph["nodes"]["op"]) for part in ("intercept", "slope")}


def samples(*pair: float) -> Any:
    def change(graph: dict[str, Any]) -> None:
        graph["recording"]["samples"] = list(pair)

    return change


def kernels(value: int) -> Any:
    def change(graph: dict[str, Any]) -> None:
        graph["nodes"]["kernels"][:2] = [value, value]

    return change


GOOD = body("net")
BAD: list[tuple[Any, str]] = [
    (None, ""),
    ([], ""),
    ("graph", ""),
    ({}, "/model"),
    ({"model": "net"}, "/graph"),
    ({"graph": GOOD["graph"]}, "/model"),
    ({**GOOD, "model": ""}, "/model"),
    ({**GOOD, "model": 7}, "/model"),
    ({**GOOD, "model": "???"}, "/model"),
    ({**GOOD, "model": "x" * 201}, "/model"),
    ({**GOOD, "model": "../../etc/passwd\n"}, "/model"),
    ({**GOOD, "model": "ResNet-50"}, "/model"),
    ({**GOOD, "model": "resnet18-cifar10"}, "/model"),
    ({**GOOD, "model": "VGG"}, "/model"),
    ({**GOOD, "graph": None}, "/graph"),
    ({**GOOD, "graph": []}, "/graph"),
    ({**GOOD, "graph": {}}, "/graph/kind"),
    ({**GOOD, "graph": {"kind": "eaco-model-graph", "schema": 2}}, "/graph/schema"),
    ({**GOOD, "graph": {**GOOD["graph"], "colour": 1}}, "/graph/colour"),
    ({**GOOD, "graph": {**GOOD["graph"], "nodes": []}}, "/graph/nodes"),
    ({**GOOD, "graph": {**GOOD["graph"], "edges": [[3, 1]]}}, "/graph/edges/0"),
    ({**GOOD, "graph": {**GOOD["graph"], "content_hash": "sha256:0"}}, "/graph/content_hash"),
    ({**GOOD, "graph": {**GOOD["graph"], "content_hash": None}}, "/graph/content_hash"),
    ({**GOOD, "graph": {**GOOD["graph"], "ops": [str(i) for i in range(5000)]}}, "/graph/ops"),
    ({**GOOD, "graph": {**GOOD["graph"], "name": 7}}, "/graph/name"),
    ({**GOOD, "graph": {**GOOD["graph"], "name": ["long"] * 9999}}, "/graph/name"),
    ({**GOOD, "graph": {**GOOD["graph"], "two\nlines": 1}}, "/graph/two lines"),
    ({**GOOD, "graph": rehashed(forward_only)}, "/graph/nodes/phase"),
    ({**GOOD, "graph": rehashed(slope(1e300))}, "/graph/nodes/flops"),
    ({**GOOD, "graph": rehashed(slope(1.7e308))}, "/graph/nodes/flops"),
    ({**GOOD, "graph": rehashed(costless)}, "/graph/nodes/bytes_read"),
    ({**GOOD, "graph": rehashed(samples(0, 0))}, "/graph/recording/samples"),
    ({**GOOD, "graph": rehashed(samples(-5, 1))}, "/graph/recording/samples"),
    ({**GOOD, "graph": rehashed(samples(0, 1e300))}, "/graph/recording/samples"),
    ({**GOOD, "graph": rehashed(kernels(2**62))}, "/graph/nodes/kernels"),
    ({**GOOD, "samples_per_epoch": 0}, "/samples_per_epoch"),
    ({**GOOD, "samples_per_epoch": "640"}, "/samples_per_epoch"),
    ({**GOOD, "samples_per_epoch": True}, "/samples_per_epoch"),
    ({**GOOD, "replace": 1}, "/replace"),
    ({**GOOD, "name": "net"}, "/name"),
]


@pytest.mark.parametrize(("wrong", "pointer"), BAD)
def test_what_is_wrong_is_refused_at_its_pointer_and_nothing_is_kept(
    ask: Any, home: Path, wrong: Any, pointer: str
) -> None:
    answer = ask("POST", "/catalogue", content=json.dumps(wrong), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert "\n" not in answer.json()["detail"]
    assert len(answer.content) < 2000
    assert not (home / "graphs" / "net.json.gz").exists()


TEXT = json.dumps(GOOD)


@pytest.mark.parametrize(
    ("content", "media", "status"),
    [
        ("", "application/json", 400),
        (TEXT[:-1], "application/json", 400),
        (TEXT.replace('"samples": [0, 1]', '"samples": [NaN, 1]'), "application/json", 400),
        (TEXT.replace('"samples": [0, 1]', '"samples": [0, 1e999]'), "application/json", 422),
        ('{"model": "net", "graph": ' + '{"a":' * 5000 + "1" + "}" * 5001, "application/json", 400),
        (b'{"model": "\xff\xfe", "graph": {}}', "application/json", 400),
        (TEXT.replace('{"model": "net"', '{"model": "net", "model": "net"'), "application/json", 422),
        (TEXT.replace('"torch":', '"torch": "", "torch":'), "application/json", 422),
        (
            TEXT.replace('{"model"', "{" + "".join(f'"k{i}": 1, ' for i in range(70)) + '"model"'),
            "application/json",
            422,
        ),
        (TEXT, "text/plain", 415),
        (TEXT + " " * 2**20, "application/json", 413),
    ],
)
def test_what_is_no_good_json_is_refused(ask: Any, home: Path, content: Any, media: str, status: int) -> None:
    assert content != TEXT or media != "application/json"
    answer = ask("POST", "/catalogue", content=content, headers={"content-type": media})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert not (home / "graphs" / "net.json.gz").exists()


def test_a_graph_may_be_larger_than_other_bodies_but_not_than_its_own_limit(ask: Any) -> None:
    big = json.dumps(body("big", catalogue_graph("a3c-pong")))
    assert 2**18 < len(big) < 2**20  # the service under test reads 0.25 MiB, and 1 MiB of graphs
    assert ask("POST", "/catalogue", content=big).status_code == 201
    assert ask("POST", "/predict", content=big).status_code == 413


def test_a_graph_with_anything_changed_is_refused_and_never_an_error_of_the_service(ask: Any) -> None:
    draw = random.Random(0)
    values = [None, True, -1, 0, 2**70, 1e308, "", "x" * 500, [], {}, [[]], {"a": []}, "fwd"]
    refused = 0
    for _ in range(150):
        changed = copy.deepcopy(GOOD)
        at, key = changed["graph"], draw.choice([k for k in changed["graph"] if k not in ("name", "torch")])
        while isinstance(at[key], dict | list) and at[key] and draw.random() < 0.8:
            at = at[key]
            key = draw.choice(list(at)) if isinstance(at, dict) else draw.randrange(len(at))
        before, at[key] = at[key], draw.choice(values)
        if at[key] == before:
            continue
        answer = ask("POST", "/catalogue", json=changed)
        assert answer.status_code == 422, (key, at[key], answer.text)
        assert answer.json()["errors"][0]["pointer"].startswith("/graph")
        refused += 1
    assert refused > 100


def test_serving_and_registering_graphs_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import json, sys, anyio, httpx\n"
        "from pathlib import Path; from types import SimpleNamespace\n"
        "from eaco_serving.app import create_app; from eaco_serving.settings import Settings\n"
        "async def main():\n"
        "    app = create_app(Settings(home=Path(sys.argv[1])), lambda: SimpleNamespace())\n"
        "    async with app.router.lifespan_context(app):\n"
        "        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url='http://s') as client:\n"
        "            told = (await client.get('/catalogue/resnet50?graph=true')).json()\n"
        "            answer = await client.post('/catalogue', json={'model': 'net', 'graph': told['graph']})\n"
        "            listed = (await client.get('/catalogue')).json()['jobs']\n"
        "            assert (answer.status_code, listed[-1]['name']) == (201, 'net')\n"
        "anyio.run(main)\n"
        "assert not {'torch', 'torch_geometric', 'onnx', 'mlflow'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- command line --------------------------------------------------------------------------------------------------


def test_register_writes_what_the_service_reads_and_predict_knows(
    serve: Any, predictor: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(default, "load_default", lambda _settings, _say: predictor)
    graph_file = tmp_path / "graph.json"
    write_graph(SMALL, graph_file)
    home = ["--home", str(tmp_path / "home")]
    with serve(lambda: predictor, home=tmp_path / "home") as ask:
        call = ["features", "register", "My Net", str(graph_file), "--samples-per-epoch", "640", *home]
        assert cli.run(call) == 0
        assert capsys.readouterr().out.startswith(f"registered my-net: {SMALL.content_hash} in ")
        assert cli.run(call) == 0
        assert capsys.readouterr().out.startswith("is registered as my-net: ")
        assert ask("GET", "/catalogue/my-net").json()["samples_per_epoch"] == 640.0
    assert cli.run(["predict", "--gpu", "v100", "--sharing-mode", "mps", "--job", "my-net:8", *home]) == 0
    assert of_family(predictor.books[-1], "my-net") == SMALL
    assert predictor.asked[-1].jobs[0].samples_per_epoch == 640.0
    request = tmp_path / "request.json"
    request.write_text(json.dumps(PLACEMENT))
    assert cli.run(["place", str(request), *home]) == 0
    assert of_family(predictor.books[-1], "my-net") == SMALL


def test_register_says_in_one_line_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph_file = tmp_path / "graph.json"
    write_graph(SMALL, graph_file)
    home = ["--home", str(tmp_path)]
    (tmp_path / "forward.json").write_text(json.dumps(rehashed(forward_only)))
    (tmp_path / "none.json").write_text("{}")
    write_graph(OTHER, tmp_path / "other.json.gz")
    assert cli.run(["features", "register", "net", str(graph_file), *home]) == 0
    capsys.readouterr()
    for args, code, line in (
        (["resnet50", str(graph_file)], 2, "NAME: 'resnet50' is a name of the catalogue"),
        (["", str(graph_file)], 2, "NAME: "),
        (["net2", str(graph_file), "--samples-per-epoch", "-1"], 2, "--samples-per-epoch: "),
        (["net2", str(tmp_path / "no.json")], 2, f"{tmp_path}/no.json: "),
        (["net2", str(tmp_path / "none.json")], 2, f"{tmp_path}/none.json:/kind: "),
        (["net2", str(tmp_path / "forward.json")], 2, f"{tmp_path}/forward.json:/nodes/phase: no backward pass"),
        (["net", str(tmp_path / "other.json.gz")], 1, "'net' is registered already"),
    ):
        assert cli.run(["features", "register", *args, *home]) == code
        err = capsys.readouterr().err
        assert err.startswith(f"eaco: {line}")
        assert err.count("\n") == 1
    assert cli.run(["features", "register", "net", str(tmp_path / "other.json.gz"), "--replace", *home]) == 0


# --- a predictor that learned --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_job_that_nobody_measured_is_predicted_once_its_graph_is_registered(serve: Any, tmp_path: Path) -> None:
    learned = RegisteredPredictor(fit_predictor(simulate_profiles(gpus=["v100-sxm"], n_sets_per_gpu=30), model="ridge"))
    with serve(lambda: learned, home=tmp_path) as ask:
        assert "my-net" in ask("POST", "/predict", json=asked_set("My Net")).json()["abstained"]
        graph = catalogue_graph("resnet18-cifar10")
        assert ask("POST", "/catalogue", json=body("My Net", graph, samples_per_epoch=50_000)).status_code == 201
        told = ask("POST", "/predict", json=asked_set("My Net")).json()
        assert told["abstained"] is None
        (only,) = told["jobs"]
        assert 0 < only["epoch_s"]["lower"] < only["epoch_s"]["mean"] < only["epoch_s"]["upper"]
        assert told["gpu_power_w"]["mean"] > 0
