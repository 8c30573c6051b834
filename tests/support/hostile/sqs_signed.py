"""Faulty SQS requests that are signed rightly, wrongly or not at all."""

import random
from typing import Final

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.hostile import sqs
from tests.support.hostile.users import User

REQUESTS_PER_CONNECTION: Final = 8  # most faults end the connection
_STRANGER: Final = User("nobody", "wrong", "KEYOFNOBODY")


def words(chooser: random.Random, user: User | None) -> list[bytes]:
    """Return the requests of a connection; the last of them closes it."""
    said = []
    for _ in range(REQUESTS_PER_CONNECTION - 1):
        is_valid = chooser.randrange(4) == 0
        raw = sqs.valid_request(chooser) if is_valid else chooser.choice(sqs.FAULTS)(chooser)
        signer = user or chooser.choice([None, None, _STRANGER])
        said.append(raw if signer is None else signed(raw, signer))
    return [*said, sqs.CLOSE]


def is_answered(_tail: bytes) -> bool:
    """Say no: the server closes the connection when all is answered."""
    return False


def signed(raw: bytes, user: User) -> bytes:
    """Return a request with a signature of its own; as it was when it is hardly HTTP."""
    head, split, body = raw.partition(b"\r\n\r\n")
    try:
        first, *lines = head.decode("ascii").split("\r\n")
        method, target, _version = first.split(" ")
        headers = dict(line.split(": ", 1) for line in lines)
        wanted = AWSRequest(method, f"http://localhost{target}", headers={**headers}, data=body)
        SigV4Auth(Credentials(user.key_id, user.password), "sqs", "us-east-1").add_auth(wanted)
    except ValueError:
        return raw
    more = "".join(
        f"\r\n{name}: {wanted.headers[name]}" for name in ("X-Amz-Date", "Authorization")
    )
    return head + more.encode() + split + body
