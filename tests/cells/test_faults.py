"""A toolchain that misbehaves: whatever it does, there is a verdict, its own words, and nothing green."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import Aipc

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
    "leaves a link": ("import os; os.symlink('/etc/hostname', work.output('more'))", "more"),
    "raises": ("raise KeyError('the vendor said no')", "the vendor said no"),
}


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory, reference_python: Path) -> Path:
    """One store for all faults: what comes before the toolchain is the same each time."""
    assert reference_python.exists()
    return tmp_path_factory.getbasetemp() / "fault-store"


@pytest.mark.parametrize("engine", ["venv", "docker"])
def test_a_sixth_runtime_deploys_with_no_edit_of_an_existing_file(
    tmp_path: Path, sixth: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "docker":
        request.getfixturevalue("docker_daemon")
    aipc = Aipc(tmp_path, {"AIPC_HOME": str(sixth)})
    done = aipc.tiny(engine=engine, runtime="sixth")
    assert done.code == 0, done.out + done.error
    report = aipc.report()
    assert report["verdict"] == "agrees"
    assert report["engine"] == engine
    assert aipc("list").out.count("sixth") >= 1


@pytest.mark.parametrize("engine", ["venv", "docker"])
def test_a_sixth_runtime_that_is_wrong_disagrees(
    tmp_path: Path, sixth: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "docker":
        request.getfixturevalue("docker_daemon")
    adapter = sixth / "runtimes" / "sixth" / "adapter.py"
    adapter.write_text(adapter.read_text().replace("OFFSET = 0.0", "OFFSET = 0.05"))
    aipc = Aipc(tmp_path, {"AIPC_HOME": str(sixth)})
    done = aipc.tiny(engine=engine, runtime="sixth")
    assert done.code == 1
    assert aipc.report()["verdict"] == "disagrees"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_toolchain_that_misbehaves_fails_with_its_own_words(
    tmp_path: Path, shared: Path, sixth: Path, fault: str
) -> None:
    code, said = FAULTS[fault]
    adapter = sixth / "runtimes" / "sixth" / "adapter.py"
    adapter.write_text(adapter.read_text().replace(MARK, f"    {code}\n{MARK}", 1))
    toml = sixth / "runtimes" / "sixth" / "runtime.toml"
    toml.write_text(f"timeout_seconds = {4 if fault == 'hang' else 60}\nmemory_bytes = 2000000000\n{toml.read_text()}")
    aipc = Aipc(tmp_path, {"AIPC_HOME": str(sixth), "AIPC_STORE": str(shared)})
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


def test_a_failure_is_tried_again_the_next_time(tmp_path: Path, shared: Path, sixth: Path) -> None:
    adapter = sixth / "runtimes" / "sixth" / "adapter.py"
    whole = adapter.read_text()
    adapter.write_text(whole.replace(MARK, f"    import os; os.abort()\n{MARK}", 1))
    aipc = Aipc(tmp_path, {"AIPC_HOME": str(sixth), "AIPC_STORE": str(shared)})
    assert aipc.tiny(runtime="sixth").code == 1
    adapter.write_text(whole)
    assert aipc.tiny(runtime="sixth").code == 0
    assert aipc.report()["verdict"] == "agrees"


def test_a_runtime_that_infers_while_it_converts_needs_no_step_of_its_own_for_it(
    tmp_path: Path, shared: Path, sixth: Path
) -> None:
    adapter = sixth / "runtimes" / "sixth" / "adapter.py"
    text = adapter.read_text().replace("def run(", "def _run(")
    both = '    made = _run(work)\n    return {"placement": [], "io": ports, "notes": [], **made}\n'
    text = text.replace('    return {"placement": [], "io": ports, "notes": []}\n', both)
    adapter.write_text(text.replace('work.input("artifact")', 'work.output("artifact")'))
    toml = sixth / "runtimes" / "sixth" / "runtime.toml"
    steps = 'run = "in_convert"\nsteps = ["convert"]'
    toml.write_text(toml.read_text().replace('steps = ["convert", "run"]', steps))
    aipc = Aipc(tmp_path, {"AIPC_HOME": str(sixth), "AIPC_STORE": str(shared)})
    done = aipc.tiny(runtime="sixth")
    assert done.code == 0, done.out + done.error
    report = aipc.report()
    assert [stage["step"] for stage in report["stages"]] == ["prepare", "export", "convert", "judge"]
    assert report["device"] == "CPU"


def test_a_precision_that_only_the_sixth_runtime_has_brings_its_own_tolerance(
    tmp_path: Path, shared: Path, sixth: Path
) -> None:
    toml = sixth / "runtimes" / "sixth" / "runtime.toml"
    toml.write_text(toml.read_text().replace('precisions = ["fp32"]', 'precisions = ["fp32", "exact"]'))
    aipc = Aipc(tmp_path, {"AIPC_HOME": str(sixth), "AIPC_STORE": str(shared)})
    without = aipc.tiny("--precision", "exact", runtime="sixth")
    assert without.code == 2
    assert "[precisions.exact]" in without.last_line
    toml.write_text(f"{toml.read_text()}\n[tolerances.exact]\ncosine = 0.99999\nsnr_db = 90.0\n")
    done = aipc.tiny("--precision", "exact", runtime="sixth")
    assert done.code == 0, done.out + done.error
    assert aipc.report()["tolerances"][0]["applied"]["snr_db"] == 90.0


def test_facts_that_do_not_fit_fail_and_are_not_kept(tmp_path: Path, shared: Path, sixth: Path) -> None:
    adapter = sixth / "runtimes" / "sixth" / "adapter.py"
    whole = adapter.read_text()
    adapter.write_text(whole.replace('"io": ports, ', ""))
    aipc = Aipc(tmp_path, {"AIPC_HOME": str(sixth), "AIPC_STORE": str(shared)})
    assert aipc.tiny(runtime="sixth").code == 1
    failure = aipc.report()["failure"]
    assert (failure["step"], failure["failure"]["kind"]) == ("convert", "adapter")
    assert "'io' is missing" in failure["failure"]["message"]


def test_a_runtime_that_ran_elsewhere_than_asked_is_not_green(tmp_path: Path, shared: Path, sixth: Path) -> None:
    adapter = sixth / "runtimes" / "sixth" / "adapter.py"
    adapter.write_text(adapter.read_text().replace('{"device": "CPU"', '{"device": "GPU"'))
    aipc = Aipc(tmp_path, {"AIPC_HOME": str(sixth), "AIPC_STORE": str(shared)})
    assert aipc.tiny(runtime="sixth").code == 1
    report = aipc.report()
    assert report["verdict"] == "disagrees"
    assert "'GPU'" in report["reasons"][0]
