"""The throttle time is where each response has it, in every version of every API."""

import dataclasses
import datetime as dt

import pytest

from adapters.kafka.codecs.produce_codec import encode_produce_response
from adapters.kafka.handlers import APIS
from adapters.kafka.quotas.throttle_field import place_throttle
from gateway.model import Buffer
from tests.adapters.kafka.codecs import kio_codec

PRODUCE = 0
VERSIONS = [(api.key, version) for api in APIS.values() for version in api.versions]
SOME_MS = 1_234_567


@pytest.mark.parametrize(("api_key", "version"), [one for one in VERSIONS if one[0] != PRODUCE])
def test_only_the_throttle_time_changes(api_key: int, version: int) -> None:
    kind = kio_codec.response_class(api_key, version)
    sample = kio_codec.sample(kind, with_nulls=False)
    expected = sample
    if any(field.name == "throttle_time" for field in dataclasses.fields(kind)):
        throttle = dt.timedelta(milliseconds=SOME_MS)
        expected = dataclasses.replace(sample, throttle_time=throttle)
    pieces: list[Buffer] = [kio_codec.encode(sample)]

    place_throttle(api_key, version, pieces, SOME_MS)

    assert kio_codec.decode(kind, bytes(pieces[0])) == expected


@pytest.mark.parametrize("version", APIS[PRODUCE].versions)
def test_produce_has_it_at_its_end(version: int) -> None:
    body = encode_produce_response(version, [], (), SOME_MS)
    decoded = kio_codec.decode(kio_codec.response_class(PRODUCE, version), body)
    assert decoded.throttle_time == dt.timedelta(milliseconds=SOME_MS)


def test_a_response_without_a_throttle_is_not_copied() -> None:
    body = bytes(10)
    pieces: list[Buffer] = [body]
    place_throttle(3, 9, pieces, 0)
    assert pieces[0] is body
