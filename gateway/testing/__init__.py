"""Contracts and a gateway process for the tests of plug-ins; needs the extra ``testing``."""

import pytest

# Their asserts tell what they compared, as those of test modules do.
pytest.register_assert_rewrite(
    "gateway.testing.adapter",
    "gateway.testing.compacting_storage",
    "gateway.testing.session",
    "gateway.testing.storage",
    "gateway.testing.storage_calls",
    "gateway.testing.storage_restarts",
)
