"""Accounts of ``plain_acl.yml``, the rules of RocketMQ 4, as users and policies (``AuthMigrator``).

    accessKey, secretKey                 name and password
    admin: true                          a super user
    topicPerms, groupPerms               custom entries for Topic:<name> and Group:<name>
    defaultTopicPerm, defaultGroupPerm   default entries for Topic:* and Group:*

    PUB, SUB, PUB|SUB, SUB|PUB           Pub, Sub or both are allowed
    DENY                                 everything is denied
    any other text                       as well, as RocketMQ 4 reads it; 5.4.0 imports it as everything allowed

Addresses that needed no account are not taken over: entries with ``sourceIps`` say who may come from where. An access
key counts in the first file that has it, and only while there is no user of the name (spec security.md §3, §6.4).
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

import msgspec

from ...common.access import Action, Decision, PolicyType, ResourceType, UserType
from ...common.errors import ConfigError
from ...common.names import RETRY_PREFIX
from .policies import Acl, Entry, Resource
from .tables import SecurityTables
from .users import MAX_NAME_CHARACTERS, User

_KEY: Final = "migrateAuthFromV1Enabled"
_FILE_KEY: Final = "rocketmq.acl.plain.file"
_HOME: Final = "ROCKETMQ_HOME"
_ENDINGS: Final = (".yml", ".yaml")
_ALLOWED: Final[Mapping[str, tuple[Action, ...]]] = {
    "PUB": (Action.PUB,),
    "SUB": (Action.SUB,),
    "PUB|SUB": (Action.PUB, Action.SUB),
    "SUB|PUB": (Action.PUB, Action.SUB),
}
_DENY: Final = "DENY"
_YES: Final = frozenset({"true", "yes", "on"})
_log = logging.getLogger(__name__)


class Account(msgspec.Struct, rename="camel", kw_only=True):
    """What one person has in a file, as texts."""

    access_key: str = ""
    secret_key: str = ""
    admin: str = ""
    default_topic_perm: str = ""
    default_group_perm: str = ""
    topic_perms: list[str] = msgspec.field(default_factory=list[str])
    group_perms: list[str] = msgspec.field(default_factory=list[str])

    def __repr__(self) -> str:
        return f"<Account {self.access_key!r}>"


class _AclFile(msgspec.Struct, kw_only=True):
    accounts: list[Account] = msgspec.field(default_factory=list[Account])


class _Kind(NamedTuple):
    """Entries for topics, or for groups."""

    type: ResourceType
    perms: list[str]
    default: str


def find_files(path: str) -> list[str]:
    """Return the files that count: those below ``conf/acl`` of ``ROCKETMQ_HOME``, if that is set, then the one named.

    A path that is not absolute is one below ``ROCKETMQ_HOME``.

    Raises:
        ConfigError: no file is named and there is no ``ROCKETMQ_HOME``, or the one that is named is not there.
    """
    home = os.environ.get(_HOME, "")
    if not (path or home):
        raise ConfigError(f"{_KEY}=true needs {_FILE_KEY}, the path of plain_acl.yml, or {_HOME}", key=_KEY)
    plain = os.path.join(home, path or os.path.join("conf", "plain_acl.yml"))
    if path and not os.path.isfile(plain):
        raise ConfigError(f"{_FILE_KEY} is {path!r}, and there is no file {plain}", key=_FILE_KEY)
    below = _walk(os.path.join(home, "conf", "acl")) if home else []
    files = [*below, *([plain] if os.path.isfile(plain) and plain not in below else [])]
    if not files:
        _log.warning("%s=true imports nothing: there is neither %s nor a file in conf/acl beside it", _KEY, plain)
    return files


def _walk(directory: str) -> list[str]:
    found = (os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names)
    return sorted(path for path in found if path.endswith(_ENDINGS))


def read_accounts(paths: Sequence[str]) -> list[Account]:
    """Return the accounts in files; waits for the disk.

    Raises:
        ConfigError: a file is none of this sort, or nothing can read it. The text never shows what a file holds.
    """
    accounts: dict[str, Account] = {}
    for path in paths:
        for account in _read_file(path).accounts:
            if not (account.access_key.strip() and account.secret_key.strip()):
                _log.warning("%s has an account without accessKey or secretKey, which is not imported", path)
            elif len(account.access_key) > MAX_NAME_CHARACTERS:
                _log.warning("%s has an accessKey of more than %d characters", path, MAX_NAME_CHARACTERS)
            else:
                accounts.setdefault(account.access_key, account)
    return list(accounts.values())


def _read_file(path: str) -> _AclFile:
    try:
        import yaml  # an extra
    except ImportError as error:
        remark = f'{_KEY}=true reads {path}, which needs a reader of YAML: pip install "rocketlet[acl]"'
        raise ConfigError(remark, key=_KEY) from error
    try:
        with open(path, encoding="utf-8") as file:
            loader = yaml.BaseLoader(file.read())  # all scalars are texts, as they stand there: also a secret of digits
        return msgspec.convert(_without_nothing(loader.get_single_data()) or {}, _AclFile)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeError as error:
        raise ConfigError(f"{path} cannot be read: it is no UTF-8") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigError(f"{path} is no YAML{where}: {error.problem}") from None  # the cause shows the line
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be used: {error}") from None


def _without_nothing(tree: object) -> object:
    """Return a tree without the names that have no value."""
    if isinstance(tree, dict):
        table = cast("dict[object, object]", tree)
        return {name: _without_nothing(value) for name, value in table.items() if value != ""}
    return [_without_nothing(each) for each in cast("list[object]", tree)] if isinstance(tree, list) else tree


def add_accounts(tables: SecurityTables, accounts: Sequence[Account]) -> SecurityTables:
    """Return the tables with accounts of whose names there is no user."""
    for account in accounts:
        name = account.access_key
        if tables.users.find(name) is not None:
            continue
        kind = UserType.SUPER if account.admin.strip().lower() in _YES else UserType.NORMAL
        user = User(name=name, password=account.secret_key, type=kind)
        tables = SecurityTables(tables.users.put(user), tables.policies.put(name, _policies(account)))
        _log.info("imported user %s of plain_acl.yml", name)
    return tables


def _policies(account: Account) -> Acl:
    kinds = (
        _Kind(ResourceType.TOPIC, account.topic_perms, account.default_topic_perm.strip()),
        _Kind(ResourceType.GROUP, account.group_perms, account.default_group_perm.strip()),
    )
    custom = [(PolicyType.CUSTOM, entry) for kind in kinds for entry in _custom_entries(account, kind)]
    default = [
        (PolicyType.DEFAULT, _entry(account, Resource(kind.type, None), kind.default)) for kind in kinds if kind.default
    ]
    return Acl().with_entries([*custom, *default])


def _custom_entries(account: Account, kind: _Kind) -> Iterator[Entry]:
    for text in kind.perms:
        name, _, perm = (part.strip() for part in text.partition("="))
        if not (name and perm) or "=" in perm or "*" in name:
            _log.warning("user %s: %.255r is no <name>=<permission>, and not imported", account.access_key, text)
            continue
        if kind.type is ResourceType.GROUP:
            name = name.removeprefix(RETRY_PREFIX)
        yield _entry(account, Resource(kind.type, name), perm)


def _entry(account: Account, resource: Resource, perm: str) -> Entry:
    actions = _ALLOWED.get(perm)
    if actions is not None:
        return Entry(resource, actions, Decision.ALLOW)
    if perm != _DENY:
        _log.warning("user %s: %.255r for %s is no permission: denied", account.access_key, perm, resource)
    return Entry(resource, (Action.ALL,), Decision.DENY)
