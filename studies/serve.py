"""Serves a language model in a GGUF file on this machine's CPU, as OpenAI's chat API; it needs xllamacpp.

python studies/serve.py MODEL.gguf [--port 9997] [--threads 2]
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path

CONTEXT = 4096
"""In tokens: a prompt of the agent's has at most 1,500, an answer 1,024."""


def main() -> None:
    """Serve until it is interrupted."""
    parser = argparse.ArgumentParser(description="Serve a GGUF file on 127.0.0.1 as OpenAI's chat API.")
    parser.add_argument("model", type=Path, help="the GGUF file")
    parser.add_argument("--port", type=int, default=9997)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 2)
    asked = parser.parse_args()
    if not asked.model.is_file():
        parser.error(f"{asked.model}: no such file; name a GGUF file")

    import xllamacpp

    told = xllamacpp.CommonParams()
    told.model.path = str(asked.model)
    told.n_ctx, told.n_parallel = CONTEXT, 1
    told.cpuparams.n_threads = asked.threads
    told.hostnames, told.port = ["127.0.0.1"], asked.port
    server = xllamacpp.Server(told)
    sys.stdout.write(f"{server.listening_address}/v1\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
