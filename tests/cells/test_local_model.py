"""The whole loop with a real language model on this machine: only where AIPC_TEST_GGUF names its weights.

What it says is not the same twice, so nothing is asked of it but that everything around it holds.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aipc.fetch import hash_file
from tests.command import ROOT, Aipc

VARIABLE = "AIPC_TEST_GGUF"
WEIGHTS = os.environ.get(VARIABLE, "")
ENDINGS = {"submitted", "gave_up", "steps", "seconds", "repeated", "budget", "model"}
FILE = """
trials = 1

[agent]
steps = 8
seconds = 1500
temperature = 0.7

[models.local]
base_url = "{url}"
model = "{name}"
model_sha256 = "{sha256}"

[failures.einsum]
model = "seeded:attention"
source = "{source}"
shape = "1x3x20x24"
runtime = "ortqnn"
withheld = ["einsum_to_matmul"]
"""


@contextlib.contextmanager
def served(python: Path, weights: Path) -> Iterator[str]:
    """Serve the weights, and give the URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [str(python), str(ROOT / "studies" / "serve.py"), str(weights), "--port", str(port)]
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        assert url == f"http://127.0.0.1:{port}/v1"
        yield url
    finally:
        server.kill()
        server.communicate()


@pytest.mark.skipif(not WEIGHTS, reason=f"{VARIABLE} names no GGUF file of a language model")
@pytest.mark.timeout(3600)
def test_a_language_model_of_this_machine_takes_a_cell_to_an_end_with_the_skills_and_without(
    tmp_path: Path, reference_python: Path, environment_python: Callable[[str], Path]
) -> None:
    assert reference_python.exists()
    weights = Path(WEIGHTS)
    with served(environment_python("llama"), weights) as url:
        text = FILE.format(url=url, name=weights.stem, sha256=hash_file(weights), source=ROOT / "studies" / "networks")
        (tmp_path / "local.toml").write_text(text)
        done = Aipc(tmp_path)("study", "local.toml", "--engine", "venv")
    assert done.code == 0, done.out + done.error
    for arm in ("with", "without"):
        kept = tmp_path / "runs" / "studies" / "local" / "local" / "einsum"
        trial = json.loads((kept / f"{arm}-1.trial.json").read_text())
        head, *lines = [json.loads(line) for line in (kept / f"{arm}-1.jsonl").read_text().splitlines()]
        chats = [line for line in lines if line["kind"] == "chat"]
        assert (head["synthetic"], head["model"]) == (False, weights.stem)
        assert trial["ended"].partition(":")[0] in ENDINGS
        assert 1 <= trial["steps"] <= 8
        assert trial["tokens"] == sum(sum(line["usage"].values()) for line in chats)
        assert not trial["estimated"]
        assert all(line["usage"]["prompt_tokens"] <= 2500 for line in chats)
        succeeded = trial["taken"] and trial["verdict"] == "agrees"
        kinds = {each["kind"] for each in trial["deviations"]}
        assert succeeded == (not kinds & {"false_success", "help_needed"})
    assert "| local | with | einsum | " in done.out
