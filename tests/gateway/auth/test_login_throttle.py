"""Failed logins: how long they wait, whom they hold up, and what is remembered of them."""

import asyncio

import pytest

from gateway.auth.audit import Audit
from gateway.auth.login_throttle import ADDRESS_FAILURES_FREE, LoginThrottle, Peer
from gateway.clock import ManualClock
from gateway.config.auth import AuthConfig
from gateway.errors import Overloaded, Unauthenticated
from tests.support.waiting import until

HERE, THERE = Peer("kafka", "10.0.0.7"), Peer("mqtt", "10.0.0.8")


class ThrottledLogins:
    """Logins whose waits are over at once and are written down, in ms."""

    def __init__(self, **config: int) -> None:
        self.clock = ManualClock()
        self.waits: list[int] = []
        self.logins = LoginThrottle(AuthConfig(**config), Audit(), self.clock, self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(round(seconds * 1_000))
        self.clock.advance(round(seconds * 1_000))

    async def fail(self, peer: Peer, user: str) -> None:
        with pytest.raises(Unauthenticated):
            await self.try_wrong(peer, user)

    async def try_wrong(self, peer: Peer, user: str) -> None:
        async with self.logins.attempt(peer) as attempt:
            await attempt.turn(user)
            raise Unauthenticated("wrong user name or password")

    async def succeed(self, peer: Peer, user: str) -> None:
        async with self.logins.attempt(peer) as attempt:
            await attempt.turn(user)
            attempt.passed()


async def test_the_delay_of_a_failure_doubles_up_to_its_bound() -> None:
    throttled = ThrottledLogins(failure_delay_ms=100, failure_delay_ms_max=500)
    for _ in range(5):
        await throttled.fail(HERE, "ada")
    assert throttled.waits == [100, 200, 400, 500, 500]


async def test_a_right_password_ends_it_and_is_not_delayed_itself() -> None:
    throttled = ThrottledLogins(failure_delay_ms=100)
    await throttled.fail(HERE, "ada")
    await throttled.fail(HERE, "ada")
    await throttled.succeed(HERE, "ada")
    assert throttled.waits == [100, 200]
    await throttled.fail(HERE, "ada")
    assert throttled.waits[-1] == 100


async def test_attempts_side_by_side_take_turns() -> None:
    throttled = ThrottledLogins(failure_delay_ms=100)
    await throttled.fail(HERE, "ada")
    throttled.logins._failures[
        HERE.host, "ada"
    ].until_ms += 100  # another one is being answered
    await throttled.succeed(HERE, "ada")
    assert throttled.waits == [100, 100]


async def test_other_users_and_other_addresses_are_not_held_up() -> None:
    throttled = ThrottledLogins(failure_delay_ms=100)
    await throttled.fail(HERE, "ada")
    await throttled.fail(HERE, "ada")
    await throttled.fail(THERE, "ada")
    await throttled.fail(HERE, "bob")
    assert throttled.waits == [100, 200, 100, 100]


async def test_many_users_of_one_address_add_up() -> None:
    throttled = ThrottledLogins(failure_delay_ms=100, failure_delay_ms_max=5_000)
    for number in range(ADDRESS_FAILURES_FREE):
        await throttled.fail(HERE, f"user-{number}")
    assert set(throttled.waits) == {100}
    for number in range(3):
        await throttled.fail(HERE, f"more-{number}")
    assert throttled.waits[-3:] == [100, 200, 400]
    await throttled.succeed(HERE, "ada")
    assert len(throttled.waits) == ADDRESS_FAILURES_FREE + 3


async def test_all_spellings_of_a_name_are_one_user() -> None:
    throttled = ThrottledLogins(failure_delay_ms=100)
    await throttled.fail(HERE, "I\u00adX")
    await throttled.fail(HERE, "IX")
    assert throttled.waits == [100, 200]


async def test_failures_are_forgotten_after_their_time() -> None:
    throttled = ThrottledLogins(failure_delay_ms=100, failure_memory_ms=60_000)
    await throttled.fail(HERE, "ada")
    throttled.clock.advance(60_001)
    await throttled.fail(HERE, "ada")
    assert throttled.waits == [100, 100]


async def test_what_is_remembered_is_bounded() -> None:
    throttled = ThrottledLogins(failures_remembered_max=16)
    for number in range(100):
        await throttled.fail(HERE, f"user-{number}")
    assert len(throttled.logins._failures) == 16


async def test_too_many_waiting_logins_of_an_address_are_refused_unchecked() -> None:
    throttled = ThrottledLogins(delayed_logins_per_ip_max=1)
    over = asyncio.Event()

    async def sleep(_: float) -> None:
        await over.wait()

    throttled.logins._sleep = sleep
    waiting = asyncio.create_task(throttled.fail(HERE, "ada"))
    await until(lambda: throttled.logins.waiting_count > 0)
    with pytest.raises(Overloaded):
        await throttled.succeed(HERE, "bob")
    await throttled.succeed(THERE, "bob")
    over.set()
    await waiting
    assert throttled.logins.waiting_count == 0
    await throttled.succeed(HERE, "bob")


async def test_those_who_waited_side_by_side_are_checked_one_after_the_other() -> None:
    throttled = ThrottledLogins(failure_delay_ms=100)
    await throttled.fail(HERE, "ada")
    throttled.logins._failures[HERE.host, "ada"].until_ms += 100
    moments: list[int] = []

    async def guess() -> None:
        async with throttled.logins.attempt(HERE) as attempt:
            await attempt.turn("ada")
            moments.append(throttled.clock.monotonic_ms())
            await asyncio.sleep(0)  # while the password is checked
            raise Unauthenticated("wrong user name or password")

    async def sleep(seconds: float) -> None:
        due_ms = throttled.clock.monotonic_ms() + round(seconds * 1_000)
        await asyncio.sleep(0)  # all of them see the same time
        throttled.clock.advance(max(due_ms - throttled.clock.monotonic_ms(), 0))

    throttled.logins._sleep = sleep
    await asyncio.gather(*(guess() for _ in range(5)), return_exceptions=True)
    assert len(moments) == len(set(moments)) == 5


async def test_an_address_that_guesses_gets_a_part_of_the_checks() -> None:
    throttled = ThrottledLogins(checks_per_ip_max=2)
    for number in range(ADDRESS_FAILURES_FREE + 1):
        await throttled.fail(HERE, f"user-{number}")
    async with throttled.logins.attempt(HERE) as one, throttled.logins.attempt(HERE) as two:
        await one.turn("ada")
        await two.turn("bob")
        with pytest.raises(Overloaded):
            await throttled.succeed(HERE, "eve")
        await throttled.succeed(THERE, "eve")
    await throttled.succeed(HERE, "eve")
    assert not throttled.logins._checking


async def test_many_who_come_at_once_from_one_address_are_all_checked() -> None:
    throttled = ThrottledLogins(checks_per_ip_max=1)
    async with throttled.logins.attempt(HERE) as one:
        await one.turn("ada")
        await throttled.succeed(HERE, "bob")
