#!/usr/bin/env python3
"""Deploy a model to OpenVINO in several precisions, and print the verdicts side by side as one JSON object.

Exit codes: 0 all agree; 1 one does not; 2, 3, 4 as aipc gives them; 5 aipc is not installed; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

NO_COMMAND = 5


def main() -> int:
    """Do what the command line asks, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a model of matrix.toml, or a file")
    parser.add_argument("--precision", action="append", help="again for each (default: fp16 and fp32)")
    parser.add_argument("--target", default="cpu", help="(default: %(default)s)")
    parser.add_argument("--aipc", default="aipc", help="the command (default: %(default)s)")
    parser.add_argument("--runs", default="runs", help="the folder for reports (default: %(default)s)")
    asked = parser.parse_args()
    rows, codes = {}, []
    for precision in asked.precision or ["fp16", "fp32"]:
        command = [asked.aipc, "deploy", asked.model, "--runtime", "openvino", "--precision", precision]
        command += ["--target", asked.target, "--runs", asked.runs]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        except OSError as error:
            sys.stderr.write(f"{error}\n")
            return NO_COMMAND
        codes.append(done.returncode)
        rows[precision] = newest(Path(asked.runs), precision) if done.returncode in (0, 1) else {"error": done.stderr}
    sys.stdout.write(json.dumps({"model": asked.model, "precisions": rows}, indent=2) + "\n")
    return max(codes)


def newest(runs: Path, precision: str) -> dict[str, Any]:
    """Return the verdict and the worst numbers of the report that was written last in `precision`."""
    for path in sorted(runs.rglob("report.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
        report = json.loads(path.read_text(encoding="utf-8"))
        if (report["runtime"], report["precision"]) == ("openvino", precision):
            numbers = {
                key: [each[key] for each in report["measures"] if each[key] is not None] for key in ("cosine", "snr_db")
            }
            worst = {key: min(found) for key, found in numbers.items() if found}
            return {"cell": report["cell"], "verdict": report["verdict"], "reasons": report["reasons"], "worst": worst}
    return {"error": "aipc left no report"}


if __name__ == "__main__":
    sys.exit(main())
