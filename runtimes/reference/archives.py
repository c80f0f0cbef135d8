"""The archive that `torch.export.save` writes (`.pt2`), read without running anything, and copied without what runs.

PyTorch runs code while it loads such a file: it unpickles sample inputs, constants and some weights; it evaluates sizes
and guards, which are Python there; it looks operators up by any name, imports modules that enumerations name, and
writes names into source code that it then executes. So a file that is not trusted is not given to PyTorch. A copy of it
is, which holds raw tensors and a graph, and in the graph only words that were checked here, each against what may
stand in its place. What is dropped on the way (stack traces, guards, sample inputs) changes no answer.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from runtimes.contract import Failure, Json, Kind
from runtimes.kit.work import Refused, refuse
from runtimes.reference import foreign

MODEL = "model"
"""What `torch.export.save` calls the one program in the archive."""

DTYPES: Mapping[int, str] = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "complex32",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    34: "uint32",
    35: "uint64",
}
"""PyTorch's names of the element types, by their number in the archive."""

_PATH = re.compile(r"\w+(\.\w+)*", re.ASCII)
_TEXT = re.compile(r"[\w ,.:/()<>=+*-]*", re.ASCII)
"""What stands between quotes without ever ending them."""

_PATHS = frozenset({"buffer_name", "parameter_name", "tensor_constant_name"})
"""Where a name may have dots in it: it is that of a tensor inside a module."""

_SPOKEN = frozenset(
    {"UPLO", "approximate", "driver", "equation", "indexing", "interpolation", "mode", "norm", "ord", "pad_mode"}
    | {"padding", "padding_side", "reduce", "rounding_mode", "side"}
)
"""The arguments of operators that may be text. None of them names a file, so no operator reaches one."""

_ATEN = re.compile(
    r"torch\.ops\.aten\.([A-Za-z]\w*|__(and|or|xor|lshift|rshift)__|_(softmax|log_softmax|to_copy|unsafe_view"
    r"|adaptive_avg_pool[23]d|assert_tensor_metadata|native_batch_norm_legit(_no_training)?))\.\w+",
    re.ASCII,
)
"""PyTorch's own operators; of those that it calls internal, by a name with an underscore, the ones that models need."""

_ARITHMETIC = frozenset(
    {
        *(f"_operator.{name}" for name in ("add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "le", "lt", "mod")),
        *(f"_operator.{name}" for name in ("mul", "ne", "neg", "or_", "pos", "pow", "sub", "truediv")),
        *(f"math.{name}" for name in ("ceil", "floor", "sqrt", "trunc")),
        *(f"torch.sym_{name}" for name in ("float", "int", "ite", "max", "min", "not", "sqrt")),
    }
)
"""What a graph computes sizes with."""

_BRANCHING = frozenset({"torch.ops.higher_order.cond", "torch.ops.higher_order.wrap_with_set_grad_enabled"})
"""Operators that take a graph, which is checked as the one around it is."""

_SIZE_NODES = (
    *(ast.Expression, ast.Call, ast.Name, ast.Constant, ast.keyword, ast.Load, ast.BinOp, ast.UnaryOp),
    *(ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Div, ast.Mod, ast.USub),
)
_SIZE_FUNCTIONS = frozenset(
    {"Abs", "Add", "And", "CeilDiv", "CeilToInt", "CleanDiv", "Equality", "Float", "FloatPow", "FloatTrueDiv"}
    | {"FloorDiv", "FloorToInt", "GreaterThan", "Identity", "IntTrueDiv", "Integer", "LShift", "LessThan", "Max", "Min"}
    | {"Mod", "ModularIndexing", "Mul", "Not", "Or", "Pow", "PowByNatural", "PythonMod", "RShift", "Rational"}
    | {"RoundToInt", "StrictGreaterThan", "StrictLessThan", "Symbol", "ToFloat", "TruncToFloat", "TruncToInt"}
    | {"Unequality", "Where", "ceiling", "floor"}
)
_SYMBOL = re.compile(r"[a-z]{1,4}\d+", re.ASCII)
_SYMBOLIC = re.compile(r"Symbol\('(\w+)'[\w, =]*\)")
_LONGEST_SIZE = 4096

_CONTAINERS = frozenset({None, "builtins.dict", "builtins.list", "builtins.tuple", "collections.OrderedDict"})
"""What inputs and outputs may lie in: containers that PyTorch builds without importing anything."""

_RUN = frozenset({"as_custom_obj", "as_operator", "as_string_to_argument", "custom_obj", "token"})
"""What has to be unpickled, or is looked up by its name."""

_NEWER = "write it with torch.export.save, by PyTorch 2.8 or a later one that is not newer than the one that reads it"


def describe(path: Path) -> dict[str, Json]:
    """Return what the archive at `path` holds: its inputs, how many outputs, operators and parameters.

    Raises:
        Refused: it is no such archive.
    """
    with _opened(path) as archive:
        program = archive.json(f"models/{MODEL}.json")
        weights = archive.json(f"data/weights/{MODEL}_weights_config.json")
    try:
        graph, signature = program["graph_module"]["graph"], program["graph_module"]["signature"]
        inputs = [spec["user_input"]["arg"] for spec in signature["input_specs"] if "user_input" in spec]
        names = [each["as_tensor"]["name"] for each in inputs if "as_tensor" in each]
        parameters = [each["tensor_meta"]["sizes"] for each in weights["config"].values() if each["is_param"]]
        return {
            "inputs": [_describe(name, graph["tensor_values"][name]) for name in names],
            "outputs": sum("user_output" in spec for spec in signature["output_specs"]),
            "nodes": dict(sorted(collections.Counter(node["target"] for node in graph["nodes"]).items())),
            "parameters": sum(_count(sizes) for sizes in parameters),
        }
    except (AttributeError, LookupError, TypeError) as error:
        raise Refused(_unlike(path, f"its graph is of another form: {type(error).__name__}: {error}")) from error


def copy_plain(path: Path) -> io.BytesIO:
    """Return an archive with the graph and the tensors of the one at `path`, and nothing that PyTorch would run.

    Raises:
        Refused: it is no such archive, or holds what cannot be had without running it (kind untrusted_weights).
    """
    copy = io.BytesIO()
    with _opened(path) as archive, zipfile.ZipFile(copy, "w") as target:
        words = {".data/version": "6\n", "byteorder": "little", "archive_format": "pt2", "archive_version": "0"}
        program = archive.json(f"models/{MODEL}.json")
        words[f"models/{MODEL}.json"] = json.dumps(_Check(path).program(program))
        for folder, what in (("weights", "weight"), ("constants", "tensor")):
            config = f"data/{folder}/{MODEL}_{folder}_config.json"
            checked = _Check(path).payload(archive.json(config), what)
            words[config] = json.dumps(checked)
            for name in sorted({each["path_name"] for each in checked["config"].values()}):
                target.writestr(f"{MODEL}/data/{folder}/{name}", archive.bytes(f"data/{folder}/{name}"))
        words[f"data/sample_inputs/{MODEL}.pt"] = ""
        for name, text in words.items():
            target.writestr(f"{MODEL}/{name}", text)
    copy.seek(0)
    return copy


class _Archive:
    """The members of an archive, all below one folder."""

    def __init__(self, path: Path, file: zipfile.ZipFile) -> None:
        self._path = path
        self._file = file
        self._root = file.namelist()[0].partition("/")[0] if file.namelist() else ""

    def bytes(self, name: str) -> bytes:
        try:
            return self._file.read(f"{self._root}/{name}")
        except KeyError as error:
            raise Refused(_unlike(self._path, f"it holds no {name}")) from error
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
            raise Refused(_unlike(self._path, f"{name}: {error}")) from error

    def json(self, name: str) -> dict[str, Any]:
        try:
            held = json.loads(self.bytes(name))
        except (RecursionError, ValueError) as error:
            raise Refused(_unlike(self._path, f"{name} is no JSON: {error}")) from error
        if not isinstance(held, dict):
            raise Refused(_unlike(self._path, f"{name} holds a {type(held).__name__}, not an object"))
        return held


class _Check:
    """Copies what an archive holds, and refuses what PyTorch could be made to run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def program(self, held: Mapping[str, Any]) -> dict[str, Any]:
        """Return the program `held` without what no answer depends on: traces, guards, calls of inner modules."""
        try:
            module = held["graph_module"]
            root = next(entry["signature"] for entry in module["module_call_graph"] if entry["fqn"] == "")
            return {
                "graph_module": {
                    "graph": self._copy("graph", module["graph"]),
                    "signature": self._copy("signature", module["signature"]),
                    "module_call_graph": [{"fqn": "", "signature": self._copy("signature", root)}],
                },
                "opset_version": {},
                **{key: self._copy(key, held[key]) for key in ("range_constraints", "schema_version", "verifiers")},
            }
        except (AttributeError, LookupError, StopIteration, TypeError) as error:
            raise Refused(_unlike(self._path, f"its graph is of another form: {foreign.words(error)}")) from error

    def payload(self, held: Mapping[str, Any], kind: str) -> dict[str, Any]:
        """Return the list `held` of tensors that lie in members called `kind`_<number> each."""
        try:
            for name, each in held["config"].items():
                if each["use_pickle"] is not False or not each["path_name"].startswith(f"{kind}_"):
                    self._refuse("pickled object", name)
        except (AttributeError, LookupError, TypeError) as error:
            raise Refused(_unlike(self._path, f"its list of tensors is of another form: {error}")) from error
        return {"config": self._copy("config", held["config"])}

    def _copy(self, key: str, value: Any) -> Any:
        """Return a copy of `value`, which stands under `key`."""
        self._expect(key not in {"name", "as_name"} or value is None or isinstance(value, str), "name", value)
        if isinstance(value, dict):
            return self._copy_object(value)
        if isinstance(value, list):
            return [self._copy(key, each) for each in value]
        if isinstance(value, str):
            return self._copy_text(key, value)
        return value

    def _copy_object(self, held: dict[str, Any]) -> dict[str, Any]:
        argument = held.get("arg")
        if isinstance(argument, dict) and {"as_string", "as_strings"} & set(argument):
            self._expect(held.get("name") in _SPOKEN, "text as argument", held.get("name"))
        copy = {}
        for key, value in held.items():
            self._expect(key not in _RUN and (key != "custom_obj_values" or not value), "object", key)
            self._expect(_is_path(key), "name", key)
            copy[key] = {} if key == "metadata" else self._copy(key, value)
        return copy

    def _copy_text(self, key: str, text: str) -> str:
        match key:
            case "target":
                self._expect(bool(_ATEN.fullmatch(text)) or text in _ARITHMETIC | _BRANCHING, "operator", text)
            case "expr_str":
                return self._copy_size(text)
            case "in_spec" | "out_spec":
                return self._copy_tree(text)
            case "as_float" | "as_floats":
                self._expect(text in {"Infinity", "-Infinity", "NaN"}, "number", text)
            case "as_string" | "as_strings":
                self._expect(bool(_TEXT.fullmatch(text)), "text", text)
            case "name" if not text:
                pass  # an argument that is told by its place
            case _:
                self._expect(_is_path(text) and (key in _PATHS or "." not in text), "name", text)
        return text

    def _copy_size(self, text: str) -> str:
        """Return a size that is given as an expression of symbols."""
        self._expect(len(text) <= _LONGEST_SIZE, "size", text)
        try:
            tree = ast.parse(text, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self._refuse("size", text)
        for node in ast.walk(tree):
            good = isinstance(node, _SIZE_NODES)
            if isinstance(node, ast.Name):
                good = node.id in _SIZE_FUNCTIONS or bool(_SYMBOL.fullmatch(node.id))
            elif isinstance(node, ast.Constant):
                good = bool(_SYMBOL.fullmatch(node.value)) if isinstance(node.value, str) else _is_number(node.value)
            elif isinstance(node, ast.Call):
                good = isinstance(node.func, ast.Name) and all(each.arg for each in node.keywords)
            self._expect(good, "size", text)
        return ast.unparse(tree)

    def _copy_tree(self, text: str) -> str:
        """Return the containers that inputs or outputs lie in."""
        try:
            protocol, tree = json.loads(text)
            self._expect(protocol == 1, "container", text)
            return json.dumps([1, self._copy_node(tree)])
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise Refused(_unlike(self._path, f"its containers are of another form: {text}: {error}")) from error

    def _copy_node(self, node: Mapping[str, Any]) -> dict[str, Any]:
        kind, context = node["type"], node["context"]
        self._expect(kind in _CONTAINERS, "container", kind)
        names = json.loads(context) if context is not None else None
        for name in names or ():
            self._expect(isinstance(name, str) and bool(_TEXT.fullmatch(name)), "key", name)
        children = [self._copy_node(each) for each in node["children_spec"]]
        return {"type": kind, "context": context if names is None else json.dumps(names), "children_spec": children}

    def _expect(self, good: bool, what: str, found: object) -> None:
        if not good:
            self._refuse(what, found)

    def _refuse(self, what: str, found: object) -> NoReturn:
        refuse(
            Kind.UNTRUSTED_WEIGHTS,
            f"{self._path.name}: may run code while it is read: it holds the {what} {str(found)[:200]!r}, which is not "
            "one of those that are known to do no harm",
            hint="set trusted = true if you made this file yourself; or export the model to ONNX, and give that file",
        )


def _is_path(text: str) -> bool:
    """Tell whether `text` is a name, or several with dots between them; none of them one of Python's own."""
    parts = text.split(".")
    return bool(_PATH.fullmatch(text)) and not any(part.startswith("__") and part.endswith("__") for part in parts)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _describe(name: str, meta: Mapping[str, Any]) -> dict[str, Json]:
    dtype = DTYPES.get(meta["dtype"], f"type {meta['dtype']}")
    return {"name": name, "dtype": dtype, "shape": [_show(size) for size in meta["sizes"]]}


def _show(size: Mapping[str, Any]) -> int | str:
    if "as_int" in size:
        return int(size["as_int"])
    text = str(size["as_expr"]["expr_str"])
    symbol = _SYMBOLIC.fullmatch(text)
    return symbol[1] if symbol else text


def _count(sizes: Sequence[Mapping[str, Any]]) -> int:
    return math.prod(int(size["as_int"]) for size in sizes)


def _unlike(path: Path, why: str) -> Failure:
    return Failure(
        kind=Kind.INVALID_MODEL,
        message=f"{path.name} ({path.stat().st_size} bytes): cannot be read: {why}",
        hint=_NEWER,
    )


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[_Archive]:
    try:
        file = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise Refused(_unlike(path, f"{foreign.words(error)}")) from error
    with file:
        yield _Archive(path, file)
