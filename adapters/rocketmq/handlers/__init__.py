"""Handlers by request code: of the name server, and of the broker, which answers for routes too."""

from typing import Final

from adapters.rocketmq.handlers import (
    broker_registration,
    clients,
    kv_config,
    locks,
    offsets,
    pull,
    routes,
    send,
)
from adapters.rocketmq.remoting.wire import RequestCode
from adapters.rocketmq.request import Handlers

NAMESERVER_HANDLERS: Final[Handlers] = {
    RequestCode.PUT_KV_CONFIG: kv_config.put,
    RequestCode.GET_KV_CONFIG: kv_config.get,
    RequestCode.DELETE_KV_CONFIG: kv_config.delete,
    RequestCode.REGISTER_BROKER: broker_registration.register,
    RequestCode.UNREGISTER_BROKER: broker_registration.unregister,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: routes.topic_route,
    RequestCode.GET_BROKER_CLUSTER_INFO: routes.cluster_info,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: routes.all_topics,
    RequestCode.GET_KVLIST_BY_NAMESPACE: kv_config.list_namespace,
    RequestCode.GET_TOPICS_BY_CLUSTER: routes.topics_by_cluster,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: routes.system_topics,
}
"""Requests that the name server serves."""

BROKER_HANDLERS: Final[Handlers] = {
    RequestCode.SEND_MESSAGE: send.handle,
    RequestCode.PULL_MESSAGE: pull.handle,
    RequestCode.QUERY_CONSUMER_OFFSET: offsets.query_consumer_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update_consumer_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.offset_by_time,
    RequestCode.GET_MAX_OFFSET: offsets.max_offset,
    RequestCode.GET_MIN_OFFSET: offsets.min_offset,
    RequestCode.HEART_BEAT: clients.heart_beat,
    RequestCode.UNREGISTER_CLIENT: clients.unregister_client,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
    RequestCode.LOCK_BATCH_MQ: locks.lock,
    RequestCode.UNLOCK_BATCH_MQ: locks.unlock,
    RequestCode.CHECK_CLIENT_CONFIG: clients.check_client_config,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: routes.topic_route,
    RequestCode.SEND_MESSAGE_V2: send.handle,
    RequestCode.SEND_BATCH_MESSAGE: send.handle,
    RequestCode.LITE_PULL_MESSAGE: pull.handle,
}
"""Requests that the broker serves."""
