"""GetCallerIdentity of STS: the account and the ARN of the caller."""

from typing import TYPE_CHECKING, Final

from adapters.sqs.call import Call, Result

if TYPE_CHECKING:
    from adapters.sqs.node import SqsNode

ACTION: Final = "GetCallerIdentity"


def handle(call: Call, node: "SqsNode") -> Result:  # noqa: ARG001 - the signature of handlers
    """Return the account and the ARN; no permission is needed."""
    identity = call.identity
    account = identity.account
    name = "root" if identity.principal.is_anonymous else f"user/{identity.principal.name}"
    return {"Arn": f"arn:aws:iam::{account}:{name}", "Account": account}
