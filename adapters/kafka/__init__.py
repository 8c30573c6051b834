"""The Kafka protocol: every client of Apache Kafka 0.11 to 4.x, as if this were a Kafka broker.

Specification: the Kafka protocol guide (https://kafka.apache.org/protocol) and the KIPs named in
each handler. Which APIs and versions are served: README.md beside this file.
"""
