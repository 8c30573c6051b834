"""SendMessage, or SendMessageBatch, on some connections: the next one after its answer."""

import argparse
import itertools
import json
import time
from typing import Any, Final

from benchmarks.clients.sqs_wire import ANY_KEY, Signer, SqsFault, bodies, take_turns
from tests.support.process_usage import cpu_s

_BODIES: Final = 1_000  # different ones; signed before the clock starts


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return acknowledged messages per second, over all connections."""
    batch = arguments.batch
    action = "SendMessage" if batch == 1 else "SendMessageBatch"
    signer = Signer(arguments.port, arguments.key)
    made = bodies(
        arguments.url,
        message_bytes=arguments.message_bytes,
        batch=batch,
        count=max(1, _BODIES // batch),
    )
    requests = itertools.cycle([signer.request(action, body) for body in made])
    answered = 0

    def next_request(_connection: int, body: bytes) -> bytes | None:
        nonlocal answered
        if batch > 1 and b'"Failed":[{' in body:
            raise SqsFault(body[:500].decode())
        answered += 1
        is_over = answered * batch >= arguments.messages or time.monotonic() >= until_s
        return None if is_over else next(requests)

    cpu_before_s, server_before_s = time.process_time(), cpu_s(arguments.pid)
    started_s = time.monotonic()
    until_s = started_s + arguments.seconds
    first = [next(requests) for _ in range(arguments.connections)]
    take_turns(arguments.port, first, next_request)
    seconds = time.monotonic() - started_s
    return {
        "rate": answered * batch / seconds,
        "messages": answered * batch,
        "server_cpu_s": cpu_s(arguments.pid) - server_before_s,
        "client_cpu": (time.process_time() - cpu_before_s) / seconds,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="process id of the server")
    parser.add_argument("--key", default=ANY_KEY, help="id:secret")
    parser.add_argument("--url", required=True, help="URL of the queue")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--message-bytes", type=int, default=256)
    parser.add_argument("--messages", type=int, default=1 << 62)
    parser.add_argument("--seconds", type=float, default=60)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
