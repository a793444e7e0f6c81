"""Downloads the public data files at their pinned commits: resumable, verified by SHA-256, put in place at once.

A download grows in ``<name>.part`` beside its place and is renamed only when its hash is right, so an interruption
leaves whatever was there untouched and the next call goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import httpx

from eaco_datasets.errors import FetchError, UnknownNameError

RAW_BASE_URL = "https://raw.githubusercontent.com"
RAW_URL_TEMPLATE = "{base_url}/{repository}/{commit}/{path}"
DEFAULT_TIMEOUT_S = 30.0
DEFAULT_ATTEMPTS = 4
FIRST_BACKOFF_S = 1.0

_WORTH_RETRYING = frozenset({408, 425, 429, 500, 502, 503, 504})

How = Literal["present", "downloaded", "resumed"]


@dataclass(frozen=True, slots=True)
class PublicFile:
    """One public file: its name in the data folder, where it is from, and the SHA-256 of the whole upstream file."""

    name: str
    repository: str
    path: str
    commit: str
    sha256: str

    def url(self, base_url: str = RAW_BASE_URL) -> str:
        """Where to download it from."""
        return RAW_URL_TEMPLATE.format(
            base_url=base_url.rstrip("/"), repository=self.repository, commit=self.commit, path=self.path
        )


@dataclass(frozen=True, slots=True)
class Fetched:
    """One file that is now in the data folder, verified, and how it got there."""

    name: str
    path: Path
    size_bytes: int
    how: How


class Progress(Protocol):
    """Told of every chunk: the file's name, bytes so far and in all (``None`` when the server does not say)."""

    def __call__(self, name: str, received_bytes: int, total_bytes: int | None, /) -> None: ...


_LUCID = ("S-Lab-System-Group/Lucid", "63685a3ab7d15d8e940bb47ef98b6d5cca472b13")
_GAVEL = ("stanford-futuredata/gavel", "c4fa40097339e9608ab71fd64c8bdea96a5e4a4c")
_ZEUS = ("ml-energy/zeus", "75a8b9398034eb9baf74ca0a830c2c31bcce52cd")
_ELASTICFLOW = ("pkusys/ElasticFlow", "04a0109a6acdd7d89f4cb31b6a6a7a128bee6bb0")
_ALIBABA = ("alibaba/clusterdata", "7a6c496e4f4b6ce6150be8f881cb051bf2abff42")
_ZEUS_TRACE = "examples/research_reproducibility/zeus_nsdi23/trace/"


def _file(name: str, origin: tuple[str, str], path: str, sha256: str) -> PublicFile:
    repository, commit = origin
    return PublicFile(name, repository, path, commit, sha256)


PUBLIC_FILES: tuple[PublicFile, ...] = (
    _file(
        "lucid/colocate_info.csv",
        _LUCID,
        "simulation/data/colocate_info.csv",
        "eb17384138b035112e7118b9fd33ae2ab9040fb4688942c74af59a700425ed0d",
    ),
    _file(
        "lucid/single_data.csv",
        _LUCID,
        "simulation/analyzer/single_data.csv",
        "6bce9f9410b9d1529c7bcfca50aa7c7bc9684dff49da8e13414013325f99ed23",
    ),
    _file(
        "gavel/throughputs.json",
        _GAVEL,
        "scheduler/simulation_throughputs.json",
        "17111f7295f03265fd9e5118d7eba31e3dd9d6e50a2e215c13ad3d3f91f74381",
    ),
    _file(
        "zeus/summary_power_a40.csv",
        _ZEUS,
        _ZEUS_TRACE + "summary_power_a40.csv",
        "f4ec111fc9b06b353182faab9160ecb1236a486b2741ed93383b80497332031e",
    ),
    _file(
        "zeus/summary_power_p100.csv",
        _ZEUS,
        _ZEUS_TRACE + "summary_power_p100.csv",
        "158e9a6784b6e2d26710529b132cf173b227dc8688f4931c19a637bce2b7503b",
    ),
    _file(
        "zeus/summary_power_rtx6000.csv",
        _ZEUS,
        _ZEUS_TRACE + "summary_power_rtx6000.csv",
        "edccecc7f8b7a6102962b03f0f37767dd9cd2f03469ebccadc9805e82901bdc4",
    ),
    _file(
        "zeus/summary_power_v100.csv",
        _ZEUS,
        _ZEUS_TRACE + "summary_power_v100.csv",
        "f0b066dd1a451bd78f730e001ac3a7c411979bc7f0846f12c1a9fb604aa90628",
    ),
    _file(
        "zeus/summary_train.csv",
        _ZEUS,
        _ZEUS_TRACE + "summary_train.csv",
        "076b35615349ee624403006e5ad67fd9ebda92af690c7750f8bb0c2ab92c0cf4",
    ),
    _file(
        "philly/philly.csv",
        _ELASTICFLOW,
        "pollux/pollux_simulator/traces/philly.csv",
        "ebffb3dd1589bdf4e7bcd74496201c5ded1d557d498ee14f560463f37ec353da",
    ),
    _file(
        "philly/philly_103959.csv",
        _ELASTICFLOW,
        "ElasticFlow/traces_for_ElasticFlow/philly_103959.csv",
        "1ee30d2cc87e4161521c19dc7508945b90f9c5c0e10811eec9b804753657f792",
    ),
    _file(
        "alibaba/openb_pod_list_default.csv",
        _ALIBABA,
        "cluster-trace-gpu-v2023/csv/openb_pod_list_default.csv",
        "1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8",
    ),
    _file(
        "alibaba/openb_node_list_gpu_node.csv",
        _ALIBABA,
        "cluster-trace-gpu-v2023/csv/openb_node_list_gpu_node.csv",
        "2beca64b4d3dfa342036a34b56a495c6cef9225db836c81f541282cb1df320b5",
    ),
)
"""Every file that ``fetch`` knows, in the layout that the readers expect. Gavel's job traces are not among them."""


def fetch(
    data_dir: Path | str,
    names: Sequence[str] | None = None,
    *,
    force: bool = False,
    files: Sequence[PublicFile] = PUBLIC_FILES,
    base_url: str = RAW_BASE_URL,
    progress: Progress | None = None,
    client: httpx.Client | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    attempts: int = DEFAULT_ATTEMPTS,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Fetched]:
    """Put public files into a data folder, verified; what is there already with the right hash is left alone.

    Args:
        names: names of ``files``, or their folders (``zeus``); all when ``None``.
        force: replace a local file whose hash is another one; without it, nothing is downloaded at all then.
        client: used and left open when given (``timeout_s`` is then its own affair).
        attempts: tries a file on errors that may pass: no answer, a broken connection, HTTP 408, 425, 429 and 5xx.
        sleep: called between tries with 1, 2, 4 ... s.

    Raises:
        UnknownNameError: a name that is not in the table.
        FetchError: one line: HTTP status, no connection, wrong hash, a local file in the way, or the disk's refusal.
    """
    chosen = _chosen(names, files)
    folder = Path(data_dir)
    with _disk_errors(folder):
        ours = {file.name: _sha256(folder / file.name) for file in chosen}
    in_the_way = [file.name for file in chosen if ours[file.name] not in {None, file.sha256}]
    if in_the_way and not force:
        raise FetchError(
            f"{folder}: {', '.join(in_the_way)} there already with another SHA-256 (perhaps a part of the upstream "
            "file); nothing downloaded; expected force, to replace them, or other names"
        )
    with nullcontext(client) if client else httpx.Client(timeout=timeout_s, follow_redirects=True) as http:
        job = _Download(http, base_url, progress, max(attempts, 1), sleep)
        return [job.fetch(file, folder / file.name, present=ours[file.name] == file.sha256) for file in chosen]


def _chosen(names: Sequence[str] | None, files: Sequence[PublicFile]) -> list[PublicFile]:
    if names is None:
        return list(files)
    folders = {file.name.split("/")[0] for file in files}
    for name in names:
        if name not in folders and name not in {file.name for file in files}:
            raise UnknownNameError("public file", name, folders | {file.name for file in files})
    return [file for file in files if file.name in names or file.name.split("/")[0] in names]


class _Passing(Exception):
    """An error that another try may not meet."""


@dataclass(frozen=True, slots=True)
class _Download:
    client: httpx.Client
    base_url: str
    progress: Progress | None
    attempts: int
    sleep: Callable[[float], None]

    def fetch(self, file: PublicFile, target: Path, *, present: bool) -> Fetched:
        with _disk_errors(target):
            if present:
                return Fetched(file.name, target, target.stat().st_size, "present")
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(target.name + ".part")
            how: How = "resumed" if self._receive(file, part) else "downloaded"
            if how == "resumed" and _sha256(part) != file.sha256:
                # What the part held was no beginning of this file: once more from the start.
                part.unlink()
                self._receive(file, part)
                how = "downloaded"
            if (found := _sha256(part)) != file.sha256:
                part.unlink()
                raise FetchError(f"{file.url(self.base_url)}: SHA-256 is {found}; expected {file.sha256}")
            os.replace(part, target)
            return Fetched(file.name, target, target.stat().st_size, how)

    def _receive(self, file: PublicFile, part: Path) -> bool:
        """Fill the part file, in several tries if need be; whether bytes of an earlier call were built upon."""
        built_upon = part.exists() and part.stat().st_size > 0
        for attempt in range(self.attempts):
            if attempt:
                self.sleep(FIRST_BACKOFF_S * 2 ** (attempt - 1))
            try:
                return self._try(file, part) and built_upon
            except _Passing as error:
                reason = str(error)
        raise FetchError(f"{file.url(self.base_url)}: {reason} ({self.attempts} tries)")

    def _try(self, file: PublicFile, part: Path) -> bool:
        """One request; whether the server let us go on from where the part file ended."""
        start = part.stat().st_size if part.exists() else 0
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        try:
            with self.client.stream("GET", file.url(self.base_url), headers=headers) as response:
                if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE and start:
                    if _sha256(part) == file.sha256:
                        return True
                    part.unlink()
                    raise _Passing("the server has no bytes after the part that is here")
                _check_status(file.url(self.base_url), response)
                resumed = start > 0 and _starts_at(response, start)
                self._write(file.name, part, response, start if resumed else 0)
                return resumed
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise FetchError(f"{file.url(self.base_url)}: {_one_line(error)}; expected an http(s) URL") from error
        except httpx.TransportError as error:
            raise _Passing(_one_line(error)) from error
        except httpx.HTTPError as error:
            raise FetchError(f"{file.url(self.base_url)}: {_one_line(error)}") from error

    def _write(self, name: str, part: Path, response: httpx.Response, start: int) -> None:
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else None
        received = start
        with part.open("ab" if start else "wb") as out:
            for chunk in response.iter_bytes():
                out.write(chunk)
                received += len(chunk)
                if self.progress is not None:
                    self.progress(name, received, total)
            out.flush()
            os.fsync(out.fileno())


def _check_status(url: str, response: httpx.Response) -> None:
    if response.status_code in _WORTH_RETRYING:
        raise _Passing(f"HTTP {response.status_code}")
    if response.status_code not in {httpx.codes.OK, httpx.codes.PARTIAL_CONTENT}:
        raise FetchError(f"{url}: HTTP {response.status_code}; expected 200")


def _starts_at(response: httpx.Response, start: int) -> bool:
    """Whether the answer is the part that was asked for; a server may ignore ``Range`` and send the whole file."""
    if response.status_code != httpx.codes.PARTIAL_CONTENT:
        return False
    given = response.headers.get("Content-Range", "")
    if not given.startswith(f"bytes {start}-"):
        raise _Passing(f"the server answered with another range than asked for: {given!r}")
    return True


def _sha256(path: Path) -> str | None:
    """The hash of a file, ``None`` where there is none."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def _disk_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FetchError(
            f"{error.filename or place}: {error.strerror or error}; expected a folder to write in"
        ) from error
