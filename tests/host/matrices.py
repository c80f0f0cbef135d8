"""A matrix that holds every key there is, as data, and how to write it down with changes."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

SHA256 = "0123456789abcdef" * 4
VALID: Mapping[str, Any] = {
    "seed": 1,
    "magnitudes": [1.0, 0.1],
    "pictures": [{"package": "pictures==1.0", "member": "pictures/cat.png", "sha256": SHA256}],
    "precisions": {"fp16": {"cosine": 0.99, "snr_db": 20, "max_abs": 0.5}, "w8a16": {"cosine": 0.9, "snr_db": 15.0}},
    "runtimes": {"alpha": {"precisions": ["fp16", "w8a16"], "targets": ["cpu"]}},
    "models": {
        "net": {
            "source": "ncnn",
            "architecture": "esrgan",
            "licence": "MIT",
            "weights": [{"path": "weights/net.param"}, {"path": "weights/net.bin", "sha256": SHA256}],
            "inputs": [
                {
                    "name": "image",
                    "shape": [1, 3, 8, 16],
                    "content": "picture",
                    "low": 0,
                    "high": 255,
                    "mean": [0.5, 0.5, 0.5],
                    "std": [0.2, 0.2, 0.2],
                },
                {"name": "tokens", "shape": [4, 77], "dtype": "int64", "content": "integers", "low": 0, "high": 9},
            ],
            "outputs": ["upscaled", "score"],
            "groups": [{"name": "pictures", "outputs": ["upscaled"], "content": "picture", "cosine": 0.9}],
            "opset": 17,
            "exporter": "dynamo",
            "environment": "alpha",
            "precisions": ["fp32"],
        },
        "code": {
            "source": "function",
            "function": "nets.small:build",
            "folder": "code",
            "inputs": [{"name": "x", "shape": [2, 5]}],
        },
        "graph": {"source": "onnx", "weights": [{"path": "graph.onnx"}], "shape": [64, 96]},
        "state": {"source": "checkpoint", "weights": [{"path": "state.pth"}], "trusted": True},
    },
}
DROP = object()


def to_toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{quoted(key)} = {to_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    return value.isoformat() if isinstance(value, date) else json.dumps(value)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def write(folder: Path, data: Mapping[str, Any]) -> Path:
    (folder / "code").mkdir(exist_ok=True)
    path = folder / "matrix.toml"
    path.write_text("".join(f"{quoted(key)} = {to_toml(value)}\n" for key, value in data.items()), "utf-8")
    return path


def changed(place: str, value: object) -> dict[str, Any]:
    """Return the valid matrix with the key at `place` set to `value`."""
    data = copy.deepcopy(dict(VALID))
    *parents, last = place.split("/")
    at: Any = data
    for key in parents:
        at = at[int(key) if isinstance(at, list) else key]
    if isinstance(at, list):
        at[int(last)] = value
    elif value is DROP:
        del at[last]
    else:
        at[last] = value
    return data
