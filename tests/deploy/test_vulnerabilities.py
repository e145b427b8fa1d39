"""`make vulnerabilities` never takes "I could not ask" for "none"."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy" / "setup" / "vulnerabilities.sh"
NUMBER = "OSV-2026-1"


def found_uv() -> str:
    """`uv run` tells its programs where it is."""
    own = str(ROOT / ".venv-uv" / "bin" / "uv")
    found = os.environ.get("UV") or shutil.which("uv") or shutil.which(own)
    if found is None:
        pytest.skip("uv is not here: make setup")
    return found


@contextmanager
def service(affected: str) -> Iterator[tuple[str, list[str]]]:
    """As osv.dev answers: its URL, and the packages that it was asked for."""
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"]))
            names = [each["package"]["name"] for each in json.loads(text)["queries"]]
            asked.extend(names)
            known = {"vulns": [{"id": NUMBER, "modified": "2026-01-01T00:00:00Z"}]}
            self.answer({"results": [known if name == affected else {} for name in names]})

        def do_GET(self) -> None:
            self.answer(
                {
                    "id": NUMBER,
                    "summary": "it opens every door",
                    "modified": "2026-01-01T00:00:00Z",
                    "affected": [{"package": {"name": affected, "ecosystem": "PyPI"}}],
                }
            )

        def answer(self, document: object) -> None:
            text = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", asked
        finally:
            server.shutdown()
            thread.join()


def asked_of(url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPT), found_uv()],
        capture_output=True,
        text=True,
        timeout=100,
        env={
            **os.environ,
            "OSV_URL": url,
            "UV_HTTP_RETRIES": "0",
            "UV_CACHE_DIR": str(folder / "cache"),
            "NO_PROXY": "127.0.0.1",
        },
    )


def test_what_is_known_is_told(tmp_path: Path) -> None:
    with service("cryptography") as (url, asked):
        done = asked_of(url, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "cryptography" in done.stdout
    assert {"grpcio", "pyspark", "pytest"} <= set(asked)


def test_nothing_known_is_0_and_nobody_to_ask_is_2(tmp_path: Path) -> None:
    with service("nothing") as (url, asked):
        done = asked_of(url, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(asked) > 50
    done = asked_of(url, tmp_path / "other")
    assert done.returncode == 2
    assert "could not check" in done.stderr
