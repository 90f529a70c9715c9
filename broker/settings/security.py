"""The settings of authentication and authorization, by Java's keys (``AuthConfig``; spec security.md §4).

All are read at the start only. What names a class in Java is accepted with any value: there is one way to keep users,
and each request is checked anew. Secrets are shown nowhere: not by ``--print-config``, not to administrators, not in
the text of an error.
"""

import logging
from typing import Annotated, Final

import msgspec

from ...common.errors import ConfigError
from ...common.settings import Key
from ...common.signing import sign

INIT_USER_KEY: Final = "initAuthenticationUser"
INNER_CREDENTIALS_KEY: Final = "innerClientAuthenticationCredentials"
_OWN_CLASSES: Final = "org.apache.rocketmq.auth."
_WHITELIST_KEYS: Final = {
    "authentication_whitelist": "authenticationWhitelist",
    "authorization_whitelist": "authorizationWhitelist",
}
_CLASS_KEYS: Final = {
    "authentication_provider": "authenticationProvider",
    "authentication_metadata_provider": "authenticationMetadataProvider",
    "authentication_strategy": "authenticationStrategy",
    "authorization_provider": "authorizationProvider",
    "authorization_metadata_provider": "authorizationMetadataProvider",
    "authorization_strategy": "authorizationStrategy",
}
_log = logging.getLogger(__name__)


class Login(msgspec.Struct, frozen=True):
    """A user's name and password."""

    name: str
    password: str

    def __repr__(self) -> str:
        return f"<Login {self.name}>"

    def sign(self, fields: dict[str, str], body: bytes) -> None:
        """Sign what a request holds in the user's name."""
        sign(fields, body, self.name, self.password)


class SecurityConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who may do what; fields in the order of ``--print-config``."""

    authenticates: Annotated[bool, Key("authenticationEnabled", "serve requests of known users only, by signature")] = (
        False
    )
    authorizes: Annotated[
        bool, Key("authorizationEnabled", "let users do what their policies allow; needs authenticationEnabled")
    ] = False
    is_strict: Annotated[
        bool,
        Key(
            "authorizationStrict",
            "ask for rights also where official brokers ask for none: settings, lists, groups, deletions; not Java's",
        ),
    ] = True
    init_user_text: Annotated[
        str,
        Key(
            INIT_USER_KEY,
            'super user to be made if it is not there: {"username":"…","password":"…"}',
            is_secret=True,
        ),
    ] = ""
    inner_credentials_text: Annotated[
        str,
        Key(
            INNER_CREDENTIALS_KEY,
            'super user that signs the broker\'s own requests, made likewise: {"accessKey":"…","secretKey":"…"}',
            is_secret=True,
        ),
    ] = ""
    authentication_whitelist: Annotated[
        str, Key("authenticationWhitelist", "request codes, or calls of gRPC, that anybody may send, between commas")
    ] = ""
    authorization_whitelist: Annotated[
        str, Key("authorizationWhitelist", "those that need no policy; usually the same ones")
    ] = ""
    shows_passwords: Annotated[
        bool, Key("showUserPasswords", "tell administrators the passwords of users; false: ******; not Java's")
    ] = False
    imports_plain_acl: Annotated[
        bool, Key("migrateAuthFromV1Enabled", "make users and policies of plain_acl.yml at each start")
    ] = False
    plain_acl_file: Annotated[
        str,
        Key(
            "rocketmq.acl.plain.file",
            "path of plain_acl.yml, from ROCKETMQ_HOME on; conf/plain_acl.yml there unless given",
        ),
    ] = ""

    authentication_provider: Annotated[str, Key("authenticationProvider", "accepted; always the built-in one")] = ""
    authentication_metadata_provider: Annotated[
        str, Key("authenticationMetadataProvider", "accepted; users are kept in config/users.json")
    ] = ""
    authentication_strategy: Annotated[
        str, Key("authenticationStrategy", "accepted; each request is checked, whatever came before it")
    ] = ""
    authorization_provider: Annotated[str, Key("authorizationProvider", "accepted; always the built-in one")] = ""
    authorization_metadata_provider: Annotated[
        str, Key("authorizationMetadataProvider", "accepted; policies are kept in config/acls.json")
    ] = ""
    authorization_strategy: Annotated[
        str, Key("authorizationStrategy", "accepted; each request is checked, whatever came before it")
    ] = ""

    def __repr__(self) -> str:
        return f"<SecurityConfig authenticates={self.authenticates}, authorizes={self.authorizes}>"

    def __post_init__(self) -> None:
        if self.authorizes and not self.authenticates:
            reason = "without authenticationEnabled=true everybody could take any name, that of a super user as well"
            raise ConfigError(f"authorizationEnabled=true cannot be used: {reason}", key="authorizationEnabled")
        _ = self.init_user, self.inner_user, self.open_to_anybody, self.open_to_users
        for name, key in _CLASS_KEYS.items():
            value: str = getattr(self, name)
            if value and not value.startswith(_OWN_CLASSES):
                _log.warning("setting %s=%.200s has no effect: users and policies are kept by the broker", key, value)

    @property
    def init_user(self) -> Login | None:
        """The super user that a start makes."""
        return _read_login(INIT_USER_KEY, self.init_user_text, "username", "password")

    @property
    def inner_user(self) -> Login | None:
        """The super user in whose name the broker asks others."""
        return _read_login(INNER_CREDENTIALS_KEY, self.inner_credentials_text, "accessKey", "secretKey")

    @property
    def open_to_anybody(self) -> frozenset[str]:
        """The request codes and calls whose sender need not be known."""
        return _read_list(_WHITELIST_KEYS["authentication_whitelist"], self.authentication_whitelist)

    @property
    def open_to_users(self) -> frozenset[str]:
        """The request codes and calls that need no policy."""
        return _read_list(_WHITELIST_KEYS["authorization_whitelist"], self.authorization_whitelist)


def _read_login(key: str, text: str, name_field: str, password_field: str) -> Login | None:
    """Return the login in a JSON text; what is wrong with it is told without showing it."""
    if not text:
        return None
    try:
        table = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError):
        table = {}
    name, password = table.get(name_field), table.get(password_field)
    if not (isinstance(name, str) and isinstance(password, str) and name and password):
        raise ConfigError(f'{key} must be {{"{name_field}":"…","{password_field}":"…"}}', key=key)
    return Login(name, password)


def _read_list(key: str, text: str) -> frozenset[str]:
    entries = frozenset(entry for part in text.split(",") if (entry := part.strip()))
    for entry in sorted(entries):
        is_call = "." in entry and not entry.endswith(".")
        if not ((entry.isascii() and entry.isdigit()) or is_call):
            raise ConfigError(f"{key} names {entry[:64]!r}, which is no request code and no call", key=key)
    return entries
