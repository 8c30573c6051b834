"""The two brokers of the AMQP benchmarks."""
