"""SessionContract: the suite of the part of an adapter that cuts a stream into messages.

That part does no I/O: bytes go in as they were read, messages come out.
"""

import contextlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.errors import PeerError

Receive = Callable[[bytes], Sequence[object]]
"""Takes what was read, never nothing; returns the messages that are complete with it.

They are comparable by ``==``.
An error is raised by the read that has it; messages before it in that read may be lost.
"""

_READS_MAX = 20
_MESSAGES_MAX = 12
# A suite is inherited, so its tests run under several classes.
_inherited = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)


class SessionContract:
    """The suite."""

    greeting: ClassVar[bytes] = b""
    """Bytes that come first on each connection, as a CONNECT."""
    messages: ClassVar[Sequence[bytes]]
    """Whole messages, one or more of each kind; each may follow any other."""
    too_large: ClassVar[bytes]
    """Beginning of a message that is above a limit: it is refused before the rest has come."""
    errors: ClassVar[tuple[type[Exception], ...]] = (PeerError,)
    """Errors for bytes that break the protocol."""

    def new_session(self) -> Receive:
        """Return the ``receive`` of a new connection. It raises one of ``errors``."""
        raise NotImplementedError

    def greeted(self) -> Receive:
        """Return a new connection on which the greeting has come."""
        receive = self.new_session()
        receive(self.greeting)
        return receive

    def test_a_message_comes_when_its_last_byte_has_come(self) -> None:
        for message in self.messages:
            receive = self.greeted()
            assert list(receive(message[:-1])) == [], message
            assert len(receive(message[-1:])) == 1, message

    def test_one_read_may_have_many_messages(self) -> None:
        receive = self.greeted()
        found = receive(b"".join(self.messages) * 3)
        assert len(found) == len(self.messages) * 3

    def test_bytes_may_come_one_by_one(self) -> None:
        stream = b"".join(self.messages)
        one_by_one = self.greeted()
        found = [message for byte in stream for message in one_by_one(bytes([byte]))]
        assert found == list(self.greeted()(stream))
        assert len(found) == len(self.messages)

    @_inherited
    @given(data=st.data())
    def test_any_cut_gives_the_same_messages(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.messages), max_size=_MESSAGES_MAX))
        stream = b"".join(chosen)
        found, is_broken = self.received(_cut(data, stream))
        assert not is_broken
        assert found == list(self.greeted()(stream))
        assert len(found) == len(chosen)

    @_inherited
    @given(data=st.data())
    def test_broken_messages_end_alike_however_they_are_cut(self, data: st.DataObject) -> None:
        stream = bytearray(b"".join(self.messages))
        for _ in range(data.draw(st.integers(1, 4))):
            stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
        whole, is_broken = self.received([bytes(stream)])
        found, is_cut_broken = self.received(_cut(data, bytes(stream)))
        assert is_cut_broken == is_broken
        assert is_broken or found == whole

    @_inherited
    @given(reads=st.lists(st.binary(min_size=1, max_size=100), max_size=_READS_MAX))
    def test_any_bytes_are_messages_or_an_error(self, reads: Sequence[bytes]) -> None:
        for receive in (self.new_session(), self.greeted()):
            with contextlib.suppress(*self.errors):
                for one in reads:
                    receive(one)

    def test_too_large_a_message_is_refused_before_it_is_complete(self) -> None:
        with pytest.raises(self.errors):
            self.greeted()(self.too_large)

    def received(self, reads: Sequence[bytes]) -> tuple[list[object], bool]:
        """Return the messages of a new connection, and whether they ended with an error."""
        receive, found = self.greeted(), list[object]()
        for one in reads:
            try:
                found += receive(one)
            except self.errors:
                return found, True
        return found, False


def _cut(data: st.DataObject, stream: bytes) -> list[bytes]:
    """Return a stream as it might be read."""
    places = st.lists(st.integers(0, len(stream)), max_size=_READS_MAX)
    ends = sorted({0, *data.draw(places), len(stream)})
    return [stream[start:end] for start, end in pairwise(ends)]
