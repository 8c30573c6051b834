"""Routing of messages by exchanges and bindings, with the semantics of RabbitMQ 4."""
