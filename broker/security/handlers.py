"""The adapter of the wire for users and their policies.

3001  AUTH_CREATE_USER    3002  AUTH_UPDATE_USER    3003  AUTH_DELETE_USER    3004  AUTH_GET_USER
3005  AUTH_LIST_USER      3006  AUTH_CREATE_ACL     3007  AUTH_UPDATE_ACL     3008  AUTH_DELETE_ACL
3009  AUTH_GET_ACL        3010  AUTH_LIST_ACL

Upstream: ``AdminBrokerProcessor`` (spec security.md §9). Changes are answered when they are on the disk. Passwords are
told only where ``showUserPasswords`` says so. Where nobody has to say who asks, everybody may make super users; a code
on ``authenticationWhitelist`` comes from nobody, whoever its sender says to be.
"""

import logging
from collections.abc import Callable

from ...common.access import AclInfo, UserInfo
from ...common.codes import ResponseCode
from ...common.errors import DecodeError
from ...common.outcome import Outcome
from ...common.signing import ACCESS_KEY
from ...remoting.bodies.body import decode_body_if_any, encode_body
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.security import DeleteAclHeader, ListAclsHeader, ListUsersHeader, SubjectHeader, UserHeader
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from ..admin.cleaning import CleaningJob
from ..admin.handlers import answer_when_done
from ..settings.refusal import Refusal
from ..settings.security import SecurityConfig
from .policies import AclDeletion, AclTable, find_user_name
from .storage import Change, SecurityStore
from .tables import SecurityTables
from .users import UserTable

SUCCESS_REMARK = "not set any response code"
"""What Java says when it means the opposite."""
_log = logging.getLogger(__name__)


class SecurityChanges:
    """Has changes made, one after the other, and answers when they are on the disk."""

    def __init__(self, store: SecurityStore, config: SecurityConfig, cleaning: CleaningJob) -> None:
        self.store = store
        self.config = config
        self._cleaning = cleaning

    def begin(self, change: Change, what: str, command: Command, connection: Connection) -> Outcome[Command]:
        """Begin a change that a request asks for."""
        by = command.ext.get(ACCESS_KEY, "")

        async def work() -> Command:
            refusal = await self.store.change(change)
            if refusal is not None:
                _log.info("refused to %s, asked by %.255r at %s: %s", what, by, connection.peer, refusal.remark)
                return _refuse(refusal)
            _log.info("did %s, asked by %.255r at %s", what, by, connection.peer)
            return _success()

        return answer_when_done(self._cleaning, work, what)

    def is_by_super(self, command: Command, users: UserTable) -> bool:
        """Tell whether a super user asks, or nobody is asked for a name."""
        name = command.ext.get(ACCESS_KEY, "")
        if self.config.authenticates and str(command.code) in self.config.open_to_anybody:
            return False
        user = users.find(name)
        return user.is_super if user is not None else not (name or self.config.authenticates)


class UserHandlers:
    """Tells and changes users."""

    def __init__(self, changes: SecurityChanges) -> None:
        self._changes = changes

    @answers(Code.AUTH_CREATE_USER)
    def create(self, command: Command, connection: Connection) -> Outcome[Command]:
        """Make a user."""
        info = _user_info(command)

        def change(users: UserTable, name: str, *, by_super: bool) -> UserTable | Refusal:
            return users.create(name, info, by_super=by_super)

        return self._begin(change, "create", command, connection)

    @answers(Code.AUTH_UPDATE_USER)
    def update(self, command: Command, connection: Connection) -> Outcome[Command]:
        """Change of a user what the request says."""
        info = _user_info(command)

        def change(users: UserTable, name: str, *, by_super: bool) -> UserTable | Refusal:
            return users.update(name, info, by_super=by_super)

        return self._begin(change, "update", command, connection)

    @answers(Code.AUTH_DELETE_USER)
    def delete(self, command: Command, connection: Connection) -> Outcome[Command]:
        """Remove a user, with all policies."""
        return self._begin(UserTable.delete, "delete", command, connection)

    def _begin(
        self, change: Callable[..., UserTable | Refusal], verb: str, command: Command, connection: Connection
    ) -> Outcome[Command]:
        name = decode_header(UserHeader, command).username or ""

        def make(tables: SecurityTables) -> SecurityTables | Refusal:
            users = change(tables.users, name, by_super=self._changes.is_by_super(command, tables.users))
            if isinstance(users, Refusal):
                return users
            is_gone = users.find(name) is None
            return SecurityTables(users, tables.policies.without(name) if is_gone else tables.policies)

        return self._changes.begin(make, f"{verb} user {name[:255]!r}", command, connection)

    @answers(Code.AUTH_GET_USER)
    def get(self, command: Command, _connection: Connection) -> Command:
        """Tell a user; nothing of one who is not there."""
        name = decode_header(UserHeader, command).username or ""
        if not name.strip():
            return Command.response(ResponseCode.INVALID_PARAMETER, "The username is blank")
        user = self._changes.store.security.find_user(name)
        return _success(user and user.describe(shows_password=self._changes.config.shows_passwords))

    @answers(Code.AUTH_LIST_USER)
    def list(self, command: Command, _connection: Connection) -> Command:
        """Tell the users in whose name a text stands."""
        found = self._changes.store.security.tables.users.list(decode_header(ListUsersHeader, command).filter or "")
        return _success([user.describe(shows_password=self._changes.config.shows_passwords) for user in found])


class AclHandlers:
    """Tells and changes policies."""

    def __init__(self, changes: SecurityChanges) -> None:
        self._changes = changes

    @answers(Code.AUTH_CREATE_ACL)
    def create(self, command: Command, connection: Connection) -> Outcome[Command]:
        """Put entries into the policies of a user."""
        subject, info = decode_header(SubjectHeader, command).subject, decode_body_if_any(AclInfo, command.body)
        return self._begin(lambda acls, users: acls.merge(subject, info, users), "change", command, connection)

    @answers(Code.AUTH_UPDATE_ACL)
    def update(self, command: Command, connection: Connection) -> Outcome[Command]:
        """Do the same as for 3006."""
        return self.create(command, connection)

    @answers(Code.AUTH_DELETE_ACL)
    def delete(self, command: Command, connection: Connection) -> Outcome[Command]:
        """Remove an entry, or all policies of a user where no resource is named."""
        header = decode_header(DeleteAclHeader, command)
        deletion = AclDeletion(header.subject, header.policy_type, header.resource)
        return self._begin(lambda acls, users: acls.delete(deletion, users), "delete", command, connection)

    def _begin(
        self,
        change: Callable[[AclTable, UserTable], AclTable | Refusal],
        verb: str,
        command: Command,
        connection: Connection,
    ) -> Outcome[Command]:
        def make(tables: SecurityTables) -> SecurityTables | Refusal:
            policies = change(tables.policies, tables.users)
            return policies if isinstance(policies, Refusal) else tables._replace(policies=policies)

        subject = (decode_header(SubjectHeader, command).subject or "")[:255]
        return self._changes.begin(make, f"{verb} policies of {subject!r}", command, connection)

    @answers(Code.AUTH_GET_ACL)
    def get(self, command: Command, _connection: Connection) -> Command:
        """Tell the policies of a user."""
        subject = decode_header(SubjectHeader, command).subject or ""
        users, policies = self._changes.store.security.tables
        acl = policies.get(subject, users)
        if isinstance(acl, Refusal):
            return _refuse(acl)
        return _success(acl and acl.describe(f"User:{find_user_name(subject)}"))

    @answers(Code.AUTH_LIST_ACL)
    def list(self, command: Command, _connection: Connection) -> Command:
        """Tell the policies of those in whose name a text stands, for resources with another text."""
        header = decode_header(ListAclsHeader, command)
        policies = self._changes.store.security.tables.policies
        return _success(policies.list(header.subject_filter or "", header.resource_filter or ""))


def _user_info(command: Command) -> UserInfo:
    info = decode_body_if_any(UserInfo, command.body)
    if info is None and decode_header(UserHeader, command).username:  # else that is what is wrong
        raise DecodeError("the body of the request has no user")
    return info or UserInfo()


def _success(body: object = None) -> Command:
    """Return the answer with a body; what is empty is told by none."""
    return Command.response(ResponseCode.SUCCESS, SUCCESS_REMARK, body=encode_body(body) if body else b"")


def _refuse(refusal: Refusal) -> Command:
    return Command.response(refusal.code, refusal.remark)
