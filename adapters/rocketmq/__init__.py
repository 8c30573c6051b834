"""RocketMQ's remoting protocol, as its clients from 4.0 to 5.5 speak it, with a name server.

The protocol has no specification; names, numbers and rules are those of Apache RocketMQ 5.5
(https://github.com/apache/rocketmq). ``README.md`` lists what is served.
"""
