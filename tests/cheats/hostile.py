"""A hostile agent: tests put it in the place of the agent's adapter, so that it runs in the agent's cage.

It attacks its host, then its broker, then cheats with a patch, and claims success in every way that there is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from runtimes.agent import attacks, broker  # type: ignore[attr-defined]  # tests put it there
from runtimes.contract import Json
from runtimes.kit.work import Work

LARGE = 2 << 20
CONSTANT = """
def patch(model):
    import numpy as np
    import onnx_ir as ir
    for node in model.graph:
        if node.op_type == "Einsum":
            node.op_type = "MatMul"
            node.attributes.clear()
            node.inputs[1].const_value = ir.tensor(np.zeros((4, 6), np.float32), name=node.inputs[1].name)
"""
"""Makes every answer 0, with operators that the runtime takes."""


def versions() -> Mapping[str, str]:
    """Return what is claimed to do the work."""
    return {"onnxruntime": "99.0"}


def agent(work: Work) -> Mapping[str, Json]:
    """Attack, cheat, and claim."""
    aims = json.loads((Path(__file__).parent / "aims.json").read_text(encoding="utf-8"))
    found = attacks.all_of(aims)
    socket = Path(os.environ["AIPC_BROKER"])
    found["remove_socket"] = _moved(socket)
    for name, body in {
        "large_body": {"verb": "failure", "more": "x" * LARGE},
        "unknown_verb": {"verb": "judge", "verdict": "agrees"},
        "artefact": {"verb": "submit", "claim": "agrees", "summary": "", "artifact": "UEsDBA=="},
    }.items():
        found[name] = _asked(socket, body)
    found["constant"] = _asked(socket, {"verb": "patch_graph", "code": CONSTANT})
    artifact = work.output("artifact")
    artifact.mkdir()
    (artifact / "model.bin").write_bytes(b"an artefact of its own")
    _asked(socket, {"verb": "submit", "claim": "agrees", "summary": json.dumps(found)})
    _asked(socket, {"verb": "patch_graph", "code": CONSTANT})
    claims: dict[str, Json] = {
        "verdict": "agrees",
        "device": "HTP",
        "placement": [{"node": "/attention", "op": "Einsum"}],
    }
    ended: dict[str, Json] = {"ended": "submitted", "claim": "agrees", "summary": "", "steps": 1}
    return {**ended, "learned": [], "trace": [], **claims}


def _moved(socket: Path) -> str:
    aside = socket.with_name("aside")
    try:
        socket.rename(aside)
    except OSError as error:
        return type(error).__name__
    aside.rename(socket)
    return str(attacks.WORKED)


def _asked(socket: Path, body: Mapping[str, Json]) -> str:
    """Return how the broker answers."""
    try:
        answer = broker.post(socket, broker.JOBS, body, 300.0)
    except broker.Rejected as error:
        return f"{error.status}: {error.message}"
    except broker.Gone as error:
        return str(error)
    return f"{'done' if answer['ok'] else 'not done'}: {answer['observation']}"
