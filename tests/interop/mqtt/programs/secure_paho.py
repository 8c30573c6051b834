"""paho-mqtt with passwords, certificates and refusals: blocking, each answer waited for."""

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.interop.mqtt.programs.link import ANSWER_S_MAX, V5

CLOSED = "closed"


class SecurePaho:
    """One client. ``open``, ``publish`` and ``subscribe`` return the names of reason codes."""

    def __init__(
        self,
        port: int,
        client_id: str,
        *,
        version: int = V5,
        path: str | None = None,
        authority: Path | None = None,
        certificate: tuple[Path, Path] | None = None,
        user: tuple[str, str] | None = None,
        first: bytes = b"",
    ) -> None:
        """``path`` means WebSocket, ``authority`` TLS; ``first`` goes before the CONNECT."""
        self.port = port
        self._answers: queue.Queue[str] = queue.Queue()
        self._messages: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._version = version
        client: Any = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=version,  # type: ignore[arg-type]  # its constants are these numbers
            transport="tcp" if path is None else "websockets",
            reconnect_on_failure=False,
        )
        self.client = client
        if path is not None:
            self.client.ws_set_options(path=path)
        if authority is not None:
            own = [str(file) for file in certificate or ()]
            self.client.tls_set(str(authority), *own)
        if user is not None:
            self.client.username_pw_set(*user)
        if first:
            self.client.on_socket_open = lambda _c, _u, sock: sock.sendall(first)
        answer = self._answers.put
        self.client.on_connect = lambda _c, _u, _flags, reason, _p: answer(str(reason))
        self.client.on_disconnect = lambda *_: answer(CLOSED)
        self.client.on_publish = lambda _c, _u, _mid, reason, _p: answer(str(reason))
        self.client.on_subscribe = lambda _c, _u, _mid, codes, _p: answer(str(codes[0]))
        self.client.on_message = lambda _c, _u, found: self._messages.put(
            (found.topic, found.payload)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def open(self, **options: Any) -> str:
        """Connect; ``CLOSED`` when the server ends the connection without an answer."""
        self.client.connect("127.0.0.1", self.port, **options)
        self.client.loop_start()
        return self.answer()

    def publish(self, topic: str, payload: bytes) -> str:
        """Publish at QoS 1."""
        return self._asked(lambda: self.client.publish(topic, payload, 1))

    def subscribe(self, topic_filter: str) -> str:
        """Subscribe at QoS 1."""
        if self._version == V5:
            options = SubscribeOptions(qos=1)
            return self._asked(lambda: self.client.subscribe(topic_filter, options=options))
        return self._asked(lambda: self.client.subscribe(topic_filter, 1))

    def message(self) -> tuple[str, bytes]:
        """Return topic and payload of the next message."""
        return self._messages.get(timeout=ANSWER_S_MAX)

    def _asked(self, ask: Callable[[], object]) -> str:
        ask()
        return self.answer()

    def answer(self) -> str:
        """Return what the server says next."""
        return self._answers.get(timeout=ANSWER_S_MAX)
