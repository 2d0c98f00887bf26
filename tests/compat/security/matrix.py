"""Each client with each mechanism: accepted, refused with a wrong secret, and denied without permission.

A probe logs in, sends one message to a topic (a queue, by AMQP), and prints the outcome in one word: `ok`,
`refused`, `denied`.
"""

import json
import logging
import os
import ssl
import subprocess

import pika
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider

from librdkafka import librdkafka

HERE = os.path.dirname(os.path.abspath(__file__))
DEPS = os.environ.get("DEPS", "")
SOON_S = 20

KAFKA_MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "certificate"]
AMQP_MECHANISMS = ["PLAIN", "token", "EXTERNAL"]
BY_CERTIFICATE = ["certificate", "EXTERNAL"]
BY_TOKEN = ["OAUTHBEARER", "token"]


class Token(AbstractTokenProvider):
    def __init__(self, token):
        self._token = token

    def token(self):
        return self._token


class Heard(logging.Handler):
    """Log messages of a library with details that its errors lack."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.text = ""

    def emit(self, record):
        self.text += record.getMessage() + str(record.exc_info or "")


def kafka_python(case):
    mechanism = case["mechanism"]
    config = {
        "bootstrap_servers": case["address"], "ssl_cafile": case["ca"], "ssl_check_hostname": False, "retries": 0,
        # A rejected log-in is retried until the bootstrap times out.
        "bootstrap_timeout_ms": 12_000, "request_timeout_ms": 10_000, "delivery_timeout_ms": 12_000,
        "max_block_ms": 12_000,
    }
    if mechanism == "certificate":
        config |= {"security_protocol": "SSL", "ssl_certfile": case["cert"], "ssl_keyfile": case["key"]}
    else:
        config |= {"security_protocol": "SASL_SSL" if case["tls"] else "SASL_PLAINTEXT",
                   "sasl_mechanism": mechanism}
        if mechanism == "OAUTHBEARER":
            config["sasl_oauth_token_provider"] = Token(case["token"])
        else:
            config |= {"sasl_plain_username": case["user"], "sasl_plain_password": case["password"]}
    heard, log = Heard(), logging.getLogger("kafka")
    log.addHandler(heard)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    producer = None
    try:
        producer = KafkaProducer(**config)
        producer.send(case["topic"], b"x").get(SOON_S)
        return "ok"
    except TopicAuthorizationFailedError:
        return "denied"
    except Exception as error:  # the library has many, and one for all that ends a bootstrap
        said = f"{type(error).__name__} {error} {heard.text}"
        # The client may see the end of the connection before the last reply.
        refusals = ["Authentication failed during authentication", '"status":"invalid_token"']
        ended = "SaslAuthenticateRequest" in said and "socket disconnected" in said
        if mechanism != "certificate" and (ended or any(refusal in said for refusal in refusals)):
            return "refused"
        if mechanism == "certificate" and ("alert" in said.lower() or "socket disconnected" in said):
            return "refused"
        raise
    finally:
        log.removeHandler(heard)
        if producer is not None:
            producer.close(0)


def with_pika(case):
    host, port = case["address"].split(":")
    options = None
    if case["tls"]:
        context = ssl.create_default_context(cafile=case["ca"])
        if case["cert"]:
            context.load_cert_chain(case["cert"], case["key"])
        options = pika.SSLOptions(context, "localhost")
    credentials = pika.credentials.ExternalCredentials()
    if case["mechanism"] != "EXTERNAL":
        password = case["token"] if case["mechanism"] == "token" else case["password"]
        credentials = pika.PlainCredentials(case["user"], password)
    parameters = pika.ConnectionParameters(host, int(port), "/", credentials, ssl_options=options)
    try:
        connection = pika.BlockingConnection(parameters)
    except pika.exceptions.ProbableAuthenticationError:
        return "refused"
    except (pika.exceptions.AMQPConnectionError, ssl.SSLError):
        if case["mechanism"] == "EXTERNAL":
            return "refused"
        raise
    channel = connection.channel()
    channel.confirm_delivery()
    try:
        channel.basic_publish("", case["topic"], b"x")
    except pika.exceptions.ChannelClosedByBroker as error:
        if error.reply_code == 403:
            return "denied"
        raise
    finally:
        connection.close()
    return "ok"


def program(*words, tell=lambda case: [json.dumps(case)]):
    """A program that gets the case as an argument, and prints its outcome in the last line."""
    def probe(case):
        ran = subprocess.run([*words, *tell(case)], capture_output=True, text=True, timeout=60)
        said = (ran.stdout.strip() or ran.stderr.strip()).splitlines()
        if ran.returncode or not said or said[-1] not in ("ok", "refused", "denied"):
            raise AssertionError(said[-1] if said else f"status {ran.returncode}")
        return said[-1]

    return probe


def clients():
    """Clients by name: their mechanisms, and how each is run."""
    node = program("node", f"{DEPS}/node/probe.js")
    java = program(
        "java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{DEPS}/java/classes:{DEPS}/java/libs/*",
        "Probe", tell=lambda case: [f"{name}={str(value).lower() if value in (True, False) else value}"
                                    for name, value in case.items()],
    )
    return {
        "librdkafka": ("kafka", librdkafka),
        "old librdkafka": ("kafka", program(f"{DEPS}/old/bin/python", f"{HERE}/librdkafka.py")),
        "kafka-clients": ("kafka", lambda case: java({**case, "client": "kafka"})),
        "kafka-python": ("kafka", kafka_python),
        "kafkajs": ("kafka", lambda case: node({**case, "client": "kafkajs"})),
        "franz-go": ("kafka", program(f"{DEPS}/probe")),
        "amqp-client": ("amqp", lambda case: java({**case, "client": "amqp"})),
        "pika": ("amqp", with_pika),
        "amqplib": ("amqp", lambda case: node({**case, "client": "amqplib"})),
    }


def cases(server, name, mechanism, tls):
    """Cases with a right secret, with a wrong one, and with a user without permission."""
    protocol = clients()[name][0]
    addresses = {"kafka": (server.kafka, server.kafka_tls), "amqp": (server.amqp, server.amqp_tls)}

    def case(user, right=True):
        told = {
            "address": addresses[protocol][tls], "topic": server.topic, "mechanism": mechanism, "tls": tls,
            "ca": server.cert, "user": user, "password": user[::-1] if right else "wrong", "token": "", "cert": "",
            "key": "",
        }
        if mechanism in BY_TOKEN:
            told["token"] = (server.issuer if right else server.other_issuer).token(user)
        if mechanism in BY_CERTIFICATE:
            told["cert"], told["key"] = (server.clients if right else server.other_clients).pair(user)
        return told

    return [("ok", case("app")), ("refused", case("app", right=False)), ("denied", case("poor"))]


def rows():
    for name, (protocol, _) in clients().items():
        for mechanism in KAFKA_MECHANISMS if protocol == "kafka" else AMQP_MECHANISMS:
            for tls in (True, False):
                if tls or mechanism not in BY_CERTIFICATE:
                    yield name, mechanism, tls


def run_row(server, row):
    """Outcomes of all cases; fails unless all are as expected."""
    name, mechanism, tls = row
    probe = clients()[name][1]
    found = []
    for expected, case in cases(server, name, mechanism, tls):
        try:
            found.append((expected, probe(case)))
        except Exception as error:  # whatever a client raises is the row's failure
            raise AssertionError(f"{expected} was expected: {type(error).__name__} {error}") from error
    wrong = [pair for pair in found if pair[0] != pair[1]]
    assert not wrong, f"expected and found: {wrong}"


def table(outcomes):
    """The table as shown in the documentation."""
    lines = ["| client | mechanism | TLS | right secret | wrong secret | missing right |", "|---|---|---|---|---|---|"]
    for (name, mechanism, tls), passed in outcomes:
        cells = ["ok", "refused", "denied"] if passed else ["?"] * 3
        lines.append(f"| {name} | {mechanism} | {'yes' if tls else 'no'} | {' | '.join(cells)} |")
    return lines
