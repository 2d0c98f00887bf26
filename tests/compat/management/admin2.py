"""RabbitMQ's newer command line, rabbitmqadmin 2, which is written in Rust and parses responses strictly: a missing
member, or one of another type, fails the command."""

import json
import os
import subprocess
from pathlib import Path

RABBITMQADMIN2 = os.environ["RABBITMQADMIN2"]

SCENARIOS = []


def scenario(function):
    SCENARIOS.append(("rabbitmqadmin2-" + function.__name__.replace("_", "-"), function))
    return function


def admin(server, *words, user="root", password="toor", vhost="/", fails=False, stdin=None):
    """Runs rabbitmqadmin 2 and returns its output."""
    done = subprocess.run(
        [RABBITMQADMIN2, "--base-uri", f"http://{server.http}/api", "-u", user, "-p", password, "-V", vhost,
         "--non-interactive", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, input=stdin,
    )
    if (done.returncode != 0) != fails:
        raise AssertionError(f"{words} ended with {done.returncode}: {done.stdout}")
    return done.stdout


@scenario
def looks(server):
    text = admin(server, "show", "overview")
    assert "4.2.0" in text and "Postroad" in text, text
    node = next(word for word in admin(server, "nodes", "list").split() if word.startswith("postroad@"))
    amqp = server.amqp.split(":")[1]
    for words in [
        "show churn", "show endpoint", f"show memory_breakdown_in_bytes --node {node}",
        f"show memory_breakdown_in_percent --node {node}", f"nodes memory_breakdown_in_bytes --node {node}",
        "list nodes", "list users", "list vhosts", "list permissions", "list connections", "list channels",
        "list queues", "list exchanges", "list bindings", "list consumers", "list policies", "list operator_policies",
        "list vhost_limits", "list user_limits", "list feature_flags", "list deprecated_features",
        "list deprecated_features_in_use", "list parameters --component shovel", "list user_connections --username root",
        "parameters list_all", "global_parameters list", "plugins list_all", f"plugins list_on_node --node {node}",
        f"auth_attempts stats --node {node}", "feature_flags enable_all", "feature_flags enable --name stream_queue",
        "health_check local_alarms", "health_check cluster_wide_alarms", "health_check node_is_quorum_critical",
        f"health_check port_listener --port {amqp}", "health_check protocol_listener --protocol amqp",
        "shovels list_all", "federation list_all_links", "federation list_all_upstreams",
    ]:
        admin(server, *words.split())
    admin(server, "health_check", "port_listener", "--port", "1", fails=True)


@scenario
def declares_publishes_and_gets(server):
    def at(*words, **options):
        return admin(server, *words, **options)

    at("exchanges", "declare", "--name", "two.x", "--type", "topic")
    at("queues", "declare", "--name", "two.q", "--durable", "true", "--arguments", '{"x-max-length": 10}')
    # Repeating it changes nothing, and different arguments are rejected.
    at("declare", "queue", "--name", "two.q", "--durable", "true", "--arguments", '{"x-max-length": 10}')
    at("declare", "queue", "--name", "two.q", "--durable", "true", "--arguments", '{"x-max-length": 11}', fails=True)
    bound = ["--source", "two.x", "--destination-type", "queue", "--destination", "two.q", "--routing-key", "a.#"]
    at("bindings", "declare", *bound)
    assert "two.x" in at("bindings", "list")
    at("publish", "message", "-e", "two.x", "-k", "a.b", "-m", "3 apples", "-p", '{"message_id": "m1"}')
    at("publish", "message", "-k", "two.q", "-f", "-", stdin="2 pears")
    text = at("get", "messages", "-q", "two.q", "-c", "10", "-a", "ack_requeue_true")
    assert "3 apples" in text and "2 pears" in text and "m1" in text, text
    assert "3 apples" in at("get", "messages", "-q", "two.q", "-a", "ack_requeue_false")
    assert "two.q" in at("queues", "show", "--name", "two.q")
    at("purge", "queue", "--name", "two.q")
    assert "pears" not in at("get", "messages", "-q", "two.q")
    at("exchanges", "declare", "--name", "two.y", "--type", "fanout")
    between = ["--source", "two.x", "--destination-type", "exchange", "--destination", "two.y", "--routing-key", "b"]
    at("exchanges", "bind", *between)
    at("exchanges", "unbind", *between)
    at("bindings", "delete", *bound)
    at("queues", "delete", "--name", "two.q")
    at("queues", "delete", "--name", "two.q", "--idempotently")
    at("queues", "delete", "--name", "two.q", fails=True)
    for name in ["two.x", "two.y"]:
        at("exchanges", "delete", "--name", name)


@scenario
def pages_and_deletes_many(server):
    for number in range(12):
        admin(server, "declare", "queue", "--name", f"many.{number}", "--durable", "true")
    text = admin(server, "list", "queues", "--page", "2", "--page-size", "5")
    assert sum("classic" in line for line in text.splitlines()) == 5, text
    admin(server, "queues", "delete_multiple", "--name-pattern", "^many", "--dry-run")
    assert "many.0" in admin(server, "list", "queues")
    admin(server, "queues", "delete_multiple", "--name-pattern", "^many", "--approve")
    assert "many" not in admin(server, "list", "queues")
    for number in range(2):
        admin(server, "vhosts", "declare", "--name", f"several-{number}")
    admin(server, "vhosts", "delete_multiple", "--name-pattern", "^several", "--approve")
    assert "several" not in admin(server, "list", "vhosts")


@scenario
def users_have_what_permissions_say_and_limits(server):
    def at(*words, **options):
        return admin(server, *words, **options)

    at("vhosts", "declare", "--name", "shop2")
    at("users", "declare", "--name", "app2", "--password", "ppa", "--tags", "management")
    at("permissions", "declare", "--username", "app2", "--configure", "^mine", "--write", ".*", "--read", ".*",
       vhost="shop2")
    assert "app2" in at("permissions", "list") and "app2" in at("users", "list")
    at("users", "permissions")
    mine = dict(user="app2", password="ppa", vhost="shop2")
    at("declare", "queue", "--name", "mine.q", **mine)
    assert "refused" in at("declare", "queue", "--name", "other", fails=True, **mine).lower()
    at("users", "declare", "--name", "late", "--password", "x", fails=True, **mine)
    at("user_limits", "declare", "--username", "app2", "--name", "max-connections", "--value", "5")
    assert "max-connections" in at("user_limits", "list", "--username", "app2")
    at("user_limits", "delete", "--username", "app2", "--name", "max-connections")
    at("vhost_limits", "declare", "--name", "max-queues", "--value", "1", vhost="shop2")
    assert "max-queues" in at("vhost_limits", "list", vhost="shop2")
    at("declare", "queue", "--name", "mine.more", fails=True, **mine)
    at("vhost_limits", "delete", "--name", "max-queues", vhost="shop2")
    # A password that the client hashes.
    hashed = at("passwords", "salt_and_hash", "secret", "--hashing-algorithm", "SHA256")
    value = max(hashed.replace("│", " ").replace("|", " ").split(), key=len)
    at("users", "declare", "--name", "app2", "--password-hash", value, "--tags", "management")
    at("list", "vhosts", user="app2", password="secret")
    at("permissions", "delete", "--username", "app2", vhost="shop2")
    at("users", "delete", "--name", "app2")
    at("vhosts", "disable_deletion_protection", "--name", "shop2")
    at("vhosts", "delete", "--name", "shop2")


@scenario
def policies_are_declared_changed_and_found(server):
    def at(*words, **options):
        return admin(server, *words, **options)

    at("declare", "queue", "--name", "pol.q", "--durable", "true")
    at("policies", "declare", "--name", "pol", "--pattern", "^pol", "--apply-to", "queues", "--priority", "3",
       "--definition", '{"max-length": 5, "expires": 60000000}')
    assert "pol" in at("policies", "list") and "pol" in at("policies", "list_in")
    assert "pol" in at("policies", "list_matching_object", "--name", "pol.q", "--type", "queues")
    at("policies", "update_definition", "--name", "pol", "--definition-key", "max-length", "--new-value", "6")
    at("policies", "patch", "--name", "pol", "--definition", '{"overflow": "reject-publish"}')
    at("policies", "delete_definition_keys", "--name", "pol", "--definition-keys", "expires")
    text = at("policies", "list")
    assert "reject-publish" in text and "expires" not in text and "6" in text, text
    at("policies", "declare_override", "--name", "pol", "--override-name", "pol.over", "--definition", '{"max-length": 9}')
    at("policies", "declare_blanket", "--name", "pol.rest", "--apply-to", "queues", "--definition", '{"max-length": 99}')
    at("policies", "list_conflicting")
    at("policies", "update_definitions_of_all_in", "--definition-key", "max-length", "--new-value", "12")
    for name in ["pol", "pol.over", "pol.rest"]:
        at("policies", "delete", "--name", name)
    at("operator_policies", "declare", "--name", "oper", "--pattern", "^pol", "--apply-to", "queues",
       "--definition", '{"max-length": 50}')
    at("operator_policies", "patch", "--name", "oper", "--definition", '{"max-length": 51}')
    assert "oper" in at("operator_policies", "list")
    at("operator_policies", "delete", "--name", "oper")
    at("queues", "delete", "--name", "pol.q")


@scenario
def definitions_go_out_and_in(server):
    admin(server, "declare", "queue", "--name", "kept2", "--durable", "true")
    file = f"{server.folder}/definitions2.json"
    admin(server, "definitions", "export", "--file", file)
    before = json.loads(Path(file).read_text())
    admin(server, "queues", "delete", "--name", "kept2")
    admin(server, "definitions", "import", "--file", file)
    after = json.loads(admin(server, "definitions", "export", "--stdout"))
    for section in ["queues", "policies", "exchanges", "bindings", "vhosts", "users", "permissions"]:
        assert before[section] == after[section], section
    assert any(row["name"] == "kept2" for row in after["queues"]), after["queues"]
    # Imports definitions without users, and those of one virtual host into another.
    admin(server, "definitions", "export", "--stdout", "--transformations", "exclude_users,exclude_permissions")
    admin(server, "vhosts", "declare", "--name", "copy")
    of_vhost = f"{server.folder}/vhost2.json"
    admin(server, "definitions", "export_from_vhost", "--file", of_vhost)
    admin(server, "definitions", "import_into_vhost", "--file", of_vhost, vhost="copy")
    assert "kept2" in admin(server, "list", "queues", vhost="copy")
    admin(server, "vhosts", "delete", "--name", "copy")
    admin(server, "queues", "delete", "--name", "kept2")


@scenario
def streams_are_declared_and_shown(server):
    admin(server, "streams", "declare", "--name", "two.s", "--expiration", "1D", "--max-length-bytes", "10000000")
    assert "two.s" in admin(server, "streams", "list")
    assert "two.s" in admin(server, "streams", "show", "--name", "two.s")
    admin(server, "publish", "message", "-k", "two.s", "-m", "a line")
    admin(server, "streams", "delete", "--name", "two.s")


@scenario
def what_is_not_here_is_refused_in_words(server):
    for words, reason in [
        (["rebalance", "queues"], "not moved"),
        (["global_parameters", "set", "--name", "n", "--value", '{"a": 1}'], "means nothing here"),
        (["parameters", "set", "--name", "n", "--component", "shovel", "--value", "{}"], "no shovels"),
        (["vhosts", "declare", "--name", "traced", "--tracing"], "cannot be traced"),
        (["federation", "declare_upstream", "--name", "u", "--uri", "amqp://127.0.0.1"], "not found"),
    ]:
        text = admin(server, *words, fails=True)
        assert reason in text, f"{words}: {text}"
