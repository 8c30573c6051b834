"""Methods of the class tx (90): transactions of a channel."""

from adapters.amqp.v091.methods.model import (
    Method,
    method,
)


@method(90, 10)
class TxSelect(Method):
    """``tx.select``."""


@method(90, 11)
class TxSelectOk(Method):
    """``tx.select-ok``."""


@method(90, 20)
class TxCommit(Method):
    """``tx.commit``."""


@method(90, 21)
class TxCommitOk(Method):
    """``tx.commit-ok``."""


@method(90, 30)
class TxRollback(Method):
    """``tx.rollback``."""


@method(90, 31)
class TxRollbackOk(Method):
    """``tx.rollback-ok``."""
