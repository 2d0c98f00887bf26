"""The server under test, with TLS and log-ins."""

import os
import ssl
import subprocess
from contextlib import closing

import pika

from identities import AUDIENCE, ISSUER, Authority, Issuer

POSTROAD = os.environ["POSTROAD"]
SESSION_S = 3
LOG = "info,openraft=error,access=debug,tokens=debug,gateway_amqp=debug,gateway_http=debug,gateway_kafka=debug"


def pika_parameters(server, user="app", password="ppa", tls=True):
    host, port = (server.amqp_tls if tls else server.amqp).split(":")
    options = None
    if tls:
        options = pika.SSLOptions(ssl.create_default_context(cafile=server.cert), host)
    credentials = pika.PlainCredentials(user, password)
    return pika.ConnectionParameters(host, int(port), "/", credentials, ssl_options=options)


class Server:
    """A server with an admin `root` and a user `app`, whose passwords are their names backwards."""

    def __init__(self, folder):
        self.folder = folder
        self.run("tls", "self-signed", "--dir", folder)
        with open(f"{folder}/password", "w") as file:
            file.write("toor\n")
        self.cert = f"{folder}/cert.pem"
        self.clients, self.other_clients = Authority(folder, "clients"), Authority(folder, "others")
        self.issuer, self.other_issuer = Issuer(), Issuer()
        self.issuer.write_keys(f"{folder}/keys.json")
        environment = dict(os.environ, POSTROAD_KAFKA_CONFIG="group.initial.rebalance.delay.ms=0", POSTROAD_LOG=LOG)
        any_port = "127.0.0.1:0"
        self.process = subprocess.Popen(
            [POSTROAD, "serve", "--data", f"{folder}/data", "--kafka", any_port, "--amqp", any_port,
             "--http", any_port, "--kafka-tls", any_port, "--amqp-tls", any_port, "--session-max", f"{SESSION_S}s",
             "--tls-cert", self.cert, "--tls-key", f"{folder}/key.pem",
             "--tls-client-ca", self.clients.path, "--tls-client-auth", "optional", "--tls-principal", "cn",
             "--oidc-issuer", ISSUER, "--oidc-audience", AUDIENCE, "--oidc-jwks", f"{folder}/keys.json",
             "--admin-user", "root", "--admin-password-file", f"{folder}/password"],
            stdout=subprocess.PIPE, stderr=open(f"{folder}/log", "w"), env=environment, text=True,
        )
        line = self.process.stdout.readline()
        self.kafka = line.split("kafka ")[1].split()[0]
        self.kafka_tls = line.split("kafka-tls ")[1].split(",")[0]
        self.amqp = line.split(", amqp ")[1].split(",")[0]
        self.amqp_tls = line.split("amqp-tls ")[1].split(",")[0]
        assert self.process.stdout.readline() == "ready\n"
        # On this machine the token in the data directory serves as a log-in.
        self.run("user", "add", "app", "ppa")
        self.run("user", "allow", "app", ".*", ".*", ".*")
        # A user that may open the vhost and describe the targets of the matrix, and no more.
        self.topic = "matrix"
        with closing(pika.BlockingConnection(pika_parameters(self))) as connection:
            connection.channel().queue_declare(self.topic, durable=True)
        self.run("user", "add", "poor", "roop")
        self.run("user", "allow", "poor", "^$", "^$", "^matrix$")

    def run(self, *words):
        environment = dict(os.environ, POSTROAD_DATA=f"{self.folder}/data")
        if hasattr(self, "kafka"):
            environment["POSTROAD_BOOTSTRAP"] = self.kafka
        subprocess.run([POSTROAD, *words], check=True, env=environment, stdout=subprocess.DEVNULL)

    def log(self):
        with open(f"{self.folder}/log") as file:
            return file.read()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(30) == 0

    def client(self, mechanism="SCRAM-SHA-512", user="app", password="ppa", tls=True, **more):
        return {
            "bootstrap.servers": self.kafka_tls if tls else self.kafka,
            "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
            "ssl.ca.location": self.cert,
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
