"""All steps of the scenario, their expected results, and differences of the peers."""

from typing import Any, Final

from tests.interop.sqs import scenario, scenario_fifo
from tests.interop.sqs.calls import Step

STEPS: Final[dict[str, Step]] = {
    step.__name__.replace("_", " "): step
    for step in (
        scenario.standard,
        scenario.long_polling,
        scenario.visibility,
        scenario.lease_end,
        scenario.delay,
        scenario.dead_letters,
        scenario.redrive,
        scenario.batches,
        scenario.message_attributes,
        scenario.system_attributes,
        scenario.one_mebibyte,
        scenario.tags,
        scenario.purge,
        scenario.settled_twice,
        scenario.queue_attributes,
        scenario.deleted_queue,
        scenario_fifo.fifo,
        scenario_fifo.group_lock,
        scenario_fifo.deduplication,
        scenario_fifo.content_deduplication,
        scenario_fifo.group_scope,
        scenario_fifo.receive_attempts,
        scenario_fifo.fifo_dead_letters,
        scenario_fifo.fifo_refusals,
        scenario_fifo.fair_queue,
    )
}
_HANDLED: Final = "ReceiptHandleIsInvalid"
_EIGHT: Final = [f"{n}" for n in range(8)]
EXPECTED: Final[dict[str, Any]] = {
    "standard": [True, True, True, True, [], [0, 0, 0]],
    "long polling": [True, True, True],
    "visibility": [[], [0, 1, 0], [1, 2], True, [0, 0, 0]],
    "lease end": [True, []],
    "delay": [[], [0, 0, 1], [], ["at once", "by the queue"], ["later"]],
    "dead letters": ["dies", True, True, True, True, [0, 0, 0]],
    "redrive": [True, "COMPLETED", 3, True, ["0", "1", "2"], ["1"], [0, 0, 0]],
    "batches": [
        [
            [f"e{n}" for n in range(8)],
            [
                ["delayed", "InvalidParameterValue", True],
                ["illegal", "InvalidMessageContents", True],
            ],
        ],
        [["c0", "c1"], [["c2", _HANDLED, True]]],
        [[f"d{n}" for n in range(8)], [["d8", _HANDLED, True]]],
        _EIGHT,
        [0, 0, 0],
    ],
    "message attributes": [
        True, True, True, ["custom.bytes", "custom.number", "custom.text", "text"], True,
        ["Body", "MD5OfBody", "MessageId", "ReceiptHandle"],
    ],
    "system attributes": [True, True, True, True, {"ApproximateReceiveCount": "2"}],
    "one mebibyte": [True, 2, "InvalidParameterValue", "BatchRequestTooLong"],
    "tags": [{"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "\u00e9"}, {"b": "3"}],
    "purge": [[0, 0, 0], "PurgeQueueInProgress", ["after"]],
    "settled twice": [0, 0, 0],
    "queue attributes": [
        ["0", "1048576", "345600", "0", "7"],
        ["9", "1048576", "345600", "0", "7"],
        ["arn", "aws", "sqs", True],
        [3, True],
        [],
    ],
    "deleted queue": ["NonExistentQueue", "NonExistentQueue", "QueueDeletedRecently"],
    "fifo": [
        True, ["0"], ["0", "1", "2"], [], ["1", "2"], ["a", "a-0"], True, [0, 0, 0],
    ],
    "group lock": ["0", "1", "2"],
    "deduplication": ["one", 1, 1, ["four"]],
    "content deduplication": ["x", "y", "x"],
    "group scope": ["a", "b"],
    "receive attempts": [["0", "1"], True, [], ["2"]],
    "fifo dead letters": ["dies", "g", True, ["lives"]],
    "fifo refusals": [
        "MissingParameter", "InvalidParameterValue", "InvalidParameterValue",
        "InvalidParameterValue", "true", "false",
    ],
    "fair queue": [["noisy"], [f"quiet{n}" for n in range(5)], 10],
}  # fmt: skip
