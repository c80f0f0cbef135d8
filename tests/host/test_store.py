"""The store keeps whole entries only, and notices every changed byte."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aipc import store as store_module
from aipc.errors import EngineError
from aipc.store import Entry, Material, Record, Store, UnsafeOutput, digest, list_files, scan
from runtimes import contract
from runtimes.contract import Result, Status

KEY = digest({"step": "convert"})


def make(store: Store, files: dict[str, bytes], key: str = KEY) -> Entry:
    with store.workspace() as made:
        for name, content in files.items():
            path = made / "out" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return store.put(record(made / "out"), key, made / "out", b"all that was printed\n")


def record(out: Path) -> Record:
    return Record(parts={"step": "convert"}, result=Result(status=Status.DONE), files=scan(out), uncaged=())


def test_an_entry_comes_back_as_it_was_put(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = make(store, {"artifact/model.xml": b"<net/>", "artifact/model.bin": b"\0\1", "verdict.json": b"{}"})
    found = store.get(KEY)
    assert found == made
    assert found.log.read_text() == "all that was printed\n"
    assert [file.path for file in found.output("artifact").files] == ["model.bin", "model.xml"]
    assert found.output("verdict.json").single
    with pytest.raises(KeyError):
        found.output("artifac")


def test_an_unknown_key_gives_nothing(tmp_path: Path) -> None:
    assert Store(tmp_path).get(KEY) is None


def change_a_byte(folder: Path) -> None:
    (folder / "out" / "artifact" / "model.bin").write_bytes(b"\0\2")


def cut_short(folder: Path) -> None:
    (folder / "out" / "artifact" / "model.bin").write_bytes(b"\0")


def remove_a_file(folder: Path) -> None:
    (folder / "out" / "artifact" / "model.bin").unlink()


def add_a_file(folder: Path) -> None:
    (folder / "out" / "artifact" / "more.bin").write_bytes(b"")


def put_a_link(folder: Path) -> None:
    path = folder / "out" / "artifact" / "model.bin"
    path.rename(folder / "elsewhere")
    path.symlink_to(folder / "elsewhere")


def spoil_the_record(folder: Path) -> None:
    (folder / "entry.json").write_text('{"schema": 1')


def another_schema(folder: Path) -> None:
    path = folder / "entry.json"
    path.write_text(path.read_text().replace('"schema":1', '"schema":2'))


@pytest.mark.parametrize(
    "spoil", [change_a_byte, cut_short, remove_a_file, add_a_file, put_a_link, spoil_the_record, another_schema]
)
def test_a_spoiled_entry_is_dropped_not_used(tmp_path: Path, spoil: object) -> None:
    store = Store(tmp_path)
    entry = make(store, {"artifact/model.bin": b"\0\1"})
    spoil(entry.folder)  # type: ignore[operator]
    assert store.get(KEY) is None
    assert not entry.folder.exists()


def test_a_link_in_the_outputs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.bin").symlink_to("/etc/hostname")
    with pytest.raises(UnsafeOutput, match="model.bin"):
        scan(tmp_path / "out")


def test_outputs_that_are_a_link_to_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    with pytest.raises(UnsafeOutput, match="out"):
        scan(tmp_path / "out")


def test_putting_again_replaces_the_entry(tmp_path: Path) -> None:
    store = Store(tmp_path)
    make(store, {"a": b"1"})
    make(store, {"b": b"2"})
    found = store.get(KEY)
    assert found is not None
    assert [file.path for file in found.record.files] == ["b"]


def die_at(point: str, root: Path) -> None:
    """Put an entry, and kill this process in the middle of it."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    target, name = {
        "before the files are moved": (Path, "rename"),
        "before the record is written": (contract, "write"),
        "while flushing": (store_module, "_flush"),
    }[point]
    store = Store(root)
    with store.workspace() as made:
        (made / "out").mkdir()
        (made / "out" / "model.bin").write_bytes(b"x" * 100_000)
        made_of = record(made / "out")
        setattr(target, name, die)
        store.put(made_of, KEY, made / "out", b"")


@pytest.mark.parametrize("point", ["before the files are moved", "before the record is written", "while flushing"])
def test_a_kill_while_an_entry_is_made_leaves_no_entry(tmp_path: Path, point: str) -> None:
    process = multiprocessing.get_context("fork").Process(target=die_at, args=(point, tmp_path))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    store = Store(tmp_path)
    assert store.get(KEY) is None
    left = list((tmp_path / "tmp").iterdir())
    assert left
    store.sweep()
    assert not list((tmp_path / "tmp").iterdir())
    make(store, {"model.bin": b"x" * 100_000})
    assert store.get(KEY) is not None


def test_the_sweep_spares_a_workspace_in_use(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.workspace() as mine:
        (mine / "half").write_text("half")
        Store(tmp_path).sweep()
        assert (mine / "half").exists()
    assert not mine.exists()


def hold(root: Path, path: Path) -> None:
    with Store(root).locked(KEY, pytest.fail):
        path.write_text("held")
        time.sleep(0.5)
        path.write_text("let go")


def test_one_key_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    process = multiprocessing.get_context("fork").Process(target=hold, args=(tmp_path / "store", sign))
    process.start()
    while not sign.exists() or sign.read_text() != "held":
        time.sleep(0.01)
    waited: list[str] = []
    with Store(tmp_path / "store").locked(KEY, lambda: waited.append("waited")):
        assert sign.read_text() == "let go"
    assert waited == ["waited"]
    process.join()


def test_results_in_use_are_not_forgotten(tmp_path: Path) -> None:
    store = Store(tmp_path)
    make(store, {"model.bin": b"1"})
    with Store(tmp_path).in_use(), pytest.raises(EngineError, match="a deploy works with these results"):
        store.forget()
    assert store.get(KEY) is not None
    assert store.forget() > 0
    assert store.get(KEY) is None


def test_the_sweep_takes_what_a_kill_left_half_removed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / "tmp" / "work-half" / "attempt").mkdir(parents=True)
    store.sweep()
    assert not list((tmp_path / "tmp").iterdir())


def test_an_entry_that_the_disk_does_not_give_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    make(store, {"model.bin": b"1"})

    def fail(_: Path) -> str:
        raise OSError(errno.EIO, "the disk failed")

    with monkeypatch.context() as patched:
        patched.setattr(store_module, "hash_file", fail)
        with pytest.raises(OSError, match="the disk failed"):
            store.get(KEY)
    assert store.get(KEY) is not None


names = st.text(alphabet="abcxyz._-", min_size=1, max_size=12).filter(lambda name: name.strip("."))


@given(st.dictionaries(names, st.binary(max_size=64), min_size=1, max_size=5), st.data())
def test_any_change_of_names_or_bytes_changes_the_digest(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("files")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    before = Material(files=scan(folder), places={}).digest
    name = data.draw(st.sampled_from(sorted(files)))
    if data.draw(st.booleans()):
        (folder / name).write_bytes(files[name] + b"x")
    else:
        (folder / name).rename(folder / f"{name}~")
    assert Material(files=scan(folder), places={}).digest != before


def test_files_are_listed_in_one_order(tmp_path: Path) -> None:
    for name in ("b", "a/b", "a/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert list_files(tmp_path) == ("a/a", "a/b", "b")
