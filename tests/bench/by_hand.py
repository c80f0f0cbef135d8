"""What a person would write to do one deploy by hand, in one process: the yardstick of `make bench`.

    by_hand.py WEIGHTS_FOLDER SAMPLES_FOLDER OUTPUT_FOLDER

It loads the same weights with the same library and takes the same inputs through PyTorch, ONNX Runtime and OpenVINO:
TorchScript export, convert_model, save, compile (f32), infer, compare. It writes no report and checks nothing else.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import openvino as ov
import torch

from runtimes.kit import tensors
from runtimes.reference import checkpoints


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Return the cosine similarity of two tensors."""
    x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def main(weights: Path, samples_folder: Path, output: Path) -> None:
    """Do it all, and print the cosines as JSON."""
    import onnxruntime

    started = time.perf_counter()
    samples = [sample["image"] for sample in tensors.load_samples(samples_folder).values()]
    (param,), (binary,) = weights.glob("*.param"), weights.glob("*.bin")
    model, _ = checkpoints.from_ncnn(param, binary, "esrgan")
    model.eval()
    with torch.no_grad():
        golden = [model(torch.from_numpy(sample)).numpy() for sample in samples]
    file = output / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (torch.from_numpy(samples[0]),),
            str(file),
            dynamo=False,
            opset_version=17,
            input_names=["image"],
            output_names=["upscaled"],
        )
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    ort = [session.run(None, {"image": sample})[0] for sample in samples]
    converted = ov.convert_model(str(file))
    ov.save_model(converted, str(output / "model.xml"), compress_to_fp16=True)
    compiled = ov.Core().compile_model(str(output / "model.xml"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    inferred = [compiled({"image": sample})["upscaled"] for sample in samples]
    print(
        json.dumps(
            {
                "seconds": time.perf_counter() - started,
                "onnxruntime": min(map(cosine, golden, ort)),
                "openvino": min(map(cosine, golden, inferred)),
            }
        )
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
