#!/usr/bin/env python3
"""Print as JSON how many layers of an rknn cell run on the NPU and on the board's CPU, and which ones on the CPU.

Exit codes: 0 layers are placed, some on the NPU; 1 none is; 2 aipc refuses the command; 3 there is no report;
5 aipc is not installed.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys

NO_COMMAND = 5


def main() -> int:
    """Do what the command line asks, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cell", help="for instance esrgan/rknn/fp16@rk3588")
    parser.add_argument("--aipc", default="aipc", help="the command (default: %(default)s)")
    parser.add_argument("--runs", default="runs", help="the folder of reports (default: %(default)s)")
    asked = parser.parse_args()
    command = [asked.aipc, "report", asked.cell, "--json", "--runs", asked.runs]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return NO_COMMAND
    if done.returncode:
        sys.stderr.write(done.stderr)
        return done.returncode
    report = json.loads(done.stdout)
    layers = collections.Counter(row["device"] for row in report["placement"])
    on_cpu = collections.Counter(row["op"] for row in report["placement"] if row["device"] == "CPU")
    told = {
        "cell": report["cell"],
        "verdict": report["verdict"],
        "layers": dict(layers),
        "on_cpu": dict(on_cpu.most_common()),
        "simulated": report["simulated"],
    }
    sys.stdout.write(json.dumps(told, indent=2) + "\n")
    return 0 if layers["NPU"] else 1


if __name__ == "__main__":
    sys.exit(main())
