"""The last report of a job in the data directory: whole, bounded, and never in the way."""

from pathlib import Path

import pytest

from gateway.last_report import BYTES_MAX, FILE, read_last_report, write_last_report


def test_a_report_replaces_the_one_before(tmp_path: Path) -> None:
    write_last_report(tmp_path, {"job": "first"})
    write_last_report(tmp_path, {"job": "zweiter ü"})
    assert read_last_report(tmp_path) == {"job": "zweiter ü"}
    assert [one.name for one in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize(
    "data", [None, b"", b"{", b"[1]", b"\xff", b"[" * BYTES_MAX, b" " * (BYTES_MAX + 1)]
)
def test_what_is_no_report_is_none(tmp_path: Path, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / FILE).write_bytes(data)
    assert read_last_report(tmp_path) is None


def test_one_that_is_too_large_leaves_the_old_one(tmp_path: Path) -> None:
    write_last_report(tmp_path, {"job": "old"})
    with pytest.raises(OSError, match="more than"):
        write_last_report(tmp_path, {"job": "x" * BYTES_MAX})
    assert read_last_report(tmp_path) == {"job": "old"}


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        write_last_report(tmp_path / "nowhere", {})
