#!/usr/bin/env python3
"""Look at the SDK that QAIRT_SDK_ROOT names, and print as one JSON object what it has, and what is missing.

Nothing is installed or changed.
Exit codes: 0 aipc can use it; 1 something is missing; 3 there is none; 5 aipc is not installed.
"""

from __future__ import annotations

import argparse
import ctypes.util
import json
import os
import subprocess
import sys
from pathlib import Path

VARIABLE = "QAIRT_SDK_ROOT"
HOST = "x86_64-linux-clang"
CONVERTERS = ("qairt-converter", "qnn-onnx-converter", "snpe-onnx-to-dlc")
TOOLS = (*CONVERTERS, "qairt-quantizer", "qnn-context-binary-generator", "qnn-context-binary-utility", "qnn-net-run")
LIBRARIES = ("c++", "c++abi")
NO_SDK, NO_COMMAND = 3, 5


def main() -> int:
    """Do what the command line asks, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.environ.get(VARIABLE, ""), help=f"the SDK's folder (default: {VARIABLE})")
    parser.add_argument("--aipc", default="aipc", help="the command (default: %(default)s)")
    asked = parser.parse_args()
    told: dict[str, object] = {"root": asked.root}
    if not asked.root:
        return tell({**told, "missing": [f"{VARIABLE} is not set"]}, NO_SDK)
    root = Path(asked.root)
    tools = [tool for tool in TOOLS if (root / "bin" / HOST / tool).is_file()]
    missing = [] if (root / "sdk.yaml").is_file() else ["sdk.yaml"]
    if not set(CONVERTERS) & set(tools):
        missing.append(f"a converter in bin/{HOST}: {', '.join(CONVERTERS)}")
    missing += [f"lib{name}" for name in LIBRARIES if not ctypes.util.find_library(name)]
    if not (root / "python" / "bin" / "python3").is_file():
        missing.append("python/bin/python3, a Python 3.10 or 3.12 for the SDK's converters")
    try:
        environment = {**os.environ, VARIABLE: asked.root}
        command = [asked.aipc, "doctor"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        return tell({**told, "problem": str(error)}, NO_COMMAND)
    doctor = [line for line in done.stdout.splitlines() if line.startswith("SDK")]
    return tell({**told, "tools": tools, "missing": missing, "doctor": doctor}, 1 if missing else 0)


def tell(told: dict[str, object], code: int) -> int:
    """Print `told` as JSON, and return `code`."""
    sys.stdout.write(json.dumps(told, indent=2) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
