"""The benchmarks of the SQS endpoint: beside ElasticMQ and moto, which keep all in memory."""
