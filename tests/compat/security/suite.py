"""Stock clients against a server with TLS and log-ins.

confluent-kafka (librdkafka) by each mechanism, pika over TLS, and kcat if it is installed; and a matrix of more clients
and mechanisms (`matrix.py`), which is printed as a table. A rejected client must soon report its own
library's error for that.
"""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor

import pika
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

import matrix
from server import SESSION_S, Server, pika_parameters

SOON_S = 20
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]

SCENARIOS = []


def scenario(function):
    SCENARIOS.append((function.__name__.replace("_", "-"), function))
    return function


def create_topic(config, topic):
    # A client without a reference ends at once.
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(SOON_S)


def produce_and_consume(config, records=100):
    topic = f"t-{uuid.uuid4()}"
    create_topic(config, topic)
    values = [os.urandom(1000) for _ in range(records)]
    producer = Producer(config)
    failed = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(SOON_S) == 0 and not failed, failed
    consumer = Consumer({**config, "group.id": f"g-{uuid.uuid4()}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found, until = [], time.monotonic() + SOON_S
    while len(found) < records:
        assert time.monotonic() < until, f"{len(found)} of {records}"
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.value())
    consumer.close()
    assert found == values


def error_of(config):
    """The error of a client's request for the list of topics."""
    errors = []
    client = AdminClient({**config, "error_cb": errors.append})
    try:
        client.list_topics(timeout=5)
    except KafkaException as error:
        errors.append(error.args[0])
    else:
        raise AssertionError("it was let in")
    client.poll(1)
    return errors


@scenario
def each_mechanism_over_tls(server):
    for mechanism in MECHANISMS:
        produce_and_consume(server.client(mechanism))


@scenario
def each_mechanism_on_this_machine_without_tls(server):
    for mechanism in MECHANISMS:
        produce_and_consume(server.client(mechanism, tls=False), records=5)


@scenario
def large_records_over_tls(server):
    config = {**server.client(), "compression.type": "none"}
    topic = f"t-{uuid.uuid4()}"
    create_topic(config, topic)
    values = [os.urandom(900_000) for _ in range(20)]
    producer = Producer(config)
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(SOON_S) == 0
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found, until = [], time.monotonic() + SOON_S
    while len(found) < len(values) and time.monotonic() < until:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    assert found == values


@scenario
def a_wrong_password_and_an_unknown_user_are_refused_alike(server):
    for mechanism in MECHANISMS:
        told = set()
        for user, password in [("app", "wrong"), ("nobody", "ppa")]:
            errors = error_of(server.client(mechanism, user=user, password=password))
            refused = [error for error in errors if error.code() == KafkaError._AUTHENTICATION]
            assert refused, errors
            told.add(refused[0].str().split("failed:")[-1].split("(after")[0])
        assert len(told) == 1 and "invalid credentials" in told.pop(), told


@scenario
def nobody_is_let_in_without_a_log_in(server):
    for protocol, address in [("SSL", server.kafka_tls), ("PLAINTEXT", server.kafka)]:
        error_of({"bootstrap.servers": address, "security.protocol": protocol,
                  "ssl.ca.location": server.cert, "log_level": 0})


@scenario
def a_server_with_another_certificate_is_not_believed(server):
    with tempfile.TemporaryDirectory() as folder:
        server.run("tls", "self-signed", "--dir", folder)
        errors = error_of({**server.client(), "ssl.ca.location": f"{folder}/cert.pem"})
        assert any(error.code() == KafkaError._SSL for error in errors), errors


@scenario
def clients_are_told_of_the_port_that_they_asked(server):
    for tls, address in [(True, server.kafka_tls), (False, server.kafka)]:
        admin = AdminClient(server.client(tls=tls))
        brokers = admin.list_topics(timeout=SOON_S).brokers
        assert [f"{it.host}:{it.port}" for it in brokers.values()] == [address], brokers


@scenario
def a_client_logs_in_anew_before_its_session_ends(server):
    config = server.client("SCRAM-SHA-256")
    topic = f"t-{uuid.uuid4()}"
    create_topic(config, topic)
    errors = []
    producer = Producer({**config, "error_cb": errors.append, "acks": "all"})
    until = time.monotonic() + 3 * SESSION_S
    while time.monotonic() < until:
        producer.produce(topic, b"x", on_delivery=lambda error, _: error and errors.append(error))
        producer.poll(0.1)
    assert producer.flush(SOON_S) == 0 and not errors, errors


@scenario
def scram_credentials_are_made_listed_used_and_deleted(server):
    admin = AdminClient(server.client(user="root", password="toor"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    made = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("tool", info, b"loot", os.urandom(16))])
    made["tool"].result(SOON_S)
    found = admin.describe_user_scram_credentials(["tool"])["tool"].result(SOON_S)
    told = [(it.mechanism, it.iterations) for it in found.scram_credential_infos]
    assert told == [(ScramMechanism.SCRAM_SHA_256, 8192)], told
    server.run("user", "allow", "tool", ".*", ".*", ".*")
    for mechanism in ["SCRAM-SHA-256", "PLAIN"]:
        produce_and_consume(server.client(mechanism, user="tool", password="loot"), records=1)
    error_of(server.client("SCRAM-SHA-512", user="tool", password="loot"))
    deletion = UserScramCredentialDeletion("tool", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["tool"].result(SOON_S)
    error_of(server.client("SCRAM-SHA-256", user="tool", password="loot"))
    # A user without the permission to manage users gets an error.
    other = AdminClient(server.client())
    try:
        other.alter_user_scram_credentials([deletion])["tool"].result(SOON_S)
    except KafkaException as error:
        assert error.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED, error
    else:
        raise AssertionError("it was done")


@scenario
def without_a_right_nothing_is_done_and_with_it_all_is(server):
    server.run("user", "add", "needy", "ydeen")
    config = server.client(user="needy", password="ydeen")
    topic = f"t-{uuid.uuid4()}"
    create_topic(server.client(), topic)
    told = []
    producer = Producer(config)
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(SOON_S) == 0
    assert [error.code() for error in told] == [KafkaError.TOPIC_AUTHORIZATION_FAILED], told
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    until, refused = time.monotonic() + SOON_S, set()
    while not refused and time.monotonic() < until:
        message = consumer.poll(1)
        if message is not None and message.error() is not None:
            refused.add(message.error().code())
    consumer.close()
    assert refused <= {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED}
    assert refused, "nothing was said"

    admin = AdminClient(server.client(user="root", password="toor"))
    rules = [
        AclBinding(kind, topic, ResourcePatternType.LITERAL, "User:needy", "*", action,
                   AclPermissionType.ALLOW)
        for kind, action in [(ResourceType.TOPIC, AclOperation.WRITE),
                             (ResourceType.TOPIC, AclOperation.READ),
                             (ResourceType.GROUP, AclOperation.READ)]
    ]
    for made in admin.create_acls(rules).values():
        made.result(SOON_S)
    mine = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, "User:needy", None,
                            AclOperation.ANY, AclPermissionType.ANY)
    assert sorted(admin.describe_acls(mine).result(SOON_S)) == sorted(rules)
    told.clear()
    # librdkafka remembers for a while that a topic was refused.
    producer = Producer(config)
    producer.produce(topic, b"y", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(SOON_S) == 0 and told == [None], told
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    until, found = time.monotonic() + SOON_S, []
    while not found and time.monotonic() < until:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    assert found == [b"y"], found
    seer = AdminClient(config)
    assert list(seer.list_topics(timeout=SOON_S).topics) == [topic]
    removed = admin.delete_acls([mine])[mine].result(SOON_S)
    assert sorted(removed) == sorted(rules)
    told.clear()
    producer = Producer(config)
    producer.produce(topic, b"z", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(SOON_S) == 0
    assert [error.code() for error in told] == [KafkaError.TOPIC_AUTHORIZATION_FAILED], told


@scenario
def pika_over_tls(server):
    connection = pika.BlockingConnection(pika_parameters(server))
    channel = connection.channel()
    channel.confirm_delivery()
    queue = f"q-{uuid.uuid4()}"
    channel.queue_declare(queue, durable=True)
    bodies = [os.urandom(size) for size in [0, 1, 1000, 5_000_000, 17]]
    for body in bodies:
        channel.basic_publish("", queue, body)
    # The same records, by the other protocol.
    consumer = Consumer({**server.client(), "group.id": queue, "auto.offset.reset": "earliest"})
    consumer.subscribe([queue])
    until, seen = time.monotonic() + SOON_S, 0
    while seen < len(bodies) and time.monotonic() < until:
        message = consumer.poll(1)
        seen += message is not None and message.error() is None
    consumer.close()
    assert seen == len(bodies), seen
    found = []
    for method, _, body in channel.consume(queue, inactivity_timeout=SOON_S):
        assert method is not None, f"{len(found)} of {len(bodies)}"
        channel.basic_ack(method.delivery_tag)
        found.append(body)
        if len(found) == len(bodies):
            break
    assert found == bodies
    connection.close()


@scenario
def pika_with_a_wrong_password_is_refused(server):
    for user, password in [("app", "wrong"), ("nobody", "ppa"), ("guest", "guest")]:
        try:
            pika.BlockingConnection(pika_parameters(server, user, password))
        except pika.exceptions.ProbableAuthenticationError:
            continue
        raise AssertionError(f"{user} was let in")


@scenario
def kcat_if_it_is_installed(server):
    kcat = shutil.which("kcat") or shutil.which("kafkacat")
    if kcat is None:
        return
    for mechanism in MECHANISMS:
        topic = f"t-{uuid.uuid4()}"
        config = server.client(mechanism)
        words = [kcat, *(word for name, value in config.items() if name != "log_level"
                         for word in ("-X", f"{name}={value}"))]
        create_topic(config, topic)
        subprocess.run([*words, "-P", "-t", topic], input=b"one\ntwo\n", check=True, timeout=SOON_S)
        consumed = subprocess.run([*words, "-C", "-t", topic, "-e", "-o", "beginning"], check=True,
                                  timeout=SOON_S, capture_output=True)
        assert consumed.stdout == b"one\ntwo\n", consumed


@scenario
def a_token_that_is_renewed_keeps_a_producer_going(server):
    asked, lasts = [], 8

    def token(_):
        asked.append(time.monotonic())
        # Token lifetimes have a resolution of a second.
        return server.issuer.token("app", ends_in=lasts), int(time.time()) + lasts

    config = {
        "bootstrap.servers": server.kafka_tls, "security.protocol": "SASL_SSL", "ssl.ca.location": server.cert,
        "sasl.mechanism": "OAUTHBEARER", "oauth_cb": token, "log_level": 0,
    }
    errors = []
    producer = Producer({**config, "error_cb": errors.append})
    until = time.monotonic() + 2 * lasts
    while time.monotonic() < until:
        producer.produce(server.topic, b"x", on_delivery=lambda error, _: error and errors.append(error))
        producer.poll(0.1)
    assert producer.flush(SOON_S) == 0 and not errors, errors
    assert len(asked) > 1, asked


@scenario
def tokens_that_are_not_good_are_refused(server):
    good = server.issuer.token
    for token in [good("app", ends_in=-120), good("app", aud="others"), good("app", iss="others"),
                  good("_operator"), "garbage", "x" * 20_000]:
        is_refused(server, token)


def is_refused(server, token):
    errors = error_of({
        "bootstrap.servers": server.kafka_tls, "security.protocol": "SASL_SSL", "ssl.ca.location": server.cert,
        "sasl.mechanism": "OAUTHBEARER", "log_level": 0, "oauth_cb": lambda _: (token, time.time() + 600),
    })
    assert any(error.code() == KafkaError._AUTHENTICATION for error in errors), errors


@scenario
def pika_brings_a_new_token_in_time_and_is_closed_without_one(server):
    def connect():
        parameters = pika_parameters(server, "", server.issuer.token("app", ends_in=SESSION_S))
        return pika.BlockingConnection(parameters)

    renewed, left = connect(), connect()
    renewed.update_secret(server.issuer.token("app"), "it ends")
    try:
        left.sleep(3 * SESSION_S)
    except pika.exceptions.ConnectionClosedByBroker as error:
        assert error.reply_code == 320, error
    else:
        raise AssertionError("it went on without a token")
    channel = renewed.channel()
    channel.queue_declare(server.topic, passive=True)
    renewed.close()


@scenario
def what_was_a_secret_is_in_no_log(server):
    is_refused(server, server.other_issuer.token("app"))
    log = server.log()
    assert "its token is refused" in log, "nothing was logged"
    assert "eyJ" not in log, "a token was logged"


class Run:
    """Passed and failed scenarios, which run in several threads."""

    def __init__(self, server, parts):
        self.server, self.parts = server, parts
        self.lock = threading.Lock()
        self.passed = self.failed = 0
        self.rows = {}

    def scenario(self, name, function):
        """Whether it passed; `None` if it was not requested."""
        if self.parts and not any(part in name for part in self.parts):
            return None
        begun = time.monotonic()
        try:
            function(self.server)
            line = f"ok {name} {time.monotonic() - begun:.1f}"
        except Exception as error:  # whatever a client raises is the scenario's failure
            place = traceback.extract_tb(error.__traceback__)[-1]
            reason = str(error).replace("\n", " ") or type(error).__name__
            line = f"FAIL {name} {reason} ({os.path.basename(place.filename)}:{place.lineno})"
        passed = line.startswith("ok ")
        with self.lock:
            print(line, flush=True)
            self.passed, self.failed = self.passed + passed, self.failed + (not passed)
        return passed

    def client(self, rows):
        """The rows of one client, one after the other: some clients log to a single log of their process."""
        for row in rows:
            client, mechanism, tls = row
            name = f"matrix-{client}-{mechanism}-{'tls' if tls else 'plain'}".lower().replace(" ", "-")
            passed = self.scenario(name, lambda server, row=row: matrix.run_row(server, row))
            if passed is not None:
                self.rows[row] = passed


def main(parts):
    rows = list(matrix.rows())
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Server(folder), parts)
        # Clients spend most of their time waiting: for a timeout of their own, or for the reply to a wrong password.
        with ThreadPoolExecutor(4) as threads:
            clients = itertools.groupby(rows, lambda row: row[0])
            for ended in [threads.submit(run.client, list(of)) for _, of in clients]:
                ended.result()
        for name, function in SCENARIOS:
            run.scenario(name, function)
        run.server.stop()
        if run.failed:
            sys.stderr.write(open(f"{folder}/log").read()[-4000:])
    for line in matrix.table([(row, run.rows[row]) for row in rows if row in run.rows]):
        print(line)
    print(f"{run.passed} passed, {run.failed} failed")
    sys.exit(run.failed > 0)


main(sys.argv[1:])
