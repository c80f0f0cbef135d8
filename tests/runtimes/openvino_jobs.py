"""Small ONNX models, and jobs of the OpenVINO adapter started as the engine starts them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import runtimes
from runtimes import contract
from runtimes.contract import EXIT_CODES, Failure, Job, Json, Layout, Result, Step
from runtimes.kit import tensors

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
ROOT = Path(next(iter(runtimes.__path__)))
Declared = tuple[str, int, Sequence[int | str]]
START = """
import sys
from pathlib import Path
from runtimes.kit import worker
sys.exit(worker.do(Path(sys.argv[1])))
"""
WITHOUT = """
import contextlib
from runtimes.{runtime} import adapter
assert callable(adapter.{name})
adapter.{name} = lambda *_: contextlib.nullcontext()
"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """An ONNX model and what is asked of its artefact."""

    model: onnx.ModelProto
    inputs: list[Json]
    outputs: list[Json]


def port(declared: Declared) -> Json:
    name, kind, shape = declared
    return {"name": name, "shape": list(shape), "dtype": helper.tensor_dtype_to_np_dtype(kind).name}


def make(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Declared],
    outputs: Sequence[Declared],
    weights: Mapping[str, Any] | None = None,
) -> Made:
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(*declared) for declared in inputs],
        [helper.make_tensor_value_info(*declared) for declared in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()],
    )
    domains = {node.domain for node in nodes if node.domain}
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return Made(
        model=model,
        inputs=[port(declared) for declared in inputs],
        outputs=[port(declared) for declared in outputs],
    )


def conv_net(batch: int | str = 1) -> Made:
    generator = np.random.default_rng(7)
    weights = {
        "w1": generator.normal(0, 0.2, (8, 3, 3, 3)).astype(np.float32),
        "b1": generator.normal(0, 0.2, 8).astype(np.float32),
        "w2": generator.normal(0, 0.2, (4, 8, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], "/body/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "/body/Relu"),
        helper.make_node("Conv", ["r", "w2"], ["y"], "/head/Conv", pads=[1, 1, 1, 1]),
    ]
    return make(nodes, [("x", FLOAT, [batch, 3, 16, 20])], [("y", FLOAT, [batch, 4, 16, 20])], weights)


def one(
    op: str, *, attributes: Mapping[str, Any] | None = None, domain: str = "", shape: Sequence[int] = (2, 4, 4)
) -> Made:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "/first"),
        helper.make_node(op, ["a"], ["b"], "/odd", domain=domain, **(attributes or {})),
        helper.make_node("Abs", ["b"], ["y"], "/last"),
    ]
    return make(nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)])


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a job ended."""

    result: Result
    layout: Layout
    log: str

    @property
    def failure(self) -> Failure:
        assert self.result.failure is not None, self.log
        return self.result.failure

    @property
    def artifact(self) -> Path:
        assert self.result, (self.result.failure, self.log)
        return self.layout.outputs / "artifact"

    def hashes(self) -> dict[str, str]:
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in self.artifact.iterdir()}


class Workspaces:
    """Does jobs of one adapter in workspaces below a folder."""

    def __init__(self, root: Path, python: Path, runtime: str) -> None:
        self.root = root
        self.python = python
        self.runtime = runtime
        self.code = root / "code"
        for folder in ("kit", runtime):
            shutil.copytree(
                ROOT / folder, self.code / "runtimes" / folder, ignore=shutil.ignore_patterns("__pycache__")
            )
        for name in ("__init__.py", "contract.py"):
            shutil.copy(ROOT / name, self.code / "runtimes" / name)

    def job(
        self,
        step: Step,
        inputs: Mapping[str, Path],
        options: Mapping[str, Json],
        name: str,
        *,
        spoil: str = "",
        without: str = "",
    ) -> Ended:
        """Do one job.

        Args:
            step: what to do.
            inputs: name to folder.
            options: the step's options.
            name: of the workspace.
            spoil: Python that makes the toolchain do something wrong in this job.
            without: the adapter's guard that is switched off in this job.
        """
        layout = Layout(self.root / name)
        layout.inputs.mkdir(parents=True)
        layout.tmp.mkdir()
        for key, path in inputs.items():
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, layout.inputs / key)
        contract.write(Job(step=step, runtime=self.runtime, inputs=tuple(inputs), options=options), layout.job)
        start: tuple[str, ...] = ("-m", "runtimes.kit")
        if spoil or without:
            start = ("-c", spoil + (WITHOUT.format(runtime=self.runtime, name=without) if without else "") + START)
        with layout.log.open("wb") as log:
            ended = subprocess.run(
                (str(self.python), "-P", *start, str(layout.root)),
                stdout=log,
                stderr=log,
                env={**self._environment, "HOME": str(layout.tmp), "TMPDIR": str(layout.tmp)},
                cwd=layout.root,
                check=False,
                timeout=100,
            )
        text = layout.log.read_text(encoding="utf-8", errors="replace")
        assert layout.result.is_file(), text
        result = contract.read(Result, layout.result)
        assert ended.returncode == EXIT_CODES[result.status]
        return Ended(result=result, layout=layout, log=text)

    @property
    def _environment(self) -> dict[str, str]:
        return {"PATH": os.defpath, "PYTHONPATH": str(self.code), "PYTHONDONTWRITEBYTECODE": "1"}

    def program(self, text: str, *arguments: str) -> list[str]:
        """Return the lines that a Python program prints inside the environment."""
        argv = (str(self.python), "-P", "-c", text, *arguments)
        ended = subprocess.run(argv, env=self._environment, capture_output=True, text=True, check=False, timeout=100)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.splitlines()


class Jobs(Workspaces):
    """Converts and runs."""

    def __init__(self, root: Path, python: Path, runtime: str = "openvino") -> None:
        super().__init__(root, python, runtime)

    def convert(
        self,
        made: Made,
        *,
        precision: str = "fp32",
        target: str = "cpu",
        name: str = "convert",
        write: Callable[[Made, Path], object] | None = None,
        spoil: str = "",
        without: str = "",
    ) -> Ended:
        folder = self.root / f"{name}-model".replace("/", "-")
        folder.mkdir()
        (write or (lambda made, folder: onnx.save_model(made.model, folder / "model.onnx")))(made, folder)
        options = {"precision": precision, "target": target, "inputs": made.inputs, "outputs": made.outputs}
        return self.job(Step.CONVERT, {"model": folder}, options, name, spoil=spoil, without=without)

    def run(
        self,
        artifact: Path,
        samples: Mapping[str, Mapping[str, Any]],
        *,
        target: str = "cpu",
        name: str = "run",
        spoil: str = "",
        without: str = "",
        precision: str = "fp32",
    ) -> Ended:
        folder = self.root / f"{name}-samples"
        tensors.save_samples(folder, samples)
        options = {"precision": precision, "target": target}
        inputs = {"artifact": artifact, "samples": folder}
        return self.job(Step.RUN, inputs, options, name, spoil=spoil, without=without)


def outputs(ended: Ended) -> dict[str, dict[str, tensors.Array]]:
    assert ended.result, (ended.result.failure, ended.log)
    return tensors.load_samples(ended.layout.outputs / "outputs")


def reference(made: Made, feeds: Mapping[str, Any]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(made.model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def picture(seed: int = 0, shape: Sequence[int] = (1, 3, 16, 20)) -> tensors.Array:
    return np.random.default_rng(seed).random(tuple(shape), dtype=np.float32)
