"""ReceiveMessage of 10 and DeleteMessageBatch of what came, on some connections, in turns."""

import argparse
import json
import time
from typing import Any, Final

import orjson

from benchmarks.clients.sqs_wire import ANY_KEY, Signer, SqsFault, take_turns
from tests.support.process_usage import cpu_s

_BATCH: Final = 10


class _Drain:
    """Connections that choose their next request by the last answer."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.received = 0
        self.until_s = 0.0
        self._arguments = arguments
        self._signer = Signer(arguments.port, arguments.key)
        self._deleting: set[int] = set()
        asked = {
            "QueueUrl": arguments.url,
            "MaxNumberOfMessages": _BATCH,
            "VisibilityTimeout": arguments.visibility_s,
        }
        self.receive = self._signer.request("ReceiveMessage", orjson.dumps(asked))

    def next_request(self, connection: int, body: bytes) -> bytes | None:
        """Delete what was received, and receive again until it is over."""
        if connection in self._deleting:
            self._deleting.remove(connection)
            if b'"Failed":[{' in body:
                raise SqsFault(body[:500].decode())
            return None if self._is_over else self.receive
        messages = orjson.loads(body).get("Messages") or []
        self.received += len(messages)
        if not messages:
            return None
        if self._arguments.keep:
            return None if self._is_over else self.receive
        self._deleting.add(connection)
        return self._signer.request(
            "DeleteMessageBatch", _delete(self._arguments.url, messages)
        )

    @property
    def _is_over(self) -> bool:
        return self.received >= self._arguments.messages or time.monotonic() >= self.until_s


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return messages received (and deleted, unless they are kept) per second.

    Ends after ``--messages``, or ``--seconds``, or when receives find nothing.
    """
    drain = _Drain(arguments)
    cpu_before_s, server_before_s = time.process_time(), cpu_s(arguments.pid)
    started_s = time.monotonic()
    drain.until_s = started_s + arguments.seconds
    take_turns(arguments.port, [drain.receive] * arguments.connections, drain.next_request)
    seconds = time.monotonic() - started_s
    return {
        "rate": drain.received / seconds,
        "messages": drain.received,
        "server_cpu_s": cpu_s(arguments.pid) - server_before_s,
        "client_cpu": (time.process_time() - cpu_before_s) / seconds,
    }


def _delete(url: str, messages: list[dict[str, Any]]) -> bytes:
    entries = [
        {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
        for number, message in enumerate(messages)
    ]
    return orjson.dumps({"QueueUrl": url, "Entries": entries})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="process id of the server")
    parser.add_argument("--key", default=ANY_KEY, help="id:secret")
    parser.add_argument("--url", required=True, help="URL of the queue")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--messages", type=int, default=1 << 62)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--visibility-s", type=int, default=600)
    parser.add_argument("--keep", action="store_true", help="receive only, delete nothing")
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
