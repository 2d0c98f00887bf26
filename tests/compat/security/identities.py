"""A certificate authority for clients, and an issuer of tokens, created for a run."""

import datetime
import json
import time

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

ISSUER = "https://id.example.com/realms/compat"
AUDIENCE = "postroad"


class Authority:
    def __init__(self, folder, name):
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = self._certificate(self.name, self.key, 1).add_extension(constraints, True)
        self.path = f"{folder}/{name}.pem"
        with open(self.path, "wb") as file:
            file.write(made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def _certificate(self, subject, key, days):
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=2))
            .not_valid_after(now + datetime.timedelta(days=days))
        )

    def pair(self, common, days=1):
        """Paths of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
        made = self._certificate(subject, key, days).sign(self.key, hashes.SHA256())
        stem = f"{self.folder}/{common}-{made.serial_number:x}"
        with open(f"{stem}.pem", "wb") as file:
            file.write(made.public_bytes(serialization.Encoding.PEM))
        with open(f"{stem}.key", "wb") as file:
            file.write(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                         serialization.NoEncryption()))
        return f"{stem}.pem", f"{stem}.key"


class Issuer:
    def __init__(self):
        self.key = rsa.generate_private_key(65537, 2048)

    def write_keys(self, path):
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        with open(path, "w") as file:
            json.dump({"keys": [{**public, "kid": "1", "use": "sig", "alg": "RS256"}]}, file)

    def token(self, name, ends_in=600, **claims):
        told = {"iss": ISSUER, "aud": AUDIENCE, "sub": name, "exp": int(time.time()) + ends_in, **claims}
        return jwt.encode(told, self.key, "RS256", {"kid": "1"})
