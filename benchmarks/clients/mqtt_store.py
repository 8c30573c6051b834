"""Messages that a broker stores for absent clients: retained ones, one long backlog.

``fill``: publish ``--messages`` QoS 1 over ``--topics`` topics, ``--retain`` or not.
``leave``: make a session that wants all of them, and go. ``back``: return, and take all.
``probe``: wait until the retained message of the last topic can be had, from a broker that is
starting. ``all``: subscribe to all retained messages.
Topics are ``<tag>/<number>``; the session is ``<tag>``.
"""

import argparse
import json
import threading
import time
from typing import Any, Final

import uvloop

from benchmarks.clients.mqtt_collect import Collector
from benchmarks.clients.mqtt_flow import Flow
from benchmarks.clients.mqtt_packets import DISCONNECT, IDS, Table, subscribe
from benchmarks.clients.mqtt_streams import MqttFault, add_subscriptions, adopt, open_socket

_PROBE_S_MAX: Final = 600.0
_LOOK_AGAIN_S: Final = 0.01
_WINDOW: Final = 1_000


def table_of(arguments: argparse.Namespace) -> Table:
    """Return a table that goes at least once round all topics."""
    topics = [f"{arguments.tag}/{n:07d}".encode() for n in range(arguments.topics)]
    return Table(
        topics,
        count=max(arguments.topics, IDS),
        qos=1,
        payload_bytes=arguments.bytes,
        retain=arguments.retain,
    )


async def fill(arguments: argparse.Namespace) -> dict[str, Any]:
    """Publish; the rate of acknowledgements."""
    flow = Flow(
        table_of(arguments), window=_WINDOW, ahead=_WINDOW, count_max=arguments.messages
    )
    await adopt(open_socket(arguments.port, f"fill-{arguments.tag}"), flow.publisher)
    await flow.run(None)
    return {"rate": arguments.messages / (flow.ended_s - flow.started_s)}


async def leave(arguments: argparse.Namespace) -> dict[str, Any]:
    """Make the session."""
    sock = open_socket(arguments.port, arguments.tag, clean=False)
    add_subscriptions(sock, [f"{arguments.tag}/#".encode()], qos=1)
    sock.sendall(DISCONNECT)
    sock.close()
    return {}


async def back(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return to the session; the rate at which its backlog comes, from CONNECT on."""
    table = table_of(arguments)
    collector = Collector(table, arguments.messages, suback=False)
    started_s = time.monotonic()
    await adopt(open_socket(arguments.port, arguments.tag, clean=False), collector)
    return await _collect(collector, arguments, started_s, in_order=True)


async def take_all(arguments: argparse.Namespace) -> dict[str, Any]:
    """Subscribe to all retained messages; the rate at which they come."""
    arguments.retain = True
    collector = Collector(table_of(arguments), arguments.messages, suback=True)
    started_s = time.monotonic()
    await adopt(open_socket(arguments.port, f"all-{arguments.tag}"), collector)
    collector.write(subscribe([f"{arguments.tag}/#".encode()], qos=1))
    return await _collect(collector, arguments, started_s, in_order=False)


async def _collect(
    collector: Collector, arguments: argparse.Namespace, started_s: float, *, in_order: bool
) -> dict[str, Any]:
    cpu_before_s = time.process_time()
    await collector.wait()
    seconds = time.monotonic() - started_s
    client_cpu = (time.process_time() - cpu_before_s) / seconds
    collector.check(sent=arguments.messages, in_order=in_order)
    return {"rate": collector.seen / seconds, "seconds": seconds, "client_cpu": client_cpu}


async def probe(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds until the last topic's retained message came."""
    topic = f"{arguments.tag}/{arguments.topics - 1:07d}".encode()
    started_s = time.monotonic()
    pause = threading.Event()
    while time.monotonic() < started_s + _PROBE_S_MAX:
        try:
            with open_socket(arguments.port, f"probe-{arguments.tag}") as sock:
                sock.sendall(subscribe([topic], qos=0))
                found = b""
                while topic not in found:
                    found += (more := sock.recv(4096))
                    if not more:
                        raise ConnectionResetError
                return {"seconds": time.monotonic() - started_s}
        except (ConnectionError, MqttFault):
            pause.wait(_LOOK_AGAIN_S)
    msg = f"no retained message within {_PROBE_S_MAX} s"
    raise MqttFault(msg)


STEPS: Final = {"fill": fill, "leave": leave, "back": back, "probe": probe, "all": take_all}


def main() -> None:
    """Do one step and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tag", required=True)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--retain", action="store_true")
    arguments = parser.parse_args()
    found = uvloop.run(STEPS[arguments.step](arguments))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
