"""A running gateway for the commands, and a way to run one."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from gateway.cli.app import main
from tests.support.gateway import Gateway


class Outcome(NamedTuple):
    """Status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output, parsed."""
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs ``headgate <arguments>`` in this process."""

    def run_command(*arguments: str) -> Outcome:
        capsys.readouterr()
        status = main(arguments)
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run_command


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Return a gateway that is for the tests of one file."""
    with Gateway(tmp_path_factory.mktemp("data")) as gateway:
        yield gateway
