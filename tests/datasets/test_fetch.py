"""Downloads against a real HTTP server on the loopback: resumed, verified, put in place at once, one line an error."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from eaco_datasets.errors import FetchError, UnknownNameError
from eaco_datasets.fetch import PUBLIC_FILES, Fetched, PublicFile, fetch

CONTENT = bytes(range(256)) * 1200  # 300 KiB: several chunks
COMMIT = "0" * 40


def public(name: str = "lucid/pairs.csv", content: bytes = CONTENT) -> PublicFile:
    return PublicFile(name, "someone/data", f"raw/{name}", COMMIT, hashlib.sha256(content).hexdigest())


@dataclass
class Behaviour:
    """What the server does: paths it has, answers to give first, where to break off, whether it honours ranges."""

    content: dict[str, bytes] = field(default_factory=dict)
    first_statuses: list[int] = field(default_factory=list)
    break_off_after: list[int] = field(default_factory=list)
    ranges: bool = True
    shifted_range: bool = False
    requests: list[tuple[str, str | None]] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behaviour: Behaviour

    def do_GET(self) -> None:
        does = self.behaviour
        asked = self.headers.get("Range")
        does.requests.append((self.path, asked))
        if does.first_statuses:
            self.answer(does.first_statuses.pop(0), b"not now")
        elif self.path not in does.content:
            self.answer(404, b"no such file")
        else:
            self.send(does.content[self.path], asked if does.ranges else None)

    def send(self, content: bytes, asked: str | None) -> None:
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if start >= len(content):
            self.answer(416, b"")
            return
        given = start + 1 if asked and self.behaviour.shifted_range else start
        headers = {"Content-Range": f"bytes {given}-{len(content) - 1}/{len(content)}"} if asked else {}
        self.answer(206 if asked else 200, content[given:], headers)

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.behaviour.break_off_after and status < 300:
            self.wfile.write(body[: self.behaviour.break_off_after.pop(0)])
            self.close_connection = True
        else:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@dataclass(frozen=True)
class Server:
    base_url: str
    does: Behaviour

    def serve(self, file: PublicFile, content: bytes = CONTENT) -> None:
        self.does.content["/" + file.url("").lstrip("/")] = content

    def ranges_asked(self) -> list[str | None]:
        return [asked for _, asked in self.does.requests]


@pytest.fixture
def server() -> Iterator[Server]:
    does = Behaviour()
    handler = type("BoundHandler", (Handler,), {"behaviour": does})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        http.daemon_threads = True
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield Server(f"http://127.0.0.1:{http.server_address[1]}", does)
        finally:
            http.shutdown()
            thread.join()


def no_sleep(_seconds: float) -> None:
    """Time does not pass in tests."""


def get(server: Server, folder: Path, *files: PublicFile, **options: object) -> list[Fetched]:
    settings: dict[str, object] = {"files": files, "base_url": server.base_url, "sleep": no_sleep, **options}
    return fetch(folder, **settings)  # type: ignore[arg-type]


def test_a_file_is_downloaded_verified_and_put_in_place(server: Server, tmp_path: Path) -> None:
    file = public()
    server.serve(file)
    (done,) = get(server, tmp_path / "new" / "folder", file)
    target = tmp_path / "new" / "folder" / "lucid" / "pairs.csv"
    assert done == Fetched("lucid/pairs.csv", target, len(CONTENT), "downloaded")
    assert target.read_bytes() == CONTENT
    assert [p.name for p in target.parent.iterdir()] == ["pairs.csv"]
    assert server.does.requests == [(f"/someone/data/{COMMIT}/raw/lucid/pairs.csv", None)]


def test_what_is_there_with_the_right_hash_is_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    file = public()
    server.serve(file)
    get(server, tmp_path, file)
    server.does.requests.clear()
    (done,) = get(server, tmp_path, file)
    assert done.how == "present"
    assert server.does.requests == []


def test_a_part_is_resumed_where_it_ends(server: Server, tmp_path: Path) -> None:
    file = public()
    server.serve(file)
    part = tmp_path / "lucid" / "pairs.csv.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:1000])
    (done,) = get(server, tmp_path, file)
    assert done.how == "resumed"
    assert server.ranges_asked() == ["bytes=1000-"]
    assert (tmp_path / file.name).read_bytes() == CONTENT
    assert not part.exists()


def test_a_server_without_ranges_makes_it_start_over(server: Server, tmp_path: Path) -> None:
    file = public()
    server.serve(file)
    server.does.ranges = False
    (tmp_path / "lucid").mkdir()
    (tmp_path / "lucid" / "pairs.csv.part").write_bytes(b"x" * 1000)
    (done,) = get(server, tmp_path, file)
    assert done.how == "downloaded"
    assert (tmp_path / file.name).read_bytes() == CONTENT


def test_a_part_of_another_version_is_thrown_away(server: Server, tmp_path: Path) -> None:
    file = public()
    server.serve(file)
    (tmp_path / "lucid").mkdir()
    (tmp_path / "lucid" / "pairs.csv.part").write_bytes(b"another version")
    (done,) = get(server, tmp_path, file)
    assert done.how == "downloaded"
    assert server.ranges_asked() == ["bytes=15-", None]
    assert (tmp_path / file.name).read_bytes() == CONTENT


@pytest.mark.parametrize("part", [CONTENT, CONTENT + b"more", b"x" * len(CONTENT)])
def test_a_part_with_nothing_left_to_fetch(server: Server, tmp_path: Path, part: bytes) -> None:
    file = public()
    server.serve(file)
    (tmp_path / "lucid").mkdir()
    (tmp_path / "lucid" / "pairs.csv.part").write_bytes(part)
    (done,) = get(server, tmp_path, file)
    assert (tmp_path / file.name).read_bytes() == CONTENT
    assert len(server.does.requests) == (1 if part == CONTENT else 2)
    assert done.size_bytes == len(CONTENT)


def test_a_connection_that_breaks_is_taken_up_again(server: Server, tmp_path: Path) -> None:
    file = public()
    server.serve(file)
    server.does.break_off_after = [100_000, 50_000]
    waits: list[float] = []
    (done,) = get(server, tmp_path, file, sleep=waits.append)
    assert (tmp_path / file.name).read_bytes() == CONTENT
    assert done.how == "downloaded"
    assert waits == [1.0, 2.0]
    starts = [int((asked or "bytes=0-")[6:-1]) for asked in server.ranges_asked()]
    assert starts[0] == 0
    assert 0 < starts[1] < starts[2] < len(CONTENT)


def test_a_connection_that_keeps_breaking_leaves_the_old_file_and_a_part(server: Server, tmp_path: Path) -> None:
    file = public()
    server.serve(file)
    server.does.break_off_after = [70_000, 70_000]
    target = tmp_path / file.name
    target.parent.mkdir()
    target.write_bytes(b"old")
    with pytest.raises(FetchError, match=r"\(2 tries\)") as caught:
        get(server, tmp_path, file, attempts=2, force=True)
    assert "\n" not in str(caught.value)
    assert target.read_bytes() == b"old"
    assert 0 < target.with_name("pairs.csv.part").stat().st_size < len(CONTENT)
    (done,) = get(server, tmp_path, file, force=True)
    assert done.how == "resumed"
    assert target.read_bytes() == CONTENT


def test_an_interrupted_call_leaves_the_old_file_and_is_resumed(server: Server, tmp_path: Path) -> None:
    file = public()
    server.serve(file)
    target = tmp_path / file.name
    target.parent.mkdir()
    target.write_bytes(b"old")

    def stop(_name: str, received: int, _total: int | None) -> None:
        if received > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(server, tmp_path, file, force=True, progress=stop)
    assert target.read_bytes() == b"old"
    (done,) = get(server, tmp_path, file, force=True)
    assert done.how == "resumed"
    assert target.read_bytes() == CONTENT


def test_a_missing_file_is_said_at_once(server: Server, tmp_path: Path) -> None:
    waits: list[float] = []
    with pytest.raises(FetchError, match=r"raw/lucid/pairs\.csv: HTTP 404; expected 200"):
        get(server, tmp_path, public(), sleep=waits.append)
    assert waits == []
    assert len(server.does.requests) == 1
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_in_trouble_is_asked_again(server: Server, tmp_path: Path, status: int) -> None:
    file = public()
    server.serve(file)
    server.does.first_statuses = [status, status]
    waits: list[float] = []
    get(server, tmp_path, file, sleep=waits.append)
    assert waits == [1.0, 2.0]
    assert (tmp_path / file.name).read_bytes() == CONTENT


def test_a_server_that_stays_in_trouble_is_given_up(server: Server, tmp_path: Path) -> None:
    server.does.first_statuses = [500] * 10
    with pytest.raises(FetchError, match=r"HTTP 500 \(4 tries\)"):
        get(server, tmp_path, public())
    assert len(server.does.requests) == 4


def test_wrong_bytes_are_refused_and_leave_nothing(server: Server, tmp_path: Path) -> None:
    file = public()
    server.serve(file, b"tampered")
    with pytest.raises(FetchError, match=f"SHA-256 is .*; expected {file.sha256}"):
        get(server, tmp_path, file)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_wrong_range_is_not_appended(server: Server, tmp_path: Path) -> None:
    file = public()
    server.serve(file)
    server.does.shifted_range = True
    (tmp_path / "lucid").mkdir()
    (tmp_path / "lucid" / "pairs.csv.part").write_bytes(CONTENT[:10])
    with pytest.raises(FetchError, match="another range"):
        get(server, tmp_path, file)
    assert (tmp_path / "lucid" / "pairs.csv.part").read_bytes() == CONTENT[:10]


def test_a_local_file_of_other_content_is_not_overwritten_unless_forced(server: Server, tmp_path: Path) -> None:
    ours, other = public(), public("zeus/power.csv")
    server.serve(ours)
    server.serve(other)
    (tmp_path / "lucid").mkdir()
    (tmp_path / ours.name).write_bytes(b"a part of the file")
    with pytest.raises(FetchError, match=r"lucid/pairs\.csv .*another SHA-256.*force"):
        get(server, tmp_path, ours, other)
    assert (tmp_path / ours.name).read_bytes() == b"a part of the file"
    assert server.does.requests == []
    assert [f.how for f in get(server, tmp_path, ours, other, names=["zeus"])] == ["downloaded"]
    assert [f.how for f in get(server, tmp_path, ours, other, force=True)] == ["downloaded", "present"]
    assert (tmp_path / ours.name).read_bytes() == CONTENT


def test_progress_is_told_of_every_chunk(server: Server, tmp_path: Path) -> None:
    file = public()
    server.serve(file)
    told: list[tuple[str, int, int | None]] = []
    get(server, tmp_path, file, progress=lambda *args: told.append(args))
    assert told[-1] == (file.name, len(CONTENT), len(CONTENT))
    assert [received for _, received, _ in told] == sorted({received for _, received, _ in told})
    assert len(told) > 1


def test_a_client_of_the_caller_is_used_and_left_open(server: Server, tmp_path: Path) -> None:
    file = public()
    server.serve(file)
    with httpx.Client(headers={"X-Ours": "1"}) as client:
        get(server, tmp_path, file, client=client)
        assert not client.is_closed


def test_no_server_is_one_line(tmp_path: Path, server: Server) -> None:
    nobody = Server("http://127.0.0.1:1", server.does)
    with pytest.raises(FetchError, match=r"127\.0\.0\.1:1/.*tries") as caught:
        get(nobody, tmp_path, public())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("base_url", ["ftp://127.0.0.1", "nonsense", "http://127.0.0.1:nope"])
def test_a_base_url_that_is_none_is_one_line(tmp_path: Path, server: Server, base_url: str) -> None:
    waits: list[float] = []
    with pytest.raises(FetchError, match="expected an http"):
        get(Server(base_url, server.does), tmp_path, public(), sleep=waits.append)
    assert waits == []


def test_a_data_folder_that_is_a_file_is_one_line(server: Server, tmp_path: Path) -> None:
    file = public()
    server.serve(file)
    (tmp_path / "data").write_text("not a folder")
    with pytest.raises(FetchError, match="expected a folder to write in") as caught:
        get(server, tmp_path / "data", file)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_is_refused_with_suggestions(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"perhaps .*lucid/pairs\.csv"):
        get(server, tmp_path, public(), names=["lucid/pair.csv"])


def test_the_table_of_public_files_is_pinned_and_whole() -> None:
    assert len(PUBLIC_FILES) == 12
    assert len({f.name for f in PUBLIC_FILES}) == len({f.sha256 for f in PUBLIC_FILES}) == 12
    for file in PUBLIC_FILES:
        assert len(file.sha256) == 64
        assert len(file.commit) == 40
        assert int(file.sha256, 16) > 0
        assert int(file.commit, 16) > 0
        assert not file.path.startswith("/")
        assert file.url() == f"https://raw.githubusercontent.com/{file.repository}/{file.commit}/{file.path}"
    by_name = {f.name: f.path for f in PUBLIC_FILES}
    assert by_name["gavel/throughputs.json"] == "scheduler/simulation_throughputs.json"
    assert {name.split("/")[0] for name in by_name} == {"lucid", "gavel", "zeus", "philly", "alibaba"}
