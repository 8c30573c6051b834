"""Facts that a client has told of itself at its login, for lists of connections."""

from typing import Final, NamedTuple

from adapters.amqp.v091.fields import EMPTY, Table, decode_table, encode_table

KEPT_BYTES_MAX: Final = 2_048
_PRODUCT_CHARS_MAX: Final = 255
_KEPT_ALWAYS: Final = ("product", "version", "platform", "connection_name")


class ClientFacts(NamedTuple):
    """``raw``: properties of the client, encoded; those above a size are left out."""

    raw: bytes = encode_table(EMPTY)
    mechanism: str = ""

    @classmethod
    def of(cls, properties: Table, mechanism: str) -> "ClientFacts":
        """Return the facts of connection.start-ok."""
        raw = encode_table(properties)
        if len(raw) > KEPT_BYTES_MAX:
            found = ((name, properties.find(name)) for name in _KEPT_ALWAYS)
            kept = Table((name, field) for name, field in found if field is not None)
            raw = encode_table(kept)
        return cls(raw if len(raw) <= KEPT_BYTES_MAX else encode_table(EMPTY), mechanism)

    @property
    def properties(self) -> Table:
        """The properties."""
        return decode_table(self.raw)[0]

    @property
    def product(self) -> str:
        """The client's product; empty where it names none."""
        return str(self.properties.value("product") or "")[:_PRODUCT_CHARS_MAX]
