"""Views of AMQP below ``/v1/adapters/amqp/``, for the console and for programs."""
