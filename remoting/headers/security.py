"""Headers of users and their policies (spec security.md §9); the bodies are those of ``common/access.py``.

    3001  AUTH_CREATE_USER   UserHeader          3006  AUTH_CREATE_ACL   SubjectHeader
    3002  AUTH_UPDATE_USER   UserHeader          3007  AUTH_UPDATE_ACL   SubjectHeader
    3003  AUTH_DELETE_USER   UserHeader          3008  AUTH_DELETE_ACL   DeleteAclHeader
    3004  AUTH_GET_USER      UserHeader          3009  AUTH_GET_ACL      SubjectHeader
    3005  AUTH_LIST_USER     ListUsersHeader     3010  AUTH_LIST_ACL     ListAclsHeader

Java demands none of the fields; what is missing is refused by who answers.
"""

import msgspec


class UserHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which user."""

    username: str | None = None


class ListUsersHeader(msgspec.Struct, rename="camel", kw_only=True):
    """A part of the names of users."""

    filter: str | None = None


class SubjectHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Whose policies: ``User:<name>``."""

    subject: str | None = None


class DeleteAclHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Which entry of whom; all of them without a resource."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListAclsHeader(msgspec.Struct, rename="camel", kw_only=True):
    """Parts of subjects and resources."""

    subject_filter: str | None = None
    resource_filter: str | None = None
