#!/usr/bin/env python3
"""Print as JSON where the nodes of an ortqnn cell run, which one was refused, and what was rewritten.

Exit codes: 0 every node is on the HTP; 1 one is not, or none was placed; 2 aipc refuses the command;
3 there is no report; 5 aipc is not installed.
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
    parser.add_argument("cell", help="for instance yoloworld/ortqnn/fp16@sm8650")
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
    failure = (report["failure"] or {}).get("failure") or {}
    devices = collections.Counter(row["device"] for row in report["placement"])
    told = {
        "cell": report["cell"],
        "verdict": report["verdict"],
        "devices": dict(devices),
        "simulated": report["simulated"],
        "refused": {key: failure[key] for key in ("kind", "op", "node")} if failure else None,
        "rewrites": {repair["rewrite"]: len(repair["changed"]) for repair in report["repairs"]},
    }
    sys.stdout.write(json.dumps(told, indent=2) + "\n")
    return 0 if set(devices) == {"HTP"} and not failure else 1


if __name__ == "__main__":
    sys.exit(main())
