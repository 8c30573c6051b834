"""The Kafka protocol, for clients of Apache Kafka 0.11 to 4.x.

Specification: the Kafka protocol guide (https://kafka.apache.org/protocol) and the KIPs named in
each handler. README.md in this folder lists the APIs and versions that are served.
"""
