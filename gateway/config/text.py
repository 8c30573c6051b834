"""Settings in the shape of a config file."""

from typing import Any

from gateway.config.secrets import masked
from gateway.config.settings import Settings


def as_tables(settings: Settings) -> dict[str, Any]:
    """Return the settings in the shape of the config file, secrets as ``***``."""
    tables = masked(
        settings,
        settings.model_dump(
            mode="json", exclude={"adapters", "storage", "topics", "queues", "users"}
        ),
    )
    options = settings.storage.options
    shown = masked(options, options.model_dump(mode="json"))
    tables["storage"] = {"adapter": settings.storage.adapter, **shown}
    tables["adapters"] = {
        name: masked(config, config.model_dump(mode="json"))
        for name, config in settings.adapters.items()
    }
    tables["topics"] = [topic.model_dump(mode="json") for topic in settings.topics]
    tables["users"] = [masked(user, user.model_dump(mode="json")) for user in settings.users]
    tables["queues"] = [queue.model_dump(mode="json") for queue in settings.queues]
    return tables
