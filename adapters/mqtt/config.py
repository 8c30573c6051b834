"""Settings of the MQTT listeners: ``[adapters.mqtt]``."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from adapters.mqtt.packets.properties import USER_PROPERTIES_MAX_MIN
from adapters.mqtt.route_config import RouteConfig, check_routes
from gateway.config.base import BindAddress, FrozenConfig, ListenerConfig
from gateway.config.settings import Settings

_MIB = 1024 * 1024
_RETENTION_MS_DEFAULT = "604800000"  # Kafka's: seven days
_MESSAGE_BYTES_DEFAULT = "1048588"  # Kafka's too
# A record may have its topic twice (as key and header), and frames of its own.
_RECORD_EXTRA_BYTES = 131_072
_HANDED_OVER_BYTES = 2 << 20  # a round of publishes, and as much in the socket


class SessionConfig(FrozenConfig):
    """Sessions: how long, how many, how far behind."""

    expiry_s_max: int = Field(
        default=7 * 86_400,
        ge=0,
        le=0xFFFFFFFF,
        description="Seconds that a session outlives its connection at most.",
    )
    count_max: int = Field(default=1_000_000, ge=1, description="Sessions of all clients.")
    subscriptions_max: int = Field(
        default=10_000, ge=1, description="Subscriptions of one session."
    )
    filter_bytes_max: int = Field(
        default=2 * _MIB,
        ge=1,
        description="Bytes of all topic filters of one session, and of ended ones.",
    )
    inflight_max: int = Field(
        default=1_024,
        ge=1,
        le=65_535,
        description="QoS 1 and 2 messages on their way to one client.",
    )
    receive_max: int = Field(
        default=1_024,
        ge=1,
        le=65_535,
        description="Receive Maximum: QoS 1 and 2 messages on their way from one client.",
    )
    backlog_max: int = Field(
        default=10_000_000,
        ge=1,
        description="Log records a session may be behind; older ones are skipped and counted.",
    )
    checkpoint_ms: int = Field(
        default=1_000,
        ge=10,
        le=3_600_000,
        description="Milliseconds between writes of what sessions have acknowledged; sooner for "
        "a session that has acknowledged some 8,000 messages since.",
    )


class WebSocketConfig(ListenerConfig):
    """The WebSocket listener (subprotocol ``mqtt``)."""

    authenticates_users: ClassVar[bool] = True

    enabled: bool = Field(
        default=True,
        description="Whether to listen, where this table is there; without it only a node of "
        "which nothing is configured in `[adapters.mqtt]` listens.",
    )
    bind: BindAddress = Field(default="127.0.0.1:8083", description="Address to listen on.")
    path: str = Field(default="/mqtt", description="Path of the upgrade request.")
    origins: tuple[str, ...] = Field(
        default=(),
        description="Origins of web pages that may connect, as browsers send them "
        "(`https://app.example`); none given means pages of the host that they call.",
    )
    hosts: tuple[str, ...] = Field(
        default=(),
        description="Public DNS names by which clients may call while login is not required; IP "
        "addresses and names that are not public are always accepted.",
    )
    control_frames_max: int = Field(
        default=100,
        ge=10,
        le=1_000_000,
        description="Ping, Pong and empty frames of one connection in a second, and before "
        "CONNACK in all; more close it.",
    )


class MqttTlsConfig(ListenerConfig):
    """A second TCP listener, for TLS beside the plain one."""

    authenticates_users: ClassVar[bool] = True

    bind: BindAddress = Field(default="127.0.0.1:8883", description="Address to listen on.")


class MqttRule(FrozenConfig):
    """One access rule; the first that matches decides, but for stored rules that deny."""

    effect: Literal["allow", "deny"] = Field(description="Effect of a match.")
    action: Literal["publish", "subscribe", "all"] = Field(
        default="all", description="Action of the client."
    )
    user: str = Field(default="*", min_length=1, description="User name, or `*`.")
    client: str = Field(default="*", min_length=1, description="Client identifier, or `*`.")
    filter: str = Field(
        min_length=1,
        description="Topic filter; `%c` is the client identifier, `%u` the user name.",
    )
    match: Literal["filter", "eq"] = Field(
        default="filter",
        description="`eq`: the filter as it is written. Denied to subscribe, a topic's messages "
        "are left out of wider subscriptions, which are granted.",
    )


class MqttConfig(ListenerConfig):
    """Every limit has a number; none is infinite."""

    authenticates_users: ClassVar[bool] = True
    when_unconfigured: ClassVar[Mapping[str, Any]] = {"websocket": {}}

    bind: BindAddress = Field(default="127.0.0.1:1883", description="Address to listen on.")
    connections_max: int = Field(
        default=100_000,
        ge=1,
        le=1_000_000,
        description="Open connections; more are closed at once.",
    )
    connections_per_ip_max: int = Field(
        default=100_000, ge=1, le=1_000_000, description="Open connections of one IP address."
    )
    websocket: WebSocketConfig | None = Field(
        default=None, description="A listener for WebSocket; see there when it listens."
    )
    tls: MqttTlsConfig | None = Field(
        default=None, description="A second TCP listener, usually with `tls_cert`."
    )
    routes: tuple[RouteConfig, ...] = Field(
        default=(), description="Before the default route: `#` to the topic `mqtt`."
    )
    default_route: RouteConfig = Field(
        default=RouteConfig(filter="#", topic="mqtt"),
        description="Route of messages that no other route matches.",
    )
    session: SessionConfig = SessionConfig()
    packet_bytes_max: int = Field(
        default=_MIB,
        ge=1024,
        le=268_435_460,
        description="Maximum Packet Size: bytes of one packet from a client.",
    )
    connect_bytes_max: int = Field(
        default=100_000,
        ge=1_024,
        le=268_435_460,
        description="Bytes of CONNECT, which anybody may send; a larger one is refused before it "
        "is read.",
    )
    connect_properties_max: int = Field(
        default=256,
        ge=1,
        le=1_000_000,
        description="User properties of CONNECT, and as many of its will; more are refused.",
    )
    packet_properties_max: int = Field(
        default=1_000,
        ge=USER_PROPERTIES_MAX_MIN,
        le=1_000_000,
        description="User properties of a packet after the login; more close the connection.",
    )
    packet_filters_max: int = Field(
        default=10_000,
        ge=1,
        description="Topic filters of one SUBSCRIBE or UNSUBSCRIBE; more close the connection.",
    )
    topic_levels_max: int = Field(
        default=128, ge=1, le=65_535, description="Levels of a topic name or filter."
    )
    topic_alias_max: int = Field(
        default=64, ge=0, le=65_535, description="Topic aliases of one connection, each way."
    )
    receiver_bytes_max: int = Field(
        default=4 * _MIB,
        ge=64 * 1024,
        description="Bytes that wait for a slow receiver; above, it gets QoS 0 from the log.",
    )
    qos0_lag_bytes_max: int = Field(
        default=2048 * _MIB,
        ge=0,
        description="Bytes of the log that a connected receiver of QoS 0 may be behind; above, "
        "what it has not had is dropped and counted, and it goes on with what is new.",
    )
    qos0_lag_ms_max: int = Field(
        default=60_000,
        ge=0,
        description="Milliseconds that a connected receiver of QoS 0 may be behind; as above.",
    )
    receiver_bytes_hard_max: int = Field(
        default=16 * _MIB,
        ge=64 * 1024,
        description="Bytes that wait for a receiver before it is cut off (Quota exceeded): "
        "2 MiB and a packet above receiver_bytes_max, or more.",
    )
    unacknowledged_bytes_max: int = Field(
        default=16 * _MIB,
        ge=64 * 1024,
        description="Published bytes of one connection not kept yet; more are not read.",
    )
    keep_alive_s_max: int = Field(
        default=65_535,
        ge=1,
        le=65_535,
        description="Keep alive a client may ask for; above, the server's own is announced.",
    )
    connects_per_s_max: int = Field(
        default=10_000, ge=1, description="New sessions a second; more are told to come back."
    )
    retained_max: int = Field(
        default=2_000_000, ge=1, description="Retained messages of all topics."
    )
    retained_bytes_max: int = Field(
        default=2048 * _MIB, ge=_MIB, description="Bytes of all retained messages."
    )
    shared_strategy: Literal["round_robin", "sticky", "hash_topic"] = Field(
        default="round_robin",
        description="Way in which a shared subscription picks a receiver.",
    )
    sys_interval_s: int = Field(
        default=10, ge=0, le=3_600, description="Seconds between `$SYS` messages; 0 for none."
    )
    server_reference: str = Field(
        default="",
        description="Server to which a draining node sends its 5.0 clients (host:port).",
    )
    acl: tuple[MqttRule, ...] = Field(
        default=(), description="Access rules, first match wins; see `headgate rules`."
    )
    acl_default: Literal["allow", "deny"] | None = Field(
        default=None,
        description="Decision when neither a rule of `acl` nor a stored rule matches. Unset: the "
        "rules for the topic of the log decide, then `auth.default`.",
    )

    @model_validator(mode="after")
    def _check_routes(self) -> Self:
        check_routes((*self.routes, self.default_route))
        return self

    @model_validator(mode="after")
    def _check_receivers(self) -> Self:
        if self.receiver_bytes_hard_max < self.receiver_bytes_max:
            msg = (
                f"receiver_bytes_hard_max: {self.receiver_bytes_hard_max} is below "
                f"receiver_bytes_max, {self.receiver_bytes_max}"
            )
            raise ValueError(msg)
        return self

    @property
    def message_bytes(self) -> int:
        """Return the largest size of the record of one packet, in bytes."""
        return self.packet_bytes_max + _RECORD_EXTRA_BYTES

    def warnings(self, settings: Settings) -> list[str]:
        """Return what is legal but may surprise, most of it about topics of routes."""
        found: list[str] = []
        least_bytes = self.receiver_bytes_max + self.packet_bytes_max + _HANDED_OVER_BYTES
        if self.receiver_bytes_hard_max < least_bytes:
            found.append(
                f"receiver_bytes_hard_max: below {least_bytes} (receiver_bytes_max, a packet, and "
                "what is handed over at once) slow receivers are cut off whose messages could wait"
            )
        for route in (*self.routes, self.default_route):
            found += self._warnings_of(route.topic, settings)
        return found

    def _warnings_of(self, topic: str, settings: Settings) -> Iterator[str]:
        defaults = settings.topic_defaults.configs
        declared = {one.name: one.configs for one in settings.topics}.get(topic)
        configs = {**defaults, **(declared or {})}
        retention_s = int(configs.get("retention.ms", _RETENTION_MS_DEFAULT)) // 1_000
        if 0 <= retention_s < self.session.expiry_s_max:
            yield (
                f"session.expiry_s_max: a session may be away for "
                f"{self.session.expiry_s_max} s, but topic {topic} keeps messages "
                f"for {retention_s} s (retention.ms)"
            )
        message_bytes = int(configs.get("max.message.bytes", _MESSAGE_BYTES_DEFAULT))
        if declared is not None and message_bytes < self.message_bytes:  # else made to fit
            yield (
                f"packet_bytes_max: a packet may have {self.packet_bytes_max} bytes, but topic "
                f"{topic} takes {message_bytes} (max.message.bytes; {self.message_bytes} would "
                "take all): larger ones are refused"
            )
