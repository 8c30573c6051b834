"""Methods of the class connection (10): login, tuning, closing."""

from adapters.amqp.v091.methods.model import (
    Bit,
    Byte,
    Fields,
    Long,
    LongStr,
    Method,
    Short,
    ShortStr,
    method,
)


@method(10, 10)
class ConnectionStart(Method):
    """``connection.start``."""

    version_major: Byte
    version_minor: Byte
    server_properties: Fields
    mechanisms: LongStr
    locales: LongStr


@method(10, 11)
class ConnectionStartOk(Method):
    """``connection.start-ok``."""

    client_properties: Fields
    mechanism: ShortStr
    response: LongStr
    locale: ShortStr


@method(10, 20)
class ConnectionSecure(Method):
    """``connection.secure``."""

    challenge: LongStr


@method(10, 21)
class ConnectionSecureOk(Method):
    """``connection.secure-ok``."""

    response: LongStr


@method(10, 30)
class ConnectionTune(Method):
    """``connection.tune``."""

    channel_max: Short
    frame_max: Long
    heartbeat: Short


@method(10, 31)
class ConnectionTuneOk(Method):
    """``connection.tune-ok``."""

    channel_max: Short
    frame_max: Long
    heartbeat: Short


@method(10, 40)
class ConnectionOpen(Method):
    """``connection.open``."""

    virtual_host: ShortStr
    reserved_1: ShortStr = ""
    reserved_2: Bit = False


@method(10, 41)
class ConnectionOpenOk(Method):
    """``connection.open-ok``."""

    reserved_1: ShortStr = ""


@method(10, 50)
class ConnectionClose(Method):
    """``connection.close``."""

    reply_code: Short
    reply_text: ShortStr
    class_id: Short
    method_id: Short


@method(10, 51)
class ConnectionCloseOk(Method):
    """``connection.close-ok``."""


@method(10, 60)
class ConnectionBlocked(Method):
    """``connection.blocked``."""

    reason: ShortStr


@method(10, 61)
class ConnectionUnblocked(Method):
    """``connection.unblocked``."""


@method(10, 70)
class ConnectionUpdateSecret(Method):
    """``connection.update-secret``."""

    new_secret: LongStr
    reason: ShortStr


@method(10, 71)
class ConnectionUpdateSecretOk(Method):
    """``connection.update-secret-ok``."""
