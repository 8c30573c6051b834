"""Interface of a client for the steps of ``scenario.py``: a call by action, in JSON's shapes."""

import abc
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

ANSWER_S_MAX: Final = 60.0
_CALLS_AT_ONCE_MAX: Final = 16

Params = dict[str, Any]
Result = dict[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """Address and credentials of a client."""

    url: str
    region: str = "us-east-1"
    key_id: str = "headgate-key"
    secret: str = "headgate-secret"


class Refused(Exception):
    """The service refused a request. ``code`` is the older name, which all clients show."""

    def __init__(self, code: str, message: str = "", status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


class Api(abc.ABC):
    """A client. A subclass implements ``perform``."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._pool = ThreadPoolExecutor(_CALLS_AT_ONCE_MAX)

    @abc.abstractmethod
    def perform(self, action: str, params: Params) -> Result:
        """Do one request. Errors: ``Refused``."""

    def call(self, action: str, /, **params: Any) -> Result:
        """Do a request; return its result without the client's additions."""
        return self.start(action, **params).result(ANSWER_S_MAX)

    def start(self, action: str, /, **params: Any) -> Future[Result]:
        """Begin a request in parallel to others."""
        return self._pool.submit(self.perform, action, params)

    def close(self) -> None:
        """Close the client."""
        self._pool.shutdown()
