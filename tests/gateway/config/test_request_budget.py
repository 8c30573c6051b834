"""Adapters of large requests bound them by the same two keys."""

import pytest
from pydantic import ValidationError

from adapters.kafka.config import KafkaConfig
from adapters.sqs.config import SqsConfig

CONFIGS = [KafkaConfig, SqsConfig]


@pytest.mark.parametrize("config", CONFIGS)
def test_both_keys_have_a_default(config: type[KafkaConfig | SqsConfig]) -> None:
    default = config()
    assert (default.request_bytes_budget, default.request_stall_s_max) == (256 << 20, 2)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seconds", [0, 3_601])
def test_a_stall_outside_of_the_bounds_is_refused(
    config: type[KafkaConfig | SqsConfig], seconds: int
) -> None:
    with pytest.raises(ValidationError, match="request_stall_s_max"):
        config.model_validate({"request_stall_s_max": seconds})


@pytest.mark.parametrize(
    ("config", "bytes_min"), [(KafkaConfig, 1 << 20), (SqsConfig, 4 << 20)]
)
def test_a_budget_below_the_minimum_is_refused(
    config: type[KafkaConfig | SqsConfig], bytes_min: int
) -> None:
    with pytest.raises(ValidationError, match="request_bytes_budget"):
        config.model_validate({"request_bytes_budget": bytes_min - 1})
