"""The worker as the engine starts it: a process of its own, a workspace, an exit code, and a result or none."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import runtimes
from runtimes import contract
from runtimes.contract import EXIT_CODES, Job, Json, Kind, Layout, Result, Status, Step

HEADER = """
from __future__ import annotations
from runtimes.contract import Failure, Kind
from runtimes.kit.work import Failed, Refused, Work, fail, refuse
"""
MIB = 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """How a worker ended."""

    code: int
    log: str
    layout: Layout

    @property
    def result(self) -> Result:
        return contract.read(Result, self.layout.result)

    @property
    def message(self) -> str:
        assert self.result.failure is not None
        assert self.code == EXIT_CODES[self.result.status]
        return self.result.failure.message


class Place:
    """A code folder with a runtime called `probe`, and a workspace."""

    def __init__(self, root: Path) -> None:
        self.code = root / "code"
        self.layout = Layout(root / "work")
        source = Path(next(iter(runtimes.__path__)))
        shutil.copytree(source / "kit", self.code / "runtimes" / "kit", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("__init__.py", "contract.py"):
            shutil.copy(source / name, self.code / "runtimes" / name)
        (self.code / "runtimes" / "probe").mkdir()
        self.layout.inputs.mkdir(parents=True)
        self.write({})

    def write(self, changes: Mapping[str, Json]) -> None:
        job = contract.encode(Job(step=Step.CONVERT, runtime="probe", inputs=(), options={}))
        self.layout.job.write_text(json.dumps({**job, **changes}), encoding="utf-8")

    def adapt(self, body: str, name: str = "probe") -> None:
        folder = self.code / "runtimes" / name
        folder.mkdir(exist_ok=True)
        (folder / "adapter.py").write_text(HEADER + textwrap.dedent(body), encoding="utf-8")

    @property
    def argv(self) -> Sequence[str]:
        return (sys.executable, "-P", "-m", "runtimes.kit", str(self.layout.root))

    def start(self, argv: Sequence[str] = ()) -> Ended:
        # Not this process's environment: an unbuffered stdout would hide a worker that does not flush.
        environment = {"PATH": os.defpath, "PYTHONPATH": str(self.code), "PYTHONDONTWRITEBYTECODE": "1"}
        with self.layout.log.open("wb") as log:
            ended = subprocess.run(
                argv or self.argv,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.layout.root,
                check=False,
                timeout=60,
            )
        return Ended(code=ended.returncode, log=self.layout.log.read_text(encoding="utf-8"), layout=self.layout)

    def convert(self, body: str) -> Ended:
        """Run a step with this body."""
        self.adapt("def convert(work: Work):\n" + textwrap.indent(textwrap.dedent(body), "    "))
        return self.start()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_job_that_works_ends_with_its_outputs_facts_and_versions(place: Place) -> None:
    place.adapt(
        """
        def versions():
            return {"vendor": "1.2.3"}

        def convert(work: Work):
            work.output("b.bin").write_bytes(b"x")
            work.output("a").mkdir()
            (work.output("a") / "deeper").touch()
            work.progress("half", 0.5)
            return {"nodes": [1, None, "x"]}
        """
    )
    ended = place.start()
    result = ended.result
    assert (ended.code, result.status, result.failure) == (0, Status.DONE, None)
    assert result.outputs == ("a", "b.bin")
    assert result.facts == {"nodes": [1, None, "x"]}
    assert result.versions["vendor"] == "1.2.3"
    assert result.versions["python"] == ".".join(str(part) for part in sys.version_info[:3])
    assert 0 < result.seconds < 60
    assert 4 * MIB < result.peak_memory_bytes < 500 * MIB
    assert json.loads(place.layout.events.read_text(encoding="utf-8")) == {"text": "half", "fraction": 0.5}
    assert sorted(path.name for path in place.layout.root.iterdir()) == [
        "events.jsonl",
        "in",
        "job.json",
        "log.txt",
        "out",
        "result.json",
    ]


def test_a_refusal_is_told_apart_from_a_failure(place: Place) -> None:
    ended = place.convert('refuse(Kind.DYNAMIC_SHAPE, "x is dynamic", hint="fix it", op="Add", node="/a")')
    assert (ended.code, ended.result.status) == (20, Status.REFUSED)
    assert contract.encode(ended.result.failure) == {
        "kind": "dynamic_shape",
        "message": "x is dynamic",
        "hint": "fix it",
        "op": "Add",
        "node": "/a",
    }


def test_a_failure_leaves_its_outputs_unnamed(place: Place) -> None:
    ended = place.convert('work.output("half").touch(); fail(Kind.TOOLCHAIN, "gave up")')
    assert (ended.code, ended.result.status, ended.result.outputs) == (21, Status.FAILED, ())
    assert ended.message == "gave up"


def test_the_vendors_words_reach_the_result_whole(place: Place) -> None:
    ended = place.convert(
        """
        try:
            raise RuntimeError("E1: no rule for Det\\n  at /Det_7")
        except RuntimeError as error:
            raise Failed(Failure(kind=Kind.UNSUPPORTED_OP, message="cannot convert")) from error
        """
    )
    assert ended.message == "cannot convert\nE1: no rule for Det\n  at /Det_7"


def test_vendors_words_that_are_no_unicode_are_spelt_out(place: Place) -> None:
    assert place.convert('raise RuntimeError(b"cannot read \\xff".decode("utf-8", "surrogateescape"))').message == (
        "RuntimeError: cannot read \\udcff"
    )


def test_the_vendors_words_are_not_said_twice(place: Place) -> None:
    ended = place.convert(
        """
        try:
            raise RuntimeError("no rule for Det")
        except RuntimeError as error:
            raise Refused(Failure(kind=Kind.UNSUPPORTED_OP, message=f"sorry: {error}")) from error
        """
    )
    assert ended.message == "sorry: no rule for Det"


def test_what_is_meant_for_a_terminal_is_not_in_the_result(place: Place) -> None:
    ended = place.convert(
        """
        try:
            raise RuntimeError("\\x1b[1;31mE1:\\x1b[0m no rule for \\x1b]8;;https://x.y\\x1b\\\\Det\\x1b]8;;\\x07\\x1b(B")
        except RuntimeError as error:
            words = "\\x1b[33mgave up\\x1b[K"
            raise Failed(Failure(kind=Kind.TOOLCHAIN, message=words, hint=words, op=words, node=words)) from error
        """
    )
    assert ended.message == "gave up\nE1: no rule for Det"
    assert ended.result.failure is not None
    assert (ended.result.failure.hint, ended.result.failure.op, ended.result.failure.node) == ("gave up",) * 3


def test_colours_do_not_make_the_vendors_words_new(place: Place) -> None:
    ended = place.convert(
        """
        try:
            raise RuntimeError("\\x1b[31mno rule for Det\\x1b[0m")
        except RuntimeError as error:
            raise Refused(Failure(kind=Kind.UNSUPPORTED_OP, message="sorry: no rule for Det")) from error
        """
    )
    assert ended.message == "sorry: no rule for Det"


def test_the_words_of_a_broken_adapter_are_plain_too(place: Place) -> None:
    assert place.convert('raise TimeoutError("\\x1b[31mtoo slow\\x1b[0m")').message == "TimeoutError: too slow"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return {}['missing']", "KeyError: 'missing'"),
        ("import no_such_vendor", "ModuleNotFoundError: No module named 'no_such_vendor'"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("return None", "TypeError: probe: convert returned None; a step returns a mapping of facts"),
        ("return {'snr': float('inf')}", "ValueError: Out of range float values are not JSON compliant"),
        ("return {'name': '\\ud800'}", "UnicodeEncodeError: 'utf-8' codec can't encode character"),
        ("return {'shape': {1, 2}}", "TypeError: Object of type set is not JSON serializable"),
        ("import shutil; shutil.rmtree(work.layout.outputs); return {}", "FileNotFoundError: "),
        ("work.output('../job.json'); return {}", "ValueError: output: '../job.json' is not a plain file name"),
        ("raise TimeoutError('too slow')", "TimeoutError: too slow"),
    ],
)
def test_a_fault_of_the_adapter_is_broken_with_the_traceback_in_the_log(place: Place, body: str, message: str) -> None:
    ended = place.convert(body)
    assert (ended.code, ended.result.status) == (22, Status.BROKEN)
    assert ended.message.startswith(message)
    assert "Traceback (most recent call last):" in ended.log
    assert message.splitlines()[0] in ended.log


def test_an_adapter_that_does_not_import_is_broken(place: Place) -> None:
    place.adapt("import no_such_vendor")
    ended = place.start()
    assert (ended.code, ended.message) == (22, "ModuleNotFoundError: No module named 'no_such_vendor'")


def test_a_step_of_another_shape_is_broken(place: Place) -> None:
    place.adapt("def convert(work, more): return {}")
    assert place.start().message.startswith("TypeError: runtimes.probe.adapter.convert: must take one argument")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("raise MemoryError('std::bad_alloc')", Kind.MEMORY),
        ("import errno; raise OSError(errno.ENOSPC, 'No space left on device')", Kind.DISK),
        ("import errno; raise OSError(errno.EDQUOT, 'Disk quota exceeded')", Kind.DISK),
    ],
)
def test_running_out_of_something_is_a_failure_that_says_of_what(place: Place, body: str, kind: Kind) -> None:
    ended = place.convert(body)
    assert (ended.code, ended.result.status) == (21, Status.FAILED)
    assert ended.result.failure is not None
    assert ended.result.failure.kind is kind
    assert ended.result.failure.hint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "job.json: schema 2 is not 1"),
        ({"stepp": "run"}, "job.json: unknown key 'stepp'; did you mean 'step'"),
        ({"step": "convrt"}, "job.json.step: 'convrt' is not allowed; did you mean 'convert'"),
        ({"step": "run"}, "job.json: step: probe has no step 'run'; it has convert"),
        ({"runtime": "prob"}, "job.json: runtime: 'prob' has no adapter; did you mean 'probe'"),
        ({"runtime": "kit"}, "job.json: runtime: 'kit' has no adapter"),
        ({"inputs": ["gone"]}, "job.json: inputs: 'gone' is not in in/"),
        ({"inputs": ["../job.json"]}, "job.json: inputs: '../job.json' is not in in/"),
        ({"inputs": "model"}, "job.json.inputs: 'model' is not a list"),
        ({"options": {"x": 1}}, "job.json: options: unknown key 'x'"),
    ],
)
def test_a_job_that_does_not_fit_is_misuse(place: Place, changes: Mapping[str, Json], message: str) -> None:
    place.adapt(
        """
        import dataclasses

        @dataclasses.dataclass
        class Options:
            pass

        def convert(work: Work):
            work.options(Options)
            return {}
        """
    )
    assert place.start().code == 0
    place.write(changes)
    ended = place.start()
    assert (ended.code, ended.result.status) == (23, Status.MISUSED)
    assert ended.message.startswith(message)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), "job.json: cannot be read: "),
        (lambda path: path.write_text("{"), "job.json: not JSON"),
        (lambda path: path.write_text("[]"), "job.json: [] is not a table"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "job.json: not JSON"),
    ],
)
def test_a_job_that_cannot_be_read_is_misuse_with_a_result(
    place: Place, spoil: Callable[[Path], Any], message: str
) -> None:
    spoil(place.layout.job)
    ended = place.start()
    assert ended.code == 23
    assert ended.message.startswith(message)


def test_a_workspace_that_is_not_there_is_misuse_without_a_result(place: Place) -> None:
    ended = place.start((*place.argv[:-1], str(place.layout.root / "nowhere")))
    assert ended.code == 23
    assert "nowhere: no such workspace" in ended.log


def test_another_number_of_arguments_shows_the_usage(place: Place) -> None:
    ended = place.start(place.argv[:-1])
    assert ended.code == 23
    assert "usage: python -P -m runtimes.kit <workspace>" in ended.log


def test_a_crash_leaves_no_result_but_the_lines_that_led_to_it(place: Place) -> None:
    ended = place.convert("import ctypes; ctypes.string_at(0)")
    assert ended.code == -signal.SIGSEGV
    assert not place.layout.result.exists()
    assert "Segmentation fault" in ended.log
    assert 'adapter.py", line' in ended.log


def test_a_worker_that_ends_by_itself_leaves_no_result(place: Place) -> None:
    ended = place.convert("import os; os._exit(0)")
    assert ended.code == 0
    assert not place.layout.result.exists()


def test_what_c_and_python_printed_is_in_the_log_before_the_result_is_there(place: Place) -> None:
    # The C line says that an operator was left out; a worker that is killed would take it along.
    ended = place.convert(
        """
        import ctypes, os, signal, sys
        ctypes.CDLL(None).printf(b"No lowering found for: /Atan\\n")
        print("and from Python")
        sys.addaudithook(lambda event, _: event == "os.rename" and os.kill(os.getpid(), signal.SIGKILL))
        return {}
        """
    )
    assert ended.code == -signal.SIGKILL
    assert not place.layout.result.exists()
    assert "No lowering found for: /Atan" in ended.log
    assert "and from Python" in ended.log


def test_the_folder_of_runtimes_is_not_on_the_path(place: Place) -> None:
    # Else `import openvino` would find our adapter instead of the vendor's package.
    ended = place.convert(
        'import importlib.util as u; return {"found": [bool(u.find_spec(n)) for n in ("probe", "kit")]}'
    )
    assert ended.result.facts == {"found": [False, False]}


def test_the_peak_memory_counts_a_child(place: Place) -> None:
    ended = place.convert(
        f"""
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "x = b'x' * {200 * MIB}"], check=True)
        return {{}}
        """
    )
    assert 200 * MIB < ended.result.peak_memory_bytes < 300 * MIB


def test_the_peak_memory_does_not_count_the_parent(place: Place) -> None:
    place.adapt("def convert(work): return {}")
    parent = f"import subprocess, sys; x = b'x' * {200 * MIB}; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    ended = place.start((sys.executable, "-c", parent, *place.argv))
    assert ended.code == 0
    assert ended.result.peak_memory_bytes < 150 * MIB
