"""kafka-configs and kafka-acls.

No user is created: from then on a broker may require log-ins of all clients, as Postroad does. The suite `security`
covers users.
"""

from .harness import nodes, scenario, tool


def alter(kind, name, *change):
    return tool("kafka-configs", "--entity-type", kind, *entity(name), "--alter", *change)


def describe(kind, name, *more):
    return tool("kafka-configs", "--entity-type", kind, *entity(name), "--describe", *more)


def entity(name):
    return ["--entity-default"] if name is None else ["--entity-name", name]


@scenario
def configs_of_a_topic_are_set_shown_and_taken_back(place):
    topic = place.topic()
    alter("topics", topic, "--add-config", "retention.ms=3600000,cleanup.policy=[compact,delete]").succeeded().says(
        f"Completed updating config for topic {topic}."
    )
    describe("topics", topic).succeeded().says("retention.ms=3600000", "cleanup.policy=compact,delete")
    describe("topics", topic, "--all").succeeded().says("segment.bytes=", "min.insync.replicas=", "max.message.bytes=")
    alter("topics", topic, "--delete-config", "cleanup.policy").succeeded()
    describe("topics", topic).succeeded().says("retention.ms=3600000").says_not("cleanup.policy")
    alter("topics", topic, "--add-config", "retention.ms=soon").failed().says("retention.ms")
    alter("topics", topic, "--add-config", "no.such.config=1").failed().says("no.such.config")
    describe("topics", place.name("none")).says("doesn't exist")


@scenario
def configs_of_a_broker_are_shown_and_set(place):
    node = nodes()[0]
    shown = describe("brokers", node, "--all").succeeded()
    shown.says(f"node.id={node}", "broker.rack=", "replica.selector.class=", "log.retention.ms=", "num.partitions=")
    changed = tool(
        "kafka-configs", "--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "log.retention.ms=7654321000"
    )
    try:
        changed.succeeded().says("Completed updating default config for brokers")
        describe("brokers", None).succeeded().says("log.retention.ms=7654321000")
        for broker in nodes():
            describe("brokers", broker, "--all").succeeded().says("log.retention.ms=7654321000")
    finally:
        tool("kafka-configs", "--entity-type", "brokers", "--entity-default", "--alter", "--delete-config", "log.retention.ms")
    describe("brokers", None).succeeded().says_not("7654321000")


@scenario
def configs_of_a_group_are_set_and_shown(place):
    group = place.name("group")
    alter("groups", group, "--add-config", "consumer.session.timeout.ms=50000").succeeded()
    describe("groups", group).succeeded().says("consumer.session.timeout.ms=50000")
    alter("groups", group, "--delete-config", "consumer.session.timeout.ms").succeeded()


@scenario
def quotas_of_users_clients_and_both(place):
    user, client = place.name("user"), place.name("client")
    both = ["--entity-type", "users", "--entity-name", user, "--entity-type", "clients", "--entity-name", client]
    alter("users", user, "--add-config", "producer_byte_rate=1048576,consumer_byte_rate=2097152").succeeded()
    alter("clients", client, "--add-config", "consumer_byte_rate=50000").succeeded()
    tool("kafka-configs", *both, "--alter", "--add-config", "producer_byte_rate=4096").succeeded()
    of_user = describe("users", user).succeeded()
    of_user.says(f"Quota configs for user-principal '{user}' are", "producer_byte_rate=1048576.0", "consumer_byte_rate=2097152.0")
    describe("clients", client).succeeded().says("consumer_byte_rate=50000.0")
    tool("kafka-configs", *both, "--describe").succeeded().says("producer_byte_rate=4096.0")
    default = ["--entity-type", "clients", "--entity-default"]
    tool("kafka-configs", *default, "--alter", "--add-config", "controller_mutation_rate=1000").succeeded()
    tool("kafka-configs", *default, "--describe").succeeded().says("controller_mutation_rate=1000.0")
    tool("kafka-configs", *default, "--alter", "--delete-config", "controller_mutation_rate").succeeded()
    alter("users", user, "--delete-config", "producer_byte_rate,consumer_byte_rate").succeeded()
    alter("clients", client, "--delete-config", "consumer_byte_rate").succeeded()
    tool("kafka-configs", *both, "--alter", "--delete-config", "producer_byte_rate").succeeded()
    describe("users", user).succeeded().says_not("byte_rate=")
    alter("users", user, "--add-config", "no_such_rate=1").failed()


@scenario
def quotas_of_addresses(place):
    address = "192.0.2.17"
    alter("ips", address, "--add-config", "connection_creation_rate=20").succeeded()
    describe("ips", address).succeeded().says("connection_creation_rate=20.0")
    alter("ips", address, "--delete-config", "connection_creation_rate").succeeded()
    describe("ips", address).succeeded().says_not("connection_creation_rate=20.0")


@scenario
def acls_are_added_listed_and_removed(place):
    topic, who = place.name("acl"), f"User:{place.name('user')}"
    of_topic = ["--topic", topic]
    added = tool("kafka-acls", "--add", "--allow-principal", who, "--operation", "Read", "--operation", "Describe", *of_topic)
    added.succeeded().says("Adding ACLs for resource", "operation=READ", "operation=DESCRIBE")
    listed = tool("kafka-acls", "--list", "--principal", who).succeeded()
    listed.says(f"name={topic}", f"principal={who}", "permissionType=ALLOW")
    prefixed = ["--topic", f"{topic}-", "--resource-pattern-type", "prefixed"]
    denied = tool("kafka-acls", "--add", "--deny-principal", who, "--deny-host", "192.0.2.1", "--operation", "Write", *prefixed)
    denied.succeeded().says("patternType=PREFIXED", "permissionType=DENY", "host=192.0.2.1")
    tool("kafka-acls", "--list", "--topic", f"{topic}-1", "--resource-pattern-type", "match").succeeded().says("permissionType=DENY")
    tool("kafka-acls", "--add", "--allow-principal", who, "--consumer", "--topic", topic, "--group", topic).succeeded().says(
        "resourceType=GROUP"
    )
    for pattern in (of_topic, prefixed, ["--group", topic]):
        tool("kafka-acls", "--remove", "--force", *pattern).succeeded()
    tool("kafka-acls", "--list", "--principal", who).succeeded().says_not("permissionType")
