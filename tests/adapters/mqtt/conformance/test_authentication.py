"""Sections 3.15 and 4.12: enhanced authentication; what a client that may not is told."""

import base64
import hashlib
import hmac
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.adapters.mqtt.conformance.conftest import Rig
from tests.adapters.mqtt.conformance.versions import BOTH
from tests.support import mqtt_wire as wire
from tests.support.gateway import ROOT, Gateway
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_target import OWN, STRICT, Target, gateway_target
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop

pytestmark = pytest.mark.xdist_group("mqtt-authentication")

USER, PASSWORD = "alice", "wonderland"
METHOD = "SCRAM-SHA-256"
CONTINUE, AGAIN = 0x18, 0x19
NOT_AUTHORIZED = 0x87


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A gateway with one user, who may do nothing once inside."""
    data_dir = tmp_path_factory.mktemp("guarded") / "data"
    subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "gateway",
                "users",
                "add",
                USER,
                "--password-stdin",
                "--no-administrator",
            ),
            *("--offline", "--set", f"node.data_dir={data_dir}"),
        ],
        cwd=ROOT,
        input=f"{PASSWORD}\n".encode(),
        check=True,
        timeout=60,
    )
    with gateway_target(Gateway(data_dir, {"adapters.mqtt.acl_default": "deny"})) as running:
        yield running


@pytest.fixture
def guard(guarded: Target) -> Iterator[Rig]:
    """Connections to it."""
    rig = Rig(guarded)
    yield rig
    rig.close()


class Scram:
    """The client's side of RFC 5802 without channel binding."""

    def __init__(self, password: str = PASSWORD) -> None:
        self.password = password
        self.first_bare = f"n={USER},r=clients"

    @property
    def first(self) -> bytes:
        """The client's first message."""
        return f"n,,{self.first_bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """Return the client's last message."""
        found = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt, count = base64.b64decode(found["s"]), int(found["i"])
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), salt, count)
        key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = f"c=biws,r={found['r']}"
        signed = f"{self.first_bare},{challenge.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def properties(data: bytes, method: str = METHOD) -> wire.Properties:
    return [(Prop.AUTH_METHOD, method), (Prop.AUTH_DATA, data)]


def challenged(guard: Rig, scram: Scram) -> tuple[RawClient, bytes]:
    """Return a connection that was asked for its proof, and what it was asked."""
    client = guard.raw()
    client.send(wire.connect(guard.name(), found=properties(scram.first)))
    asked = client.receive(Kind.AUTH)
    assert (asked.code, asked.value(Prop.AUTH_METHOD)) == (CONTINUE, METHOD)
    assert asked.values(Prop.REASON_STRING) == asked.values(Prop.USER) == []
    data = asked.value(Prop.AUTH_DATA)
    assert isinstance(data, bytes)
    return client, data


def authenticated(guard: Rig) -> RawClient:
    scram = Scram()
    client, challenge = challenged(guard, scram)
    client.send(wire.auth(CONTINUE, properties(scram.final(challenge))))
    connack = client.receive(Kind.CONNACK)
    assert (connack.code, connack.value(Prop.AUTH_METHOD)) == (0, METHOD)
    return client


@OWN
def test_a_client_proves_who_it_is_by_scram(guard: Rig) -> None:
    """5.0: 3.2.0-1, 3.15.2-1, 3.15.2-2, 3.15.2-3, 4.12.0-2, 4.12.0-5."""
    assert authenticated(guard).ping() == []


@OWN
def test_a_wrong_proof_is_rejected(guard: Rig) -> None:
    """5.0: 3.1.4-2, 4.12.0-4."""
    scram = Scram("another password")
    client, challenge = challenged(guard, scram)
    client.send(wire.auth(CONTINUE, properties(scram.final(challenge))))
    client.rejected(0x86, NOT_AUTHORIZED)


@OWN
def test_other_packets_during_the_exchange_close(guard: Rig) -> None:
    """5.0: 3.1.4-6, 4.12.0-4."""
    client, _ = challenged(guard, Scram())
    client.send(wire.subscribe(1, [("a", 0)]))
    client.rejected(0x82)


@OWN
def test_another_method_in_the_exchange_closes(guard: Rig) -> None:
    """5.0: 4.12.0-5."""
    scram = Scram()
    client, challenge = challenged(guard, scram)
    client.send(wire.auth(CONTINUE, properties(scram.final(challenge), "SCRAM-SHA-512")))
    client.rejected(0x82, 0x8C)


@OWN
def test_a_client_proves_itself_again(guard: Rig) -> None:
    """5.0: 3.15.2-1, 4.12.0-5, 4.12.1-1."""
    client, scram = authenticated(guard), Scram()
    client.send(wire.auth(AGAIN, properties(scram.first)))
    asked = client.receive(Kind.AUTH)
    assert (asked.code, asked.value(Prop.AUTH_METHOD)) == (CONTINUE, METHOD)
    challenge = asked.value(Prop.AUTH_DATA)
    assert isinstance(challenge, bytes)
    client.send(wire.auth(CONTINUE, properties(scram.final(challenge))))
    done = client.receive(Kind.AUTH)

    assert (done.code, done.value(Prop.AUTH_METHOD)) == (0, METHOD)
    assert client.ping() == []


@OWN
def test_failing_to_prove_itself_again_closes(guard: Rig) -> None:
    """5.0: 4.12.1-2."""
    client, scram = authenticated(guard), Scram("another password")
    client.send(wire.auth(AGAIN, properties(scram.first)))
    challenge = client.receive(Kind.AUTH).value(Prop.AUTH_DATA)
    assert isinstance(challenge, bytes)
    client.send(wire.auth(CONTINUE, properties(scram.final(challenge))))
    client.refused(0x86, NOT_AUTHORIZED)


@OWN
def test_proving_itself_again_by_another_method_closes(guard: Rig) -> None:
    """5.0: 4.12.1-1."""
    client = authenticated(guard)
    client.send(wire.auth(AGAIN, properties(Scram().first, "SCRAM-SHA-512")))
    client.refused(0x82, 0x8C)


@OWN
@BOTH
def test_a_user_is_let_in_by_password(guard: Rig, version: int) -> None:
    """5.0: 3.1.4-2. 3.1.1: 3.1.4-4."""
    client = guard.raw(version)
    data = wire.connect(
        guard.name(), version=version, username=USER, password=PASSWORD.encode()
    )
    client.send(data)
    assert client.receive(Kind.CONNACK).code == 0


@OWN
@BOTH
@pytest.mark.parametrize(("name", "password"), [(USER, b"wrong"), ("bob", b"x"), (None, None)])
def test_who_is_not_known_is_rejected(
    guard: Rig, version: int, name: str | None, password: bytes | None
) -> None:
    """5.0: 3.1.4-2, 3.2.2-6, 3.2.2-7, 3.2.2-8. 3.1.1: 3.2.2-4, 3.2.2-5."""
    client = guard.raw(version)
    data = wire.connect(guard.name(), version=version, username=name, password=password)
    client.send(data)
    answer = client.receive(Kind.CONNACK)
    assert answer.code in ({0x86, NOT_AUTHORIZED} if version == V5 else {4, 5})
    assert client.until_closed() == []


def user(guard: Rig, version: int) -> RawClient:
    client = guard.raw(version)
    data = wire.connect(
        guard.name(), version=version, username=USER, password=PASSWORD.encode()
    )
    client.send(data)
    client.receive(Kind.CONNACK)
    return client


@OWN
@pytest.mark.parametrize(("qos", "kind"), [(1, Kind.PUBACK), (2, Kind.PUBREC)])
def test_publishing_without_the_right_is_refused_by_its_code_in_5(
    guard: Rig, qos: int, kind: Kind
) -> None:
    """5.0: 3.4.2-1, 3.5.2-1, 4.3.3-9."""
    client = user(guard, V5)
    for _ in range(2):
        client.send(wire.publish(guard.topic(), b"x", qos=qos, packet_id=3))
        answer = client.receive(kind)
        assert (answer.packet_id, answer.code) == (3, NOT_AUTHORIZED)


@OWN
def test_publishing_without_the_right_is_acknowledged_or_closes_in_3(guard: Rig) -> None:
    """3.1.1: 3.3.5-2."""
    client = user(guard, V3_1_1)
    client.send(
        wire.publish(guard.topic(), b"x", qos=1, version=V3_1_1),
        wire.disconnect(version=V3_1_1),
    )
    assert [found.kind for found in client.until_closed()] in ([], [Kind.PUBACK])


@OWN
@BOTH
def test_subscribing_without_the_right_is_refused_by_its_code(guard: Rig, version: int) -> None:
    """5.0: 3.8.4-7, 3.9.3-2. 3.1.1: 3.8.4-5, 3.9.3-2."""
    client = user(guard, version)
    assert client.subscribe((guard.topic(), 1)) == [NOT_AUTHORIZED if version == V5 else 0x80]


@OWN
def test_what_does_not_fit_the_clients_maximum_is_left_out(guard: Rig) -> None:
    """5.0: 3.4.2-2, 3.4.2-3, 3.5.2-2, 3.5.2-3, 3.7.2-2, 3.7.2-3, 3.9.2-1, 3.9.2-2.

    5.0: 3.11.2-1, 3.11.2-2, 3.14.2-3, 3.14.2-4.
    """
    client = guard.raw()
    found = [(Prop.MAXIMUM_PACKET_SIZE, 30)]
    password = PASSWORD.encode()
    client.send(
        wire.connect(guard.name(), found=found, username=USER, password=password),
        wire.publish(guard.topic(), qos=1, packet_id=1),
        wire.publish(guard.topic(), qos=2, packet_id=2),
        wire.ack(Kind.PUBREL, 9),
        wire.subscribe(3, [(guard.topic(), 1)]),
        wire.unsubscribe(4, [guard.topic()]),
        wire.publish("a/#"),
    )
    came = client.until_closed()

    kinds = [Kind.PUBACK, Kind.PUBREC, Kind.PUBCOMP, Kind.SUBACK, Kind.UNSUBACK]
    assert sorted(one.kind for one in came) == [Kind.CONNACK, *kinds, Kind.DISCONNECT]
    assert max(one.size_bytes for one in came) <= 30


def test_a_method_that_is_not_known_is_rejected(rig: Rig) -> None:
    """5.0: 4.12.0-1."""
    client = rig.raw()
    client.send(wire.connect(rig.name(), found=properties(b"", "PLAIN-TALK")))
    client.rejected(0x8C, NOT_AUTHORIZED)


def test_without_a_method_there_is_none_in_connack(rig: Rig) -> None:
    """5.0: 4.12.0-6."""
    answer = rig.raw().connect(rig.name())
    assert answer.values(Prop.AUTH_METHOD) == answer.values(Prop.AUTH_DATA) == []


def test_auth_without_a_method_in_connect_closes(rig: Rig) -> None:
    """5.0: 4.12.0-7, 4.13.1-1."""
    client = rig.client()
    client.send(wire.auth(AGAIN, properties(b"")))
    client.refused(0x82)


@pytest.mark.parametrize("flags", [1, 2, 8])
def test_wrong_flags_of_auth_close(rig: Rig, flags: int) -> None:
    """5.0: 3.15.1-1."""
    client = rig.client()
    client.send(wire.packet(Kind.AUTH, b"\x19\x00", flags=flags))
    client.refused(0x81, 0x82)


@STRICT
def test_auth_in_3_closes(rig: Rig) -> None:
    """3.1.1: 4.8.0-1."""
    client = rig.client(version=V3_1_1)
    client.send(wire.packet(Kind.AUTH))
    client.refused()
