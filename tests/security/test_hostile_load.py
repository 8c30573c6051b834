"""Hostile packets of each protocol, before a login and after one: nobody else notices.

`make soak` sends a million of each kind, `make test` a few thousand.
"""

import json
import random
from concurrent.futures import wait
from pathlib import Path
from typing import Final

import pytest

from tests.crash.silent_connections import check_log
from tests.security.gateway_with_users import ADMINISTRATOR, PASSWORD, GatewayWithUsers
from tests.security.well_behaved_clients import HEALTHY, NAME
from tests.support.hostile import ADMIN, KAFKA, MQTT, PROTOCOLS, SQS, kafka, speech
from tests.support.hostile.throwing import throwing
from tests.support.hostile.users import User
from tests.support.process_usage import resident_bytes

pytestmark = pytest.mark.crash

PACKETS: Final = 3_000
PACKETS_SOAK: Final = 1_000_000
CHECK_EVERY_S: Final = 0.05
CHECKS_MIN: Final = 5
MIB: Final = 1 << 20
# `listeners.unauthenticated_bytes_budget`, and as much for what the allocator keeps of it.
GROWTH_BEFORE_BYTES_MAX: Final = 128 * MIB
# The budgets of requests in work, the caches, and queues, topics and sessions that are made.
GROWTH_AFTER_BYTES_MAX: Final = 256 * MIB
SETTINGS: Final = {
    "auth.required": "true",
    "auth.default": "allow",
    "auth.sha256_iterations": 4_096,  # users are made by the thousand
    "auth.sha512_iterations": 4_096,
    "adapters.sqs.deleted_name_s": 0,  # what a faulty client deletes is made again
    "adapters.sqs.purge_s": 0,
    "topic_defaults.partitions_max": 2_000,
    "log.level": "warning",
}
LISTS: Final = ("topics", "queues", "users", "rules", "access-keys")

both = pytest.mark.parametrize("is_logged_in", [False, True], ids=["before", "after"])
every = pytest.mark.parametrize("protocol", PROTOCOLS)


def user_of(gateway: GatewayWithUsers, protocol: str) -> User:
    if protocol == ADMIN:
        return User("admin", (gateway.data_dir / "admin.token").read_text().strip())
    return User("ada", PASSWORD, "KEYOFADA")


def port_of(gateway: GatewayWithUsers, protocol: str) -> int:
    ports = {KAFKA: gateway.kafka_port, MQTT: gateway.mqtt_port, SQS: gateway.sqs_port}
    return ports.get(protocol, gateway.admin_port)


def state_of(gateway: GatewayWithUsers) -> list[list[object]]:
    """Return the names of what there is, and what is allowed."""
    answers = [json.loads(gateway.admin_answer("GET", path)[1]) for path in LISTS]
    return [
        [one.get("name", one) for one in some]
        for answer in answers
        for some in answer.values()
        if isinstance(some, list)
    ]


def reached(gateway: GatewayWithUsers, protocol: str) -> bool:
    """Say whether hostile clients got behind the login and changed something, or tried to."""
    if protocol in {SQS, ADMIN}:  # refused changes have audit lines
        who = "admin" if protocol == ADMIN else "ada"
        return any(f"who={who}" in line and " audit " in line for line in gateway.lines)
    with gateway.kafka(ADMINISTRATOR) as connection:  # of MQTT it is a route's target
        code, end, _ = connection.fetch(kafka.TOPIC, 0, 0)
    return code == 0 and end > 0


def thrown(
    gateway: GatewayWithUsers, protocol: str, user: User | None, *, packets: int
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    pid, before_bytes = gateway.pid, resident_bytes(gateway.pid)
    said = speech(protocol, user)
    checks = 0
    with (
        HEALTHY[protocol](gateway) as check,
        throwing(port_of(gateway, protocol), said, packets=packets, seed=seed) as load,
    ):
        while not load.done() or checks < CHECKS_MIN:
            try:
                check()
            except Exception as error:  # noqa: BLE001 - whatever it is, the seed is told
                pytest.fail(f"seed {seed}, check {checks}: {error!r}")
            checks += 1
            wait([load], timeout=CHECK_EVERY_S)
        assert load.result().packets >= packets, f"seed {seed}"
        check()
    assert gateway.pid == pid
    grown_bytes = resident_bytes(pid) - before_bytes
    bound = GROWTH_AFTER_BYTES_MAX if user else GROWTH_BEFORE_BYTES_MAX
    assert grown_bytes < bound, f"seed {seed}: grew by {grown_bytes} bytes"
    check_log(gateway, f"seed {seed}")
    assert reached(gateway, protocol) == (user is not None), f"seed {seed}"


def held(data_dir: Path, protocol: str, *, is_logged_in: bool, packets: int) -> None:
    with GatewayWithUsers(data_dir, (NAME, kafka.TOPIC), SETTINGS) as gateway:
        if is_logged_in:
            thrown(gateway, protocol, user_of(gateway, protocol), packets=packets)
            return
        with HEALTHY[protocol](gateway) as check:
            check()  # what its work makes is there
        before = state_of(gateway)
        thrown(gateway, protocol, None, packets=packets)
        assert state_of(gateway) == before


@every
@both
def test_hostile_packets_harm_nobody_else(
    tmp_path: Path, protocol: str, *, is_logged_in: bool
) -> None:
    held(tmp_path / "data", protocol, is_logged_in=is_logged_in, packets=PACKETS)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@every
@both
def test_a_million_hostile_packets_harm_nobody_else(
    tmp_path: Path, protocol: str, *, is_logged_in: bool
) -> None:
    held(tmp_path / "data", protocol, is_logged_in=is_logged_in, packets=PACKETS_SOAK)
