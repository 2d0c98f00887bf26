"""The registry of scenarios, the runner, and Kafka's commands as a shell would run them.

A command is a class of Kafka's jars; its scripts (`kafka-topics.sh`) only start it. Its output is also written to
`printed.txt`, with the command line.
"""

import json
import os
import re
import subprocess
import tempfile
import threading
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

BOOTSTRAP = os.environ["BOOTSTRAP"]
TOOLS = Path(os.environ["TOOLS_DIR"])
# Each command starts a JVM, which takes a core for a second or two.
AT_ONCE = max(2, (os.cpu_count() or 2) // 2)
COMMAND_SECONDS = 60

CLASSES = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
}
# Option of these commands for the address of a broker.
ADDRESS_BEHIND = {"kafka-cluster"}

LOGGING = """Configuration:
  Appenders:
    Console:
      name: Console
      target: SYSTEM_ERR
      PatternLayout:
        pattern: "%-5p %c{1}: %m%n"
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        ref: Console
"""


@dataclass
class Scenario:
    name: str
    body: callable


SCENARIOS: list[Scenario] = []


def scenario(body):
    """Registers a function as a scenario named after it."""
    SCENARIOS.append(Scenario(body.__name__.replace("_", "-"), body))
    return body


class Failure(AssertionError):
    pass


def expect(actual, wanted, what):
    if actual != wanted:
        raise Failure(f"{what}: wanted {wanted!r}, got {actual!r}")


@dataclass
class Printed:
    """Output and exit status of a command."""

    command: str
    code: int
    out: str
    err: str

    def succeeded(self):
        if self.code != 0:
            raise Failure(f"`{self.command}` ended with {self.code}: {brief(self.out + self.err)}")
        return self

    def failed(self):
        if self.code == 0:
            raise Failure(f"`{self.command}` succeeded: {brief(self.out)}")
        return self

    def says(self, *parts):
        """Checks that the output has each of these on one line, with any blanks between the words."""
        text = words(self.out + "\n" + self.err)
        for part in parts:
            if words(part) not in text:
                raise Failure(f"`{self.command}` does not say {part!r}: {brief(self.out + self.err)}")
        return self

    def says_not(self, *parts):
        text = words(self.out + "\n" + self.err)
        for part in parts:
            if words(part) in text:
                raise Failure(f"`{self.command}` says {part!r}: {brief(self.out + self.err)}")
        return self

    def lines(self):
        return [line.strip() for line in self.out.splitlines() if line.strip()]

    def rows(self):
        """The lines of a table with headings, each as a dictionary."""
        lines = [line.split() for line in self.lines()]
        heads = next(line for line in lines if all(word == word.upper() for word in line) and len(line) > 2)
        body = lines[lines.index(heads) + 1 :]
        return [dict(zip(heads, line)) for line in body if line != heads]


def words(text):
    return re.sub(r"\s+", " ", text)


def brief(text):
    text = words(text).strip()
    return text if len(text) <= 300 else f"{text[:300]}..."


PRINTED = TOOLS / "printed.txt"
writing = threading.Lock()


def note(printed):
    with writing, PRINTED.open("a") as file:
        file.write(f"$ {printed.command}\n{printed.out}")
        if printed.err.strip():
            file.write(f"(on standard error) {printed.err}")
        file.write(f"(ended with {printed.code})\n\n")


def start_of(name, arguments):
    logging = TOOLS / "log4j2.yaml"
    if not logging.exists():
        logging.write_text(LOGGING)
    java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    java += [f"-Dlog4j2.configurationFile={logging}", "-cp", f"{TOOLS}/libs/*", CLASSES[name]]
    return java + arguments


def tool(name, *arguments, given=None, seconds=COMMAND_SECONDS):
    """Runs one of Kafka's commands against the brokers; `given` is its standard input."""
    address = ["--bootstrap-server", BOOTSTRAP]
    arguments = [str(argument) for argument in arguments]
    arguments = arguments + address if name in ADDRESS_BEHIND else address + arguments
    typed = " ".join([f"{name}.sh", *arguments])
    try:
        ended = subprocess.run(
            start_of(name, arguments), input=given, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as late:
        out = (late.stdout or b"").decode(errors="replace")
        note(Printed(typed, -1, out, f"did not end within {seconds} s\n"))
        raise Failure(f"`{typed}` did not end within {seconds} s: {brief(out)}") from late
    printed = Printed(typed, ended.returncode, ended.stdout, ended.stderr)
    note(printed)
    return printed


def tool_file(content, suffix=".json"):
    """A file with this content, as an argument of a command."""
    file = tempfile.NamedTemporaryFile("w", suffix=suffix, delete=False)
    with file:
        file.write(content if isinstance(content, str) else json.dumps(content))
    return file.name


class Place:
    """Unique names of a scenario, and common operations."""

    def __init__(self, name):
        self.run = f"{name}-{uuid.uuid4().hex[:8]}"
        self.topics = []

    def name(self, what="topic"):
        return f"tools-{self.run}-{what}"

    def topic(self, partitions=1, what="topic", *more):
        topic = self.name(what)
        tool("kafka-topics", "--create", "--topic", topic, "--partitions", partitions, *more).succeeded().says(
            f"Created topic {topic}."
        )
        self.topics.append(topic)
        return topic

    def produce(self, topic, count, key=True):
        lines = "".join(f"{number}:value-{number}\n" for number in range(count))
        options = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
        printed = tool("kafka-console-producer", "--topic", topic, *(options if key else []), given=lines)
        printed.succeeded()

    def consume(self, topic, count, *more):
        return tool(
            "kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", count,
            "--timeout-ms", 30000, *more,
        ).succeeded()

    def clean(self):
        for topic in self.topics:
            tool("kafka-topics", "--delete", "--topic", topic)


_nodes = None
_nodes_lock = threading.Lock()


def nodes():
    """The numbers of the brokers."""
    global _nodes
    with _nodes_lock:
        if _nodes is None:
            printed = tool("kafka-broker-api-versions").succeeded()
            _nodes = sorted(int(it) for it in re.findall(r"^\S+ \(id: (\d+) rack: ", printed.out, re.M))
        return _nodes


def described(topic):
    """For each partition: the leader, the replicas in their order, and the ISR."""
    printed = tool("kafka-topics", "--describe", "--topic", topic).succeeded()
    pattern = r"Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)"
    ids = lambda text: [int(it) for it in text.split(",") if it]
    found = {}
    for partition, leader, replicas, in_sync in re.findall(pattern, printed.out):
        leader = int(leader) if leader.isdigit() else None
        found[int(partition)] = (leader, ids(replicas), ids(in_sync))
    return found


def until(condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"{what} did not come about in {seconds} s")
        time.sleep(0.2)


def run(parts):
    """Runs the chosen scenarios and prints their outcomes; returns how many failed."""
    PRINTED.write_text("")
    wanted = [it for it in SCENARIOS if not parts or any(part in it.name for part in parts)]
    say = threading.Lock()

    def one(it):
        begun, place = time.monotonic(), Place(it.name)
        try:
            it.body(place)
            result = f"ok {it.name} {time.monotonic() - begun:.1f}"
        except Exception as error:  # noqa: BLE001  (whatever it is, the scenario failed)
            at = traceback.extract_tb(error.__traceback__)
            at = [frame for frame in at if "suite/" in frame.filename and "harness" not in frame.filename]
            where = f" ({Path(at[-1].filename).name}:{at[-1].lineno})" if at else ""
            result = f"FAIL {it.name} {words(str(error) or repr(error))}{where}"
        place.clean()
        with say:
            print(result, flush=True)
        return result.startswith("ok")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(one, wanted))
    passed = sum(results)
    print(f"{passed} passed, {len(results) - passed} failed")
    return len(results) - passed
