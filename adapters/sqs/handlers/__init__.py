"""Handlers, one file and one line here per action.

A handler is ``handle(call, node)``. It returns the result, or None when it calls ``call.reply`` or
``call.fail`` later, or a coroutine that returns the result. The next request of a connection waits
for a coroutine only.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from adapters.sqs.call import Result
from adapters.sqs.handlers import (
    add_permission,
    cancel_message_move_task,
    change_message_visibility,
    change_message_visibility_batch,
    create_queue,
    delete_message,
    delete_message_batch,
    delete_queue,
    get_caller_identity,
    get_queue_attributes,
    get_queue_url,
    list_dead_letter_source_queues,
    list_message_move_tasks,
    list_queue_tags,
    list_queues,
    purge_queue,
    receive_message,
    remove_permission,
    send_message,
    send_message_batch,
    set_queue_attributes,
    start_message_move_task,
    tag_queue,
    untag_queue,
)

Handler = Callable[[Any, Any], Result | Coroutine[Any, Any, Result] | None]

HANDLERS: Final[Mapping[str, Handler]] = {
    add_permission.ACTION: add_permission.handle,
    cancel_message_move_task.ACTION: cancel_message_move_task.handle,
    change_message_visibility.ACTION: change_message_visibility.handle,
    change_message_visibility_batch.ACTION: change_message_visibility_batch.handle,
    create_queue.ACTION: create_queue.handle,
    delete_message.ACTION: delete_message.handle,
    delete_message_batch.ACTION: delete_message_batch.handle,
    delete_queue.ACTION: delete_queue.handle,
    get_caller_identity.ACTION: get_caller_identity.handle,
    get_queue_attributes.ACTION: get_queue_attributes.handle,
    get_queue_url.ACTION: get_queue_url.handle,
    list_dead_letter_source_queues.ACTION: list_dead_letter_source_queues.handle,
    list_message_move_tasks.ACTION: list_message_move_tasks.handle,
    list_queue_tags.ACTION: list_queue_tags.handle,
    list_queues.ACTION: list_queues.handle,
    purge_queue.ACTION: purge_queue.handle,
    receive_message.ACTION: receive_message.handle,
    remove_permission.ACTION: remove_permission.handle,
    send_message.ACTION: send_message.handle,
    send_message_batch.ACTION: send_message_batch.handle,
    set_queue_attributes.ACTION: set_queue_attributes.handle,
    start_message_move_task.ACTION: start_message_move_task.handle,
    tag_queue.ACTION: tag_queue.handle,
    untag_queue.ACTION: untag_queue.handle,
}
