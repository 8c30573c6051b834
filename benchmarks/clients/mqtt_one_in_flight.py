"""Many connections that publish QoS 1 one message at a time: the next one after its PUBACK.

A plain epoll loop: with one small packet per read and per write there is nothing for an event
loop to save, and its own cost would be the limit.
"""

import argparse
import json
import select
import time
import uuid
from typing import Any, Final

from benchmarks.clients.mqtt_packets import ACK_BYTES, Table, acks
from benchmarks.clients.mqtt_streams import MqttFault, open_socket
from tests.support.process_usage import cpu_s

_STALLED_S_MAX: Final = 15.0
_ID: Final = 1
_ACK: Final = acks(b"\x00", bytes([_ID]))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return acknowledged messages per second, over all connections."""
    tag = uuid.uuid4().hex[:8]
    sockets = {}
    packets = {}
    poll = select.epoll()
    for number in range(arguments.connections):
        sock = open_socket(arguments.port, f"t{number}-{tag}")
        sock.setblocking(False)  # noqa: FBT003 - the name of the standard library
        topic = f"turns/{number:05d}".encode()
        sockets[sock.fileno()] = sock
        packets[sock.fileno()] = bytes(Table([topic], count=1, qos=1).slice(0, 1))
        poll.register(sock, select.EPOLLIN)
    receive = {descriptor: sock.recv for descriptor, sock in sockets.items()}
    send = {descriptor: sock.send for descriptor, sock in sockets.items()}
    cpu_before_s, server_before_s = time.process_time(), cpu_s(arguments.pid)
    started_s = time.monotonic()
    until_s = started_s + arguments.seconds
    for descriptor, packet in packets.items():
        send[descriptor](packet)
    acked, waiting = 0, len(sockets)
    while waiting:
        events = poll.poll(_STALLED_S_MAX)
        if not events:
            msg = f"{waiting} messages not acknowledged"
            raise MqttFault(msg)
        is_over = time.monotonic() >= until_s
        for descriptor, _event in events:
            if receive[descriptor](2 * ACK_BYTES) != _ACK:
                msg = "closed, or another acknowledgement"
                raise MqttFault(msg)
            if is_over:
                waiting -= 1
            else:
                send[descriptor](packets[descriptor])
        acked += len(events)
    seconds = time.monotonic() - started_s
    server_cpu_s = cpu_s(arguments.pid) - server_before_s
    return {
        "rate": acked / seconds,
        "messages": acked,
        "server_cpu_s": server_cpu_s,
        "client_cpu": (time.process_time() - cpu_before_s) / seconds,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pid", type=int, required=True, help="process id of the server")
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=3)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
