"""A toolchain that misbehaves: whatever it does, there is a verdict, its own words, and nothing green."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.command import ROOT, Aipc

MARK = "    import onnxruntime\n"
DONE = "import os; from runtimes import contract; contract.write(contract.Result(status=contract.Status.DONE"
FAULTS = {
    "segfault": ("import ctypes; print('about to fall', flush=True); ctypes.string_at(0)", "SIGSEGV"),
    "abort": ("import os; os.abort()", "SIGABRT"),
    "hang": ("import time; time.sleep(600)", "did not end within 4 s"),
    "memory": ("held = [bytearray(1 << 26) for _ in range(1000)]", "MemoryError"),
    "exits zero without a result": ("import os; os._exit(0)", "without a result"),
    "exits with another code than its result": (
        f"{DONE}), work.layout.result); os._exit(21)",
        "but its result says 'done'",
    ),
    "writes a result that is no JSON": (
        "import os; work.layout.result.write_text('{'); os._exit(0)",
        "its result cannot be read",
    ),
    "names an output that is not there": (
        f"{DONE}, outputs=('artifact',)), work.layout.result); os._exit(0)",
        "out/ holds []",
    ),
    "leaves a link": (
        "import os; os.symlink('/etc/hostname', work.output('artifact'))\n    raise SystemExit(0)",
        "an output that is not taken",
    ),
    "raises": ("raise KeyError('the vendor said no')", "the vendor said no"),
}


def add_sixth(checkout: Path) -> None:
    """Add the sixth runtime: three new folders, no edit of an existing file."""
    for part in ("runtimes", "images", "skills"):
        shutil.copytree(
            ROOT / "tests" / "sixth" / part / "sixth",
            checkout / part / "sixth",
            ignore=shutil.ignore_patterns("__pycache__"),
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what aipc reads of its checkout, with a sixth runtime in it."""
    copy = tmp_path / "checkout"
    for name in ("runtimes", "images"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / "matrix.toml", copy / "matrix.toml")
    add_sixth(copy)
    return copy


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory, reference_python: Path) -> Path:
    """One store for all faults: what comes before the toolchain is the same each time."""
    assert reference_python.exists()
    return tmp_path_factory.getbasetemp() / "fault-store"


@pytest.mark.parametrize("engine", ["venv", "docker"])
def test_a_sixth_runtime_deploys_with_no_edit_of_an_existing_file(
    tmp_path: Path, checkout: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "docker":
        request.getfixturevalue("docker_daemon")
    aipc = Aipc(tmp_path, {"AIPC_HOME": str(checkout)})
    done = aipc.tiny(engine=engine, runtime="sixth")
    assert done.code == 0, done.out + done.error
    report = aipc.report()
    assert report["verdict"] == "agrees"
    assert report["engine"] == engine
    assert aipc("list").out.count("sixth") >= 1


@pytest.mark.parametrize("engine", ["venv", "docker"])
def test_a_sixth_runtime_that_is_wrong_disagrees(
    tmp_path: Path, checkout: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "docker":
        request.getfixturevalue("docker_daemon")
    adapter = checkout / "runtimes" / "sixth" / "adapter.py"
    adapter.write_text(adapter.read_text().replace("OFFSET = 0.0", "OFFSET = 0.05"))
    aipc = Aipc(tmp_path, {"AIPC_HOME": str(checkout)})
    done = aipc.tiny(engine=engine, runtime="sixth")
    assert done.code == 1
    assert aipc.report()["verdict"] == "disagrees"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_toolchain_that_misbehaves_fails_with_its_own_words(
    tmp_path: Path, shared: Path, checkout: Path, fault: str
) -> None:
    code, said = FAULTS[fault]
    adapter = checkout / "runtimes" / "sixth" / "adapter.py"
    adapter.write_text(adapter.read_text().replace(MARK, f"    {code}\n{MARK}", 1))
    toml = checkout / "runtimes" / "sixth" / "runtime.toml"
    toml.write_text(f"timeout_seconds = {4 if fault == 'hang' else 60}\nmemory_bytes = 2000000000\n{toml.read_text()}")
    aipc = Aipc(tmp_path, {"AIPC_HOME": str(checkout), "AIPC_STORE": str(shared)})
    done = aipc.tiny(runtime="sixth")
    assert done.code == 1, done.out + done.error
    report = aipc.report()
    assert report["verdict"] == "failed"
    assert report["failure"]["step"] == "convert"
    assert said in report["failure"]["failure"]["message"]
    if fault == "segfault":
        assert "about to fall" in report["failure"]["log_tail"]
    assert report["artifact"] is None
    assert "Traceback" not in done.error


def test_a_failure_is_tried_again_the_next_time(tmp_path: Path, shared: Path, checkout: Path) -> None:
    adapter = checkout / "runtimes" / "sixth" / "adapter.py"
    whole = adapter.read_text()
    adapter.write_text(whole.replace(MARK, f"    import os; os.abort()\n{MARK}", 1))
    aipc = Aipc(tmp_path, {"AIPC_HOME": str(checkout), "AIPC_STORE": str(shared)})
    assert aipc.tiny(runtime="sixth").code == 1
    adapter.write_text(whole)
    assert aipc.tiny(runtime="sixth").code == 0
    assert aipc.report()["verdict"] == "agrees"
