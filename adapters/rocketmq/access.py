"""Signatures of requests (``AclUtils``): ACL 1.0 and 2.0 of RocketMQ sign alike.

    AccessKey   id of the key, ``headgate users keys``
    Signature   base64 of the HMAC-SHA1, by the key's secret, of the values of all other fields in
                the order of their names, and the body

A request without a key, or with an empty one as the C++ client sends it, is anonymous.
"""

import hmac
from base64 import b64encode
from typing import Final

from adapters.rocketmq.remoting.wire import Command
from gateway.auth.access_keys import AccessKeys
from gateway.auth.ports import ANONYMOUS, Principal
from gateway.errors import Unauthenticated

PROTOCOL: Final = "rocketmq"
ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
_SIGNS_UNIQUE_KEY_QUERY_FROM: Final = 401  # clients up to 4.9.3 add it after they have signed


def authenticate(
    command: Command, keys: AccessKeys, host: str, *, is_required: bool
) -> Principal:
    """Return the principal of a request. Error: ``Unauthenticated``."""
    key_id = command.fields.get(ACCESS_KEY, "")
    key = keys.find(key_id) if key_id else None
    if key is None:
        if is_required:
            raise Unauthenticated(f"No accessKey is configured for {key_id[:80]!r}")
        return Principal(ANONYMOUS, PROTOCOL, host)
    given = command.fields.get(SIGNATURE, "")
    expected = sign(command, key.secret)
    if not hmac.compare_digest(given.encode(), expected.encode()):
        raise Unauthenticated(f"Check signature failed for accessKey={key_id[:80]}")
    return Principal(key.user, PROTOCOL, host)


def sign(command: Command, secret: str) -> str:
    """Return the signature of a command."""
    omits = command.version < _SIGNS_UNIQUE_KEY_QUERY_FROM
    values = [
        value
        for name, value in sorted(command.fields.items())
        if name != SIGNATURE and not (omits and name == _UNIQUE_KEY_QUERY)
    ]
    digest = hmac.new(secret.encode(), "".join(values).encode(), "sha1")
    digest.update(command.body)
    return b64encode(digest.digest()).decode()
