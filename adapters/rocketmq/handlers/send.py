"""Sends: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320)."""

from adapters.rocketmq.producing.send_header import decode_send_header
from adapters.rocketmq.producing.sending import send
from adapters.rocketmq.request import Request


def handle(request: Request) -> None:
    """Append the messages; answered when they are durable."""
    send(request, decode_send_header(request.command.code, request.fields))
