"""Run in the reference environment: make files, load each of them, and write down what came of it.

Arguments: the folder to work in, the folder with user code, and ncnn files made before. Writes outcomes.json.
"""

import contextlib
import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from runtimes import contract
from runtimes.kit.work import Failed, Refused
from runtimes.reference import archives, models
from runtimes.reference.options import ModelOptions
from tests.runtimes import reference_attacks
from tests.runtimes.reference_attacks import Spy

OUTCOMES: dict[str, Any] = {}
X = {"name": "x", "shape": [1, 3, 6, 8]}


def attempt(name: str, weights: Path | None, code: Path | None = None, **options: Any) -> Any:
    """Load a model, run it once, and note what came of it."""
    try:
        loaded = models.load(contract.decode(ModelOptions, options, "options"), weights, code)
        sample = {each.name: np.ones(each.shape, each.dtype) for each in loaded.inputs}
        answers = loaded.run(sample)
    except (Refused, Failed) as error:
        OUTCOMES[name] = {"status": type(error).__name__, **contract.encode(error.failure)}
        return None
    OUTCOMES[name] = {
        "status": "done",
        "kind": loaded.kind,
        "inputs": contract.encode(loaded.inputs),
        "outputs": {key: [array.dtype.name, list(array.shape)] for key, array in answers.items()},
        "parameters": loaded.parameters,
        "notes": list(loaded.notes),
        "untouched": all(bool((array == 1).all()) for array in sample.values()),
    }
    return answers


@contextlib.contextmanager
def folder(root: Path, *files: tuple[str, bytes]) -> Iterator[Path]:
    """Yield a new folder that holds `files`, and remove it afterwards."""
    made = root / "weights"
    made.mkdir()
    for name, content in files:
        (made / name).write_bytes(content)
    yield made
    shutil.rmtree(made)


def load_ncnn(root: Path, nets: Path) -> None:
    """Load ncnn files; compare with what spandrel's own loader makes of the same state dict."""
    import torch

    from runtimes.reference import checkpoints, ncnn

    answers = {}
    for architecture in ("compact", "esrgan"):
        answers[architecture] = attempt(
            f"ncnn {architecture}", nets / architecture, source="ncnn", architecture=architecture, inputs=[X]
        )
    attempt("ncnn by shape", nets / "compact", source="ncnn", architecture="compact", shape=[6, 8])
    attempt("ncnn without shape", nets / "compact", source="ncnn", architecture="compact")
    attempt("ncnn mixed up", nets / "compact", source="ncnn", architecture="esrgan", inputs=[X])
    attempt("ncnn unknown", nets / "compact", source="ncnn", architecture="esrgann", inputs=[X])
    with folder(root, ("net.param", (nets / "compact" / "net.param").read_bytes())) as weights:
        attempt("ncnn without bin", weights, source="ncnn", architecture="compact", inputs=[X])
    OUTCOMES["torchvision after ncnn"] = "torchvision" in sys.modules
    for architecture, expected in answers.items():
        state = ncnn.read(nets / architecture / "net.param", nets / architecture / "net.bin", architecture)
        tensors = {name: torch.from_numpy(array) for name, array in state.items()}
        made = checkpoints._import_spandrel().ModelLoader("cpu").load_from_state_dict(tensors)
        with torch.no_grad():
            found = made.model.eval()(torch.ones(1, 3, 6, 8)).numpy()
        OUTCOMES[f"spandrel {architecture}"] = bool(np.array_equal(found, expected["output"]))
        torch.save({"params_ema": tensors}, root / f"{architecture}.pth")


def load_checkpoints(root: Path) -> None:
    """Load checkpoints of every format, whole and damaged."""
    import torch
    from safetensors.torch import save_file

    state = torch.load(root / "compact.pth", weights_only=True)["params_ema"]
    save_file(state, root / "compact.safetensors")
    torch.save(state, root / "old.pth", _use_new_zipfile_serialization=False)
    wrong = {name: tensor[:1] if name == "body.2.weight" else tensor for name, tensor in state.items()}
    torch.save(wrong, root / "misfit.pth")
    torch.save({"layer.weight": torch.zeros(2, 2)}, root / "unknown.pth")
    torch.save([torch.zeros(2)], root / "list.pth")
    torch.save({**state, "spy": Spy(root / "spy.txt")}, root / "spy.pth")
    torch.save(torch.nn.Conv2d(3, 2, 1), root / "module.pth")
    torch.jit.script(torch.nn.Conv2d(3, 2, 1)).save(root / "script.pt")
    for path in sorted(root.glob("*.*")):
        content = path.read_bytes()
        cuts = {"": len(content), " cut": len(content) // 2, " short": len(content) - 4, " empty": 0}
        for word, size in cuts.items():
            with folder(root, (path.name, content[:size])) as weights:
                attempt(path.name + word, weights, source="checkpoint", inputs=[X])
        if path.name == "spy.pth":
            OUTCOMES["spy ran"] = (root / "spy.txt").exists()
    with folder(root, ("text.pth", b"these are no weights")) as weights:
        attempt("text.pth", weights, source="checkpoint", inputs=[X])
    with folder(root, ("net.pth", (root / "compact.pth").read_bytes())) as weights:
        attempt("no shape", weights, source="checkpoint")
        attempt("by shape", weights, source="checkpoint", shape=[1, 3, 6, 8])
    with folder(root, ("script.pt", (root / "script.pt").read_bytes())) as weights:
        attempt("trusted script", weights, source="checkpoint", trusted=True, inputs=[X])
    with folder(root, ("module.pth", (root / "module.pth").read_bytes()[:-100])) as weights:
        attempt("trusted module cut", weights, source="checkpoint", trusted=True, inputs=[X])
    with folder(root, ("module.pth", (root / "module.pth").read_bytes())) as weights:
        attempt("trusted module", weights, source="checkpoint", trusted=True, inputs=[X])
        attempt("trusted module without inputs", weights, source="checkpoint", trusted=True)


def load_functions(root: Path, source: Path) -> None:
    """Load models that functions build."""
    import torch

    known: dict[str, Any] = {"source": "function", "inputs": [X]}
    found = ("small", "half", "picky", "broken", "text", "NUMBER", "smal", "Small.forward.nothing", "Nested")
    raising = ("odd", "silent", "leaving", "Raising", "Leaving", "Greedy", "Late", "Unready")
    for function in (*found, *raising):
        attempt(function, None, source, **known | {"function": f"reference_models:{function}"})
    for module in ("reference_exits", "reference_raises", "reference_damaged"):
        attempt(module, None, source, **known | {"function": f"{module}:make"})
    attempt("another module", None, source, **known | {"function": "reference_model:small"})
    attempt("no colon", None, source, **known | {"function": "reference_models.small"})
    attempt("no inputs", None, source, source="function", function="reference_models:small")
    two_channels = [{**X, "shape": [1, 2, 6, 8]}]
    attempt("wrong shape", None, source, **known | {"function": "reference_models:small", "inputs": two_channels})
    attempt("wrong names", None, source, **known | {"function": "reference_models:small", "outputs": ["a", "b"]})
    two = [{**X, "name": "image"}, {"name": "tokens", "shape": [1, 5], "dtype": "int64", "content": "integers"}]
    attempt("detector", None, source, source="function", function="reference_models:Detector", inputs=two)
    sys.path.insert(0, str(source))
    torch.save(importlib.import_module("reference_models").Small().state_dict(), root / "b.pth")
    content = (root / "b.pth").read_bytes()
    with_weights = known | {"function": "reference_models:with_weights"}
    with folder(root, ("any.pth", content)) as weights:
        attempt("one file", weights, source, **with_weights)
    with folder(root, ("a.txt", b""), ("b.pth", content)) as weights:
        attempt("two files", weights, source, **with_weights)


def load_programs(root: Path) -> None:
    """Load programs that torch.export saved."""
    import torch

    model = importlib.import_module("reference_models").Small().eval()
    torch.export.save(torch.export.export(model, (torch.ones(1, 3, 6, 8),)), root / "static.pt2")
    height = torch.export.Dim("height", min=4, max=64)
    program = torch.export.export(model, (torch.ones(1, 3, 6, 8),), dynamic_shapes=({2: height},))
    torch.export.save(program, root / "open.pt2")
    static, opened = (root / "static.pt2").read_bytes(), (root / "open.pt2").read_bytes()
    with folder(root, ("static.pt2", static)) as weights:
        attempt("static.pt2", weights, source="exported")
        attempt("static.pt2 of another shape", weights, source="exported", shape=[1, 3, 7, 8])
    with folder(root, ("open.pt2", opened)) as weights:
        attempt("open.pt2", weights, source="exported")
        attempt("open.pt2 by shape", weights, source="exported", shape=[1, 3, 10, 8])
        attempt("open.pt2 too large", weights, source="exported", shape=[1, 3, 100, 8])
    broad = importlib.import_module("reference_models").Broad().eval()
    program = torch.export.export(broad, (torch.ones(1, 3, 6, 8),), dynamic_shapes=({2: height},))
    torch.export.save(program, root / "broad.pt2")
    with folder(root, ("broad.pt2", (root / "broad.pt2").read_bytes())) as weights:
        answers = attempt("broad.pt2", weights, source="exported", shape=[1, 3, 10, 8])
        attempt("broad.pt2 trusted", weights, source="exported", shape=[1, 3, 10, 8], trusted=True)
        describe("broad.pt2 described", weights / "broad.pt2")
    with torch.no_grad():
        held = broad(torch.ones(1, 3, 10, 8))
    expected = [tensor.numpy() for tensor in (held["a-b"], *held["more"])]
    same = zip(answers.values(), expected, strict=True)
    OUTCOMES["broad.pt2 answers"] = all(np.array_equal(*pair) for pair in same)
    with folder(root, ("cut.pt2", static[:-300])) as weights:
        attempt("cut.pt2", weights, source="exported")
    members = reference_attacks.read(static)
    with folder(root, ("less.pt2", reference_attacks.write({**members, "models/model.json": b"{}"}))) as weights:
        attempt("less.pt2", weights, source="exported")
    with folder(root, ("old.pt2", reference_attacks.write({"version": b"8.2"}))) as weights:
        attempt("old.pt2", weights, source="exported")
    attack_programs(root, members)


def attack_programs(root: Path, members: reference_attacks.Members) -> None:
    """Load and describe programs that run code where nobody minds it; note what they ran."""
    for name, attack in reference_attacks.ATTACKS.items():
        marker = root / f"{name}.txt"
        (root / "evil.py").write_text(
            f"import enum\n{reference_attacks.code(marker)}\nclass E(enum.Enum):\n    A = 1\n", encoding="utf-8"
        )
        with folder(root, ("net.pt2", reference_attacks.write(attack(members, marker)))) as weights:
            describe(f"{name} described", weights / "net.pt2")
            attempt(name, weights, source="exported")
            OUTCOMES[f"{name} ran"] = marker.exists()
            attempt(f"{name} trusted", weights, source="exported", trusted=True)
            OUTCOMES[f"{name} trusted ran"] = marker.exists()


def describe(name: str, path: Path) -> None:
    """Note what `inspect` says of a program."""
    try:
        OUTCOMES[name] = {"status": "done", **archives.describe(path)}
    except Refused as error:
        OUTCOMES[name] = {"status": "Refused", **contract.encode(error.failure)}


def main(root: Path, source: Path, nets: Path) -> None:
    """Load everything."""
    sys.path.insert(0, str(root))
    load_ncnn(root, nets)
    load_checkpoints(root)
    load_functions(root, source)
    load_programs(root)
    (root / "outcomes.json").write_text(json.dumps(OUTCOMES, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(*(Path(each) for each in sys.argv[1:]))
