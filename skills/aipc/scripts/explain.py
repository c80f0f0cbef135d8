#!/usr/bin/env python3
"""Print what matters of an aipc report as one JSON object: verdict, failure, failed gates, worst numbers, repairs.

Exit codes: 0 the cell agrees; 1 it does not; 2 aipc refuses the command; 3 there is no report; 5 aipc is not installed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

NO_COMMAND = 5
MESSAGE = 1500
"""So many characters of a vendor's message are shown."""


def main() -> int:
    """Do what the command line asks, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cell", help="for instance esrgan/openvino/fp16@cpu")
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
    sys.stdout.write(json.dumps(explained(report), indent=2) + "\n")
    return 0 if report["verdict"] == "agrees" else 1


def explained(report: dict[str, Any]) -> dict[str, Any]:
    """Return what matters of a report."""
    told = {key: report[key] for key in ("cell", "verdict", "reasons", "device", "simulated", "reproduce")}
    if report["failure"]:
        failure = report["failure"]["failure"]
        told["failure"] = {"step": report["failure"]["step"], **failure, "message": failure["message"][:MESSAGE]}
    told["failed_gates"] = [gate for gate in report["gates"] if not gate["passed"]]
    told["worst"] = worst(report["measures"])
    told["repairs"] = [
        {key: repair[key] for key in ("rewrite", "status", "problem", "helped")} | {"changed": len(repair["changed"])}
        for repair in report["repairs"]
    ]
    if report["bisection"]:
        told["first_bad_node"] = report["bisection"]["first"]
    return told


def worst(measures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the measure with the smallest SNR of each output; one without a number is the worst."""
    found: dict[str, dict[str, Any]] = {}
    for measure in measures:
        other = found.get(measure["output"])
        if other is None or badness(measure) > badness(other):
            found[measure["output"]] = measure
    keys = ("output", "sample", "cosine", "snr_db", "max_abs", "nan", "inf")
    return [{key: each[key] for key in keys} for each in found.values()]


def badness(measure: dict[str, Any]) -> float:
    """Return what is larger for a worse measure."""
    return float("inf") if measure["snr_db"] is None else -float(measure["snr_db"])


if __name__ == "__main__":
    sys.exit(main())
