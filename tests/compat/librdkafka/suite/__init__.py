"""Scenarios that a stock librdkafka client (confluent-kafka) must pass against any Kafka broker."""
