"""Settings of login and authorization: ``[auth]`` and ``[[auth.rules]]``."""

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from gateway.config.base import FrozenConfig

_DAY_MS: Final = 86_400_000


class AuthRule(FrozenConfig):
    """One rule of `[[auth.rules]]`: it allows or denies users an operation on resources."""

    principal: str = Field(
        default="*", min_length=1, description="User name, `ANONYMOUS`, or `*` for everybody."
    )
    protocol: str = Field(default="*", min_length=1, description="Adapter's name, or `*`.")
    host: str = Field(
        default="*", min_length=1, description="IP address of the client, or `*`."
    )
    client: str = Field(
        default="*",
        min_length=1,
        description="Client identifier, or `*`; for types whose rules name clients, such as "
        "`mqtt_topic`.",
    )
    operation: str = Field(
        default="all",
        description="Operation: `all`, `read`, `write`, `create`, `delete`, `alter`, `describe`, "
        "`describe_configs`, `alter_configs`, `cluster_action`, `idempotent_write`; `publish` and "
        "`subscribe` are for `mqtt_topic`. Plug-ins may have words of their own.",
    )
    resource: str = Field(
        default="topic",
        description="Type of the resource: `topic`, `group`, `cluster`, `transactional_id`, "
        "`exchange`, `mqtt_topic`, or a type that a plug-in has.",
    )
    pattern: str = Field(
        default="any",
        min_length=1,
        description="Way in which `name` selects resources: `literal`, `prefix`, `any`; `filter`, "
        "and `eq` for a filter as it is written, go with `mqtt_topic`; plug-ins may have more.",
    )
    name: str = Field(
        default="",
        description="Name or prefix of the resource, or a topic filter in which `%c` and `%u` are "
        "the client's identifier and user; empty for `any`.",
    )
    effect: Literal["allow", "deny"] = Field(
        default="allow", description="A matching `deny` wins over every `allow`."
    )

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if (self.pattern == "any") != (self.name == ""):
            msg = (
                'name goes with pattern other than "any"; set both, such as pattern = "literal"'
            )
            raise ValueError(msg)
        return self


class AuthConfig(FrozenConfig):
    """Login and authorization."""

    required: bool | None = Field(
        default=None,
        description="Whether everybody must log in. Unset: as stored; the first "
        "`headgate users add` sets it, and nothing clears it but this key.",
    )
    default: Literal["allow", "deny"] | None = Field(
        default=None,
        description="Decision where login is required and no rule selects the user and the "
        "resource. Unset: `deny`, but `allow` in a directory of an earlier version without rules.",
    )

    super_users: tuple[str, ...] = Field(
        default=(), description="Users with all permissions; rules do not apply to them."
    )
    rules: tuple[AuthRule, ...] = Field(
        default=(), description="Rules in addition to those in the metadata store."
    )
    sha256_iterations: int = Field(
        default=600_000,
        ge=4_096,
        le=1_000_000,
        description="Rounds of PBKDF2 for new passwords, SCRAM-SHA-256. Clients compute them too; "
        "stored passwords keep theirs.",
    )
    sha512_iterations: int = Field(
        default=210_000,
        ge=4_096,
        le=1_000_000,
        description="The same for SCRAM-SHA-512.",
    )
    failure_delay_ms: int = Field(
        default=200,
        ge=0,
        le=8_000,
        description="Milliseconds before a failed login is answered; they double with each "
        "failure of the same user from the same address.",
    )
    failure_delay_ms_max: int = Field(
        default=5_000,
        ge=0,
        le=8_000,
        description="Longest such delay; well below `handshake_s_max`.",
    )
    failure_memory_ms: int = Field(
        default=600_000,
        ge=1_000,
        le=_DAY_MS,
        description="Milliseconds without a failure after which earlier ones are forgotten.",
    )
    failures_remembered_max: int = Field(
        default=10_000,
        ge=16,
        le=1_000_000,
        description="Users and addresses whose failures are remembered; the oldest are dropped "
        "first.",
    )
    delayed_logins_per_ip_max: int = Field(
        default=50,
        ge=1,
        le=100_000,
        description="Delayed logins of one IP address; more from there are refused unchecked.",
    )
    checks_per_ip_max: int = Field(
        default=10,
        ge=1,
        le=100,
        description="Logins of one IP address that are checked at once after more than ten of "
        "them have failed; more from there are refused, retriable.",
    )
