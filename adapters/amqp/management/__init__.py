"""RabbitMQ's HTTP API: https://www.rabbitmq.com/docs/http-api-reference, for AMQP's users."""
