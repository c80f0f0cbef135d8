"""`aipc mcp` as clients use it: the SDK's own client over real stdio, the real command, real deploys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import pytest
from mcp import McpError, types
from onnx import numpy_helper
from pydantic import AnyUrl

from aipc.reports import schema
from tests.cells.clients import DEPLOY, Client, data, talk, text
from tests.cells.test_bad_input import model
from tests.command import ROOT, Aipc


def test_a_client_deploys_reads_the_report_and_gets_what_a_person_gets(aipc: Aipc) -> None:
    async def conversation(client: Client) -> None:
        made = await client.call("deploy", **DEPLOY)
        told, report = data(made), aipc_report(aipc)
        assert told["verdict"] == "agrees"
        assert told["report"] == {key: report[key] for key in told["report"]}
        assert {"gates", "measures", "failure", "reproduce"} <= set(told["report"])
        assert (aipc.folder / told["folder"] / "report.json").is_file()
        assert text(made).startswith(f"✓ agrees  {report['cell']}")
        assert [line for line in client.heard if "✓ convert" in line]
        again = await client.call("report", cell=report["cell"])
        assert data(again) == told
        parts = await client.call("report", cell=report["cell"], keys=["placement", "stages"])
        assert data(parts)["report"] == {key: report[key] for key in ("placement", "stages")}
        wrong = await client.call("report", cell=report["cell"], keys=["stage"])
        assert wrong.isError
        assert text(wrong) == "keys: a report has no 'stage'; did you mean 'stages'?"

    talk(aipc, conversation)


def aipc_report(aipc: Aipc) -> dict[str, Any]:
    (path,) = (aipc.folder / "runs").rglob("report.json")
    return dict(json.loads(path.read_text()))


def test_a_cell_that_is_not_green_is_a_result_and_no_error(aipc: Aipc) -> None:
    async def conversation(client: Client) -> None:
        made = await client.call("deploy", **{**DEPLOY, "model": "tiny:constant#1x3x20x24"})
        told = data(made)
        assert told["verdict"] == "vacuous"
        assert told["report"]["reasons"]
        assert "! vacuous" in text(made)

    talk(aipc, conversation)


def test_a_file_is_inspected_and_judged_beside_another(aipc: Aipc) -> None:
    made = model(aipc.folder / "first.onnx")
    onnx.save(made, aipc.folder / "same.onnx")
    weights = made.graph.initializer[0]
    weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights) * 1.01, weights.name))
    onnx.save(made, aipc.folder / "other.onnx")
    (aipc.folder / "garbage.onnx").write_bytes(b"no model")

    async def conversation(client: Client) -> None:
        seen = data(await client.call("inspect", file="first.onnx"))
        assert seen["inputs"] == [{"dtype": "float32", "name": "image", "shape": [1, 3, 8, 10]}]
        bad = await client.call("inspect", file="garbage.onnx")
        assert [gate["name"] for gate in data(bad)["gates"] if not gate["passed"]] == ["readable"]
        assert "✗ readable" in text(bad)
        judged = data(await client.call("judge", model="first.onnx", file="same.onnx"))
        assert (judged["verdict"], judged["reasons"]) == ("agrees", [])
        assert {measure["output"] for measure in judged["measures"]} == {"out"}
        judged = data(await client.call("judge", model="first.onnx", file="other.onnx"))
        assert judged["verdict"] == "disagrees"
        assert "does not agree with the reference: cosine" in judged["reasons"][0]
        judged = data(await client.call("judge", model="first.onnx", file="garbage.onnx"))
        assert judged["verdict"] == "failed"
        assert "garbage.onnx" not in judged["reasons"][0]
        assert "is no ONNX file" in judged["reasons"][0]

    talk(aipc, conversation)


def test_a_clients_project_is_the_folder_that_the_server_was_started_in(tmp_path: Path) -> None:
    aipc = Aipc(tmp_path)
    assert aipc("init", ".", "--model", "esrgan-compact#32x48", "--runtime", "openvino").code == 0

    async def conversation(client: Client) -> None:
        planned = data(await client.call("plan"))["cells"]
        assert [each["cell"] for each in planned] == ["esrgan-compact#32x48/openvino/fp16@cpu"]
        known = data(await client.call("list"))
        assert [each["name"] for each in known["models"]] == ["esrgan-compact"]
        assert "openvino" in [each["name"] for each in known["runtimes"]]

    talk(aipc, conversation)


def test_what_the_server_has_is_listed_and_every_form_is_a_valid_schema(tmp_path: Path) -> None:
    async def conversation(client: Client) -> None:
        tools = (await client.session.list_tools()).tools
        assert {tool.name for tool in tools} >= {"deploy", "inspect", "judge", "report", "skills"}
        for tool in tools:
            jsonschema.Draft202012Validator.check_schema(tool.inputSchema)
            jsonschema.Draft202012Validator.check_schema(tool.outputSchema or {})
        assert [tool.name for tool in tools if not (tool.annotations and tool.annotations.readOnlyHint)] == ["deploy"]
        # All tools together cost a model's context less than a page.
        assert sum(len(tool.model_dump_json(exclude_none=True)) for tool in tools) < 8000
        resources = (await client.session.list_resources()).resources
        assert [str(each.uri) for each in resources if each.uri.scheme == "aipc"] == ["aipc://report.schema.json"]
        for each in resources:
            (found,) = (await client.session.read_resource(each.uri)).contents
            assert isinstance(found, types.TextResourceContents)
            path = ROOT / "skills" / str(each.uri).removeprefix("skill://")
            assert found.text == (schema.published() if each.uri.scheme == "aipc" else path.read_text())
            assert found.mimeType == each.mimeType

    talk(Aipc(tmp_path), conversation)


def test_skills_are_read_in_pieces(tmp_path: Path) -> None:
    async def conversation(client: Client) -> None:
        found = data(await client.call("skills"))["skills"]
        assert {"aipc", "openvino", "rknn"} <= {each["name"] for each in found}
        assert all(len(each["description"]) > 50 for each in found)
        assert text(await client.call("skills", name="rknn")) == (ROOT / "skills/rknn/SKILL.md").read_text()
        piece = await client.call("skills", name="rknn", file="references/operators.md")
        assert text(piece) == (ROOT / "skills/rknn/references/operators.md").read_text()

    talk(Aipc(tmp_path), conversation)


def test_bad_input_is_a_tools_error_in_one_line(tmp_path: Path) -> None:
    cases: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("deploy", {"model": "esrgn", "runtime": "openvino"}, "did you mean 'esrgan'?"),
        ("deploy", {"model": "esrgan", "runtime": "openvin"}, "did you mean 'openvino'?"),
        ("deploy", {"model": "--help", "runtime": "openvino"}, "'--help': not in the matrix"),
        ("deploy", {"model": "esrgan", "runtime": "openvino", "rewrite": ["nonsense"]}, "nonsense"),
        ("deploy", {"model": "esrgan", "runtime": "openvino", "trusted": True}, "('trusted' was unexpected)"),
        ("deploy", {"runtime": "openvino"}, "'model' is a required property"),
        ("deploy", {"model": 7}, "7 is not of type 'string'"),
        ("inspect", {"file": "missing.onnx"}, "missing.onnx: no such file"),
        ("judge", {"model": "esrgan", "file": "x.onnx", "precision": "fp61"}, "fp61"),
        ("report", {"cell": "esrgan"}, "a part is missing"),
        ("report", {"cell": "esrgan/openvino"}, "there is no report"),
        ("plan", {"select": ["nothing*"]}, "'nothing*': no cell of the matrix"),
        ("skills", {"name": "opnvino"}, "did you mean 'openvino'?"),
        ("skills", {"name": "openvino", "file": "../aipc/SKILL.md"}, "has no file '../aipc/SKILL.md'"),
        ("deplo", {}, "there is no tool 'deplo'"),
    )

    async def conversation(client: Client) -> None:
        for name, arguments, words in cases:
            failed = await client.call(name, **arguments)
            assert failed.isError, name
            assert words in text(failed)
            assert len(text(failed).splitlines()) == 1
            assert not text(failed).startswith("aipc: ")
        assert client.heard == []
        for uri in ("skill://openvino/none.md", "skill://none/SKILL.md", "file:///etc/passwd"):
            with pytest.raises(McpError, match=r"has no file|there is none|no such resource") as caught:
                await client.session.read_resource(AnyUrl(uri))
            assert caught.value.error.code == -32002

    talk(Aipc(tmp_path), conversation)
    assert "Traceback" not in (tmp_path / "server.log").read_text()
