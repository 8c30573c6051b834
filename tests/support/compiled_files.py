"""Byte code of the collected files, which the workers of a run compile together.

They collect the same files at the same time: in a fresh clone each would compile all of them.
"""

import compileall
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def compile_share(config: pytest.Config, number: int, count: int) -> None:
    """Compile every ``count``-th collected file, from index ``number`` on, where that is due."""
    for path in sorted(_collected(config))[number::count]:
        if is_rewritten(path):
            _rewrite(config, path)
        else:
            compileall.compile_file(path, quiet=2)


def share_of(config: pytest.Config) -> tuple[int, int] | None:
    """Return the index of this worker and how many there are; None in a run without workers."""
    given = getattr(config, "workerinput", None)
    if given is None:
        return None
    return int(given["workerid"].removeprefix("gw")), int(given["workercount"])


def is_rewritten(path: Path) -> bool:
    """Return whether pytest rewrites the assertions of a file, and keeps byte code of its own."""
    return path.name.startswith("test_") or path.name == "conftest.py"


def byte_code_of(path: Path) -> Path:
    """Return the file in which pytest keeps the byte code of a file that it rewrites."""
    return rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"


def _collected(config: pytest.Config) -> Iterator[Path]:
    """Yield the files of the folders that are collected."""
    for argument in config.args:
        yield from (config.rootpath / argument.split("::")[0]).rglob("*.py")


def _rewrite(config: pytest.Config, path: Path) -> None:
    target = byte_code_of(path)
    if rewrite._read_pyc(path, target) is not None:
        return
    source_hash, code = rewrite._rewrite_test(path, config)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}")
    with part.open("wb") as file:
        rewrite._write_pyc_fp(file, source_hash, code)
    part.replace(target)
