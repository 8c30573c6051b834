"""The AWS CLI: a process for each call."""

import base64
import json
import os
import re
import subprocess
from typing import Any

from botocore import xform_name

from tests.interop.sqs.programs.client_api import (
    ANSWER_S_MAX,
    Api,
    Endpoint,
    Params,
    Refused,
    Result,
)
from tests.support.sqs_toolchain import aws_cli


class AwsCli(Api):
    """``aws sqs <action> --cli-input-json <params>``."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        place = ["--endpoint-url", endpoint.url, "--output", "json", "--no-paginate"]
        self._command = [*aws_cli(), *place, "sqs"]
        self._env = {
            **{name: value for name, value in os.environ.items() if name[:4] != "AWS_"},
            "AWS_ACCESS_KEY_ID": endpoint.key_id,
            "AWS_SECRET_ACCESS_KEY": endpoint.secret,
            "AWS_DEFAULT_REGION": endpoint.region,
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def perform(self, action: str, params: Params) -> Result:
        """Run the CLI once."""
        given = json.dumps(params, default=lambda blob: base64.b64encode(blob).decode())
        command = [*self._command, xform_name(action, "-"), "--cli-input-json", given]
        ended = subprocess.run(
            command, env=self._env, capture_output=True, check=False, timeout=ANSWER_S_MAX
        )
        if ended.returncode != 0:
            raise _refusal(ended.stderr.decode())
        found: Result = json.loads(ended.stdout or b"{}")
        return _with_blobs(found)


def _refusal(text: str) -> Refused:
    found = re.search(r"An error occurred \(([\w.]+)\).*?: (.*)", text, re.DOTALL)
    assert found, text
    return Refused(found[1], found[2].strip())


def _with_blobs(found: Any) -> Any:
    """Return a result whose blobs are bytes, as in the other clients."""
    if isinstance(found, list):
        return [_with_blobs(one) for one in found]
    if not isinstance(found, dict):
        return found
    return {
        name: base64.b64decode(one) if name == "BinaryValue" else _with_blobs(one)
        for name, one in found.items()
    }
