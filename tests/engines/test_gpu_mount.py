"""NVIDIA GPUs in a cage: their device files and their driver's libraries, and nothing of them for a job without."""

from __future__ import annotations

from pathlib import Path

import pytest

from aipc.engines import NOTHING, Given, Limits
from aipc.engines.venv import VenvEngine
from aipc.gpu import Gpu
from tests.engines.wheelhouse import Bench, make_code, make_workspace

LOOKS = """
import os, pathlib
print("nodes", sorted(path.name for path in pathlib.Path("/dev").glob("nvidia*")))
for place in {places!r}:
    try:
        with open(place, "r+b") as file:
            file.write(b"written")
        print("wrote", place)
    except OSError as error:
        print("did not write", place, error.strerror)
"""
LIMITS = Limits(seconds=60.0, memory_bytes=512_000_000, processes=64)


@pytest.fixture
def card(tmp_path: Path) -> Gpu:
    """What stands for a GPU: ordinary files in place of device files, and a folder of libraries."""
    nodes = [tmp_path / "dev" / name for name in ("nvidia0", "nvidiactl")]
    library = tmp_path / "driver" / "libcuda.so.1"
    for path in (*nodes, library):
        path.parent.mkdir(exist_ok=True)
        path.write_text("untouched")
        path.chmod(0o666)
    tmp_path.chmod(0o755)
    return Gpu(nodes=tuple(nodes), folders=(library.parent,), words=())


def look(bench: Bench, card: Gpu, given: Given) -> str:
    number = len(list(bench.folder.iterdir()))
    program = LOOKS.format(places=["/dev/nvidia0", str(card.folders[0] / "libcuda.so.1")])
    workspace = make_workspace(bench.folder / f"job{number}", program)
    code = make_code(bench.folder / f"code{number}")
    ended = VenvEngine(bench.cache, "test").run(bench.environment, workspace, code, LIMITS, lambda: None, given)
    log = (workspace / "log.txt").read_text()
    assert ended.code == 0, log
    return log


@pytest.mark.usefixtures("with_cage")
def test_a_caged_job_talks_to_the_gpu_and_only_reads_its_driver(bench: Bench, card: Gpu) -> None:
    log = look(bench, card, Given(gpu=card))
    library = card.folders[0] / "libcuda.so.1"
    assert log.splitlines() == [
        "nodes ['nvidia0', 'nvidiactl']",
        "wrote /dev/nvidia0",
        f"did not write {library} Read-only file system",
    ]
    assert card.nodes[0].read_text().startswith("written")


@pytest.mark.usefixtures("with_cage")
def test_a_caged_job_without_a_gpu_sees_nothing_of_it(bench: Bench, card: Gpu) -> None:
    log = look(bench, card, NOTHING)
    assert log.splitlines() == [
        "nodes []",
        "did not write /dev/nvidia0 No such file or directory",
        f"did not write {card.folders[0] / 'libcuda.so.1'} No such file or directory",
    ]
