"""Selectors: conditions on the properties of messages, compiled to functions.

``jms`` has the selectors of JMS, ``rocketmq`` the SQL92 expressions of RocketMQ, ``tags`` its
tags.
"""
