"""A host with something to lose: a checkout, a store, a file of somebody's, servers and a key."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aipc import home
from aipc.engines import install
from aipc.environment import Environment
from tests.command import ROOT, Aipc, Done

KEY = "sk-a-key-that-nobody-sees/42"
MAIN = """
import sys
from aipc.cli import main
sys.argv[0] = "aipc"
main()
"""
PARTS = ("runtimes", "images", "skills")
ENVIRONMENTS = {"venv": ("ortqnn", "agent", "reference"), "docker": ()}
IN_A_CONTAINER = ("/opt/venv", "/opt/agent")


@dataclass
class Scene:
    """One host, and one cell on it.

    Attributes:
        folder: holds all of it.
        store: where results are kept; tests share it.
        options: of the deploy, its model first.
        seen: what came to the servers.
    """

    folder: Path
    store: Path
    options: Sequence[str] = ()
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        ignore = shutil.ignore_patterns("__pycache__")
        for part in PARTS:
            shutil.copytree(ROOT / part, self.checkout / part, ignore=ignore)
        shutil.copyfile(ROOT / "matrix.toml", self.checkout / "matrix.toml")
        self.sentinel.write_text("somebody's own\n")
        self.kept.parent.mkdir(parents=True, exist_ok=True)
        self.kept.write_text("kept\n")

    @property
    def checkout(self) -> Path:
        return self.folder / "checkout"

    @property
    def sentinel(self) -> Path:
        return self.folder / "sentinel.txt"

    @property
    def kept(self) -> Path:
        """A file in the store that no deploy of a test uses."""
        return self.store / "kept" / "kept.txt"

    @property
    def aipc(self) -> Aipc:
        direct = dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1")
        places = {"AIPC_HOME": str(self.checkout), "AIPC_STORE": str(self.store)}
        return Aipc(self.folder, {**places, **direct, "AIPC_AGENT_KEY": KEY})

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text in a file of the checkout that holds it once."""
        path = self.checkout / name
        text = path.read_text()
        assert text.count(old) == 1, f"{name}: {old}"
        path.write_text(text.replace(old, new))

    def replayed(self, *answers: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the options by which these answers of a model's are given."""
        replay = self.folder / "replay.json"
        replay.write_text(json.dumps({"synthetic": True, "answers": [{"content": each} for each in answers]}))
        return ("--agent", "repair", "--replay", str(replay))

    def deploy(self, *more: str, off: str = "") -> Done:
        """Deploy the cell.

        Args:
            more: options.
            off: Python that runs in the host's process first, and switches guards off.
        """
        argv = [sys.executable, "-P", "-c", off + MAIN, "deploy", *self.options, *more]
        done = subprocess.run(
            [*argv, "--runs", str(self.folder / "runs")],
            env=self.aipc.variables(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def work(self) -> dict[str, Any]:
        """Return what the report says of the agent."""
        return dict(self.aipc.report()["agent"])

    def jobs(self) -> list[dict[str, Any]]:
        """Return the lines of the transcript that are jobs."""
        (path,) = (self.folder / "runs" / "transcripts").iterdir()
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [line for line in lines if line["kind"] == "job"]

    def hashes(self, engine: str = "venv") -> dict[str, str]:
        """Return the hash of everything that an agent must not change: files, entries of the store, environments."""
        held = [self.sentinel, *_files(self.checkout), self.kept]
        held += [file for entry in self.store.glob("*/entry.json") for file in _files(entry.parent)]
        found = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in held}
        for name in ENVIRONMENTS[engine]:
            folder = environment(name)
            stamps = sorted(f"{path} {path.lstat().st_size} {path.lstat().st_mtime_ns}" for path in _files(folder))
            found[str(folder)] = hashlib.sha256("\n".join(stamps).encode()).hexdigest()
        return found

    @contextlib.contextmanager
    def aims(self, engine: str) -> Iterator[dict[str, str]]:
        """Give what there is to attack; servers listen meanwhile."""
        abstract = f"aipc-cheats-{os.getpid()}"
        folders = IN_A_CONTAINER if engine == "docker" else [str(environment(name)) for name in ENVIRONMENTS[engine]]
        with socket.create_server(("127.0.0.1", 0)) as network, socket.socket(socket.AF_UNIX) as other:
            other.bind(f"\0{abstract}")
            other.listen()
            over = threading.Event()
            servers = {"network": network, "abstract socket": other}
            threads = [threading.Thread(target=self._listen, args=(*each, over)) for each in servers.items()]
            for thread in threads:
                thread.start()
            try:
                yield {
                    "sentinel": str(self.sentinel),
                    "reference": str(self.checkout / "runtimes" / "reference"),
                    "kept": str(self.kept),
                    "environments": ":".join(folders),
                    "port": str(network.getsockname()[1]),
                    "abstract": abstract,
                }
            finally:
                over.set()
                for thread in threads:
                    thread.join()

    def _listen(self, name: str, server: socket.socket, over: threading.Event) -> None:
        server.settimeout(0.1)
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                server.accept()[0].close()
                self.seen.append(name)


def add_sixth(scene: Scene, refuses: str, op: str) -> None:
    """Put the sixth runtime into the checkout of the scene, which refuses the operator `op` by the code `refuses`."""
    for part in PARTS:
        shutil.copytree(
            ROOT / "tests" / "sixth" / part / "sixth",
            scene.checkout / part / "sixth",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    adapter = "runtimes/sixth/adapter.py"
    scene.edit(adapter, "    import onnxruntime\n\n    options", f"{refuses}\n    options")
    with (scene.checkout / adapter).open("a") as file:
        file.write(f"\n\nOPS = {(op,)!r}\n")


def environment(name: str) -> Path:
    """Return the folder of an environment of the venv engine."""
    return install.place(home.cache_folder(), Environment.load(name))


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
