"""Keys of an authority and the tokens that it signs."""

import json
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

ISSUER = "https://authority.example"
AUDIENCE = "headgate"


class Authority:
    """An authority with one key, of RSA or of an elliptic curve."""

    def __init__(self, key_id: str = "one", algorithm: str = "RS256") -> None:
        self.key_id = key_id
        self.algorithm = algorithm
        self.key: Any
        if algorithm.startswith("ES"):
            self.key = ec.generate_private_key(ec.SECP256R1())
        else:
            self.key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)

    @property
    def jwk(self) -> dict[str, Any]:
        """The public key."""
        kind: Any = ECAlgorithm if self.algorithm.startswith("ES") else RSAAlgorithm
        found: dict[str, Any] = json.loads(kind.to_jwk(self.key.public_key()))
        return found | {"kid": self.key_id, "use": "sig", "alg": self.algorithm}

    def token(self, user: str, expires_unix_s: float, **claims: Any) -> str:
        """Return a signed token; a claim that is None is left out."""
        all_claims = {"sub": user, "exp": expires_unix_s, "iss": ISSUER, "aud": AUDIENCE}
        all_claims |= claims
        present = {name: value for name, value in all_claims.items() if value is not None}
        headers = {"kid": self.key_id}
        return jwt.encode(present, self.key, algorithm=self.algorithm, headers=headers)


def write_keys(path: Path, *authorities: Authority) -> Path:
    """Write a key set, and return its path."""
    path.write_text(json.dumps({"keys": [one.jwk for one in authorities]}))
    return path
