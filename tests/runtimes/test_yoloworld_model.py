"""YOLO-World in its own environment: a seeded network that proves something, and trained weights in its place."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from aipc import config
from aipc.fetch import fetch
from aipc.model import Model
from runtimes.contract import Json, Status, encode
from tests.command import ROOT
from tests.runtimes.reference_bench import Bench, Ended

TRAIN = """
import sys
from pathlib import Path
import torch, yoloworld
from ultralytics.nn.modules import WorldDetect
torch.manual_seed(7)
model = yoloworld.build(Path(sys.argv[1]))
model.detector.model[-1].__class__ = WorldDetect
torch.save({"model": model.detector.half()}, Path(sys.argv[2], "yolov8s-worldv2.pt"))
model.text.visual = torch.nn.Linear(2, 2)
tower = torch.jit.trace(model.text, torch.randint(yoloworld.VOCABULARY, (3, yoloworld.LENGTH)), check_trace=False)
tower.save(Path(sys.argv[2], "ViT-B-32.pt"))
"""
"""Makes two files as a user has them, with weights of another seed: a pickle of the detector in float16, and a tower in
TorchScript beside another."""


pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True, kw_only=True)
class World:
    bench: Bench
    inputs: dict[str, Path]
    options: dict[str, Json]

    def prepare(self, name: str, **options: Json) -> Ended:
        return self.bench.prepare(name, self.inputs, {**self.options, **options})


@pytest.fixture(scope="module")
def model() -> Model:
    return config.load(ROOT / "matrix.toml").models["yoloworld"]


@pytest.fixture(scope="module")
def yoloworld_python(environment_python: Callable[[str], Path]) -> Path:
    return environment_python("yoloworld")


@pytest.fixture(scope="module")
def world(model: Model, yoloworld_python: Path, aipc_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("yoloworld")
    weights = root / "weights"
    weights.mkdir()
    for each in model.weights:
        shutil.copy(fetch(each, aipc_cache, print), weights / each.name)
    source = Path(model.folder)
    options = {
        "source": "function",
        "function": model.function,
        "inputs": encode(model.inputs),
        "outputs": list(model.outputs),
    }
    (root / "bench").mkdir()
    bench = Bench(root / "bench", yoloworld_python)
    return World(bench=bench, inputs={"weights": weights, "source": source}, options=options)


@pytest.fixture(scope="module")
def seeded(world: World) -> Ended:
    return world.prepare("seeded")


def test_its_outputs_depend_on_what_they_should(seeded: Ended) -> None:
    change = seeded.facts["sensitivity"]
    # Twice the error that 30 dB allows: less would be vacuous.
    assert change["boxes"]["image"] > 2 * 10 ** (-30 / 20)
    assert change["scores"]["image"] > 0.3
    assert change["scores"]["tokens"] > 0.3
    assert [each["shape"] for each in seeded.facts["outputs"]] == [[1, 4, 1680], [1, 5, 1680]]
    assert "seeded weights: structure and numerics only, no detections" in seeded.facts["notes"]


def test_its_file_is_the_same_bytes_twice_and_has_seven_einsum(world: World, seeded: Ended) -> None:
    files = []
    for name in ("one", "two"):
        done = world.bench.export(name, world.inputs, world.options, seeded, opset=17, exporter="torchscript")
        assert done.facts["nodes"]["Einsum"] == 7
        files.append((done.output("model") / "model.onnx").read_bytes())
    assert files[0] == files[1]
    equations = sorted(
        attribute.s.decode()
        for node in onnx.load_model_from_string(files[0]).graph.node
        if node.op_type == "Einsum"
        for attribute in node.attribute
    )
    assert equations == ["bchw,bkc->bkhw"] * 3 + ["bmchw,bnmc->bmhwn"] * 4


def test_trained_weights_take_the_place_of_seeded_ones(
    world: World, seeded: Ended, yoloworld_python: Path, tmp_path: Path
) -> None:
    given = tmp_path / "trained"
    given.mkdir()
    done = subprocess.run(
        [yoloworld_python, "-c", TRAIN, world.inputs["weights"], given],
        env={"PATH": os.defpath, "HOME": str(tmp_path), "PYTHONPATH": str(world.inputs["source"])},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    shutil.copytree(world.inputs["weights"], given, dirs_exist_ok=True)
    trained = World(bench=world.bench, inputs={**world.inputs, "weights": given}, options=world.options)
    ended = trained.prepare("trained", trusted=True)
    assert not [note for note in ended.facts["notes"] if "seeded" in note]
    scores = ended.samples("golden")["photo"]["scores"]
    assert not np.allclose(scores, seeded.samples("golden")["photo"]["scores"], atol=0.1)
    distrusted = trained.prepare("distrusted")
    assert distrusted.result.status is Status.FAILED
    assert "say trusted = true if you trust it" in distrusted.failure.message
    (given / "ViT-B-32.pt").unlink()
    assert "give both yolov8s-worldv2.pt and ViT-B-32.pt" in trained.prepare("half", trusted=True).failure.message


def test_photographs_that_are_missing_are_told(world: World, tmp_path: Path) -> None:
    given = tmp_path / "few"
    given.mkdir()
    photograph = next(iter(sorted(world.inputs["weights"].iterdir())))
    shutil.copy(photograph, given / photograph.name)
    shutil.copy(photograph, given / f"again-{photograph.name}")
    few = World(bench=world.bench, inputs={**world.inputs, "weights": given}, options=world.options)
    assert "2 photographs; name six" in few.prepare("few").failure.message
