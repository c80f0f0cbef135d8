from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aipc.config import load
from aipc.errors import UsageError
from tests.host.matrices import DROP, SHA256, VALID, changed, write

pytestmark = pytest.mark.usefixtures("checkout")

TOKENS = VALID["models"]["net"]["inputs"][1]
GROUP = {"name": "a", "outputs": ["score"]}

WRONG: list[tuple[str, object, str]] = [
    ("modles", {}, "unknown key 'modles'; did you mean 'models'?"),
    ("models", [], "models: [] is not a table; write key = value pairs"),
    ("seed", "1", "seed: '1' is not a whole number"),
    ("seed", -1, "seed: -1 is not from 0 to 2**32 - 1"),
    ("seed", 2**32, "seed: 4294967296 is not from 0"),
    ("magnitudes", [1.0, 0], "magnitudes: 0.0 is not above 0"),
    ("magnitudes", [1.0, math.nan], "magnitudes: nan is not above 0"),
    ("magnitudes", [1.0, math.inf], "magnitudes: inf is not above 0"),
    ("magnitudes", [1.0], "magnitudes: [1.0]; give two or more, all different"),
    ("magnitudes", [1.0, 0.1, 0.1000000001], "give two or more, all different"),
    ("pictures", [], "pictures: none, but models.net has a picture as input"),
    ("pictures", [{"path": "a/cat.png"}, {"path": "b/cat.png"}], "pictures: 'cat.png' is there 2 times"),
    ("pictures/0/package", "pictures", "pictures[0]: package: 'pictures' is not pinned; write name==version"),
    ("pictures/0/package", "--pre==1", "package: '--pre==1' is not pinned"),
    ("pictures/0/package", DROP, "pictures[0]: neither package nor path; name one"),
    ("pictures/0/path", "cat.png", "pictures[0]: both package 'pictures==1.0' and path 'cat.png'; keep one"),
    ("pictures/0/member", DROP, "member: missing for package 'pictures==1.0'"),
    ("pictures/0/member", "../cat.png", "member: '../cat.png' is no path inside a wheel"),
    ("pictures/0/member", "/cat.png", "member: '/cat.png' is no path inside a wheel"),
    ("pictures/0/member", "a\\cat.png", "is no path inside a wheel"),
    ("pictures/0/sha256", DROP, "sha256: missing for package 'pictures==1.0'; add that of the member"),
    ("pictures/0/sha256", SHA256[:-1], "is not 64 hex digits in lower case"),
    ("pictures/0/sha256", SHA256.upper(), "is not 64 hex digits in lower case"),
    ("pictures/0/sha265", SHA256, "pictures[0]: unknown key 'sha265'; did you mean 'sha256'?"),
    ("precisions/fp61", {"cosine": 1}, "precisions.fp61: no runtime has it; did you mean 'fp16'?"),
    ("precisions/fp16", 0.99, "precisions.fp16: 0.99 is not a table"),
    ("precisions/fp16/cosine", 1.1, "precisions.fp16: cosine: 1.1 is no cosine; give a number from -1 to 1"),
    ("precisions/fp16/cosine", -1.1, "cosine: -1.1 is no cosine"),
    ("precisions/fp16/cosine", math.nan, "cosine: nan is no cosine"),
    ("precisions/fp16/snr_db", math.inf, "precisions.fp16: snr_db: inf is not finite"),
    ("precisions/fp16/max_abs", -0.1, "max_abs: -0.1 is no difference"),
    ("precisions/fp16/max_abs", math.nan, "max_abs: nan is no difference"),
    ("precisions/w8a16/snr_db", DROP, "precisions.w8a16: the key 'snr_db' is missing; add it"),
    ("precisions/w8a16", DROP, "runtimes.alpha.precisions: 'w8a16' has no tolerance; add [precisions.w8a16]"),
    ("runtimes/alhpa", {}, "runtimes.alhpa: no such runtime; did you mean 'alpha'?"),
    ("runtimes/reference", {}, "runtimes.reference: no such runtime; known are alpha"),
    ("runtimes/al\npha", {}, r"runtimes.'al\npha': no such runtime; did you mean 'alpha'?"),
    ("runtimes/alpha", [], "runtimes.alpha: [] is not a table"),
    ("runtimes/alpha/precisions", ["int8"], "runtimes.alpha.precisions: it has no 'int8'"),
    ("runtimes/alpha/precisions", ["fp61"], "it has no 'fp61'; did you mean 'fp16'?"),
    ("runtimes/alpha/precisions", ["fp16", "fp16"], "runtimes.alpha: precisions: 'fp16' is there 2 times"),
    ("runtimes/alpha/precisions", "fp16", "runtimes.alpha.precisions: 'fp16' is not a list; write [...]"),
    ("runtimes/alpha/targets", ["cqu"], "runtimes.alpha.targets: it has no 'cqu'; did you mean 'cpu'?"),
    ("runtimes/alpha/targets", ["cpu", "cpu"], "runtimes.alpha: targets: 'cpu' is there 2 times"),
    ("runtimes/alpha/target", "cpu", "runtimes.alpha: unknown key 'target'; did you mean 'targets'?"),
    ("models/My_Net", VALID["models"]["graph"], "models.'My_Net': name: 'My_Net' is no name; use small letters"),
    ("models/net-", VALID["models"]["graph"], "models.'net-': name: 'net-' is no name"),
    ("models/a\nb", {}, r"models.'a\nb'"),
    ("models/net", "esrgan", "models.net: 'esrgan' is not a table"),
    ("models/net/name", "net", "models.net.name: 'net'; remove it, the table's name is the name"),
    ("models/net/source", "ncn", "models.net.source: 'ncn' is not allowed; did you mean 'ncnn'?"),
    ("models/net/source", DROP, "models.net: the key 'source' is missing; add it"),
    ("models/net/source", ["ncnn"], "models.net.source: ['ncnn'] is not allowed"),
    ("models/net/wieghts", [], "models.net: unknown key 'wieghts'; did you mean 'weights'?"),
    ("models/net/architecture", "esrgam", "models.net: architecture: 'esrgam' is not known; did you mean 'esrgan'?"),
    ("models/net/architecture", DROP, "architecture: '' is not known; known are compact, esrgan"),
    ("models/graph/architecture", "esrgan", "models.graph: architecture: 'esrgan' is only for source 'ncnn'"),
    ("models/graph/function", "a:b", "models.graph: function: 'a:b' is only for source 'function'"),
    ("models/graph/folder", "code", "models.graph: folder: 'code' is only for source 'function'"),
    ("models/code/function", "nets.small", "models.code: function: 'nets.small' is not module:function"),
    ("models/code/function", DROP, "models.code: function: '' is not module:function; write it like"),
    ("models/code/folder", DROP, "models.code: folder: missing; name the folder that holds the function's module"),
    ("models/code/folder", "cod", "models.code.folder: cod is no folder; name the one that holds 'nets.small:build'"),
    ("models/code/inputs", [], "models.code: inputs: []; source 'function' does not say its own, declare them"),
    ("models/net/inputs", DROP, "models.net: inputs: []; source 'ncnn' does not say its own"),
    ("models/net/weights", [{"path": "net.param"}], "models.net: weights: 0 files .bin; source 'ncnn' needs one"),
    ("models/net/weights/0/path", "a/net.bin", "models.net: weights: 'net.bin' is there 2 times; keep one"),
    ("models/net/weights/0/member", "a/b", "models.net.weights[0]: member: 'a/b' without a package; remove it or name"),
    ("models/graph/weights", [], "models.graph: weights: 0 files .onnx; source 'onnx' needs one"),
    ("models/state/weights", [], "models.state: weights: 0 files; source 'checkpoint' needs one"),
    ("models/state/weights", [{"path": "a.pth"}, {"path": "b.pth"}], "models.state: weights: 2 files"),
    ("models/state/trusted", "yes", "models.state.trusted: 'yes' is not true or false"),
    ("models/graph/source", "exported", "weights: 0 files .pt2; source 'exported' needs one"),
    ("models/graph/shape", [0, 96], "models.graph: shape: 0 is no dimension"),
    ("models/net/shape", [64, 96], "models.net: shape: [64, 96] beside inputs; give each input its own shape"),
    ("models/net/precisions", ["fp61"], "models.net.precisions: no runtime of it has 'fp61'; did you mean 'fp16'"),
    ("models/net/precisions", ["fp16", "fp16"], "models.net.precisions: ['fp16', 'fp16'] has one twice"),
    ("models/net/opset", 24, "models.net: opset: 24 is not from 11 to 23 (dynamo); 17 suits most"),
    ("models/code/opset", 21, "models.code: opset: 21 is not from 11 to 20 (torchscript)"),
    ("models/code/opset", 10, "opset: 10 is not from 11"),
    ("models/code/opset", 17.0, "models.code.opset: 17.0 is not a whole number"),
    ("models/net/exporter", "dynamic", "models.net.exporter: 'dynamic' is not allowed; did you mean 'dynamo'?"),
    ("models/net/environment", "aplha", "net.environment: 'aplha' is not in checkout/images; did you mean 'alpha'?"),
    ("models/net/inputs/0/shape", [1, 3, 0, 16], "inputs[0]: shape: 0 is no dimension; give whole numbers from 1"),
    ("models/net/inputs/0/shape", [1, 3, -8, 16], "shape: -8 is no dimension"),
    ("models/net/inputs/0/shape", [1, 3, 2**31, 16], "shape: 2147483648 is no dimension"),
    ("models/net/inputs/0/shape", [1, 3, 8.5, 16], "models.net.inputs[0].shape[2]: 8.5 is not a whole number"),
    ("models/net/inputs/0/shape", [1, 5, 8, 16], "models.net.inputs[0]: shape: [1, 5, 8, 16] is not [N, C, H, W]"),
    ("models/net/inputs/0/shape", [8, 16], "shape: [8, 16] is not [N, C, H, W]"),
    ("models/net/inputs/0/shape", [1, 1, 8, 16], "mean: [0.5, 0.5, 0.5] for 1 channels; give one number for each"),
    ("models/net/inputs/0/shape", DROP, "models.net.inputs[0]: the key 'shape' is missing; add it"),
    ("models/net/inputs/0/std", [0.2, 0.2], "std: [0.2, 0.2] for 3 channels"),
    ("models/net/inputs/0/std", [0.2, 0.0, 0.2], "std: [0.2, 0.0, 0.2] holds a number that is not above 0"),
    ("models/net/inputs/0/mean", [0.2, math.nan, 0.2], "mean: nan is not finite"),
    ("models/net/inputs/0/low", 255, "models.net.inputs[0]: low: 255.0 is not below high, 255.0; give a range"),
    ("models/net/inputs/0/low", -math.inf, "low: -inf is not finite"),
    ("models/net/inputs/0/high", math.nan, "high: nan is not finite"),
    ("models/net/inputs/0/dtype", "flaot32", "dtype: 'flaot32' is not known; did you mean 'float32'?"),
    ("models/net/inputs/0/dtype", "int64", "dtype: 'int64' does not hold content 'picture'; use float32 or 'integers'"),
    ("models/net/inputs/0/content", "pictures", "models.net.inputs[0].content: 'pictures' is not allowed"),
    ("models/net/inputs/0/content", "normal", "mean, std: only for content 'picture', not 'normal'; remove them"),
    ("models/net/inputs/1/content", "uniform", "dtype: 'int64' does not hold content 'uniform'"),
    ("models/net/inputs/1/dtype", "float32", "dtype: 'float32' does not hold content 'integers'; use int64"),
    ("models/net/inputs/1/high", 9.5, "high: 9.5 is no int64; give a whole number from"),
    ("models/net/inputs/1", {**TOKENS, "dtype": "uint8", "high": 256}, "high: 256.0 is no uint8"),
    ("models/net/inputs/1/name", "image", "models.net: inputs, outputs: 'image' is there 2 times; keep one"),
    ("models/net/inputs/1/name", "upscaled", "inputs, outputs: 'upscaled' is there 2 times"),
    ("models/net/inputs/1/name", "", "models.net.inputs[1]: name: '' is no name"),
    ("models/net/inputs/1/name", "a b", "name: 'a b' is no name"),
    ("models/net/outputs", ["upscaled", "score", "score"], "outputs: 'score' is there 2 times"),
    ("models/net/outputs", ["upscaled", ""], "models.net: outputs: '' is no name"),
    ("models/net/outputs", ["upscale"], "models.net: groups: 'upscaled' is not among outputs; did you mean 'upscale'?"),
    ("models/net/groups/0/outputs", [], "models.net.groups[0]: outputs: []; name at least one"),
    ("models/net/groups/0/outputs", ["score", "score"], "models.net.groups[0]: outputs: 'score' is there 2 times"),
    ("models/net/groups/0/cosine", 2, "models.net.groups[0]: cosine: 2.0 is no cosine"),
    ("models/net/groups/0/name", "", "models.net.groups[0]: name: '' is no name"),
    ("models/net/groups", [GROUP, {**GROUP, "name": "b"}], "models.net: groups: outputs: 'score' is there 2 times"),
    ("models/net/groups", [GROUP, {**GROUP, "outputs": ["upscaled"]}], "models.net: groups: 'a' is there 2 times"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value", "words"), WRONG, ids=[words for _, _, words in WRONG])
def test_what_is_wrong_in_a_matrix_is_said_in_one_line(tmp_path: Path, place: str, value: object, words: str) -> None:
    assert words in refusal(tmp_path, changed(place, value))


def refusal(folder: Path, data: Mapping[str, Any]) -> str:
    with pytest.raises(UsageError) as caught:
        load(write(folder, data))
    text = str(caught.value)
    assert text.startswith("matrix.toml: ")
    assert "\n" not in text
    return text
