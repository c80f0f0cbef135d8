"""The layers of the house: who may import whom. Each rule is shown red on a made-up violation."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors"}),
    frozenset({"agent.settings", "cell", "config", "environment", "facts", "fetch", "home", "locks"})
    | frozenset({"gpu", "model", "modelfile", "repairs", "runtime", "sdk", "tables", "uv"}),
    frozenset({"engines", "materials", "store", "workspace"}),
    frozenset({"agent", "bisection", "building", "deployment", "exporting", "jobs", "judging", "mending", "pipeline"}),
    frozenset({"progress", "reports"}),
    frozenset({"agent.study", "asked", "scaffold", "serving", "sweep"}),
    frozenset({"__main__", "agent.study_command", "cli", "options", "project", "upkeep"}),
)
"""Of the host, lowest first. A new module of the host gets a place here."""

LAZY = frozenset({"anyio", "docker", "jinja2", "mcp", "rich"})
"""Slow to load, so never while `aipc --help` loads."""

LOADED_LATE = {"aipc.engines.docker": frozenset({"docker"}), "aipc.serving": frozenset({"anyio", "mcp"})}
"""Parts of the host that nothing else imports early, and what of `LAZY` they load as they start."""


TENSOR_LIBRARIES = ("google.protobuf.", "onnx.", "onnx_ir.", "onnxruntime.", "PIL.")
"""In the tests' environment too; every other vendor's package is imported inside functions, numpy anywhere."""


@dataclass(frozen=True, kw_only=True)
class Import:
    """One import statement's module, for instance `aipc.engines.venv`, or `aipc.store.Store` for a `from` import."""

    name: str
    line: int
    inside_function: bool
    for_types_only: bool

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Module:
    """A Python file under its import name."""

    name: str
    imports: tuple[Import, ...]

    @property
    def of_host(self) -> bool:
        return self.name.partition(".")[0] == "aipc"


def parse(name: str, text: str) -> Module:
    return Module(name=name, imports=tuple(_imports(ast.parse(text), inside_function=False, for_types_only=False)))


def _imports(node: ast.AST, *, inside_function: bool, for_types_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative imports are banned by ruff"
            names = [f"{child.module}.{alias.name}" for alias in child.names]
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from _imports(child, inside_function=inside_function, for_types_only=True)
            continue
        else:
            function = inside_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(child, inside_function=function, for_types_only=for_types_only)
            continue
        for name in names:
            yield Import(name=name, line=child.lineno, inside_function=inside_function, for_types_only=for_types_only)


def layer(name: str) -> int:
    """Return the layer of a host module or of a name in it; the package `aipc` itself lies below all."""
    parts = name.split(".")[1:3]
    # `from aipc import X` may name a module or, like `aipc.__version__`, a value of the package.
    for part in (".".join(parts), *parts[:1]):  # a module of a package may have a place of its own
        for number, names in enumerate(LAYERS):
            if part in names:
                return number
    return -1


def dependencies() -> frozenset[str]:
    """Return what pyproject.toml lets the host import."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return frozenset(re.split(r"[\s><=!~\[;]", requirement)[0] for requirement in project["dependencies"])


def standard(module: Import) -> bool:
    return module.top in sys.stdlib_module_names


# The rules. Each returns the imports of a module that break it.
def host_layers(module: Module) -> Iterable[Import]:
    mine = layer(module.name)
    return [i for i in module.imports if module.of_host and i.top == "aipc" and mine >= 0 and layer(i.name) > mine]


def host_crosses_one_bridge(module: Module) -> Iterable[Import]:
    bridge = re.compile(r"runtimes\.contract(\..*)?")
    return [i for i in module.imports if module.of_host and i.top == "runtimes" and not bridge.fullmatch(i.name)]


def host_needs_only_its_dependencies(module: Module) -> Iterable[Import]:
    known = dependencies() | {"aipc", "runtimes"}
    return [i for i in module.imports if module.of_host and not standard(i) and i.top not in known]


def docker_has_one_importer(module: Module) -> Iterable[Import]:
    return [i for i in module.imports if i.top == "docker" and module.name != "aipc.engines.docker"]


def slow_libraries_load_late(module: Module) -> Iterable[Import]:
    mine = next((part for part in LOADED_LATE if f"{module.name}.".startswith(f"{part}.")), "")
    late = LAZY - LOADED_LATE.get(mine, frozenset())
    others = tuple(part for part in LOADED_LATE if part != mine)
    early = [i for i in module.imports if not i.inside_function and not i.for_types_only]
    return [i for i in early if module.of_host and (i.top in late or i.name.startswith(others))]


def runtimes_know_no_host(module: Module) -> Iterable[Import]:
    return [i for i in module.imports if not module.of_host and i.top == "aipc"]


def contract_is_standard_library_only(module: Module) -> Iterable[Import]:
    return [i for i in module.imports if module.name == "runtimes.contract" and not standard(i)]


def runtimes_stay_apart(module: Module) -> Iterable[Import]:
    parts = module.name.split(".")
    mine = parts[1] if len(parts) > 1 else ""
    allowed = {"contract", "kit", mine} if mine != "contract" else set[str]()
    return [
        i
        for i in module.imports
        if not module.of_host and i.top == "runtimes" and i.name != "runtimes" and i.name.split(".")[1] not in allowed
    ]


def vendors_load_late(module: Module) -> Iterable[Import]:
    # The reference side is about ONNX files: modules that its adapter loads late may load these as they start.
    allowed = ("numpy.", "runtimes.") + (TENSOR_LIBRARIES if module.name.startswith("runtimes.reference.") else ())
    early = [i for i in module.imports if not i.inside_function and not i.for_types_only]
    return [i for i in early if not module.of_host and not standard(i) and not f"{i.name}.".startswith(allowed)]


Rule = Callable[[Module], Iterable[Import]]
RULES: tuple[Rule, ...] = (
    host_layers,
    host_crosses_one_bridge,
    host_needs_only_its_dependencies,
    docker_has_one_importer,
    slow_libraries_load_late,
    runtimes_know_no_host,
    contract_is_standard_library_only,
    runtimes_stay_apart,
    vendors_load_late,
)

VIOLATIONS = (
    (host_layers, "aipc.store", "from aipc.pipeline import deploy"),
    (host_layers, "aipc.engines.venv", "def f():\n    from aipc import cli"),
    (host_layers, "aipc.errors", "import aipc.home"),
    (host_layers, "aipc.config", "from aipc.agent.broker import Broker"),
    (host_crosses_one_bridge, "aipc.pipeline", "from runtimes.kit import tensors"),
    (host_crosses_one_bridge, "aipc.pipeline", "from runtimes import kit"),
    (host_crosses_one_bridge, "aipc.pipeline", "import runtimes.contracts"),
    (host_needs_only_its_dependencies, "aipc.store", "import numpy"),
    (host_needs_only_its_dependencies, "aipc.store", "def f():\n    import torch"),
    (docker_has_one_importer, "aipc.engines.venv", "def f():\n    from docker.errors import APIError"),
    (slow_libraries_load_late, "aipc.cli", "from rich.console import Console"),
    (slow_libraries_load_late, "aipc.cli", "class A:\n    import jinja2"),
    (slow_libraries_load_late, "aipc.engines", "from aipc.engines.docker import DockerEngine"),
    (slow_libraries_load_late, "aipc.project", "from aipc.serving import server"),
    (slow_libraries_load_late, "aipc.project", "import anyio"),
    (slow_libraries_load_late, "aipc.serving.server", "import docker"),
    (runtimes_know_no_host, "runtimes.kit.worker", "def f():\n    import aipc"),
    (contract_is_standard_library_only, "runtimes.contract", "import numpy"),
    (contract_is_standard_library_only, "runtimes.contract", "from runtimes.kit import work"),
    (runtimes_stay_apart, "runtimes.openvino.adapter", "from runtimes.reference import judge"),
    (runtimes_stay_apart, "runtimes.kit.worker", "def f():\n    from runtimes.openvino import adapter"),
    (runtimes_stay_apart, "runtimes.openvino.adapter", "from runtimes import reference"),
    (vendors_load_late, "runtimes.openvino.adapter", "import openvino"),
    (vendors_load_late, "runtimes.openvino.adapter", "import onnx"),
    (vendors_load_late, "runtimes.reference.export", "try:\n    import torch\nexcept ImportError:\n    torch = None"),
)

FINE = (
    ("aipc.pipeline", "from aipc.store import Store\nfrom runtimes.contract import Job\nfrom runtimes import contract"),
    ("aipc.cli", "import aipc\nfrom aipc import __version__\nif TYPE_CHECKING:\n    from rich.console import Console"),
    ("aipc.config", "from aipc.agent.settings import Settings"),
    ("aipc.reports.html", "def render():\n    import jinja2"),
    ("aipc.engines.docker", "import docker\nfrom aipc.engines import owner"),
    ("aipc.serving.server", "import anyio\nfrom mcp import types\nfrom aipc.serving import tools"),
    ("aipc.engines", "def open_engine():\n    from aipc.engines.docker import DockerEngine"),
    (
        "runtimes.openvino.adapter",
        "import numpy as np\nfrom runtimes.kit.work import Work\ndef f():\n    import openvino",
    ),
    ("runtimes.reference.judge", "from runtimes.reference.measures import measure\nfrom runtimes import contract"),
)


def modules() -> dict[str, Module]:
    found = {}
    for folder, path in [(ROOT / "orchestrator", "aipc"), (ROOT, "runtimes")]:
        for file in sorted((folder / path).rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = parse(name, file.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_tree_obeys(rule: Rule) -> None:
    broken = [f"{module.name}:{i.line} imports {i.name}" for module in modules().values() for i in rule(module)]
    assert broken == []


@pytest.mark.parametrize(("rule", "name", "text"), VIOLATIONS)
def test_a_violation_is_seen(rule: Rule, name: str, text: str) -> None:
    assert rule(parse(name, text))


@pytest.mark.parametrize(("name", "text"), FINE)
def test_what_is_allowed_passes_every_rule(name: str, text: str) -> None:
    assert [rule.__name__ for rule in RULES if rule(parse(name, text))] == []


def test_every_rule_has_been_seen_red() -> None:
    assert {rule for rule, _, _ in VIOLATIONS} == set(RULES)


def test_every_host_module_has_a_layer() -> None:
    homeless = [name for name in modules() if name.startswith("aipc.") and layer(name) < 0]
    assert homeless == [], "give it a place in LAYERS"


def test_no_layer_names_a_module_that_is_gone() -> None:
    parts = [name.split(".")[1:] for name in modules() if name.startswith("aipc.")]
    present = {".".join(part[:most]) for part in parts for most in (1, 2)}
    assert frozenset().union(*LAYERS) - present == frozenset()


def early_graph(found: dict[str, Module]) -> dict[str, set[str]]:
    """Return which modules each module needs while it loads."""
    graph = {}
    for name, module in found.items():
        early = {i.name for i in module.imports if not i.inside_function and not i.for_types_only}
        # `from aipc import store` needs aipc.store, `from aipc.store import Store` too; a package needs not itself.
        needed = {n for e in early for n in (e, e.rpartition(".")[0]) if n in found and n not in {"aipc", "runtimes"}}
        graph[name] = needed - {name}
    return graph


def test_no_modules_import_each_other_in_a_circle() -> None:
    TopologicalSorter(early_graph(modules())).prepare()


def test_a_circle_is_seen() -> None:
    made_up = {
        "aipc.store": parse("aipc.store", "from aipc import workspace"),
        "aipc.workspace": parse("aipc.workspace", "from aipc.store import Store"),
    }
    with pytest.raises(CycleError):
        TopologicalSorter(early_graph(made_up)).prepare()


def closure(name: str, found: dict[str, Module]) -> set[str]:
    """Return the modules that loading `name` loads."""
    graph, seen, waiting = early_graph(found), set[str](), [name]
    while waiting:
        now = waiting.pop()
        if now not in seen:
            seen.add(now)
            waiting += graph[now]
    return seen


def needs_of_adapters(found: dict[str, Module]) -> list[str]:
    """Return what stands in the way of loading an adapter, or the worker, where only numpy is installed."""
    needs = []
    for start in (name for name in found if name.endswith(".adapter") or name == "runtimes.kit.worker"):
        for name in sorted(closure(start, found)):
            early = [i for i in found[name].imports if not i.inside_function and not i.for_types_only]
            foreign = {i.name for i in early if not standard(i) and i.top not in {"numpy", "runtimes"}}
            needs += [f"{start} loads {name}, which imports {package}" for package in sorted(foreign)]
    return needs


def test_every_adapter_loads_without_its_toolchain() -> None:
    assert needs_of_adapters(modules()) == []


def test_a_vendor_behind_an_adapter_would_be_seen() -> None:
    made_up = {
        "runtimes.x.adapter": parse("runtimes.x.adapter", "from runtimes.x.graph import load"),
        "runtimes.x.graph": parse("runtimes.x.graph", "import onnx"),
    }
    assert needs_of_adapters(made_up) == ["runtimes.x.adapter loads runtimes.x.graph, which imports onnx"]


def loaded_by_help(*, extra: str = "") -> set[str]:
    code = f"import sys\nimport aipc.cli\n{extra}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_the_command_line_loads_nothing_slow_before_it_is_needed() -> None:
    assert not loaded_by_help() & (LAZY | {"numpy", "requests"})


def test_a_slow_import_would_be_seen() -> None:
    assert "rich" in loaded_by_help(extra="import rich")


def origin_of_openvino(python: Path, search: Path) -> str:
    """Return where `import openvino` comes from in a job whose PYTHONPATH is `search`."""
    command = [str(python), "-P", "-c", "import openvino; print(openvino.__file__)"]
    environment = {"PYTHONPATH": str(search), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=search)
    return done.stdout.strip()


@pytest.mark.toolchain
def test_openvino_is_the_vendors_where_jobs_run(openvino_python: Path) -> None:
    assert "site-packages" in origin_of_openvino(openvino_python, ROOT)


@pytest.mark.toolchain
def test_the_runtimes_folder_on_the_path_would_hide_openvino(openvino_python: Path) -> None:
    assert "site-packages" not in origin_of_openvino(openvino_python, ROOT / "runtimes")


def test_the_runtimes_folder_is_not_on_our_path() -> None:
    assert (ROOT / "runtimes").resolve() not in {Path(entry).resolve() for entry in sys.path}
