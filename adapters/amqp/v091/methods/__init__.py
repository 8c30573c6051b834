"""All methods, one module for each class of the specification.

https://www.rabbitmq.com/resources/specs/amqp0-9-1.extended.xml
"""
