"""The probe of librdkafka. As a program it runs with any installed version."""

import json
import sys
import time

from confluent_kafka import KafkaError, Producer

SOON_S = 20


def librdkafka(case):
    errors = []
    config = {
        "bootstrap.servers": case["address"], "ssl.ca.location": case["ca"], "message.timeout.ms": 8000,
        "error_cb": errors.append, "log_level": 0, "ssl.endpoint.identification.algorithm": "none",
    }
    if case["mechanism"] == "certificate":
        config["security.protocol"] = "SSL"
        config["ssl.certificate.location"], config["ssl.key.location"] = case["cert"], case["key"]
    else:
        config["security.protocol"] = "SASL_SSL" if case["tls"] else "SASL_PLAINTEXT"
        config["sasl.mechanism"] = case["mechanism"]
    if case["mechanism"] == "OAUTHBEARER":
        config["oauth_cb"] = lambda _: (case["token"], time.time() + 600)
    elif case["mechanism"] != "certificate":
        config["sasl.username"], config["sasl.password"] = case["user"], case["password"]
    told = []
    producer = Producer(config)
    producer.produce(case["topic"], b"x", on_delivery=lambda error, _: told.append(error))
    until = time.monotonic() + SOON_S
    while not told and time.monotonic() < until:
        producer.poll(0.1)
        codes = {error.code() for error in errors}
        if KafkaError._AUTHENTICATION in codes:
            return "refused"
        # The client sends no certificate of an authority that the node does not list, so it is rejected as anonymous.
        if case["mechanism"] == "certificate" and KafkaError._ALL_BROKERS_DOWN in codes:
            return "refused"
    # An error of this library cannot be compared with None.
    code = told[0].code() if told and told[0] is not None else None
    if told and code is None:
        return "ok"
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return "denied"
    raise AssertionError(f"{[error.str() for error in told + errors]}")


if __name__ == "__main__":
    print(librdkafka(json.loads(sys.argv[1])))
