"""AMQP 0-9-1 with the extensions of RabbitMQ.

https://www.rabbitmq.com/resources/specs/amqp0-9-1.pdf, https://www.rabbitmq.com/docs/specification
"""
