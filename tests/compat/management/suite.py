"""RabbitMQ's own command lines (rabbitmqadmin, the one in Python and the one in Rust), AMQPStorm's management client, and
rabbit-hole, Terraform's client in Go, against a server.

They parse the members of responses that they need, so a scenario fails where a client would.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import admin2
import amqpstorm
import rabbitmqadmin
import theirs
from amqpstorm.management import ApiError, ManagementApi

POSTROAD = os.environ["POSTROAD"]
HOLE = os.environ["HOLE"]
RABBITMQADMIN = Path(rabbitmqadmin.__file__).parent / "upstream" / "rabbitmqadmin_original.py"

SCENARIOS = []


def scenario(function):
    SCENARIOS.append((function.__name__.replace("_", "-"), function))
    return function


class Server:
    """A server with an administrator `root`."""

    def __init__(self, folder):
        self.folder = folder
        Path(folder, "password").write_text("toor\n")
        any_port = "127.0.0.1:0"
        self.process = subprocess.Popen(
            [POSTROAD, "serve", "--data", f"{folder}/data", "--kafka", any_port, "--amqp", any_port,
             "--http", any_port, "--admin-user", "root", "--admin-password-file", f"{folder}/password"],
            stdout=subprocess.PIPE, stderr=open(f"{folder}/log", "w"), text=True,
        )
        line = self.process.stdout.readline()
        self.http = line.split(", http ")[1].split(",")[0]
        self.amqp = line.split(", amqp ")[1].split(",")[0]
        assert self.process.stdout.readline() == "ready\n"
        self.api = ManagementApi(f"http://{self.http}", "root", "toor")

    def admin(self, *words, user="root", password="toor", check=True):
        """Runs rabbitmqadmin and returns its output."""
        host, port = self.http.split(":")
        done = subprocess.run(
            [sys.executable, str(RABBITMQADMIN), "-H", host, "-P", port, "-u", user, "-p", password, *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{words}: {done.stdout}")
        return done.stdout

    def rows(self, *words, **options):
        return json.loads(self.admin("-f", "raw_json", "list", *words, **options))

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


def refused(call, status):
    try:
        call()
    except ApiError as error:
        assert error.error_code == status, error
        return
    raise AssertionError("it is not refused")


@scenario
def rabbitmqadmin_shows_the_overview(server):
    text = server.admin("show", "overview")
    assert "4.2.0" in text and "rabbitmq_version" in text, text
    for what in ["nodes", "users", "vhosts", "permissions", "policies", "exchanges", "connections",
                 "queues", "bindings", "parameters"]:
        server.admin("list", what)


@scenario
def rabbitmqadmin_declares_publishes_and_gets(server):
    server.admin("declare", "exchange", "name=admin.x", "type=topic")
    server.admin("declare", "queue", "name=admin.q", "durable=true", 'arguments={"x-max-length": 10}')
    server.admin("declare", "binding", "source=admin.x", "destination=admin.q", "routing_key=a.#")
    assert "Message published" in server.admin(
        "publish", "exchange=admin.x", "routing_key=a.b", "payload=3 apples")
    assert "NOT routed" in server.admin(
        "publish", "exchange=admin.x", "routing_key=b", "payload=lost")
    for _ in range(2):
        assert "3 apples" in server.admin("get", "queue=admin.q", "ackmode=ack_requeue_true")
    [row] = [row for row in server.rows("queues") if row["name"] == "admin.q"]
    assert row["messages"] == 1 and row["arguments"]["x-max-length"] == 10, row
    assert "3 apples" in server.admin("get", "queue=admin.q", "ackmode=ack_requeue_false")
    server.admin("purge", "queue", "name=admin.q")
    [binding] = [row for row in server.rows("bindings") if row["source"] == "admin.x"]
    server.admin("delete", "binding", "source=admin.x", "destination_type=q", "destination=admin.q",
                 f"properties_key={binding['properties_key']}")
    server.admin("delete", "queue", "name=admin.q")
    server.admin("delete", "exchange", "name=admin.x")
    assert "not found" in server.admin("delete", "queue", "name=admin.q", check=False).lower()


@scenario
def rabbitmqadmin_makes_users_who_have_what_permissions_say(server):
    server.admin("declare", "vhost", "name=shop")
    server.admin("declare", "user", "name=app", "password=ppa", "tags=management")
    server.admin("declare", "permission", "vhost=shop", "user=app", "configure=^mine", "write=.*", "read=.*")
    mine = dict(user="app", password="ppa")
    server.admin("-V", "shop", "declare", "queue", "name=mine.q", **mine)
    assert "Access refused" in server.admin("-V", "shop", "declare", "queue", "name=other", check=False, **mine)
    assert [row["name"] for row in server.rows("vhosts", **mine)] == ["shop"]
    server.admin("delete", "user", "name=app")
    server.admin("delete", "vhost", "name=shop")


@scenario
def rabbitmqadmin_exports_and_imports_definitions(server):
    server.admin("declare", "queue", "name=kept", "durable=true")
    server.admin("declare", "policy", "name=short", "pattern=^kept", 'definition={"max-length": 5}', "apply-to=queues")
    file = f"{server.folder}/definitions.json"
    server.admin("export", file)
    before = json.loads(Path(file).read_text())
    server.admin("delete", "queue", "name=kept")
    server.admin("delete", "policy", "name=short")
    server.admin("import", file)
    server.admin("export", file)
    after = json.loads(Path(file).read_text())
    for section in ["queues", "policies", "exchanges", "bindings", "vhosts", "users", "permissions"]:
        assert before[section] == after[section], section
    assert any(row["name"] == "kept" for row in after["queues"]), after["queues"]


@scenario
def amqpstorm_manages_queues_and_exchanges(server):
    api = server.api
    api.exchange.declare("storm.x", exchange_type="fanout", durable=True)
    api.queue.declare("storm.q", durable=True)
    api.queue.bind("storm.q", exchange="storm.x", routing_key="")
    assert api.basic.publish("hello", routing_key="", exchange="storm.x") == {"routed": True}
    [message] = api.basic.get("storm.q", requeue=False, to_dict=True)
    assert message["payload"] == "hello", message
    assert api.queue.get("storm.q")["messages"] == 0
    assert len(api.queue.bindings("storm.q")) == 2
    api.queue.purge("storm.q")
    api.queue.delete("storm.q")
    api.exchange.delete("storm.x")
    refused(lambda: api.queue.get("storm.q"), 404)


@scenario
def amqpstorm_manages_users_and_virtual_hosts(server):
    api = server.api
    api.virtual_host.create("storm")
    api.user.create("storm", "password", tags="monitoring")
    api.user.set_permission("storm", "storm")
    assert api.user.get("storm")["tags"] in ("monitoring", ["monitoring"])
    assert api.user.get_permission("storm", "storm")["configure"] == ".*"
    host, port = server.amqp.split(":")
    connection = amqpstorm.Connection(host, "storm", "password", port=int(port), virtual_host="storm")
    [row] = [row for row in api.connection.list() if row["user"] == "storm"]
    api.connection.close(row["name"])
    gone(connection)
    other = ManagementApi(f"http://{server.http}", "storm", "password")
    other.overview()
    refused(lambda: other.user.delete("storm"), 401)
    api.user.delete("storm")
    api.virtual_host.delete("storm")


def opened(server, user, password):
    host, port = server.amqp.split(":")
    return amqpstorm.Connection(host, user, password, port=int(port))


@scenario
def rabbitmqadmin_lists_channels_and_consumers_and_closes_connections(server):
    connection = opened(server, "root", "toor")
    channel = connection.channel()
    channel.queue.declare("live.q")
    channel.basic.qos(3)
    channel.basic.consume(lambda message: None, "live.q", consumer_tag="live.tag")
    [row] = server.rows("channels")
    assert (row["consumer_count"], row["prefetch_count"], row["user"]) == (1, 3, "root"), row
    [row] = server.rows("consumers")
    assert (row["consumer_tag"], row["queue"]["name"]) == ("live.tag", "live.q"), row
    [row] = [row for row in server.rows("connections") if (row["protocol"], row["user"]) == ("AMQP 0-9-1", "root")]
    assert row["channels"] == 1 and row["client_properties"]["product"] == "AMQPStorm", row
    server.admin("close", "connection", f"name={row['name']}")
    gone(connection)
    server.admin("delete", "queue", "name=live.q")


def gone(connection):
    deadline = time.monotonic() + 20
    while connection.is_open and time.monotonic() < deadline:
        try:
            connection.check_for_errors()
        except amqpstorm.AMQPConnectionError:
            break
        time.sleep(0.1)
    assert time.monotonic() < deadline, "the connection is not closed"


def hole(server, name):
    done = subprocess.run([HOLE, name, f"http://{server.http}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def rabbit_hole(name):
    def run(server):
        hole(server, name)
    SCENARIOS.append((f"rabbit-hole-{name}", run))


for name in ["node", "declared", "permissions", "policies", "absent", "limits", "definitions"]:
    rabbit_hole(name)


@scenario
def rabbit_hole_live(server):
    server.api.user.create("hole", "secret", tags="")
    server.api.user.set_permission("hole", "/")
    connection = opened(server, "hole", "secret")
    channel = connection.channel()
    channel.confirm_deliveries()
    channel.queue.declare("hole.live")
    channel.basic.qos(7)
    channel.basic.consume(lambda message: None, "hole.live", consumer_tag="hole.tag")
    hole(server, "live")
    gone(connection)
    server.api.queue.delete("hole.live")
    server.api.user.delete("hole")


SCENARIOS += admin2.SCENARIOS


@scenario
def rabbitmqadmin2_sees_what_is_live_and_closes_it(server):
    def seen(kind):
        return admin2.admin(server, kind, "list")

    server.api.user.create("live2", "secret", tags="")
    server.api.user.set_permission("live2", "/")
    for close in [["close_of_user", "-u", "live2"], None]:
        connection = opened(server, "live2", "secret")
        channel = connection.channel()
        channel.queue.declare("live2.q")
        channel.basic.qos(4)
        channel.basic.consume(lambda message: None, "live2.q", consumer_tag="live2.tag")
        assert "live2" in seen("connections")
        assert any("running" in line and "  1  false  4  " in line for line in seen("channels").splitlines())
        assert "live2.tag" in admin2.admin(server, "list", "consumers")
        assert "live2" in admin2.admin(server, "list", "user_connections", "--username", "live2")
        if close is None:
            # The previous connection may still be listed for a moment.
            rows = [row for row in server.api.connection.list() if row["user"] == "live2"]
            newest = max(rows, key=lambda row: row["connected_at"])
            close = ["close", "--name", newest["name"]]
        admin2.admin(server, "connections", *close)
        gone(connection)
    server.api.queue.delete("live2.q")
    server.api.user.delete("live2")


def their_suites(parts):
    """Results of the clients' own suites, with their own messages."""
    with ThreadPoolExecutor(len(theirs.SUITES)) as workers:
        def follow(suite, process):
            lines = [line.rstrip() for line in process.stdout]
            if process.wait() != 0:
                lines.append(f"FAIL {suite}/whole it ended with {process.returncode}")
            return lines

        yield from workers.map(lambda it: follow(*it), list(theirs.in_namespaces(parts)))


def main():
    parts = sys.argv[1:]
    passed = failed = 0
    # The suites run concurrently.
    others = ThreadPoolExecutor(1).submit(lambda: list(their_suites(parts)))
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder)
        try:
            for name, function in SCENARIOS:
                if parts and not any(part in name for part in parts):
                    continue
                begun = time.monotonic()
                try:
                    function(server)
                    print(f"ok {name} {time.monotonic() - begun:.1f}", flush=True)
                    passed += 1
                except Exception as error:
                    place = traceback.extract_tb(error.__traceback__)[-1]
                    reason = " ".join(f"{type(error).__name__}: {error}".split())
                    print(f"FAIL {name} {reason} ({Path(place.filename).name}:{place.lineno})", flush=True)
                    failed += 1
        finally:
            server.stop()
    for line in sum(others.result(), []):
        print(line, flush=True)
        passed += line.startswith("ok ")
        failed += line.startswith("FAIL ")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
