"""What OpenVINO's own words say about a failure: the vendor tells kinds apart in prose only."""

from __future__ import annotations

import re

from runtimes.contract import Failure, Kind

_NO_RULE = re.compile(r"No conversion rule found for operations: (?P<ops>[^\n]+)")
_NOT_CONVERTED = re.compile(r"Conversion is failed for: (?P<ops>[^\n]+)")
_NODE = re.compile(r"ONNX node '<Node\((?P<op>[^)]+)\): (?P<node>[^>]*)>'")
_PLUGIN = re.compile(r"Unsupported operation of type: (?P<op>\S+)(?: name: (?P<node>\S+))?")
_VERSION = re.compile(r"-\d+$")


def describe(error: BaseException) -> Failure:
    """Return the failure that a vendor's exception stands for; its message is the vendor's text, whole."""
    text = str(error).strip() or type(error).__name__
    if found := _NO_RULE.search(text):
        return Failure(
            kind=Kind.UNSUPPORTED_OP,
            message=text,
            hint="write the operator with standard ONNX operators that OpenVINO has",
            op=_first(found["ops"]),
        )
    if found := _PLUGIN.search(text):
        hint = "write the operator with others that the device has"
        return Failure(kind=Kind.UNSUPPORTED_OP, message=text, hint=hint, op=found["op"], node=found["node"] or "")
    if found := _NOT_CONVERTED.search(text):
        # OpenVINO knows the operator. It may lack this variant of it, or the graph may be wrong.
        lacks = re.search(r"\b(un|not )support", text, re.IGNORECASE)
        node = _NODE.search(text)
        return Failure(
            kind=Kind.UNSUPPORTED_OP if lacks else Kind.INVALID_MODEL,
            message=text,
            op=_first(found["ops"]),
            node=node["node"] if node else "",
        )
    if "Loading input model" in text or "Cannot recognize input model" in text:
        return Failure(kind=Kind.INVALID_MODEL, message=text, hint="check the file with `aipc inspect`")
    if "iostream error" in text:
        return Failure(kind=Kind.DISK, message=text, hint="OpenVINO could not write the artefact: free some space")
    return Failure(kind=Kind.TOOLCHAIN, message=text)


def _first(operators: str) -> str:
    """Return the first of `Det-17, com.acme.Fancy`, without the opset that it came from."""
    return _VERSION.sub("", operators.split(",", maxsplit=1)[0].strip())
