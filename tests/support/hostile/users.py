"""Users that hostile clients log in as."""

from typing import NamedTuple


class User(NamedTuple):
    """A user with a password, which is the secret of the access key, or the admin's token."""

    name: str
    password: str
    key_id: str = ""
