"""A stand-in of Qualcomm's SDK: a folder laid out as the vendor's, with tools of the same names and command lines.

It is none of the vendor's: its version says `stand-in`, its containers hold the ONNX model, and ONNX Runtime runs them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

HOST = "x86_64-linux-clang"
VERSION = "2.99.0 (stand-in)"
NEW = ("qairt-converter", "qairt-quantizer")
QNN = (
    *("qnn-onnx-converter", "qnn-model-lib-generator", "qnn-context-binary-generator"),
    *("qnn-context-binary-utility", "qnn-net-run"),
)
SNPE = ("snpe-onnx-to-dlc", "snpe-dlc-quantize", "snpe-dlc-graph-prepare")
LIBRARIES = ("libQnnHtp.so", "libQnnCpu.so", "libQnnModelDlc.so", "libQnnHtpNetRunExtensions.so")
SCRIPT = "#!/usr/bin/env python3\nfrom tests.qairt import standin_tools\n\nstandin_tools.main({tool!r})\n"


def make(
    root: Path,
    *,
    tools: Collection[str] = (*NEW, *QNN, *SNPE),
    faults: Mapping[str, str] | None = None,
    device_keys: Collection[str] = ("soc_model", "dsp_arch"),
    vtcm_mb: int = 8,
) -> Path:
    """Make a stand-in in the new folder `root`, and return that folder.

    Args:
        root: where.
        tools: those that it has.
        faults: tool to what it does wrong; see `standin_container.FAULTS`.
        device_keys: what it lets a configuration say of a device.
        vtcm_mb: a graph that asks for more of this memory cannot be prepared.
    """
    for tool in tools:
        script = root / "bin" / HOST / tool
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(SCRIPT.format(tool=tool))
        script.chmod(0o755)
    for name in LIBRARIES:
        library = root / "lib" / HOST / name
        library.parent.mkdir(parents=True, exist_ok=True)
        library.write_text("stand-in\n")
    package = root / "lib" / "python" / "tests" / "qairt"
    package.mkdir(parents=True)
    for name in ("standin_container.py", "standin_tools.py"):
        shutil.copy(Path(__file__).with_name(name), package)
    (root / "sdk.yaml").write_text(f"name: qairt\nversion: {VERSION}\n")
    settings = {"faults": dict(faults or {}), "device_keys": list(device_keys), "vtcm_mb": vtcm_mb}
    (root / "standin.json").write_text(json.dumps(settings))
    return root
