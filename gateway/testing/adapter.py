"""AdapterContract: the suite that every protocol passes; a subclass says what its bytes are."""

import contextlib
import itertools
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

import pytest

from gateway.testing.adapter_client import (
    ANSWER_S_MAX,
    AdapterClient,
    Credentials,
    Hangup,
    NotAccepted,
)
from gateway.testing.gateway_process import STOP_S_MAX, GatewayProcess

_CUTS_MAX: Final = 40
_ACKNOWLEDGED_BEFORE_THE_END: Final = 50
_MESSAGES_MAX: Final = 100_000
_CONNECTIONS_MAX: Final = 3
_DRAIN_S_MAX: Final = 2 * int(STOP_S_MAX)  # so that a stop that waits for clients fails
_FIRST: Final = b"first"
_NUMBERS: Final = itertools.count()


class AdapterContract:
    """The suite. Tests share a gateway, and start it again when they ended it.

    Those of logins share a gateway with a user; a test that needs other settings has its own.
    """

    adapter: ClassVar[str]
    """Name of the adapter in the config file."""
    settings: ClassVar[Mapping[str, object]] = {}
    """Further keys of the config file: ``{"adapters.lines.line_bytes_max": 1000}``."""
    broken_bytes: ClassVar[bytes]
    """Bytes that break the protocol, after a login: the gateway closes the connection."""
    too_large_bytes: ClassVar[int]
    """Length of a message's body that is above a limit of the adapter."""

    # --- what a subclass says

    def connect(self, port: int) -> AdapterClient:
        """Open a connection on which nothing has been said."""
        raise NotImplementedError

    def prepare(self, gateway: GatewayProcess, credentials: Credentials | None) -> None:
        """Make what keeps messages until they are received: a topic, a queue, a session."""

    def received(
        self, gateway: GatewayProcess, credentials: Credentials | None
    ) -> Generator[bytes, None, None]:
        """Yield the bodies of the messages sent since ``prepare``, in order; wait for each.

        Those that it has yielded before may be left out.
        """
        raise NotImplementedError

    def add_user(self, gateway: GatewayProcess, name: str) -> Credentials:
        """Add a user and return how he shows who he is."""
        gateway.add_user(name, "right-password")
        return Credentials(name, "right-password")

    # --- the gateway and its clients

    def new_gateway(self, folder: Path, settings: Mapping[str, object]) -> GatewayProcess:
        """Return a gateway with the adapter and these settings; it is not started."""
        return GatewayProcess(folder, [self.adapter], settings)

    @contextlib.contextmanager
    def running(self, folder: Path, **settings: object) -> Iterator[GatewayProcess]:
        """Run a gateway that is prepared; ``settings`` are keys of the adapter's own table."""
        own = {f"adapters.{self.adapter}.{key}": value for key, value in settings.items()}
        with self.new_gateway(folder, {**self.settings, **own}) as gateway:
            self.prepare(gateway, None)
            yield gateway

    def client(
        self, gateway: GatewayProcess, credentials: Credentials | None = None
    ) -> AdapterClient:
        """Return a connection that has logged in. Errors: ``NotAccepted``, ``Hangup``."""
        client = self.connect(gateway.ports[self.adapter])
        try:
            client.log_in(credentials)
        except BaseException:
            client.close()
            raise
        return client

    @pytest.fixture(scope="class")
    @classmethod
    def shared_gateway(
        cls, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[GatewayProcess]:
        suite = cls()
        settings = {**suite.settings, "node.drain_s_max": _DRAIN_S_MAX}
        with suite.new_gateway(tmp_path_factory.mktemp("gateway"), settings) as gateway:
            suite.prepare(gateway, None)
            yield gateway

    @pytest.fixture
    def gateway(self, shared_gateway: GatewayProcess) -> GatewayProcess:
        """Return a running gateway whose earlier messages ``kept`` leaves out."""
        if not shared_gateway.is_running:  # a test ended it, and failed
            shared_gateway.restart()
        with self.client(shared_gateway) as client:
            client.send(_FIRST)
        return shared_gateway

    @pytest.fixture(scope="class")
    @classmethod
    def shared_login(
        cls, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[tuple[GatewayProcess, Credentials]]:
        suite = cls()
        with suite.new_gateway(tmp_path_factory.mktemp("login"), suite.settings) as gateway:
            right = suite.add_user(gateway, "ada")
            suite.prepare(gateway, right)
            yield gateway, right

    @pytest.fixture
    def login(
        self, shared_login: tuple[GatewayProcess, Credentials]
    ) -> tuple[GatewayProcess, Credentials]:
        """Return a gateway with a user; ``kept`` leaves its earlier messages out."""
        gateway, right = shared_login
        with self.client(gateway, right) as client:
            client.send(_FIRST)
        return gateway, right

    def kept(
        self, gateway: GatewayProcess, credentials: Credentials | None = None
    ) -> list[bytes]:
        """Return the bodies of all messages that this test has sent."""
        last = b"last%d" % next(_NUMBERS)
        with self.client(gateway, credentials) as client:
            client.send(last)
        found: list[bytes] = []
        with contextlib.closing(self.received(gateway, credentials)) as bodies:
            for body in bodies:
                if body == last:
                    break
                found = [] if body == _FIRST else [*found, body]
        return found

    # --- messages

    def test_messages_are_received_as_they_were_sent(self, gateway: GatewayProcess) -> None:
        sent = [b"one", b"two2", b"three33"]
        with self.client(gateway) as client:
            for body in sent:
                client.send(body)

        assert self.kept(gateway) == sent

    def test_messages_of_one_write_are_all_kept(self, gateway: GatewayProcess) -> None:
        sent = [b"body%d" % number for number in range(30)]
        with self.client(gateway) as client:
            client.send_bytes(b"".join(map(client.encode_message, sent)))
            for _ in sent:
                client.wait_acknowledged()

        assert self.kept(gateway) == sent

    # --- half frames

    def test_a_message_may_be_cut_anywhere(self, gateway: GatewayProcess) -> None:
        sent = []
        with self.client(gateway) as client, self.client(gateway) as other:
            size_bytes = len(client.encode_message(b"cut00"))
            for number, at in enumerate(_cuts(size_bytes)):
                data = client.encode_message(b"cut%02d" % number)
                client.send_bytes(data[:at])
                other.send(b"between%02d" % number)  # so it has read the first part
                client.send_bytes(data[at:])
                client.wait_acknowledged()
                sent += [b"between%02d" % number, b"cut%02d" % number]

        assert self.kept(gateway) == sent

    def test_half_a_message_is_not_kept(self, gateway: GatewayProcess) -> None:
        with self.client(gateway) as client, self.client(gateway) as other:
            client.send(b"whole")
            client.send_bytes(_half_of(client))
            client.close()
            other.send(b"another")

        assert self.kept(gateway) == [b"whole", b"another"]

    def test_half_a_message_is_not_waited_for_without_end(self, tmp_path: Path) -> None:
        with self.running(tmp_path, frame_s_max=1) as gateway:
            with self.client(gateway) as client, self.client(gateway) as other:
                client.send(b"whole")
                client.send_bytes(_half_of(client))
                client.wait_closed()
                other.send(b"another")

            assert self.kept(gateway) == [b"whole", b"another"]

    # --- logins

    def test_a_wrong_secret_is_refused(self, login: tuple[GatewayProcess, Credentials]) -> None:
        gateway, right = login
        wrong = right._replace(secret=f"{right.secret}x")
        with (
            pytest.raises((NotAccepted, Hangup)),
            self.client(gateway, wrong) as client,
        ):
            client.send(b"wrong")
        with self.client(gateway, right) as client:
            client.send(b"right")

        assert self.kept(gateway, right) == [b"right"]

    def test_nobody_sends_without_a_login(
        self, login: tuple[GatewayProcess, Credentials]
    ) -> None:
        gateway, right = login
        with (
            pytest.raises((NotAccepted, Hangup)),
            self.client(gateway) as client,
        ):
            client.send(b"anonymous")

        assert self.kept(gateway, right) == []

    # --- limits

    def test_connections_above_the_limit_are_closed(self, tmp_path: Path) -> None:
        with self.running(tmp_path, connections_max=_CONNECTIONS_MAX) as gateway:
            with contextlib.ExitStack() as stack:
                clients = [
                    stack.enter_context(self.admitted(gateway)) for _ in range(_CONNECTIONS_MAX)
                ]
                with pytest.raises(Hangup), self.client(gateway) as client:
                    client.send(b"toomany")
                clients[0].close()
                stack.enter_context(self.admitted(gateway))
                clients[1].send(b"another")

            self.admitted(gateway).close()
            sent = [b"admitted"] * (_CONNECTIONS_MAX + 1)
            assert self.kept(gateway) == [*sent, b"another", b"admitted"]

    def admitted(self, gateway: GatewayProcess) -> AdapterClient:
        """Return a client that was let in, as soon as others that have gone are noticed."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while True:
            with contextlib.ExitStack() as stack, contextlib.suppress(Hangup):
                client = stack.enter_context(self.client(gateway))
                client.send(b"admitted")
                stack.pop_all()
                return client
            assert time.monotonic() < deadline, "there is room, and nobody is let in"

    def test_a_message_above_the_limit_is_refused(self, gateway: GatewayProcess) -> None:
        with self.client(gateway) as client, self.client(gateway) as other:
            client.send(b"small")
            with pytest.raises((NotAccepted, Hangup)):
                client.send(b"x" * self.too_large_bytes)
            other.send(b"another")

        assert self.kept(gateway) == [b"small", b"another"]

    def test_broken_bytes_close_their_own_connection(self, gateway: GatewayProcess) -> None:
        with self.client(gateway) as client, self.client(gateway) as other:
            client.send_bytes(self.broken_bytes)
            client.wait_closed()
            other.send(b"another")

        assert self.kept(gateway) == [b"another"]

    # --- the end of a gateway

    def test_a_stop_waits_for_no_idle_client(self, gateway: GatewayProcess) -> None:
        with self.client(gateway) as idle, self.client(gateway) as midway:
            idle.send(b"one")
            midway.send(b"two")
            midway.send_bytes(_half_of(midway))
            gateway.stop()
            idle.wait_closed()
            midway.wait_closed()
        gateway.restart()

        assert self.kept(gateway) == [b"one", b"two"]

    @pytest.mark.parametrize("way", ["stop", "kill"])
    def test_acknowledged_messages_survive_the_end(
        self, gateway: GatewayProcess, way: str
    ) -> None:
        sender = _Sender(self.client(gateway))
        sender.wait_for(_ACKNOWLEDGED_BEFORE_THE_END)
        if way == "kill":
            gateway.kill()
        else:
            gateway.stop()
        sender.join()
        gateway.restart()
        found = self.kept(gateway)

        sent, acknowledged_count = sender.sent, sender.acknowledged_count
        assert acknowledged_count >= _ACKNOWLEDGED_BEFORE_THE_END
        assert acknowledged_count <= len(found) <= len(sent)
        if way == "stop":  # what was taken was answered
            assert len(found) == acknowledged_count
        assert found == sent[: len(found)]


class _Sender:
    """A thread that sends one message after the other until the gateway is gone."""

    def __init__(self, client: AdapterClient) -> None:
        self.sent: list[bytes] = []
        self.acknowledged_count = 0
        self._changed = threading.Condition()
        self._client = client
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for(self, count: int) -> None:
        """Return when so many messages are acknowledged."""
        with self._changed:
            is_reached = self._changed.wait_for(
                lambda: self.acknowledged_count >= count or not self._thread.is_alive(),
                ANSWER_S_MAX,
            )
        assert is_reached, f"{self.acknowledged_count} of {count} messages are acknowledged"

    def join(self) -> None:
        """Return when the connection is closed and the thread has ended."""
        self._thread.join(ANSWER_S_MAX)
        assert not self._thread.is_alive(), "the connection outlives the gateway"

    def _run(self) -> None:
        with self._client, contextlib.suppress(Hangup, NotAccepted):
            for number in range(_MESSAGES_MAX):
                self.sent.append(b"sent%06d" % number)
                self._client.send(self.sent[-1])
                with self._changed:
                    self.acknowledged_count += 1
                    self._changed.notify_all()


def _cuts(size_bytes: int) -> Sequence[int]:
    """Return places at which a message is cut: all, or some that are evenly apart."""
    return range(1, size_bytes, max(1, size_bytes // _CUTS_MAX))


def _half_of(client: AdapterClient) -> bytes:
    data = client.encode_message(b"half")
    return data[: len(data) // 2]
