"""Who we are, for brokers that ask: requests carry an access key and a signature (Java's ``AclClientRPCHook``).

    AccessKey        the name of the user
    SecurityToken    only where one was given
    Signature        base64(HMAC-SHA1(secret key, text)); the text is the values of all other fields in the order of
                     their names, then the body

Name servers and brokers of ours do not ask; they ignore the three fields.
"""

import base64
import hmac
from dataclasses import dataclass, field

from ...common.errors import ConfigError
from ...remoting.codec.command import Command

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 # the name of a field
SIGNATURE = "Signature"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Access key and secret key of a user (Java's ``SessionCredentials``); temporary ones have a token as well."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse empty keys."""
        for name in ("access_key", "secret_key"):
            if not getattr(self, name):
                raise ConfigError(f"credentials have an empty {name}", key=f"credentials.{name}")

    def sign(self, request: Command) -> None:
        """Put the keys and the signature of all that it holds into a request."""
        fields = request.ext
        fields.pop(SIGNATURE, None)
        fields[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        text = "".join(value for _, value in sorted(fields.items())).encode()
        fields[SIGNATURE] = signature_of(text + request.body, self.secret_key)


def signature_of(content: bytes, secret_key: str) -> str:
    """Return the signature of bytes (Java's ``AclSigner``)."""
    return base64.b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()
