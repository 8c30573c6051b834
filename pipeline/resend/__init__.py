"""Jobs that send records through the Kafka endpoint again: ``backfill`` and ``dlq``."""
