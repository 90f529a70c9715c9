"""Brokers that ask who their clients are, and callers who say so."""

import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from raw_calls import Caller, open_caller

from rocketlet.common.codes import ResponseCode
from rocketlet.common.signing import sign
from rocketlet.remoting.codec.command import Command, encode_fields
from rocketlet.remoting.codec.request_codes import RequestCode

ADMIN: Final = ("admin", "admin123")
INNER: Final = ("inner", "inner123")
GUARDED: Final = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ADMIN[0], "password": ADMIN[1]}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER[0], "secretKey": INNER[1]}),
}
"""What a start needs to know its users, one of whom may do everything."""
PLAIN_ACL: Final = """\
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: RocketMQ
  secretKey: '12345678'
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  groupPerms:
  - groupA=DENY
  - groupB=PUB|SUB
- accessKey: rocketmq2
  secretKey: '12345678'
  whiteRemoteAddress: 192.168.1.*
  admin: true
"""
"""What the recorded broker imported (README of the vectors)."""
Headers = msgspec.Struct | Mapping[str, str] | None


class SignedCaller(Caller):
    """A connection on which everything is asked in somebody's name."""

    def __init__(self, caller: Caller, name: str, password: str) -> None:
        super().__init__(caller.connection, caller.requests)
        self._name = name
        self._password = password

    async def ask(self, code: int, header: Headers = None, body: bytes = b"", **changes: Any) -> Command:
        """Sign a request, send it and return its answer."""
        return await super().ask(code, self._sign(header, body), body, **changes)

    def ask_oneway(self, code: int, header: Headers = None, body: bytes = b"") -> None:
        """Sign a request that is not answered, and send it."""
        super().ask_oneway(code, self._sign(header, body), body)

    def _sign(self, header: Headers, body: bytes) -> dict[str, str]:
        fields = encode_fields(header)
        sign(fields, body, self._name, self._password)
        return fields

    async def put(self, code: int, header: Headers = None, body: bytes = b"") -> Command:
        """Do the same with what must succeed."""
        answer = await self.ask(code, header, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def make_user(self, name: str, password: str, *policies: str, kind: str = "Normal") -> None:
        """Make a user who may do what policies say: ``Topic:T Pub,Sub``."""
        user = json.dumps({"username": name, "password": password, "userType": kind}).encode()
        await self.put(RequestCode.AUTH_CREATE_USER, {"username": name}, user)
        if policies:
            await self.allow(name, policies)

    async def allow(self, name: str, policies: Iterable[str], **entry: Any) -> None:
        """Let a user do more."""
        entries = [allowed(policy, **entry) for policy in policies]
        body = json.dumps({"policies": [{"entries": entries}]}).encode()
        await self.put(RequestCode.AUTH_UPDATE_ACL, {"subject": f"User:{name}"}, body)


def allowed(policy: str, **more: Any) -> dict[str, Any]:
    """Return the entry of a policy in short."""
    resource, _, actions = policy.rpartition(" ")
    return {"resource": resource, "actions": actions.split(","), "decision": "Allow", **more}


@asynccontextmanager
async def open_signed(address: str, name: str = ADMIN[0], password: str = ADMIN[1]) -> AsyncGenerator[SignedCaller]:
    """Connect to a server as somebody."""
    async with open_caller(address) as caller:
        yield SignedCaller(caller, name, password)
