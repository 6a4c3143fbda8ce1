"""Files of a folder that a stranger may have made: nothing outside it is read, written or waited for."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fiprof import confined
from fiprof.errors import FiprofError
from fiprof.files import write_whole


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    (inside / "deep/file").write_text("text")
    (inside / "link").symlink_to("../outside/secret")
    (inside / "link-inside").symlink_to("deep/file")
    (inside / "folder-link").symlink_to("../outside")
    os.mkfifo(inside / "fifo")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(inside / "socket"))
    os.link(tmp_path / "outside/secret", inside / "second-name")
    return inside


def outside(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (folder.parent / "outside").iterdir()}


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../outside/secret", "deep/../../x", "deep//file", ".", "a\nb"])
def test_names_that_lead_out(name: str, folder: Path) -> None:
    for call in (confined.exists, confined.open_file, confined.make_folder, confined.remove):
        with pytest.raises(ValueError, match="names no file inside the folder"):
            call(folder, name)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("link", "a link"), ("link-inside", "a link"), ("fifo", "a FIFO"), ("socket", "a socket"), ("deep", "a folder"),
        ("folder-link/secret", "a link"), ("deep/file/x", "a file"),
    ],
)  # fmt: skip
def test_only_regular_files_are_opened_and_replaced(name: str, kind: str, folder: Path) -> None:
    for call in (confined.exists, confined.path, confined.open_file):
        with pytest.raises(FiprofError, match=f" is {kind}, not "):
            call(folder, name)
    with pytest.raises(FiprofError, match=f" is {kind}, not "), confined.replacing(folder, name):
        pytest.fail("it was opened")
    if "/" not in name:
        with pytest.raises(FiprofError, match=f" is {kind}, not "):
            write_whole(folder / name, b"mine")
        with pytest.raises(FiprofError, match=f" is {kind}, not "):
            os.close(confined.open_lock(folder / name))
    assert outside(folder) == {"secret": "secret"}
    assert (folder / "deep/file").read_text() == "text"


def test_what_is_there_is_read_and_replaced(folder: Path) -> None:
    assert confined.read_bytes(folder, "deep/file", 4) == b"text"
    with pytest.raises(FiprofError, match="larger than 3 bytes"):
        confined.read_bytes(folder, "deep/file", 3)
    assert not confined.exists(folder, "nothing/here")
    assert confined.make_folder(folder, "new/deeper").is_dir()
    with confined.replacing(folder, "new/file", 0o600) as file:
        file.write(b"mine")
    assert (folder / "new/file").read_bytes() == b"mine"
    assert (folder / "new/file").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in (folder / "new").iterdir()) == ["deeper", "file"]
    assert outside(folder) == {"secret": "secret"}


def test_a_lock_is_a_file_of_one_name(folder: Path) -> None:
    with pytest.raises(FiprofError, match="has other names besides"):
        confined.open_lock(folder / "second-name")
    os.close(confined.open_lock(folder / ".lock"))
    assert outside(folder) == {"secret": "secret"}
