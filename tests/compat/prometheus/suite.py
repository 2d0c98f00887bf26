"""The alert rules and the dashboard of `deploy`, by a real Prometheus that watches three nodes under load."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse
import urllib.request
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "servers"))
from three_nodes import NODES, ThreeNodes, free_ports  # noqa: E402

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
RULES = DEPLOY / "prometheus/postroad.rules.yml"
SOON_S = 60

SCENARIOS = []
HAS_PROMETHEUS = bool(shutil.which("prometheus") and shutil.which("promtool"))


def scenario(function):
    """Registers a scenario that needs Prometheus."""
    if HAS_PROMETHEUS:
        SCENARIOS.append((function.__name__.replace("_", "-"), function))
    return function


def scenario_without_prometheus(function):
    SCENARIOS.append((function.__name__.replace("_", "-"), function))
    return function


class Failure(AssertionError):
    pass


def expect(actual, wanted, what):
    if actual != wanted:
        raise Failure(f"{what}: wanted {wanted!r}, got {actual!r}")


def until(condition, what, seconds=SOON_S):
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise Failure(f"{what} did not come about in {seconds} s")
        time.sleep(0.2)


def request(url, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {} if body is None else {"Content-Type": "application/json"}
    asked = urllib.request.Request(url, data=data, headers=headers, method=method)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        text = answer.read()
    return json.loads(text) if text else None


class Load:
    """A constant load: records are produced, leased and settled, and some of them released."""

    def __init__(self, cluster):
        self.cluster, self.going, self.trouble = cluster, True, None
        request(f"{cluster.url(1)}/v1/topics", {"name": "watched", "partitions": 3})
        request(f"{cluster.url(1)}/v1/topics/watched/groups/workers", {}, "PUT")
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        base = f"{self.cluster.url(1)}/v1/topics/watched"
        while self.going:
            try:
                records = [{"value": f"{number}"} for number in range(20)]
                request(f"{base}/records", {"records": records})
                leased = request(f"{base}/groups/workers/leases", {"max_records": 20})["leases"]
                actions = ["release", *["accept"] * len(leased)]
                settles = [{"token": it["token"], "action": action} for it, action in zip(leased, actions)]
                if settles:
                    request(f"{base}/groups/workers/settle", {"settles": settles})
            except Exception as error:
                # A killed node loses its pending requests; scenarios check the overall result only.
                self.trouble = getattr(error, "read", lambda: str(error))()
                time.sleep(0.2)

    def stop(self):
        self.going = False
        self.thread.join()


class Prometheus:
    def __init__(self, folder, cluster):
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        targets = json.dumps([f"127.0.0.1:{cluster.http[node]}" for node in NODES])
        given = (DEPLOY / "prometheus/prometheus.yml").read_text()
        # The file for users, with other addresses and a shorter scrape interval.
        config = re.sub(r"targets: \[.*\]", f"targets: {targets}", given).replace("15s", "1s")
        (folder / "prometheus.yml").write_text(config)
        shutil.copy(RULES, folder)
        self.log = open(folder / "prometheus.log", "w")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/series",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=self.log, stderr=self.log,
        )
        until(self.is_ready, "Prometheus is ready")

    def is_ready(self):
        try:
            return urllib.request.urlopen(f"{self.url}/-/ready", timeout=5).status == 200
        except OSError:
            return False

    def ask(self, path, **query):
        answer = request(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}")
        expect(answer["status"], "success", path)
        return answer["data"]

    def query(self, expression):
        return self.ask("query", query=expression)["result"]

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


class Watch:
    """Prometheus and the nodes that scenarios check."""

    def __init__(self, folder):
        self.cluster = ThreeNodes(folder)
        self.load = Load(self.cluster)
        self.prometheus = Prometheus(folder, self.cluster) if HAS_PROMETHEUS else None

    def stop(self):
        self.load.stop()
        if self.prometheus:
            self.prometheus.stop()
        self.cluster.stop()


def promtool(*words):
    done = subprocess.run(["promtool", *words], capture_output=True, text=True)
    expect(done.returncode, 0, f"promtool {' '.join(words)}: {done.stdout}{done.stderr}")


@scenario_without_prometheus
def each_metric_that_is_named_is_there(watch):
    def told():
        names = set()
        for node in NODES:
            with urllib.request.urlopen(f"{watch.cluster.url(node)}/metrics", timeout=10) as answer:
                names.update(re.findall(r"^(postroad_\w+)", answer.read().decode(), re.M))
        return names

    files = [RULES, DEPLOY / "grafana/postroad.json"]
    named = {name for file in files for name in re.findall(r"postroad_[a-z_]+", file.read_text())}
    # These nodes have no encrypted ports.
    named.discard("postroad_tls_certificate_end_seconds")
    until(lambda: named <= told(), f"all of {sorted(named - told())} are there", 20)


@scenario
def promtool_takes_rules_and_configuration(_):
    promtool("check", "rules", str(RULES))
    promtool("check", "config", str(DEPLOY / "prometheus/prometheus.yml"))


@scenario
def each_alert_fires_when_it_should(_):
    promtool("test", "rules", str(DEPLOY / "prometheus/postroad.rules.test.yml"))
    names = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    tested = (DEPLOY / "prometheus/postroad.rules.test.yml").read_text()
    expect({name for name in names if name not in tested}, set(), "alerts without a test")


@scenario
def all_nodes_are_watched(watch):
    def up():
        return {it["metric"]["instance"]: it["value"][1] for it in watch.prometheus.query('up{job="postroad"}')}

    wanted = {f"127.0.0.1:{port}": "1" for port in watch.cluster.http.values()}
    until(lambda: up() == wanted, "all nodes answer Prometheus")
    for target in watch.prometheus.ask("targets")["activeTargets"]:
        expect(target["lastError"], "", f"what is wrong with {target['scrapeUrl']}")


@scenario
def rules_are_loaded_and_a_healthy_cluster_is_quiet(watch):
    def rules():
        return [rule for group in watch.prometheus.ask("rules")["groups"] for rule in group["rules"]]

    until(lambda: all(rule["health"] == "ok" for rule in rules()), "every rule is evaluated")
    expect(len(rules()), len(re.findall(r"alert: ", RULES.read_text())), "rules")
    firing = {rule["name"]: rule["state"] for rule in rules() if rule["state"] == "firing"}
    # The disk of this machine may be nearly full.
    firing.pop("PostroadDiskNearlyFull", None)
    expect(firing, {}, "alerts of a healthy cluster")


def panels():
    dashboard = json.loads((DEPLOY / "grafana/postroad.json").read_text())
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def filled_in(expression):
    """A query with Grafana's variables filled in, with all nodes chosen."""
    for variable, value in {"$job": "postroad", "$instance": ".*", "$__rate_interval": "10s"}.items():
        expression = expression.replace(variable, value)
    expect("$" in expression, False, f"a variable that is not known: {expression}")
    return expression


@scenario
def each_panel_of_the_dashboard_has_data(watch):
    def empty():
        return [
            (panel["title"], target["expr"])
            for panel in panels()
            for target in panel["targets"]
            if not watch.prometheus.query(filled_in(target["expr"]))
        ]

    def is_whole():
        return not empty()

    try:
        until(is_whole, "every panel has data", 30)
    except Failure:
        raise Failure(f"panels without data: {empty()}; the load's last trouble: {watch.load.trouble!r}") from None
    # The values show the load; it does not suffice that the series exist.
    for expression in ["postroad_records_received_total", "postroad_records_settled_total", "postroad_records_redelivered_total"]:
        rate = f"sum(rate({expression}[10s])) > 0"
        until(lambda rate=rate: watch.prometheus.query(rate), f"{expression} rises")


@scenario
def a_killed_node_is_seen(watch):
    watch.cluster.kill(3)
    instance = f"127.0.0.1:{watch.cluster.http[3]}"

    def pending():
        alerts = watch.prometheus.ask("alerts")["alerts"]
        return any(it["labels"]["alertname"] == "PostroadNodeDown" and it["labels"]["instance"] == instance for it in alerts)

    until(pending, "the alert of the node that is gone")
    leaders = 'max by (shard) (postroad_shard_has_leader{job="postroad"}) == 0'
    until(lambda: not watch.prometheus.query(leaders), "every shard has a leader again")
    watch.cluster.start(3)
    until(lambda: not pending(), "the alert is over")


def main():
    wanted = [part for part in sys.argv[1:] if part]
    chosen = [it for it in SCENARIOS if not wanted or any(part in it[0] for part in wanted)]
    folder = Path(tempfile.mkdtemp(prefix="compat-prometheus-"))
    watch, passed, failed = Watch(folder), 0, 0
    try:
        for name, function in chosen:
            begun = time.monotonic()
            try:
                function(watch)
                print(f"ok {name} {time.monotonic() - begun:.1f}s", flush=True)
                passed += 1
            except Exception as error:
                frames = traceback.extract_tb(error.__traceback__)
                place = next((it for it in reversed(frames) if it.name not in ("expect", "until")), frames[-1])
                print(f"FAIL {name} {' '.join(str(error).split())} ({Path(place.filename).name}:{place.lineno})", flush=True)
                failed += 1
    finally:
        watch.stop()
    print(f"{passed} passed, {failed} failed")
    if not failed:
        shutil.rmtree(folder)
    sys.exit(1 if failed else 0)


main()
