"""Marks that conformance tests share."""

from typing import Final

import pytest

from tests.support.mqtt_wire import V3_1, V3_1_1, V5

BOTH: Final = pytest.mark.parametrize("version", [V3_1_1, V5], ids=["3.1.1", "5.0"])
ALL: Final = pytest.mark.parametrize("version", [V3_1, V3_1_1, V5], ids=["3.1", "3.1.1", "5.0"])
