"""Downloads, from a server of our own on this machine: mirrors, checksums, resumption."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from renaissance.core.errors import FormatError
from renaissance.data import download
from renaissance.data.download import ORIGINS, Origin, Remote, fetch

CONTENT = bytes(range(256)) * 40_000


class Server:
    """Serves files from memory, and can break off or lie."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.ranges: list[str | None] = []
        self.break_after: int | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer.files.get(self.path.lstrip("/"))
                if body is None:
                    self.send_error(404)
                    return
                asked = self.headers.get("Range")
                outer.ranges.append(asked)
                first = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
                if first >= len(body):
                    self.send_error(416)
                    return
                self.send_response(206 if asked else 200)
                self.send_header("Content-Length", str(len(body) - first))
                self.end_headers()
                limit, outer.break_after = outer.break_after, None
                self.wfile.write(body[first:] if limit is None else body[first : first + limit])

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/"
        self.thread = threading.Thread(target=self.http.serve_forever)

    def __enter__(self) -> Server:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


def publish(monkeypatch, content: bytes = CONTENT, **more) -> None:
    remote = Remote("a.bin", hashlib.md5(content).hexdigest(), **more)
    monkeypatch.setitem(ORIGINS, "mnist", Origin((), (remote,)))


def test_a_file_arrives_whole_and_is_not_fetched_twice(tmp_path: Path, monkeypatch) -> None:
    publish(monkeypatch)
    heard = []
    with Server({"a.bin": CONTENT}) as server:
        mirrors = [server.url]
        (path,) = fetch("mnist", tmp_path, mirrors=mirrors, progress=lambda *a: heard.append(a))
        assert path.read_bytes() == CONTENT
        assert heard[-1] == ("a.bin", len(CONTENT), len(CONTENT))
        fetch("mnist", tmp_path, mirrors=mirrors)
        assert len(server.ranges) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_a_broken_transfer_goes_on_where_it_stopped(tmp_path: Path, monkeypatch) -> None:
    publish(monkeypatch)
    with Server({"a.bin": CONTENT}) as server:
        server.break_after = 3_000_000
        with pytest.raises(OSError, match="broke off|Incomplete|IncompleteRead"):
            fetch("mnist", tmp_path, mirrors=[server.url])
        kept = (tmp_path / "a.bin.part").stat().st_size
        assert 0 < kept <= 3_000_000
        (path,) = fetch("mnist", tmp_path, mirrors=[server.url])
        assert server.ranges == [None, f"bytes={kept}-"]
    assert path.read_bytes() == CONTENT


def test_a_part_that_is_whole_already_is_taken(tmp_path: Path, monkeypatch) -> None:
    publish(monkeypatch)
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    with Server({"a.bin": CONTENT}) as server:
        (path,) = fetch("mnist", tmp_path, mirrors=[server.url])
    assert path.read_bytes() == CONTENT


def test_mirrors_are_tried_in_turn_and_checksums_compared(tmp_path: Path, monkeypatch) -> None:
    publish(monkeypatch)
    with (
        Server({}) as empty,
        Server({"a.bin": b"x" * 99}) as liar,
        Server({"a.bin": CONTENT}) as ok,
    ):
        with pytest.raises(OSError, match=r"404 .* MD5 of 99 bytes is [0-9a-f]{32}, expected"):
            fetch("mnist", tmp_path, mirrors=[empty.url, liar.url])
        assert not list(tmp_path.iterdir())
        (path,) = fetch("mnist", tmp_path, mirrors=[empty.url, liar.url, ok.url])
    assert path.read_bytes() == CONTENT


def test_only_the_wanted_files_of_an_archive_are_written(tmp_path: Path, monkeypatch) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("deep/train.bin", "../../escape.bin", "deep/test.bin"):
            entry = tarfile.TarInfo(name)
            entry.size = len(name)
            archive.addfile(entry, io.BytesIO(name.encode()))
    content = packed.getvalue()
    publish(monkeypatch, content, unpacks=("train.bin", "test.bin"))
    folder = tmp_path / "inner"
    with Server({"a.bin": content}) as server:
        paths = fetch("mnist", folder, mirrors=[server.url])
        assert [p.read_text() for p in paths] == ["deep/train.bin", "deep/test.bin"]
        assert sorted(p.name for p in folder.iterdir()) == ["a.bin", "test.bin", "train.bin"]
        publish(monkeypatch, content, unpacks=("train.bin", "missing.bin"))
        with pytest.raises(FormatError, match="holds no missing.bin"):
            fetch("mnist", folder, mirrors=[server.url])


def test_what_cannot_be_fetched_says_what_can(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="imagenet.*expected one of mnist, fashion_mnist"):
        fetch("imagenet", tmp_path)


def test_checksums_are_well_formed() -> None:
    for origin in ORIGINS.values():
        for remote in origin.files:
            assert len(bytes.fromhex(remote.md5)) == 16
    assert download.TIMEOUT_SECONDS <= 60
