"""Composition root: makes the parts of a node, in order, and closes them in reverse.

Start: metadata, log, producer state, internal streams, delays, queues, cleaning, listeners. Stop
(SIGTERM, SIGINT, or a fault of the storage): drain, then the same backwards. Nothing else knows
all the parts.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import structlog
import uvloop

from gateway import descriptors
from gateway.admin.server import AdminServer
from gateway.admin.state import AdminState
from gateway.admission import Admission
from gateway.allocator import keep_freed_memory
from gateway.auth.access_keys import AccessKeys
from gateway.auth.audit import Audit
from gateway.auth.declared import read_declared
from gateway.auth.login_policy import LoginPolicy
from gateway.auth.login_record import LoginRecord
from gateway.auth.login_throttle import LoginThrottle
from gateway.auth.rules import RuleBook
from gateway.auth.start_tokens import start_tokens
from gateway.auth.users import StoredUsers, iterations_of
from gateway.broker import Broker
from gateway.clock import Clock, SystemClock
from gateway.config.advice import cannot_listen, check_exposure, listeners_of
from gateway.config.base import InvalidSettings
from gateway.config.settings import Settings
from gateway.contributions import Contributions
from gateway.delays.sharded import ShardedDelays
from gateway.disk_reserve import DiskReserve
from gateway.errors import GatewayError, StorageUnavailable
from gateway.exchanges.start import start_exchanges
from gateway.garbage_collector import enable_collector
from gateway.groups.start import start_groups
from gateway.internal_metrics import register_metrics
from gateway.kernel import Kernel, ProtocolAdapter
from gateway.leaser import start_leaser
from gateway.memory_topics import open_memory, start_broker
from gateway.metadata.follower import follow_metadata
from gateway.metadata.sql import SqlMetadata
from gateway.metadata.store import reconcile
from gateway.metrics import Metrics
from gateway.model import PartitionIdentity
from gateway.monitoring.topic_traffic import TopicTraffic
from gateway.placement import SingleNode
from gateway.private_files import make_data_dir
from gateway.producers import ProducerStates, open_producers
from gateway.queues.starting import start_queues, start_routing
from gateway.quotas.start import start_quotas
from gateway.registry import adapter_class, storage_class
from gateway.reloading import Access, Reloading
from gateway.shard_count import shard_count_of
from gateway.sql.engines import engine_url
from gateway.startup_log import announce, node_fields
from gateway.systemd_notify import SystemdNotify
from gateway.topics.declared import forget_partitions, make_topics
from gateway.topics.manager import TopicManager
from gateway.tracing.start import start_tracing
from gateway.transaction_states import TransactionStates
from gateway.transactions.start import start_transactions
from gateway.transfer.transfers import Transfers
from gateway.upkeep.archive_holds import ArchiveHolds
from gateway.upkeep.compaction import Compaction, can_compact, open_clean_offsets
from gateway.upkeep.idle_collection import IdleCollection
from gateway.upkeep.key_indexer import KeyIndexer
from gateway.upkeep.malloc_trim import MallocTrim
from gateway.upkeep.retention import Retention
from gateway.upkeep.scrub import Scrub

STATUS_OK: Final = 0
STATUS_FAULT: Final = 1
STATUS_USAGE: Final = 2

log = structlog.get_logger()


def run(settings: Settings, read: Callable[[], Settings] | None = None) -> int:
    """Run a node until SIGTERM, SIGINT or a fault; return the process's exit status.

    ``read`` reads the settings anew, for SIGHUP.
    """
    keep_freed_memory()
    descriptors.raise_limit()
    enable_collector()
    return uvloop.run(_Node(settings, read).run())


class _Node:
    """Running node, and the ``StorageHost`` that its storage calls back."""

    def __init__(self, settings: Settings, read: Callable[[], Settings] | None = None) -> None:
        self._settings = settings
        self._read = read
        self._clock = SystemClock()
        self._contributions = Contributions.of(settings.adapters)
        self._stop = asyncio.Event()
        self._fault: BaseException | None = None
        self._topics: TopicManager | None = None
        self._metrics = Metrics()
        self._adapters: dict[str, ProtocolAdapter] = {}
        self._reloading: Reloading | None = None
        self._auth: tuple[StoredUsers, RuleBook, AccessKeys] | None = None

    # --- StorageHost

    @property
    def node_id(self) -> int:
        """See ``StorageHost``."""
        return self._settings.node.node_id

    @property
    def metadata_url(self) -> str:
        """See ``StorageHost``."""
        return engine_url(self._settings.metadata.database_url, self._settings.node.data_dir)

    def identify(self, partition_id: int) -> PartitionIdentity:
        """See ``StorageHost``."""
        assert self._topics is not None
        return self._topics.identify(partition_id)

    def on_fault(self, error: BaseException) -> None:
        """See ``StorageHost``: stop the node after a failed write or sync (law 4)."""
        self._fault = error
        log.critical("storage failed, the node stops", error=str(error))
        self._stop.set()

    # --- running

    async def run(self) -> int:
        """Start, wait, stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        try:
            async with AsyncExitStack() as stack:
                await self._start(stack)
                await self._stop.wait()
                log.info("draining", seconds_max=self._settings.node.drain_s_max)
        except InvalidSettings:
            raise
        except (StorageUnavailable, GatewayError) as error:
            sys.stderr.write(f"headgate: {error}\n")
            return STATUS_FAULT
        return STATUS_OK if self._fault is None else STATUS_FAULT

    def _reload(self) -> None:
        if self._reloading is None:
            log.info("SIGHUP while starting: everything is read just now")
        else:
            self._reloading.reload()

    async def _start(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        supervisor = SystemdNotify.of(asyncio.get_running_loop(), os.environ)
        stack.callback(supervisor.close)
        make_data_dir(settings.node.data_dir)
        storage = self._claimed_storage()
        reserve = DiskReserve(settings.node.data_dir, settings.node.disk_reserve_bytes)
        reserve.release_when_full()
        state = AdminState(metrics=self._metrics, adapters=self._adapters)
        admin = AdminServer(settings.admin, state, data_dir=settings.node.data_dir)
        await admin.start()
        stack.push_async_callback(admin.stop)
        kernel = await self._start_kernel(storage, stack)
        start_tracing(kernel.broker.writer, self._clock, settings, self._metrics, stack)
        if settings.enforces:
            from gateway.deployment.start import enforce

            await enforce(kernel)
        state.kernel = kernel
        await self._start_adapters(kernel, stack)
        broker = kernel.broker
        follow_metadata(
            kernel.metadata, self.metadata_url, broker.placement, broker.shards, stack
        )
        # Only while adapters run: MQTT notes what is to be retained as it comes to its topic.
        kernel.delays.start()
        stack.callback(kernel.delays.stop)
        register_metrics(kernel, self._adapters)
        reserve.start()
        stack.callback(reserve.stop)
        assert self._auth is not None
        access = Access(*self._auth, kernel.logins, kernel.quotas)
        self._reloading = Reloading(settings, self._read, self._adapters, access)
        stack.callback(self._reloading.close)
        state.is_ready = True
        stack.callback(lambda: setattr(state, "is_ready", False))
        freed_memory = MallocTrim(asyncio.get_running_loop())
        freed_memory.start()
        stack.callback(freed_memory.stop)
        announce(self._adapters.values(), admin.url)
        log.info("ready", pid=os.getpid())
        supervisor.ready()
        stack.callback(supervisor.stopping)

    def _claimed_storage(self) -> Any:  # noqa: ANN401 - a plug-in's class
        """Return the unopened storage. Error: ``StorageUnavailable``: another process has it."""
        settings = self._settings
        storage = storage_class(settings.storage.adapter)(
            settings.storage.options, data_dir=settings.node.data_dir, clock=self._clock
        )
        claim = getattr(storage, "claim", None)
        if claim is not None:
            claim()
        return storage

    async def _start_kernel(self, storage: Any, stack: AsyncExitStack) -> Kernel:  # noqa: ANN401
        settings, clock = self._settings, self._clock
        metadata = SqlMetadata.of(settings)
        await metadata.open()
        stack.push_async_callback(metadata.close)
        self._auth = users, rules, access_keys = await self._start_auth(metadata, stack)
        check_exposure(settings, users_configured=users.required)
        log.info("starting", **node_fields(settings, users, access_keys))
        topics = TopicManager(
            metadata,
            defaults=settings.topic_defaults,
            clock=clock,
            can_compact=can_compact(storage),
            contributions=self._contributions,
        )
        await topics.load()
        stack.push_async_callback(topics.close)
        self._topics = topics

        await storage.open(self)
        storage = await open_memory(storage, self, topics, clock, settings.memory)
        stack.push_async_callback(storage.close)
        if storage.data_uuid is not None:
            await reconcile(metadata, storage.data_uuid, log_is_empty=storage.is_empty)
        await LoginRecord(storage, users).start()
        shard_count = await shard_count_of(metadata, topics, settings.node.shards)
        placement = SingleNode(
            storage.incarnation,
            node_id=settings.node.node_id,
            cluster_id=await metadata.cluster_id(),
            shard_count=shard_count,
        )
        broker = start_broker(
            storage, topics, placement, clock, settings.broker, TopicTraffic(settings.metrics)
        )
        await make_topics(topics, settings.topics)

        producers = ProducerStates(
            await open_producers(broker, topics, clock),
            broker,
            topics,
            clock,
            settings.broker,
            transactions=await TransactionStates.open(broker, topics, clock),
        )
        await producers.load()
        stack.callback(producers.close)
        cursors, groups = await start_groups(broker, topics, clock, settings.groups, stack)
        transfers = await Transfers.start(broker, topics, clock, stack)
        transactions = await start_transactions(
            broker, topics, cursors, transfers, clock, settings.transactions, metadata, stack
        )
        delays = await ShardedDelays.open(
            broker, topics, clock, settings.delay, transfers=transfers
        )
        stack.callback(delays.close)
        queues = await start_queues(broker, topics, clock, metadata, settings, transfers, stack)
        publisher = await start_exchanges(
            metadata, topics, broker, queues.coalescer, queues.transfers, clock, settings, stack
        )
        await start_routing(queues, topics, broker, publisher, stack)
        ArchiveHolds(broker, topics, cursors).start()
        await self._start_cleaning(broker, topics, clock, stack)
        scrub = Scrub(topics, broker, getattr(settings.storage.options, "scrub_bytes_per_s", 0))
        scrub.register_metrics(self._metrics)
        scrub.start()
        stack.callback(scrub.stop)
        audit = Audit(settings.log, clock)
        quotas = await start_quotas(metadata, clock, settings, self._metrics, stack)
        return Kernel(
            settings=settings,
            clock=clock,
            broker=broker,
            topics=topics,
            groups=groups,
            cursors=cursors,
            transactions=transactions,
            queues=queues,
            publisher=publisher,
            leaser=start_leaser(clock, stack),
            delays=delays,
            authenticator=users,
            authorizer=rules,
            access_keys=access_keys,
            placement=broker.placement,
            metadata=metadata,
            metrics=self._metrics,
            scrub=scrub,
            quotas=quotas,
            contributions=self._contributions,
            admission=Admission(settings.listeners, quotas),
            audit=audit,
            logins=LoginThrottle(settings.auth, audit, clock),
            tokens=await start_tokens(settings.oauth, clock, self._metrics, stack),
        )

    async def _start_auth(
        self, metadata: SqlMetadata, stack: AsyncExitStack
    ) -> tuple[StoredUsers, RuleBook, AccessKeys]:
        """Load users, access keys and rules."""
        config = self._settings.auth
        users = StoredUsers(
            metadata,
            LoginPolicy.of(metadata, self._settings),
        )
        users.iterations = iterations_of(config)
        stack.push_async_callback(users.close)
        declared = await read_declared(self._settings.users, users)
        await users.load()
        users.declare(declared.users)
        rules = RuleBook(
            metadata,
            users,
            static_rules=config.rules,
            default=config.default,
            types=self._contributions.resource_types,
        )
        await rules.load()
        stack.push_async_callback(rules.close)
        access_keys = AccessKeys(metadata)
        await access_keys.load()
        access_keys.declare(declared.keys)
        users.on_removed.append(access_keys.forget_user)
        access_keys.on_change.append(rules.forget_answers)
        stack.push_async_callback(access_keys.close)
        return users, rules, access_keys

    async def _start_cleaning(
        self, broker: Broker, topics: TopicManager, clock: Clock, stack: AsyncExitStack
    ) -> None:
        """Start retention and compaction, after all holders have registered their positions."""
        retention = Retention(topics, broker, clock, self._settings.retention)
        forgetters = [broker.holders.forget, retention.forget]
        if can_compact(broker.storage):
            stream = await open_clean_offsets(broker, topics, clock)
            compaction = Compaction(broker, topics, clock, self._settings.compaction, stream)
            await compaction.load()
            compaction.register_metrics(self._metrics)
            forgetters.append(compaction.forget)
            compaction.start()
            stack.callback(compaction.stop)
        topics.on_deleted.append(partial(forget_partitions, forgetters))
        retention.start()
        stack.callback(retention.stop)
        key_indexer = KeyIndexer(topics, broker.storage)
        key_indexer.register_metrics(self._metrics)
        key_indexer.start()
        stack.callback(key_indexer.stop)
        idle_memory = IdleCollection()
        idle_memory.start()
        stack.callback(idle_memory.stop)

    async def _start_adapters(self, kernel: Kernel, stack: AsyncExitStack) -> None:
        for name, config in self._settings.adapters.items():
            adapter: ProtocolAdapter = adapter_class(name)(config, kernel)
            try:
                await adapter.start()
            except OSError as error:
                bind = error.filename or getattr(config, "bind", "")
                paths = [
                    path
                    for path, listener in listeners_of(f"adapters.{name}", config)
                    if getattr(listener, "bind", None) == bind
                ]
                path = paths[0] if paths else f"adapters.{name}"
                raise InvalidSettings(cannot_listen(f"{path}.bind", bind, error)) from error
            stack.push_async_callback(adapter.stop)
            self._adapters[name] = adapter
        stack.push_async_callback(self._drain, kernel)

    async def _drain(self, kernel: Kernel) -> None:
        """Answer requests in flight, after group members were told to find another coordinator."""
        kernel.broker.shards.close()
        kernel.groups.close()
        seconds_max = self._settings.node.drain_s_max
        await asyncio.gather(
            *(adapter.drain(seconds_max) for adapter in self._adapters.values())
        )
