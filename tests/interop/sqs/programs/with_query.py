"""The Query protocol as SDKs spoke it before 2023: forms signed by botocore, answers in XML.

No client of today speaks it from Python, so the forms are made here, by the names of the older
service model; the signature is botocore's and the HTTP urllib3's.
"""

import base64
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, urlencode
from xml.etree import ElementTree as ET

import urllib3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.interop.sqs.programs.client_api import Api, Endpoint, Params, Refused, Result

VERSION: Final = "2012-11-05"
NAMESPACE: Final = "{http://queue.amazonaws.com/doc/2012-11-05/}"

# What members are called on the wire where the JSON protocol says it otherwise. A list is
# numbered: ``AttributeName.1``; a map is a list of pairs, named as here.
LISTS: Final = {
    "AttributeNames": "AttributeName",
    "MessageAttributeNames": "MessageAttributeName",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "TagKeys": "TagKey",
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
}
MAPS: Final = {
    "Attributes": ("Attribute", "Name", "Value"),
    "MessageAttributes": ("MessageAttribute", "Name", "Value"),
    "MessageSystemAttributes": ("MessageSystemAttribute", "Name", "Value"),
    "tags": ("Tag", "Key", "Value"),
    "Tags": ("Tag", "Key", "Value"),  # after the other: what answers call it
}
# And how the flattened lists of answers come together again.
ANSWER_LISTS: Final = {
    "Message": "Messages",
    "QueueUrl": "QueueUrls",
    "BatchResultErrorEntry": "Failed",
    "SendMessageBatchResultEntry": "Successful",
    "DeleteMessageBatchResultEntry": "Successful",
    "ChangeMessageVisibilityBatchResultEntry": "Successful",
    "ListMessageMoveTasksResultEntry": "Results",
}
ANSWER_MAPS: Final = {wire: (member, key, value) for member, (wire, key, value) in MAPS.items()}
ONE_URL: Final = {"CreateQueue", "GetQueueUrl"}
URLS: Final = {"ListDeadLetterSourceQueues": "queueUrls"}
NUMBERS: Final = {
    "ApproximateNumberOfMessagesMoved",
    "ApproximateNumberOfMessagesToMove",
    "MaxNumberOfMessagesPerSecond",
    "StartedTimestamp",
}


class Query(Api):
    """Forms by POST to the queue's own URL, as old SDKs did."""

    method = "POST"

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.http = urllib3.PoolManager(maxsize=32, retries=False)

    def perform(self, action: str, params: Params) -> Result:
        """Send one form and read the XML."""
        given = dict(params)
        url = given.pop("QueueUrl", self.endpoint.url)
        fields = [("Action", action), ("Version", VERSION), *flattened(action, given)]
        answer = self.send(url, urlencode(fields, quote_via=quote))
        root = ET.fromstring(answer.data)  # noqa: S314 - from the server under test
        if answer.status != 200:
            raise refused(root, answer.status)
        assert root.tag == f"{NAMESPACE}{action}Response", root.tag
        assert root.find(f"{NAMESPACE}ResponseMetadata/{NAMESPACE}RequestId") is not None
        return result(action, root.find(f"{NAMESPACE}{action}Result"))

    def send(self, url: str, form: str) -> urllib3.BaseHTTPResponse:
        """Sign a form and send it."""
        if self.method == "GET":
            request = AWSRequest(method="GET", url=f"{url}?{form}")
        else:
            kind = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
            request = AWSRequest(method="POST", url=url, data=form, headers=kind)
        who = Credentials(self.endpoint.key_id, self.endpoint.secret)
        SigV4Auth(who, "sqs", self.endpoint.region).add_auth(request)
        return self.http.request(
            request.method, request.url, body=request.body, headers=dict(request.headers)
        )

    def close(self) -> None:
        """Close its connections."""
        super().close()
        self.http.clear()


class QueryByGet(Query):
    """The same in query strings."""

    method = "GET"


def flattened(action: str, params: Params) -> Iterator[tuple[str, str]]:
    """Yield the form's fields of an action's parameters."""
    for name, value in params.items():
        if name == "Entries":
            for number, entry in enumerate(value, 1):
                for inner, text in flattened("", entry):
                    yield f"{action}RequestEntry.{number}.{inner}", text
        elif name in MAPS:
            yield from _numbered_map(*MAPS[name], value)
        elif isinstance(value, list):
            for number, one in enumerate(value, 1):
                yield f"{LISTS[name]}.{number}", str(one)
        else:
            yield name, str(value)


def _numbered_map(wire: str, key: str, to: str, pairs: Params) -> Iterator[tuple[str, str]]:
    for number, (name, value) in enumerate(pairs.items(), 1):
        yield f"{wire}.{number}.{key}", name
        if not isinstance(value, dict):
            yield f"{wire}.{number}.{to}", value
            continue
        for inner, one in value.items():
            text = base64.b64encode(one).decode() if isinstance(one, bytes) else one
            yield f"{wire}.{number}.{to}.{inner}", text


def refused(root: ET.Element, status: int) -> Refused:
    """Return what an ErrorResponse says."""
    assert root.tag == f"{NAMESPACE}ErrorResponse", root.tag
    found = {one.tag.removeprefix(NAMESPACE): one.text or "" for one in root.iter()}
    assert found["RequestId"]
    assert found["Type"] in {"Sender", "Receiver"}
    return Refused(found["Code"], found["Message"], status)


def result(action: str, element: ET.Element | None) -> Result:
    """Return the JSON protocol's shape of a result."""
    found: Result = {}
    for child in element if element is not None else ():
        name = child.tag.removeprefix(NAMESPACE)
        if name == "QueueUrl" and action in ONE_URL:
            found[name] = child.text
        elif name in ANSWER_LISTS:
            member = URLS.get(action, ANSWER_LISTS[name])
            found.setdefault(member, []).append(_value(child))
        else:
            _put(found, name, child)
    return found


def _value(element: ET.Element) -> Any:
    if not len(element):
        return element.text or ""
    found: Result = {}
    for child in element:
        _put(found, child.tag.removeprefix(NAMESPACE), child)
    return found


def _put(found: Result, name: str, child: ET.Element) -> None:
    if name in ANSWER_MAPS and len(child):
        member, key, to = ANSWER_MAPS[name]
        name_of = child.find(NAMESPACE + key)
        value_of = child.find(NAMESPACE + to)
        assert name_of is not None
        assert value_of is not None
        found.setdefault(member, {})[name_of.text or ""] = _value(value_of)
    elif name == "BinaryValue":
        found[name] = base64.b64decode(child.text or "")
    elif name in NUMBERS:
        found[name] = int(child.text or "0")
    elif name == "SenderFault":
        found[name] = child.text == "true"
    else:
        found[name] = _value(child)
