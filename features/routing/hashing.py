"""Exchanges that choose one destination by a hash: x-consistent-hash and x-modulus-hash.

The consistent hash gives each destination as many buckets as its weight, the binding's routing
key, and finds the bucket by jump consistent hashing (Lamping and Veach). A message's routing key
is hashed, or the header or property that the exchange's arguments ``hash-header`` and
``hash-property`` name. Messages without that header or property all have the same hash.
The hash function is ours, so a key may lead to another queue than in RabbitMQ; it never changes
between versions and nodes.
"""

from bisect import bisect_right
from hashlib import blake2b
from itertools import accumulate
from typing import Final

from features.routing.destinations import Destinations
from features.routing.model import (
    Binding,
    Destination,
    InvalidBinding,
    InvalidExchange,
    Message,
    Table,
    format_arguments,
)

WEIGHT_MAX: Final = 10_000
HASH_HEADER: Final = "hash-header"
HASH_PROPERTY: Final = "hash-property"
PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")

_JUMP_MULTIPLIER: Final = 2_862_933_555_777_941_757
_WORD: Final = (1 << 64) - 1


class ConsistentHash:
    """Bindings of a consistent-hash exchange.

    Of several bindings to one destination the oldest counts; the next takes its place, with new
    buckets, when that is removed.
    """

    def __init__(self, arguments: Table) -> None:
        self._header = arguments.get(HASH_HEADER)
        self._property = arguments.get(HASH_PROPERTY)
        self._counting: list[Binding] = []  # in order of their buckets
        self._reached: set[Destination] = set()
        self._ends: list[int] = []  # of the buckets of each
        self._waiting: dict[Binding, None] = {}
        self.touched = 0

    def add(self, binding: Binding) -> None:
        """Add a binding; its buckets come behind those of all others."""
        if binding.destination in self._reached:
            self._waiting[binding] = None
        else:
            self._reached.add(binding.destination)
            self._counting.append(binding)
            last = self._ends[-1] if self._ends else 0
            self._ends.append(last + int(binding.routing_key))

    def remove(self, binding: Binding) -> None:
        """Remove a binding that is there; buckets behind its own move down."""
        if binding in self._waiting:
            del self._waiting[binding]
            return
        self._counting.remove(binding)
        self._reached.remove(binding.destination)
        self._ends = list(accumulate(int(one.routing_key) for one in self._counting))
        for one in self._waiting:
            if one.destination == binding.destination:
                del self._waiting[one]
                self.add(one)
                break

    def match(self, message: Message, found: Destinations) -> None:
        """Add the destination of the message's bucket."""
        if self._ends:
            self.touched += 1
            bucket = jump_hash(self._hash(message), self._ends[-1])
            index = bisect_right(self._ends, bucket)
            found.add(self._counting[index].destination)

    def _hash(self, message: Message) -> int:
        if isinstance(self._header, str):
            value = message.headers.get(self._header)
            return hash_text(format_arguments({"": value}))
        if isinstance(self._property, str):
            return hash_text(message.properties.get(self._property, ""))
        return hash_text(message.routing_keys[0])


class ModulusHash:
    """Bindings of a modulus-hash exchange: the one whose index is the routing key's hash."""

    def __init__(self) -> None:
        self._bindings: list[Binding] = []
        self.touched = 0

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        self._bindings.append(binding)

    def remove(self, binding: Binding) -> None:
        """Remove a binding that is there."""
        self._bindings.remove(binding)

    def match(self, message: Message, found: Destinations) -> None:
        """Add the destination of one binding."""
        if self._bindings:
            self.touched += 1
            index = hash_text(message.routing_keys[0]) % len(self._bindings)
            found.add(self._bindings[index].destination)


def check_hash_arguments(arguments: Table) -> None:
    """Check the arguments of a consistent-hash exchange. Error: ``InvalidExchange``."""
    header, named = arguments.get(HASH_HEADER), arguments.get(HASH_PROPERTY)
    for name, value in ((HASH_HEADER, header), (HASH_PROPERTY, named)):
        if value is not None and not isinstance(value, str):
            raise InvalidExchange(f"{name} must be text")
    if header is not None and named is not None:
        raise InvalidExchange("hash-header and hash-property are mutually exclusive")
    if named is not None and named not in PROPERTIES:
        raise InvalidExchange(f"Unsupported property: {named!r}")


def check_weight(binding: Binding) -> None:
    """Check that the routing key is a weight. Error: ``InvalidBinding``."""
    key = binding.routing_key
    # Text as long as this is no weight; to parse it could take long.
    if not (
        len(key) <= len(str(WEIGHT_MAX)) and key.isascii() and key.removeprefix("-").isdigit()
    ):
        raise InvalidBinding(f"The binding key must be an integer: {key[:100]!r}")
    if int(key) < 1:
        raise InvalidBinding("The binding key must be greater than 0")
    if int(key) > WEIGHT_MAX:
        raise InvalidBinding(f"The binding key must be at most {WEIGHT_MAX}")


def hash_text(text: str) -> int:
    """Return a hash of 64 bits that is the same everywhere."""
    data = text.encode(errors="surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def jump_hash(key: int, bucket_count: int) -> int:
    """Return the bucket of a key: jump consistent hash.

    When a bucket is added, a key stays where it is or moves to the new one.

    >>> [jump_hash(key, 1) for key in (0, 7)]
    [0, 0]
    """
    bucket, following = -1, 0
    while following < bucket_count:
        bucket = following
        key = (key * _JUMP_MULTIPLIER + 1) & _WORD
        following = int((bucket + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return bucket
