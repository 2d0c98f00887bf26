"""Test suites of clients of RabbitMQ's management API, as published in their packages. Each runs against a server of
its own, in a network namespace of its own: the suites need RabbitMQ's ports, and their traffic stays inside.

    theirs.py SUITE [NAME_PART...]

Each of their tests is a scenario SUITE/NAME. Tests that they skip themselves are not.
"""

import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
import xml.etree.ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

DEPS = Path(os.environ["DEPS"])
POSTROAD = os.environ["POSTROAD"]
API = "http://127.0.0.1:15672/api"
# Time limits of one test, and of a suite that is one program.
TEST_WITHIN, SUITE_WITHIN = 60, 240
# Setup according to RabbitMQ's documentation of the suites.
VHOSTS = ["rabbit/hole", "rust/http/api/client", "rust/rabbitmqadmin"]
USERS = {"guest": "administrator", "policymaker": "policymaker", "rust3": ""}


def loopback_up():
    """SIOCSIFFLAGS: a new namespace has one interface, which is down."""
    up_and_running = 0x41
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, 0x8914, struct.pack("16sh", b"lo", up_and_running))


class Server:
    def __init__(self, folder):
        Path(folder, "password").write_text("toor\n")
        self.process = subprocess.Popen(
            [POSTROAD, "serve", "--data", f"{folder}/data", "--kafka", "127.0.0.1:9092", "--amqp", "127.0.0.1:5672",
             "--http", "127.0.0.1:15672", "--admin-user", "root", "--admin-password-file", f"{folder}/password"],
            stdout=subprocess.PIPE, stderr=open(f"{folder}/log", "w"), text=True,
        )
        self.process.stdout.readline()
        assert self.process.stdout.readline() == "ready\n"

    def put(self, path, body):
        login = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        login.add_password(None, API, "root", "toor")
        opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(login))
        opener.open(urllib.request.Request(f"{API}/{path}", json.dumps(body).encode(), method="PUT")).close()

    def prepare(self, users, vhosts):
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        for user, tags in users.items():
            self.put(f"users/{user}", {"password": user, "tags": tags})
        for vhost in ["/", *vhosts]:
            vhost = vhost.replace("/", "%2F")
            if vhost != "%2F":
                self.put(f"vhosts/{vhost}", {})
            for user in users:
                self.put(f"permissions/{vhost}/{user}", everything)

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


def told(text):
    """The error, on one line."""
    return " ".join(text.split())[:300]


def rabbit_hole(wanted):
    """rabbit-hole's suite: one program, which writes a report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        done = subprocess.run(
            [DEPS / "rabbit-hole" / "suite", f"--ginkgo.junit-report={report}", "--ginkgo.no-color"],
            cwd=DEPS / "rabbit-hole", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SUITE_WITHIN,
        )
        if not report.exists():
            raise RuntimeError(told(done.stdout[-300:]))
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            name = case.get("name").removeprefix("[It] ").removeprefix("RabbitMQ HTTP API client ")
            name = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
            if case.get("status") not in ("skipped", "pending") and wanted(name):
                wrong = [it for it in case if it.tag in ("failure", "error")]
                reason = told(wrong[0].get("message") or "") if wrong else ""
                yield name, float(case.get("time")), reason or ("failed" if wrong else None)


def one_of_rust(program, name):
    begun = time.monotonic()
    environment = {**os.environ, "TEST_STATS_DELAY": "50", "RUST_BACKTRACE": "0"}
    try:
        done = subprocess.run([program, "--exact", name], cwd=program.parent, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=TEST_WITHIN, env=environment)
        reason = None if done.returncode == 0 else told(done.stdout.split(f"---- {name} stdout ----")[-1])
    except subprocess.TimeoutExpired:
        reason = f"not done within {TEST_WITHIN} s"
    return name, time.monotonic() - begun, reason


# This test deletes all virtual hosts except the default one.
DELETE_EVERYTHING = "::test_vhosts_delete_multiple_protects_default_vhost"


def of_rust(crate, wanted, together=lambda module: "all"):
    """Each test is a process of its own, as with their runner. Conflicting tests run one after the other, and a test
    that deletes the objects of all others runs last."""
    program = DEPS / "crates" / crate / "suite"
    listed = subprocess.run([program, "--list", "--format", "terse"], stdout=subprocess.PIPE, text=True, check=True)
    ignored = subprocess.run([program, "--list", "--format", "terse", "--ignored"], stdout=subprocess.PIPE, text=True)
    names = set(listed.stdout.splitlines()) - set(ignored.stdout.splitlines())
    groups, last = {}, []
    for name in sorted(line.removesuffix(": test") for line in names):
        if not wanted(name):
            continue
        if name.endswith(DELETE_EVERYTHING):
            last.append(name)
        else:
            groups.setdefault(together(name.split("::")[0]), []).append(name)
    with ThreadPoolExecutor(4) as workers:
        longest_first = sorted(groups.values(), key=len, reverse=True)
        running = [workers.submit(lambda some: [one_of_rust(program, it) for it in some], some) for some in longest_first]
        for group in running:
            yield from group.result()
    for name in last:
        yield one_of_rust(program, name)


# Tests without requests to a server.
WITHOUT_SERVER = ("help_tests", "shell_completions_tests", "config_file_tests")


def rabbitmqadmin(wanted):
    def together(module):
        # These tests read all users, virtual hosts or policies.
        for group in ["permissions", "users", "user_limits", "vhosts", "combined"]:
            if module.startswith(group):
                return "access"
        everywhere = ("policies", "operator_policies", "definitions", "federation", "queue_federation", "exchange_federation")
        return "policies" if module.startswith(everywhere) else module

    return of_rust("rabbitmqadmin", lambda name: not name.startswith(WITHOUT_SERVER) and wanted(name), together)


def http_client(kind):
    return lambda wanted: of_rust("rabbitmq_http_client", lambda name: name.startswith(kind) and wanted(name))


class Told(unittest.TestResult):
    """Collects the results of a suite's tests."""

    def __init__(self):
        super().__init__()
        self.reason = None
        self.left_out = False

    def addFailure(self, test, error):
        self.reason = told(f"{error[0].__name__}: {error[1]}")

    addError = addFailure

    def addSkip(self, test, reason):
        self.left_out = True


def amqpstorm(wanted):
    os.environ.update(
        AMQP_HOST="127.0.0.1", AMQP_USERNAME="guest", AMQP_PASSWORD="guest",
        AMQP_URI="amqp://guest:guest@127.0.0.1:5672/%2F", AMQP_HTTP_URL="http://127.0.0.1:15672",
        AMQP_SSL_URI="amqps://guest:guest@127.0.0.1:5671/%2F", AMQP_SSL_HOST="127.0.0.1",
    )
    import amqpstorm.tests.functional.management as management

    modules = [f"{management.__name__}.{it.stem}" for it in sorted(Path(management.__file__).parent.glob("test_*.py"))]

    def tests(suite):
        for it in suite:
            yield from tests(it) if isinstance(it, unittest.TestSuite) else [it]

    for test in tests(unittest.defaultTestLoader.loadTestsFromNames([*modules, "amqpstorm.tests.functional.test_web_based"])):
        name = ".".join(test.id().split(".")[-3:])
        if not wanted(name):
            continue
        result, begun = Told(), time.monotonic()
        test.run(result)
        if not result.left_out:
            yield name, time.monotonic() - begun, result.reason


# Each with the users and virtual hosts that it expects.
SUITES = {
    "rabbit-hole": (rabbit_hole, USERS, VHOSTS[:1]),
    "rabbitmqadmin": (rabbitmqadmin, {"guest": "administrator"}, VHOSTS[2:]),
    "http-client-async": (http_client("async_"), USERS, VHOSTS[1:2]),
    "http-client-blocking": (http_client("blocking_"), USERS, VHOSTS[1:2]),
    "amqpstorm": (amqpstorm, {"guest": "administrator"}, []),
}


def in_namespaces(parts):
    """Runs each suite that may contain the requested tests, as a process that prints its results."""
    for suite in SUITES:
        if parts and not any("/" in part and part.split("/")[0] in suite or part in suite for part in parts):
            continue
        isolated = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
        yield suite, subprocess.Popen([*isolated, sys.executable, __file__, suite, *parts], stdout=subprocess.PIPE, text=True)


def main():
    suite, parts = sys.argv[1], sys.argv[2:]
    run, users, vhosts = SUITES[suite]
    loopback_up()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder)
        try:
            server.prepare(users, vhosts)
            for name, seconds, reason in run(lambda name: not parts or any(part in f"{suite}/{name}" for part in parts)):
                line = f"ok {suite}/{name} {seconds:.1f}" if reason is None else f"FAIL {suite}/{name} {reason}"
                print(line, flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
