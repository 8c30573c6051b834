"""Contribution of AMQP to the kernel."""

from typing import Final

from adapters.amqp.rule_types import PERMISSION
from gateway.contributions import ConsolePage, Contribution

CONTRIBUTION: Final = Contribution(
    resource_types=(PERMISSION,),
    console_pages=(ConsolePage("amqp", "AMQP", "adapters.amqp.console"),),
)
