"""Workers compile the files that they collect, each a share, as pytest would."""

from pathlib import Path
from typing import cast

import pytest
from _pytest.assertion import rewrite

from tests.support.compiled_files import byte_code_of, compile_share, share_of

PLAIN = "plain.py"
REWRITTEN = ("conftest.py", "test_a.py", "test_b.py")


@pytest.fixture
def config(tmp_path: Path, pytestconfig: pytest.Config) -> pytest.Config:
    """Return a configuration that collects a folder of four files."""
    for name in (PLAIN, *REWRITTEN):
        (tmp_path / name).write_text("def test_one():\n    assert 1 == 1\n")

    class Collecting:
        args = (f"{tmp_path.name}::one",)
        rootpath = tmp_path.parent
        getini = pytestconfig.getini

    return cast("pytest.Config", Collecting())


def test_the_shares_of_all_workers_are_all_files(tmp_path: Path, config: pytest.Config) -> None:
    for number in range(3):
        compile_share(config, number, 3)

    for name in REWRITTEN:
        path = tmp_path / name
        code = rewrite._read_pyc(path, byte_code_of(path))
        assert code is not None
        assert "@pytest_ar" in code.co_names
    assert [path.name for path in (tmp_path / "__pycache__").glob("plain.*")] != []


def test_a_file_that_changed_is_compiled_again(tmp_path: Path, config: pytest.Config) -> None:
    path = tmp_path / "test_a.py"
    compile_share(config, 0, 1)
    path.write_text("NEW = 1\n")
    assert rewrite._read_pyc(path, byte_code_of(path)) is None

    compile_share(config, 0, 1)

    code = rewrite._read_pyc(path, byte_code_of(path))
    assert code is not None
    assert "NEW" in code.co_names


def test_a_run_without_workers_has_no_shares() -> None:
    class Alone:
        pass

    class Second:
        workerinput = {"workerid": "gw1", "workercount": 4}  # noqa: RUF012 - as xdist has it

    assert share_of(cast("pytest.Config", Alone())) is None
    assert share_of(cast("pytest.Config", Second())) == (1, 4)
