"""Client quotas: from the config file and the metadata store, decided from memory.

An entity of the config file is changed there only. Other entities are changed by Kafka's
AlterClientQuotas, by REST and by commands, and are stored. Without any quota a request costs a
test of ``is_active``, a new connection one of ``limits_addresses``.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from features.quota.model import NAME_CHARS_MAX, Entity, Limits, QuotaKey
from features.quota.rates import TokenBucket, WindowedRate
from features.quota.resolution import resolve, resolve_ip
from gateway.clock import Clock
from gateway.errors import Overloaded, PolicyViolation
from gateway.metadata.change_model import ChangeKind
from gateway.metadata.changes import Changes
from gateway.metadata.store import MetadataStore
from gateway.metrics import Metrics
from gateway.quotas.meters import ClientLimits, Meter, Rate, ThrottleCounts

ENTITIES_MAX: Final = 10_000
CLIENTS_MAX: Final = 10_000
"""Clients whose quotas are remembered; above it, all are looked up again."""
RATES_MAX: Final = 10_000
"""Measured rates; above it, the one that was made first begins anew."""

_Scope = tuple[QuotaKey, str | None, str | None]
_NO_LIMITS: Final = ClientLimits(None, None, None, None)


class Quotas:
    """Quotas of a node. Loop only."""

    def __init__(self, metadata: MetadataStore, clock: Clock) -> None:
        self.revision = 0  # of what counts for a client
        self.is_active = False
        self.limits_addresses = False
        self.counts = ThrottleCounts()
        self._metadata = metadata
        self._clock = clock
        self._changes = Changes(metadata.feed)
        self._declared: dict[Entity, Limits] = {}
        self._stored: dict[Entity, dict[QuotaKey, float]] = {}
        self._all: dict[Entity, Limits] = {}
        self._clients: dict[tuple[str, str], ClientLimits] = {}
        self._rates: dict[_Scope, Rate] = {}

    async def load(self) -> None:
        """Load the stored quotas; once, before any other call."""
        await self._reload(None)
        self._changes.follow(ChangeKind.QUOTA, self._reload)

    async def _reload(self, _keys: frozenset[str] | None) -> None:
        stored = await self._metadata.quotas()
        if stored != self._stored:
            self._stored = stored
            self._adopt()

    async def close(self) -> None:
        """Wait for running changes."""
        await self._changes.close()

    def declare(self, declared: Mapping[Entity, Limits]) -> None:
        """Replace the quotas of the config file; stored ones of the same entities rest."""
        self._declared = dict(declared)
        self._adopt()

    # --- what there is, and changes

    def entities(self) -> Iterator[tuple[Entity, Limits]]:
        """Yield the entities with quotas, those of the config file first."""
        yield from self._all.items()

    def limits_of(self, entity: Entity) -> Limits:
        """Return the limits of an entity, none for an unknown one."""
        return self._all.get(entity, {})

    def is_declared(self, entity: Entity) -> bool:
        """Return whether the config file has the entity."""
        return entity in self._declared

    def check(self, entity: Entity, changes: Mapping[QuotaKey, float | None]) -> None:
        """Check that an entity may be changed. Errors: ``PolicyViolation``, ``Overloaded``."""
        if entity in self._declared:
            msg = f"the quotas of {entity.text()} are set in the config file"
            raise PolicyViolation(msg)
        is_new = entity not in self._stored and any(v is not None for v in changes.values())
        if is_new and len(self._stored) >= ENTITIES_MAX:
            msg = f"there are {ENTITIES_MAX} clients with quotas"
            raise Overloaded(msg)

    async def change(self, entity: Entity, changes: Mapping[QuotaKey, float | None]) -> None:
        """Set quotas of a checked entity; None removes one.

        Errors: as ``check``; ``StorageUnavailable``.
        """
        await self._changes.make(self._change, entity, changes)

    async def _change(self, entity: Entity, changes: Mapping[QuotaKey, float | None]) -> None:
        self.check(entity, changes)
        await self._metadata.change_quotas(entity, changes)
        limits = {**self._stored.get(entity, {}), **changes}
        kept = {key: value for key, value in limits.items() if value is not None}
        if kept:
            self._stored[entity] = kept
        else:
            self._stored.pop(entity, None)
        self._adopt()

    def _adopt(self) -> None:
        self._all = {**self._declared}
        for entity, limits in self._stored.items():
            self._all.setdefault(entity, limits)
        self._clients.clear()
        self.revision += 1
        self.is_active = any(entity.ip is None for entity in self._all)
        self.limits_addresses = any(entity.ip is not None for entity in self._all)

    # --- clients

    def of(self, user: str, client_id: str) -> ClientLimits:
        """Return the quotas of a client; the first ``NAME_CHARS_MAX`` of its client id count."""
        client_id = client_id[:NAME_CHARS_MAX]
        found = self._clients.get((user, client_id))
        if found is None:
            if len(self._clients) >= CLIENTS_MAX:
                self._clients.clear()
            found = self._clients[user, client_id] = self._resolve(user, client_id)
        return found

    def _resolve(self, user: str, client_id: str) -> ClientLimits:
        if not self.is_active:
            return _NO_LIMITS
        return ClientLimits(
            *(
                self._meter(key, user, client_id)
                for key in (
                    QuotaKey.PRODUCER_BYTE_RATE,
                    QuotaKey.CONSUMER_BYTE_RATE,
                    QuotaKey.REQUEST_PERCENTAGE,
                    QuotaKey.CONTROLLER_MUTATION_RATE,
                )
            )
        )

    def _meter(self, key: QuotaKey, user: str, client_id: str) -> Meter | None:
        found = resolve(self._all, key, user, client_id)
        if found is None:
            return None
        rate = self._rate((key, found.user, found.client_id), found.limit)
        return Meter(key, found.limit, rate, self._clock, self.counts)

    def _rate(self, scope: _Scope, limit: float) -> Rate:
        rate = self._rates.get(scope)
        if rate is None:
            if len(self._rates) >= RATES_MAX:
                self._rates.pop(next(iter(self._rates)))
            if scope[0] is QuotaKey.CONTROLLER_MUTATION_RATE:
                rate = TokenBucket(self._clock.monotonic_ms(), limit)
            else:
                rate = WindowedRate()
            self._rates[scope] = rate
        return rate

    def admits_connection(self, host: str) -> bool:
        """Count a new connection of an address; False when it makes too many."""
        limit = resolve_ip(self._all, host)
        if limit is None:
            return True
        key = QuotaKey.CONNECTION_CREATION_RATE
        meter = Meter(
            key, limit, self._rate((key, host, None), limit), self._clock, self.counts
        )
        if meter.charge(1):
            meter.refund(1)
            return False
        return True

    # --- metrics

    def register_metrics(self, metrics: Metrics) -> None:
        """Register the quotas' metrics."""
        metrics.gauge(
            "headgate_quota_entities",
            "Entities with client quotas, stored and declared.",
            lambda: len(self._all),
        )
        metrics.gauge(
            "headgate_quota_rates", "Rates measured for quotas.", lambda: len(self._rates)
        )
        metrics.counters_fn(
            "headgate_quota_throttles_total",
            "Requests that were throttled, and connections refused, by quota.",
            ("quota",),
            lambda: _samples(self.counts.count.items()),
        )
        metrics.counters_fn(
            "headgate_quota_throttle_seconds_total",
            "Seconds of these throttles.",
            ("quota",),
            lambda: _samples(
                (key, sum_ms / 1_000) for key, sum_ms in self.counts.sum_ms.items()
            ),
        )


def _samples(
    values: Iterable[tuple[QuotaKey, float]],
) -> list[tuple[tuple[str, ...], float]]:
    return [((key.value,), value) for key, value in values]
