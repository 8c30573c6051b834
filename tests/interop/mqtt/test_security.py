"""TLS, certificates, passwords and access rules, as stock clients do them."""

import contextlib
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import WebsocketConnectionError

from gateway.testing.process import Program
from tests.interop.mqtt.programs.link import V3_1_1, V5
from tests.interop.mqtt.programs.secure_paho import CLOSED, SecurePaho
from tests.interop.mqtt.scenario import expected
from tests.interop.mqtt.secured import Secured, add_user, running
from tests.support import mqtt_wire as wire
from tests.support.certificates import make_certificate
from tests.support.client_certificates import make_client_certificate
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_target import OWN
from tests.support.mqtt_toolchain import node_program

pytestmark = [
    OWN,
    pytest.mark.interop,
    pytest.mark.xdist_group("mqtt-security"),
    # Sockets that paho leaves to the garbage collector are its own affair.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ALICE, BOB = ("alice", "wonderland"), ("bob", "builder")
MACHINE = "machine-7"  # no user: its certificate says who it is
DENIED = "Not authorized"
BAD_PASSWORD = "Bad user name or password"
DONE_S_MAX = 180
SEEN_S_MAX = 90
RULES = """[
    {effect = "deny", user = "bob", filter = "all/#"},
    {effect = "allow", filter = "all/#"},
    {effect = "allow", user = "machine-7", action = "publish", filter = "machines/#"},
    {effect = "allow", user = "alice", action = "subscribe", filter = "machines/#"},
    {effect = "allow", filter = "users/%u/#"},
    {effect = "allow", filter = "clients/%c/#"},
]"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """TLS on every listener, certificates asked for on the second, two users, rules."""
    folder = tmp_path_factory.mktemp("guarded")
    for name, password in (ALICE, BOB):
        add_user(folder / "data", name, password)
    settings = {
        "adapters.mqtt.tls_cert": folder / "cert.pem",
        "adapters.mqtt.tls_key": folder / "key.pem",
        "adapters.mqtt.tls.tls_client_ca": folder / "cert.pem",
        "adapters.mqtt.acl": RULES.replace("\n", " ").replace(",  ]", " ]"),
        "adapters.mqtt.acl_default": "deny",
    }
    yield from running(folder, settings)


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Without users; a rule for one all the same; certificates on the second."""
    folder = tmp_path_factory.mktemp("unguarded")
    settings: dict[str, object] = {
        "adapters.mqtt.tls.tls_client_ca": folder / "cert.pem",
        "adapters.mqtt.acl": (
            '[{effect = "allow", user = "machine-7", filter = "secret/#"}, '
            '{effect = "allow", filter = "secret/%u/#"}, '
            '{effect = "deny", filter = "secret/#"}]'
        ),
    }
    yield from running(folder, settings)


# --- user names and passwords, over TLS


@pytest.mark.parametrize("version", [V3_1_1, V5])
@pytest.mark.parametrize("is_websocket", [False, True], ids=["tls", "wss"])
def test_a_user_is_let_in_over_tls(
    guarded: Secured,
    stem: str,
    version: int,
    is_websocket: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    target = guarded.target
    port = target.websocket_port if is_websocket else target.port
    path = target.websocket_path if is_websocket else None
    client = SecurePaho(
        port, stem, version=version, path=path, authority=guarded.ca, user=ALICE
    )
    with client:
        assert client.open() == "Success"
        assert client.subscribe(f"all/{stem}") == "Granted QoS 1"
        payload = bytes(range(256)) * 1_000  # several TLS records
        assert client.publish(f"all/{stem}", payload) == "Success"
        assert client.message() == (f"all/{stem}", payload)


@pytest.mark.parametrize("version", [V3_1_1, V5])
@pytest.mark.parametrize(
    ("user", "answer"),
    [
        (("alice", "looking-glass"), BAD_PASSWORD),
        (("mallory", "wonderland"), BAD_PASSWORD),
        (None, DENIED),
    ],
    ids=["wrong", "unknown", "none"],
)
def test_nobody_else_is_let_in(
    guarded: Secured, stem: str, version: int, user: tuple[str, str] | None, answer: str
) -> None:
    with guarded.client(stem, version=version, user=user) as client:
        assert client.open() == answer


def test_a_client_that_trusts_another_authority_does_not_connect(
    guarded: Secured, stem: str, tmp_path: Path
) -> None:
    stranger, _ = make_certificate(tmp_path)
    with (
        guarded.client(stem, authority=stranger, user=ALICE) as client,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        client.open()


def test_plain_bytes_to_a_tls_listener_are_not_answered(guarded: Secured, stem: str) -> None:
    with RawClient(guarded.target.port) as raw:
        raw.send(wire.connect(stem))
        # An alert of TLS may come; no packet of MQTT does.
        data = b""
        try:
            while piece := raw.socket.recv(100):
                data += piece
        except ConnectionResetError:
            pass
        assert data[:1] in {b"", b"\x15"}


# --- client certificates


def test_the_common_name_of_a_certificate_is_the_user_that_rules_see(
    guarded: Secured, stem: str
) -> None:
    topic = f"machines/{stem}"
    certificate = make_client_certificate(guarded.authority, MACHINE)
    with (
        guarded.client(f"{stem}a", user=ALICE) as alice,
        guarded.machine(f"{stem}m", certificate=certificate) as machine,
    ):
        assert (alice.open(), machine.open()) == ("Success", "Success")
        assert guarded.clients()[f"{stem}m"]["user"] == MACHINE
        assert alice.subscribe(topic) == "Granted QoS 1"
        assert machine.subscribe(topic) == DENIED
        assert alice.publish(topic, b"mine") == DENIED
        assert machine.publish(f"users/{MACHINE}/{stem}", b"own") == "Success"
        assert machine.publish(topic, b"turning") == "Success"
        assert alice.message() == (topic, b"turning")


def test_a_certificate_of_another_name_has_not_its_rights(guarded: Secured, stem: str) -> None:
    certificate = make_client_certificate(guarded.authority, "machine-8")
    with guarded.machine(stem, certificate=certificate) as machine:
        assert machine.open() == "Success"
        assert machine.publish(f"machines/{stem}", b"x") == DENIED
        assert machine.publish(f"users/{MACHINE}/{stem}", b"x") == DENIED
        assert machine.publish(f"all/{stem}", b"x") == "Success"


def test_a_client_without_a_certificate_is_refused(guarded: Secured, stem: str) -> None:
    with guarded.machine(stem, user=ALICE) as client:
        assert client.open() == CLOSED  # TLS 1.3 tells it after the client's handshake


def test_a_certificate_of_another_authority_is_refused(
    guarded: Secured, stem: str, tmp_path: Path
) -> None:
    certificate = make_client_certificate(make_certificate(tmp_path), MACHINE)
    with guarded.machine(stem, certificate=certificate) as client:
        assert client.open() == CLOSED


def test_with_a_certificate_a_user_name_needs_its_password_too(
    guarded: Secured, stem: str
) -> None:
    certificate = make_client_certificate(guarded.authority, MACHINE)
    with guarded.machine(f"{stem}b", certificate=certificate, user=BOB) as bob:
        assert bob.open() == "Success"
        assert guarded.clients()[f"{stem}b"]["user"] == "bob"
    wrong = guarded.machine(stem, certificate=certificate, user=("bob", "wonderland"))
    with wrong as client:
        assert client.open() == BAD_PASSWORD


@pytest.mark.parametrize("user", [None, BOB], ids=["alone", "beside a user name"])
def test_without_users_only_a_certificate_gives_a_name(
    unguarded: Secured, stem: str, user: tuple[str, str] | None
) -> None:
    certificate = make_client_certificate(unguarded.authority, MACHINE)
    plain = SecurePaho(unguarded.target.port, f"{stem}p", user=(MACHINE, "any"))
    with plain, unguarded.machine(stem, certificate=certificate, user=user) as machine:
        assert (plain.open(), machine.open()) == ("Success", "Success")
        assert plain.publish(f"secret/{stem}", b"x") == DENIED
        assert plain.subscribe(f"secret/{MACHINE}/#") == DENIED
        assert machine.publish(f"secret/{stem}", b"x") == "Success"
        users = {name: row["user"] for name, row in unguarded.clients().items()}
        assert (users[f"{stem}p"], users[stem]) == ("ANONYMOUS", MACHINE)


def test_certificates_hold_over_websocket_too(tmp_path: Path, stem: str) -> None:
    settings: dict[str, object] = {
        "adapters.mqtt.websocket.tls_client_ca": tmp_path / "cert.pem"
    }
    with contextlib.contextmanager(running)(tmp_path, settings) as secured:
        certificate = make_client_certificate(secured.authority, MACHINE)
        target = secured.target
        place: dict[str, Any] = {"path": target.websocket_path, "authority": secured.ca}
        with SecurePaho(
            target.websocket_port, stem, certificate=certificate, **place
        ) as machine:
            assert machine.open() == "Success"
            assert secured.clients()[stem]["user"] == MACHINE
        with (
            SecurePaho(target.websocket_port, stem, **place) as nobody,
            pytest.raises((OSError, WebsocketConnectionError)),
        ):
            nobody.open()


# --- rules


def test_rules_by_user_and_with_placeholders(guarded: Secured, stem: str) -> None:
    with guarded.client(f"{stem}b", user=BOB) as bob:
        assert bob.open() == "Success"
        answers = {
            topic: (bob.subscribe(topic), bob.publish(topic, b"x"))
            for topic in (
                f"all/{stem}",
                f"users/bob/{stem}",
                f"users/alice/{stem}",
                f"clients/{stem}b/x",
                f"clients/{stem}a/x",
            )
        }
        assert bob.subscribe("#") == DENIED
        assert bob.subscribe("users/+/x") == DENIED
    no, yes = (DENIED, DENIED), ("Granted QoS 1", "Success")
    assert list(answers.values()) == [no, yes, no, yes, no]


def test_a_client_identifier_with_a_wildcard_widens_nothing(guarded: Secured) -> None:
    with guarded.client("+", user=BOB) as bob:
        assert bob.open() == "Success"
        assert bob.subscribe("clients/+/x") == DENIED
        assert bob.publish("clients/somebody/x", b"x") == DENIED


def test_nobody_takes_over_another_users_session(guarded: Secured, stem: str) -> None:
    with (
        guarded.client(stem, user=ALICE) as alice,
        guarded.client(stem, user=BOB) as bob,
    ):
        assert alice.open() == "Success"
        assert bob.open() == "Client identifier not valid"
        assert alice.publish(f"all/{stem}", b"x") == "Success"


# --- Mosquitto's programs


@pytest.mark.mosquitto
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_mosquittos_programs_speak_tls(guarded: Secured, stem: str, version: str) -> None:
    topic = f"all/{stem}"
    cert, key = make_client_certificate(guarded.authority, MACHINE)
    place = ["-h", "127.0.0.1", "--cafile", str(guarded.ca), "-V", version, "-q", "1"]
    main = ["-p", str(guarded.target.port), "-u", ALICE[0], "-P"]
    second = ["-p", str(guarded.tls_port), "--cert", str(cert), "--key", str(key)]
    subscriber = Program(
        ["stdbuf", "-oL", "mosquitto_sub", *place, *main, ALICE[1], "-t", topic, "-d"]
    )
    try:
        subscriber.wait_for_line("SUBACK", within_s=SEEN_S_MAX)
        publish = ["mosquitto_pub", *place, "-t", topic]
        Program([*publish, *second, "-m", "by certificate"]).finish(within_s=SEEN_S_MAX)
        Program([*publish, *main, ALICE[1], "-m", "by password"]).finish(within_s=SEEN_S_MAX)
        subscriber.wait_for_line("by certificate", within_s=SEEN_S_MAX)
        subscriber.wait_for_line("by password", within_s=SEEN_S_MAX)
        wrong = Program([*publish, *main, "looking-glass", "-m", "x"])
        assert wrong.ended(within_s=SEEN_S_MAX) != 0
        without = Program([*publish, "-p", str(guarded.tls_port), "-m", "x"])
        assert without.ended(within_s=SEEN_S_MAX) != 0
    finally:
        subscriber.kill()


# --- mqtt.js


@pytest.mark.node
def test_mqtt_js_sees_what_it_should_over_wss(unguarded: Secured, stem: str) -> None:
    target = unguarded.target
    url = f"wss://127.0.0.1:{target.websocket_port}{target.websocket_path}"
    program = Program(
        ["node", node_program(), url, str(V3_1_1), stem],
        env={"NODE_EXTRA_CA_CERTS": str(unguarded.ca)},
        merge_errors=False,
    )
    assert json.loads(program.finish(within_s=DONE_S_MAX)[-1]) == expected(V3_1_1)
