"""Remembered routes: one bound for all routers, and routes that are used stay."""

import gc
import tracemalloc

import pytest

from features.routing.model import Binding, Destination, Exchange, ExchangeType, Message
from features.routing.route_memo import RouteMemo
from features.routing.router import Router

BYTES_MAX = 100_000
FILES = "*/features/routing/*"


def router_of(memo: RouteMemo, *queues: str) -> Router:
    """A router with the fanout exchange ``x`` and some queues."""
    router = Router(choose=lambda _count: 0, memo=memo)
    router.put(Exchange("x", ExchangeType.FANOUT))
    for queue in queues:
        router.bind(Binding("x", Destination(queue)))
    return router


def is_remembered(router: Router, key: str) -> bool:
    before = router.touched
    router.route("x", Message([key]))
    return router.touched == before


def test_all_routers_together_remember_no_more_than_the_bound() -> None:
    memo = RouteMemo(BYTES_MAX)
    routers = [router_of(memo, "q") for _ in range(50)]

    for number in range(200):
        for router in routers:
            router.route("x", Message([f"{number}." + "k" * number, "cc"]))
            assert memo.used_bytes <= BYTES_MAX

    assert memo.used_bytes > BYTES_MAX // 4
    assert sum(len(router._memo) for router in routers) < BYTES_MAX // 300


def test_a_route_that_is_used_stays_while_others_come_and_go() -> None:
    memo = RouteMemo(BYTES_MAX)
    busy, noisy = router_of(memo, "q"), router_of(memo, "q")
    busy.route("x", Message(["hot"]))

    for number in range(2_000):
        noisy.route("x", Message([f"once.{number}"]))
        if number % 10 == 0:
            assert is_remembered(busy, "hot")

    assert not is_remembered(noisy, "once.0")


def test_one_route_that_is_too_large_does_not_push_out_the_others() -> None:
    memo = RouteMemo(BYTES_MAX)
    router, wide = router_of(memo, "q"), router_of(memo, *map(str, range(1_000)))
    router.route("x", Message(["k"]))

    wide.route("x", Message(["k"]))

    assert not is_remembered(wide, "k")
    assert is_remembered(router, "k")


def test_what_a_router_forgets_is_room_for_others() -> None:
    memo = RouteMemo(BYTES_MAX)
    first, second = router_of(memo, "q"), router_of(memo, "q")
    for number in range(150):  # some are old
        first.route("x", Message([str(number)]))
    second.route("x", Message(["k"]))
    alone_bytes = 0

    first.bind(Binding("x", Destination("r")))
    alone_bytes = memo.used_bytes
    second.forget_routes()

    assert 0 < alone_bytes < 2_000
    assert memo.used_bytes == 0
    assert len(first._memo) == len(second._memo) == 0


@pytest.mark.parametrize("queue_count", [1, 100])
def test_the_estimate_is_about_what_the_memory_is(queue_count: int) -> None:
    memo = RouteMemo(64 << 20)
    router = router_of(memo, *[f"queue-{number}" for number in range(queue_count)])
    keys = [f"region.site.{number}" for number in range(2_000)]

    gc.collect()  # also empties free lists, what comes from which is not traced
    tracemalloc.start()
    try:
        for key in keys:
            router.route("x", Message([key]))
        traces = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    own = traces.filter_traces([tracemalloc.Filter(inclusive=True, filename_pattern=FILES)])
    found_bytes = sum(one.size for one in own.statistics("filename"))

    assert memo.used_bytes / 4 < found_bytes < memo.used_bytes
