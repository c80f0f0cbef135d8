from __future__ import annotations

from aipc.errors import AipcError, CellNotGreen, EngineError, NothingSelected, UsageError


def test_every_kind_of_error_has_an_exit_code_of_its_own() -> None:
    codes = {kind: kind.exit_code for kind in (CellNotGreen, UsageError, NothingSelected, EngineError)}
    assert codes == {CellNotGreen: 1, UsageError: 2, NothingSelected: 3, EngineError: 4}
    assert set(codes) == set(AipcError.__subclasses__())


def test_no_error_ends_with_the_code_of_success() -> None:
    assert AipcError("something else").exit_code != 0
