"""The schema codec in every API and version, against a second codec (kio), both ways."""

import importlib

import pytest

from adapters.kafka.codecs import metadata_codec
from adapters.kafka.codecs.schema_codec import (
    _MESSAGES,
    decode_request,
    encode_response,
    is_flexible,
)
from adapters.kafka.handlers import APIS, Api
from tests.adapters.kafka.codecs import kio_codec

SCHEMA_APIS = [(key, version) for key in sorted(_MESSAGES) for version in APIS[key].versions]
SERVED = [*SCHEMA_APIS, *((metadata_codec.API_KEY, v) for v in metadata_codec.VERSIONS)]


@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize(("api_key", "version"), SCHEMA_APIS)
def test_requests_are_read_as_a_second_codec_wrote_them(
    api_key: int, version: int, *, with_nulls: bool
) -> None:
    theirs = kio_codec.sample(kio_codec.request_class(api_key, version), with_nulls=with_nulls)

    ours = decode_request(api_key, version, kio_codec.encode(theirs))

    assert kio_codec.plain(ours) == kio_codec.plain(theirs)


@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize(("api_key", "version"), SCHEMA_APIS)
def test_responses_are_written_as_a_second_codec_reads_them(
    api_key: int, version: int, *, with_nulls: bool
) -> None:
    kind = kio_codec.response_class(api_key, version)
    theirs = kio_codec.sample(kind, with_nulls=with_nulls)
    module, stem, _ = _MESSAGES[api_key]
    container = getattr(importlib.import_module(f"kafka.protocol.{module}"), f"{stem}Response")
    ours = kio_codec.build(container, kio_codec.plain(theirs), version)

    body = encode_response(ours, version)

    assert kio_codec.decode(kind, body) == theirs


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_flexible_versions_are_those_of_a_second_codec(api_key: int, version: int) -> None:
    assert (
        is_flexible(api_key, version) == kio_codec.request_class(api_key, version).__flexible__
    )


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_table_and_each_handler_say_the_same(api: Api) -> None:
    module = importlib.import_module(f"adapters.kafka.handlers.{api.module}")

    assert (api.key, api.versions) == (module.API_KEY, module.VERSIONS)
    assert f"{api.name}: API key {api.key}, version" in (module.__doc__ or "")
