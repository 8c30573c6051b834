"""Enhanced authentication by SCRAM (section 4.12), before CONNACK and anew."""

import base64
import hashlib
import hmac
from pathlib import Path

import pytest

from tests.adapters.mqtt.live import PASSWORD, Client, Live, running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop, Received

CONTINUE, AGAIN = 0x18, 0x19
METHODS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


class Scram:
    """The client's side of one exchange (RFC 5802)."""

    def __init__(self, user: str, password: str = PASSWORD, method: str = METHODS[0]) -> None:
        self.method = method
        self.digest = "sha256" if method == METHODS[0] else "sha512"
        self.password = password.encode()
        self.bare = f"n={user},r=clientnonce"

    def properties(self, data: bytes) -> list[tuple[int, wire.Value]]:
        return [(Prop.AUTH_METHOD, self.method), (Prop.AUTH_DATA, data)]

    @property
    def first(self) -> bytes:
        return f"n,,{self.bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salt, count = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self.digest, self.password, salt, count)
        key = hmac.digest(salted, b"Client Key", self.digest)
        unproven = f"c=biws,r={fields['r']}"
        signed = f"{self.bare},{server_first.decode()},{unproven}".encode()
        stored = hashlib.new(self.digest, key).digest()
        signature = hmac.digest(stored, signed, self.digest)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self.expected = b"v=" + base64.b64encode(
            hmac.digest(hmac.digest(salted, b"Server Key", self.digest), signed, self.digest)
        )
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()


def data(packet: Received) -> bytes:
    data = packet.value(Prop.AUTH_DATA)
    assert isinstance(data, bytes)
    return data


async def begin(live: Live, scram: Scram, client_id: str = "c") -> tuple[Client, Received]:
    client = await live.client()
    client.send(wire.connect(client_id, found=scram.properties(scram.first)))
    return client, await client.receive(Kind.AUTH)


async def authenticated(live: Live, scram: Scram) -> tuple[Client, Received]:
    client, challenge = await begin(live, scram)
    assert challenge.code == CONTINUE
    client.send(wire.auth(CONTINUE, scram.properties(scram.final(data(challenge)))))
    return client, await client.receive(Kind.CONNACK)


@pytest.mark.parametrize("method", METHODS)
async def test_scram_lets_a_user_in_and_proves_the_server(tmp_path: Path, method: str) -> None:
    """MQTT-4.12.0-2, MQTT-4.12.0-5."""
    async with running(tmp_path, users=("ada",)) as live:
        scram = Scram("ada", method=method)
        _, answer = await authenticated(live, scram)
        assert (answer.code, data(answer)) == (0, scram.expected)
        assert answer.value(Prop.AUTH_METHOD) == method
        assert live.connection().principal.name == "ada"


@pytest.mark.parametrize("scram", [Scram("ada", "wrong"), Scram("nobody")])
async def test_a_wrong_proof_is_refused(tmp_path: Path, scram: Scram) -> None:
    """MQTT-4.12.0-4."""
    async with running(tmp_path, users=("ada",)) as live:
        client, challenge = await begin(live, scram)
        client.send(wire.auth(CONTINUE, scram.properties(scram.final(data(challenge)))))
        assert await client.ended_with() == [(Kind.CONNACK, 0x86)]


async def test_an_unknown_method_is_refused(tmp_path: Path) -> None:
    """MQTT-4.12.0-1."""
    async with running(tmp_path, users=("ada",)) as live:
        client = await live.client()
        client.send(wire.connect("c", found=[(Prop.AUTH_METHOD, "GS2-KRB5")]))
        assert await client.ended_with() == [(Kind.CONNACK, 0x8C)]


async def test_only_auth_and_disconnect_come_before_connack(tmp_path: Path) -> None:
    """MQTT-3.1.2-30."""
    async with running(tmp_path, users=("ada",)) as live:
        client, _ = await begin(live, Scram("ada"))
        client.send(wire.PINGREQ)
        assert await client.ended_with() == [(Kind.CONNACK, 0x82)]


async def test_a_client_authenticates_anew_while_it_goes_on(tmp_path: Path) -> None:
    """Section 4.12.1."""
    async with running(tmp_path, users=("ada",)) as live:
        client, _ = await authenticated(live, Scram("ada"))
        again = Scram("ada")
        client.send(wire.auth(AGAIN, again.properties(again.first)))
        challenge = await client.receive(Kind.AUTH)
        client.send(wire.publish("a", b"x", qos=1))
        await client.receive(Kind.PUBACK)
        client.send(wire.auth(CONTINUE, again.properties(again.final(data(challenge)))))
        done = await client.receive(Kind.AUTH)
        assert (done.code, data(done)) == (0, again.expected)


@pytest.mark.parametrize("scram", [Scram("ada", "wrong"), Scram("bob")])
async def test_who_fails_to_authenticate_anew_is_sent_away(
    tmp_path: Path, scram: Scram
) -> None:
    """MQTT-4.12.1-2."""
    async with running(tmp_path, users=("ada", "bob")) as live:
        client, _ = await authenticated(live, Scram("ada"))
        client.send(wire.auth(AGAIN, scram.properties(scram.first)))
        challenge = await client.receive(Kind.AUTH)
        client.send(wire.auth(CONTINUE, scram.properties(scram.final(data(challenge)))))
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x87)]


async def test_auth_that_nobody_asked_for_is_a_protocol_error(tmp_path: Path) -> None:
    """MQTT-4.12.0-6, MQTT-4.12.1-1."""
    async with running(tmp_path, users=("ada",)) as live:
        client, _ = await authenticated(live, Scram("ada"))
        other = Scram("ada", method=METHODS[1])
        client.send(wire.auth(AGAIN, other.properties(other.first)))
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x82)]
    async with running(tmp_path) as live:
        plain = await live.connected("d", username="ada", password=PASSWORD.encode())
        plain.send(wire.auth(AGAIN, other.properties(other.first)))
        assert await plain.ended_with() == [(Kind.DISCONNECT, 0x82)]
