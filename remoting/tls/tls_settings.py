"""The settings of TLS, by the names of Java's system properties, for servers and for the clients inside them.

Rules
    1. ``tls.server.mode``: ``disabled``, ``permissive`` (TLS and plain text on one port; the default) or ``enforcing``.
       Java takes any other word for permissive; here it stops the start.
    2. Without ``tls.server.certPath`` a server shows a certificate that it makes itself (Java's test mode, which is on
       by default). A path turns that off; in Java the path has no effect until ``tls.test.mode.enable`` is false.
    3. ``tls.server.need.client.auth=require`` asks each client under TLS for a certificate, ``optional`` checks one
       that is shown; both need ``tls.server.trustCertPath``. Java also asks without checking
       (``tls.server.authClient=false``), which protects nothing: ``optional`` asks for none then, ``require`` is
       refused.
    4. ``tls.enable`` is for connections that a broker or name server makes itself. Unless given, it is on where the
       mode is enforcing. ``useTLS`` is another name of it. ``tls.client.authServer`` is on, unless given, where
       ``tls.client.trustCertPath`` says whom to trust; Java's is off. Host names are not compared, as in Java.
    5. What contradicts itself, or would have no effect where that leaves something open, stops the start.
    6. The file that ``tls.config.file`` names holds any of ``FILE_KEYS``, and as in Java neither the mode nor
       ``tls.enable``. A key that has one value there and another one elsewhere stops the start; in Java the file's
       counts.

Upstream: ``TlsSystemConfig``, ``TlsHelper``, ``TlsMode``; for the gRPC port ``ProxyConfig``.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NamedTuple, Self

from msgspec import Struct, field

from ...common.errors import ConfigError
from ...common.settings import Key, parse_settings, setting_keys

OWN_FILE: Final = "self-signed.pem"
"""The certificate and key that a server has made."""
DISABLED: Final = "disabled"
PERMISSIVE: Final = "permissive"
ENFORCING: Final = "enforcing"
_MODES: Final = (DISABLED, PERMISSIVE, ENFORCING)
NONE: Final = "none"
OPTIONAL: Final = "optional"
REQUIRE: Final = "require"
_NEEDS: Final = (NONE, OPTIONAL, REQUIRE)
MODE_KEY: Final = "tls.server.mode"
FILE_KEY: Final = "tls.config.file"
CERT_KEY: Final = "tls.server.certPath"
KEY_KEY: Final = "tls.server.keyPath"
PASSWORD_KEY: Final = "tls.server.keyPassword"  # noqa: S105 # a name
NEED_KEY: Final = "tls.server.need.client.auth"
AUTH_KEY: Final = "tls.server.authClient"
TRUST_KEY: Final = "tls.server.trustCertPath"
TEST_KEY: Final = "tls.test.mode.enable"
ENABLE_KEY: Final = "tls.enable"
_ENABLE_ALIAS: Final = "useTLS"
CLIENT_CERT_KEY: Final = "tls.client.certPath"
_CLIENT_KEY_KEY: Final = "tls.client.keyPath"
_CLIENT_PASSWORD_KEY: Final = "tls.client.keyPassword"  # noqa: S105 # a name
CLIENT_TRUST_KEY: Final = "tls.client.trustCertPath"
_CLIENT_AUTH_KEY: Final = "tls.client.authServer"
_GRPC_CERT_KEY: Final = "tlsCertPath"
_GRPC_KEY_KEY: Final = "tlsKeyPath"
_GRPC_PASSWORD_KEY: Final = "tlsKeyPassword"  # noqa: S105 # a name


class PairKeys(NamedTuple):
    """The settings that name a certificate, its key, and the password of that."""

    certificate: str
    key: str
    password: str


_SERVER_KEYS: Final = PairKeys(CERT_KEY, KEY_KEY, PASSWORD_KEY)
CLIENT_KEYS: Final = PairKeys(CLIENT_CERT_KEY, _CLIENT_KEY_KEY, _CLIENT_PASSWORD_KEY)
_GRPC_KEYS: Final = PairKeys(_GRPC_CERT_KEY, _GRPC_KEY_KEY, _GRPC_PASSWORD_KEY)


class KeyPair(Struct, frozen=True):
    """The files of a certificate with its chain, and of its key, which may be in the same; both PEM."""

    certificate_path: str
    key_path: str
    password: str
    keys: PairKeys

    def __repr__(self) -> str:
        return f"KeyPair({self.certificate_path!r}, {self.key_path!r})"

    @property
    def paths(self) -> tuple[str, ...]:
        """The files."""
        return (self.certificate_path, self.key_path) if self.key_path else (self.certificate_path,)


class TlsConfig(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """How a server takes TLS, and how the clients inside it speak it; fields in the order of ``--print-config``."""

    mode: Annotated[str, Key(MODE_KEY, "disabled, permissive: TLS and plain text on one port, or enforcing")] = (
        PERMISSIVE
    )
    certificate_path: Annotated[
        str, Key(CERT_KEY, "certificate of the server with its chain, PEM; one is made unless given")
    ] = ""
    key_path: Annotated[str, Key(KEY_KEY, "its key, PEM; in the file of the certificate unless given")] = ""
    key_password: Annotated[str, Key(PASSWORD_KEY, "the password of the key, if it has one", is_secret=True)] = ""
    client_need: Annotated[
        str, Key(NEED_KEY, "whether clients under TLS show a certificate: none, optional or require")
    ] = NONE
    checks_clients: Annotated[bool, Key(AUTH_KEY, "check such a certificate; on where trustCertPath is given")] = False
    trust_path: Annotated[str, Key(TRUST_KEY, "authorities of the clients' certificates, PEM")] = ""
    makes_pair: Annotated[bool, Key(TEST_KEY, "show a certificate that the server makes; off where one is given")] = (
        True
    )
    is_client_on: Annotated[bool, Key(ENABLE_KEY, "speak TLS to other servers; on where the mode is enforcing")] = False
    client_certificate_path: Annotated[str, Key(CLIENT_CERT_KEY, "certificate that other servers are shown, PEM")] = ""
    client_key_path: Annotated[str, Key(_CLIENT_KEY_KEY, "its key, PEM")] = ""
    client_key_password: Annotated[
        str, Key(_CLIENT_PASSWORD_KEY, "the password of that key, if it has one", is_secret=True)
    ] = ""
    client_trust_path: Annotated[str, Key(CLIENT_TRUST_KEY, "authorities of other servers' certificates, PEM")] = ""
    checks_servers: Annotated[
        bool, Key(_CLIENT_AUTH_KEY, "check the certificates of other servers; on where trustCertPath is given")
    ] = False
    ciphers: Annotated[str, Key("tls.ciphers", "cipher suites, between commas; those of Python unless given")] = ""
    protocols: Annotated[str, Key("tls.protocols", "TLSv1.3, TLSv1.2, or both; both unless given")] = ""
    grpc_certificate_path: Annotated[
        str, Key(_GRPC_CERT_KEY, "certificate of the gRPC port, PEM; the server's unless given")
    ] = ""
    grpc_key_path: Annotated[str, Key(_GRPC_KEY_KEY, "its key, PEM")] = ""
    grpc_key_password: Annotated[
        str, Key(_GRPC_PASSWORD_KEY, "the password of that key, if it has one", is_secret=True)
    ] = ""
    given: frozenset[str] = field(default_factory=frozenset[str])

    def __repr__(self) -> str:
        return f"<TlsConfig {self.mode}, {self.pair or 'a pair of its own'}>"

    def __post_init__(self) -> None:
        _check_word(MODE_KEY, self.mode, _MODES)
        _check_word(NEED_KEY, self.client_need, _NEEDS)
        for pair in (self._own_pair, self._client_pair, self._grpc_pair):
            _check_pair(pair)
        self._check_pairs()
        self._check_clients()

    @property
    def pair(self) -> KeyPair | None:
        """The server's certificate and key; None where it makes them."""
        return None if self.makes_pair else self._own_pair

    @property
    def grpc_pair(self) -> KeyPair | None:
        """Those of the gRPC port."""
        return self._grpc_pair if self.grpc_certificate_path else self.pair

    @property
    def client_pair(self) -> KeyPair | None:
        """What the clients inside the server show."""
        return self._client_pair if self.client_certificate_path else None

    @classmethod
    def from_java(cls, settings: Mapping[str, str]) -> Self:
        """Read settings with Java's keys; what follows from others is added (rules 2 to 4).

        Raises:
            ConfigError: a value that cannot be used, or two that contradict each other; ``key`` names one.
        """
        if settings.get(FILE_KEY, "").strip():
            raise ConfigError(f"{FILE_KEY} is read by the command line alone: put its keys in its place", key=FILE_KEY)
        fields = parse_settings(cls, _with_alias(settings))
        fields["client_need"] = fields.get("client_need", NONE).lower() or NONE
        fields["mode"] = fields.get("mode") or PERMISSIVE
        if fields["client_need"] != NONE and TEST_KEY not in settings and AUTH_KEY not in settings:
            fields["checks_clients"] = bool(fields.get("trust_path")) or fields["client_need"] == REQUIRE
        fields.setdefault("makes_pair", not fields.get("certificate_path"))
        fields.setdefault("is_client_on", fields["mode"] == ENFORCING)
        fields.setdefault("checks_servers", bool(fields.get("client_trust_path")))
        return cls(**fields, given=frozenset(settings))

    @property
    def needs_client_certificate(self) -> bool:
        """Whether a client under TLS without a certificate is sent away."""
        return self.client_need == REQUIRE

    @property
    def _own_pair(self) -> KeyPair:
        return KeyPair(self.certificate_path, self.key_path, self.key_password, _SERVER_KEYS)

    @property
    def _client_pair(self) -> KeyPair:
        return KeyPair(self.client_certificate_path, self.client_key_path, self.client_key_password, CLIENT_KEYS)

    @property
    def _grpc_pair(self) -> KeyPair:
        return KeyPair(self.grpc_certificate_path, self.grpc_key_path, self.grpc_key_password, _GRPC_KEYS)

    def _check_pairs(self) -> None:
        """Refuse a made certificate beside a given one, and none at all."""
        if self.makes_pair:
            for key, value in ((CERT_KEY, self.certificate_path), (TRUST_KEY, self.trust_path)):
                if value and TEST_KEY in self.given:
                    raise ConfigError(f"{key} has no effect while {TEST_KEY} is true", key=TEST_KEY)
        elif not self.certificate_path and self.mode != DISABLED:
            raise ConfigError(
                f"{CERT_KEY} is missing: {TEST_KEY} is false, so the server makes no certificate itself", key=CERT_KEY
            )

    def _check_clients(self) -> None:
        """Refuse to ask clients for certificates that nobody checks, or to have them checked and not ask."""
        if self.client_need == NONE:
            if self.checks_clients:
                raise ConfigError(f"{AUTH_KEY}=true has no effect while {NEED_KEY} is none", key=NEED_KEY)
            return
        if self.mode == DISABLED:
            raise ConfigError(f"{NEED_KEY}={self.client_need} has no effect while {MODE_KEY} is disabled", key=NEED_KEY)
        if self.checks_clients and not self.trust_path:
            raise ConfigError(f"{NEED_KEY}={self.client_need} needs {TRUST_KEY}: whom to trust", key=TRUST_KEY)
        if self.client_need == REQUIRE and not self.checks_clients:
            text = f"{NEED_KEY}=require needs {AUTH_KEY}=true: a certificate that nobody checks protects nothing"
            raise ConfigError(text, key=AUTH_KEY)


FILE_KEYS: Final = setting_keys(TlsConfig) - {MODE_KEY, ENABLE_KEY, _GRPC_CERT_KEY, _GRPC_KEY_KEY, _GRPC_PASSWORD_KEY}
"""What the file of ``tls.config.file`` may hold."""
TLS_KEYS: Final = setting_keys(TlsConfig) | {_ENABLE_ALIAS}


def merge_tls_file(settings: Mapping[str, str], path: str, content: Mapping[str, str]) -> dict[str, str]:
    """Return settings with those of the file that ``tls.config.file`` names, and without that key.

    Raises:
        ConfigError: a key with two values, or one that the file cannot set.
    """
    for key in content:
        if key in (MODE_KEY, ENABLE_KEY):
            raise ConfigError(f"{key} has no effect in {path}: set it where {FILE_KEY} is set", key=key)
        if key in FILE_KEYS and settings.get(key, content[key]).strip() != content[key].strip():
            raise ConfigError(f"{key} has one value in {path} and another one where {FILE_KEY} is set", key=key)
    merged = {**settings, **content}
    del merged[FILE_KEY]
    return merged


def _with_alias(settings: Mapping[str, str]) -> Mapping[str, str]:
    if _ENABLE_ALIAS not in settings:
        return settings
    alias = settings[_ENABLE_ALIAS]
    if settings.get(ENABLE_KEY, alias).strip().lower() != alias.strip().lower():
        raise ConfigError(f"{_ENABLE_ALIAS} and {ENABLE_KEY} contradict each other", key=_ENABLE_ALIAS)
    return {**settings, ENABLE_KEY: alias}


def _check_word(key: str, word: str, allowed: Iterable[str]) -> None:
    if word not in allowed:
        raise ConfigError(f"{key} is {word!r}, it must be one of {', '.join(allowed)}", key=key)


def _check_pair(pair: KeyPair) -> None:
    """Refuse a key, or a password, without a certificate."""
    for value, name in ((pair.key_path, pair.keys.key), (pair.password, pair.keys.password)):
        if value and not pair.certificate_path:
            raise ConfigError(f"{name} has no effect without {pair.keys.certificate}", key=name)
