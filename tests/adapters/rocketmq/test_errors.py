"""Response codes of errors: the nearest base class counts."""

import pytest

from adapters.rocketmq.remoting.errors import Refused, code_of, remark_of
from adapters.rocketmq.remoting.wire import ResponseCode
from gateway import errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TopicNotFound("x"), ResponseCode.TOPIC_NOT_EXIST),
        (errors.UnknownTopicId("x"), ResponseCode.TOPIC_NOT_EXIST),
        (errors.StorageFull("x"), ResponseCode.SERVICE_NOT_AVAILABLE),
        (errors.NotLeader("x"), ResponseCode.SERVICE_NOT_AVAILABLE),
        (errors.QueueFull("x"), ResponseCode.SYSTEM_BUSY),
        (errors.PolicyViolation("x"), ResponseCode.NO_PERMISSION),
        (errors.UnknownMember("x"), ResponseCode.SYSTEM_ERROR),
        (Refused(ResponseCode.QUERY_NOT_FOUND, "x"), ResponseCode.QUERY_NOT_FOUND),
    ],
)
def test_an_error_has_a_code(error: errors.GatewayError, code: ResponseCode) -> None:
    assert code_of(error) == code


def test_what_is_for_operators_is_not_in_a_remark() -> None:
    assert "/var" not in remark_of(errors.StorageUnavailable("/var/lib: no space"))
    assert remark_of(errors.TopicNotFound("topic[t] not exist")) == "topic[t] not exist"
