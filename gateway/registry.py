"""Adapter and storage classes by name: built-in ones and installed plug-ins.

A plug-in is a distribution with an entry point in ``headgate.adapters`` or
``headgate.storage_adapters`` whose name is the one used in the config file. Nothing is imported
before it is asked for by name, so that an unused protocol costs neither time nor memory. A
built-in name cannot be taken over by a plug-in.

A plug-in's class has the attribute ``PLUGIN_API``, the number of the interface that it was
written for; docs/plugins.md has the rule by which the number grows.
"""

import difflib
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from gateway.config.base import FrozenConfig
from gateway.errors import GatewayError
from gateway.installation import install_command

PLUGIN_API: Final = 1
"""Interface between this version and plug-ins; others are refused when they are loaded."""
ADAPTERS: Final[Mapping[str, str]] = {
    "kafka": "adapters.kafka.server:KafkaAdapter",
    "mqtt": "adapters.mqtt.server:MqttAdapter",
    "sqs": "adapters.sqs.server:SqsAdapter",
    "amqp": "adapters.amqp.server:AmqpAdapter",
    "rocketmq": "adapters.rocketmq.server:RocketMqAdapter",
}
NAMED_ADAPTERS: Final = frozenset({"rocketmq"})
"""Adapters that start only where the config names them."""
STORAGE_ADAPTERS: Final[Mapping[str, str]] = {
    "memory": "storage_adapters.memory:MemoryStorage",
    "segment_log": "storage_adapters.segment_log.adapter:SegmentLog",
    "s3": "storage_adapters.s3.adapter:S3Storage",
}
CONTRIBUTIONS: Final[Mapping[str, str]] = {
    "mqtt": "adapters.mqtt.contribution:CONTRIBUTION",
    "amqp": "adapters.amqp.contribution:CONTRIBUTION",
}
"""Contributions of built-in adapters, where they are found without loading the adapters."""
EXTRAS: Final[Mapping[str, str]] = {"boto3": "s3", "botocore": "s3"}  # what brings a module
ADAPTER_GROUP: Final = "headgate.adapters"
STORAGE_GROUP: Final = "headgate.storage_adapters"


class UnknownPlugin(GatewayError):
    """No adapter or storage of that name is built in or installed."""


class BrokenPlugin(GatewayError):
    """Plug-in that cannot be imported, or lacks what it must have."""


def adapter_class(name: str) -> type[Any]:
    """Return the protocol adapter ``name``. Errors: ``UnknownPlugin``, ``BrokenPlugin``."""
    return _load(name, ADAPTERS, group=ADAPTER_GROUP, what="adapter")


def storage_class(name: str) -> type[Any]:
    """Return the storage adapter ``name``. Errors: ``UnknownPlugin``, ``BrokenPlugin``."""
    return _load(name, STORAGE_ADAPTERS, group=STORAGE_GROUP, what="storage adapter")


def config_class(plugin: type[Any]) -> type[FrozenConfig]:
    """Return the plug-in's ``Config``. Errors: ``BrokenPlugin`` when it has none."""
    config = getattr(plugin, "Config", None)
    if not (isinstance(config, type) and issubclass(config, FrozenConfig)):
        msg = (
            f"{plugin.__module__}:{plugin.__qualname__} has no Config "
            "derived from gateway.config.FrozenConfig"
        )
        raise BrokenPlugin(msg)
    return config


def built_in_contribution(name: str) -> object:
    """Return the contribution of a built-in adapter that is in ``CONTRIBUTIONS``."""
    module_name, _, attribute = CONTRIBUTIONS[name].partition(":")
    return getattr(import_module(module_name), attribute)


def started_adapters() -> list[str]:
    """Return the names of the adapters that start where the config file names none."""
    return [name for name in ADAPTERS if name not in NAMED_ADAPTERS]


def adapter_names() -> list[str]:
    """Return the names of all adapters, built-in ones first."""
    return _names(ADAPTERS, ADAPTER_GROUP)


def storage_names() -> list[str]:
    """Return the names of all storage adapters, built-in ones first."""
    return _names(STORAGE_ADAPTERS, STORAGE_GROUP)


def _names(built_in: Mapping[str, str], group: str) -> list[str]:
    plugged_in = {point.name for point in entry_points(group=group)}
    return [*built_in, *sorted(plugged_in - built_in.keys())]


def _load(name: str, built_in: Mapping[str, str], *, group: str, what: str) -> type[Any]:
    if name in built_in:
        return _import(built_in[name], f"{what} {name!r}")
    points = list(entry_points(group=group, name=name))
    if not points:
        names = _names(built_in, group)
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
        msg = f"no {what} {name!r} is installed; {hint}"
        raise UnknownPlugin(msg)
    if len({point.value for point in points}) > 1:
        msg = f"{what} {name!r} is offered by {' and '.join(sorted(map(_origin, points)))}"
        raise BrokenPlugin(msg)
    what = f"{what} {name!r} of {_origin(points[0])}"
    plugin = _import(points[0].value, what)
    _check_interface(plugin, f"{what} ({points[0].value})")
    return plugin


def _check_interface(plugin: type[Any], what: str) -> None:
    """Refuse a plug-in that was written for another interface. Errors: ``BrokenPlugin``."""
    written_for = getattr(plugin, "PLUGIN_API", None)
    if written_for == PLUGIN_API:
        return
    if written_for is None:
        msg = f"{what} does not say which plug-in interface it needs: PLUGIN_API = {PLUGIN_API}"
    else:
        msg = (
            f"{what} needs plug-in interface {written_for!r}, this version of Headgate has "
            f"{PLUGIN_API}; install versions of both that fit"
        )
    raise BrokenPlugin(msg)


def _origin(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def _import(target: str, what: str) -> type[Any]:
    """Return the class that ``module:Class`` names."""
    module_name, _, class_name = target.partition(":")
    try:
        found = getattr(import_module(module_name), class_name)
    except Exception as error:  # A plug-in may raise anything; the operator needs its name.
        msg = f"{what} ({target}) cannot be loaded: {type(error).__name__}: {error}"
        missing = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
        if missing in EXTRAS:
            msg = f"{what} needs {missing}: {install_command(EXTRAS[missing])}"
        raise BrokenPlugin(msg) from error
    if not isinstance(found, type):
        msg = f"{what} ({target}) is not a class"
        raise BrokenPlugin(msg)
    return found
