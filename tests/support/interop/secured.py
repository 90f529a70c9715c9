"""An official broker that asks who its clients are and what they may do (spec security.md), and takes TLS as well."""

import json
from typing import Final

from interop.toolchain import TLS_MODE
from raw_calls import open_caller

from rocketlet.client import Credentials
from rocketlet.client.session.interceptors import sign_request
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode

USER: Final = Credentials("rocketlet", "12345678")
"""May do everything."""
_PROVIDERS: Final = "org.apache.rocketmq.auth.{0}.provider.{1}{2}Provider"
ASKS_WHO: Final = {
    TLS_MODE: "permissive",
    "authenticationEnabled": "true",
    "authenticationProvider": _PROVIDERS.format("authentication", "Default", "Authentication"),
    "authenticationMetadataProvider": _PROVIDERS.format("authentication", "Local", "AuthenticationMetadata"),
    "initAuthenticationUser": json.dumps({"username": USER.access_key, "password": USER.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": USER.access_key, "secretKey": USER.secret_key}),
}
ASKS_WHETHER: Final = {
    "authorizationEnabled": "true",
    "authorizationProvider": _PROVIDERS.format("authorization", "Default", "Authorization"),
    "authorizationMetadataProvider": _PROVIDERS.format("authorization", "Local", "AuthorizationMetadata"),
}
PROVIDERS: Final = {key: value for key, value in (ASKS_WHO | ASKS_WHETHER).items() if key.endswith("Provider")}
"""Without them the official broker has no place for users; ours has one, whatever they say."""


async def create_user(address: str, user: Credentials) -> None:
    """Have a broker know a user who may do nothing."""
    body = json.dumps({"username": user.access_key, "password": user.secret_key, "userType": "Normal"}).encode()
    command = Command.request(RequestCode.AUTH_CREATE_USER, {"username": user.access_key}, body)
    sign_request(command, USER)
    async with open_caller(address) as caller:
        answer = await caller.ask(command.code, command.ext, command.body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
