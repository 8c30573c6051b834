"""Contribution of AMQP to the kernel."""

from typing import Final

from adapters.amqp.rule_types import PERMISSION
from gateway.contributions import Contribution

CONTRIBUTION: Final = Contribution(resource_types=(PERMISSION,))
