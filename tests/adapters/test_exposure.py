"""Every built-in protocol may listen beyond loopback once login is required."""

import pytest

from gateway.config.advice import check_exposure
from gateway.config.base import InvalidSettings
from gateway.config.loader import load_settings
from gateway.registry import ADAPTERS


@pytest.mark.parametrize("adapter", sorted(ADAPTERS))
def test_users_open_every_protocol_to_others(adapter: str) -> None:
    settings = load_settings(assignments=[f"adapters.{adapter}.bind=0.0.0.0:1"])
    check_exposure(settings, users_configured=True)


@pytest.mark.parametrize("adapter", sorted(ADAPTERS.keys() - {"sqs"}))
def test_without_users_a_protocol_is_not_open_to_others(adapter: str) -> None:
    """SQS by itself answers strangers on loopback only."""
    settings = load_settings(assignments=[f"adapters.{adapter}.bind=0.0.0.0:1"])
    with pytest.raises(InvalidSettings, match="is open to others"):
        check_exposure(settings, users_configured=False)
