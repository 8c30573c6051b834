"""Methods of the class confirm (85): publisher confirms."""

from adapters.amqp.v091.methods.model import (
    Bit,
    Method,
    method,
)


@method(85, 10)
class ConfirmSelect(Method):
    """``confirm.select``."""

    nowait: Bit


@method(85, 11)
class ConfirmSelectOk(Method):
    """``confirm.select-ok``."""
