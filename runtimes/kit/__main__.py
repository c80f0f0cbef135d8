"""`python -P -m runtimes.kit <workspace>`: do one job and end with the exit code that says how it went."""

from __future__ import annotations

import sys
from pathlib import Path

from runtimes.contract import EXIT_CODES, Status
from runtimes.kit import worker


def main(arguments: list[str]) -> int:
    """Do the job of the one workspace that is named, and return the code to end with."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -P -m runtimes.kit <workspace>\n")
        return EXIT_CODES[Status.MISUSED]
    return worker.do(Path(arguments[0]).absolute())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
