"""Three nodes of Postroad on this machine, for suites that start their own and kill them."""

import os
import signal
import socket
import subprocess

POSTROAD = os.environ.get("POSTROAD")
NODES = [1, 2, 3]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for it in sockets:
        it.bind(("127.0.0.1", 0))
    ports = [it.getsockname()[1] for it in sockets]
    for it in sockets:
        it.close()
    return ports


class ThreeNodes:
    """Nodes 1 to 3, each the leader of one of three shards. Data and logs are in `folder`."""

    def __init__(self, folder):
        self.folder = folder
        ports = free_ports(12)
        self.kafka, self.amqp, self.http, self.peers = (dict(zip(NODES, ports[at : at + 3])) for at in (0, 3, 6, 9))
        self.running = {}
        for node in NODES:
            self.spawn(node)
        for node in NODES:
            self.is_ready(node)

    def arguments(self, node):
        """Further arguments of `postroad serve`."""
        return []

    def spawn(self, node):
        seeds = ",".join(f"127.0.0.1:{self.peers[it]}" for it in NODES)
        self.running[node] = subprocess.Popen(
            [POSTROAD, "serve", "--data", f"{self.folder}/node-{node}", "--kafka", f"127.0.0.1:{self.kafka[node]}",
             "--amqp", f"127.0.0.1:{self.amqp[node]}", "--http", f"127.0.0.1:{self.http[node]}",
             "--peer", f"127.0.0.1:{self.peers[node]}", "--seeds", seeds, "--shards", "3", *self.arguments(node)],
            stdout=subprocess.PIPE, stderr=open(f"{self.folder}/node-{node}.log", "a"), text=True,
        )

    def is_ready(self, node):
        for line in self.running[node].stdout:
            if line == "ready\n":
                return
        raise RuntimeError(f"node {node} ended before it was ready")

    def kill(self, node):
        process = self.running.pop(node)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def start(self, node):
        self.spawn(node)
        self.is_ready(node)

    def stop(self):
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(60)

    def url(self, node):
        return f"http://127.0.0.1:{self.http[node]}"
