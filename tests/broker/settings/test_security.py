"""The settings of authentication and authorization."""

import logging
import pathlib

import pytest

from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.settings.live import LiveSettings
from rocketlet.broker.settings.security import Login, SecurityConfig
from rocketlet.common.errors import ConfigError

SECRET = "veryS3cret"  # noqa: S105 # the test's own
ON = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
USERS = {
    "initAuthenticationUser": f'{{"username":"admin","password":"{SECRET}"}}',
    "innerClientAuthenticationCredentials": f'{{"accessKey":"inner","secretKey":"{SECRET}"}}',
}


def test_nothing_is_checked_unless_asked_for() -> None:
    """As in Java; who turns authorization on gets the stricter rules."""
    security = BrokerConfig.from_java({}).security
    assert (security.authenticates, security.authorizes, security.is_strict) == (False, False, True)
    assert (security.init_user, security.inner_user) == (None, None)


@pytest.mark.feature("A21")
def test_authorization_without_authentication_stops_the_start() -> None:
    """Official brokers then believe any name that a client gives."""
    with pytest.raises(ConfigError, match="authenticationEnabled=true everybody could take any name") as refused:
        BrokerConfig.from_java({"authorizationEnabled": "true"})
    assert refused.value.key == "authorizationEnabled"


def test_users_of_the_settings() -> None:
    """One to begin with, one in whose name the broker asks others."""
    security = BrokerConfig.from_java({**ON, **USERS}).security
    assert (security.init_user, security.inner_user) == (Login("admin", SECRET), Login("inner", SECRET))


@pytest.mark.parametrize("key", list(USERS))
@pytest.mark.parametrize("value", [SECRET, f'{{"username":"{SECRET}"}}', f'["{SECRET}"]', f'{{"{SECRET}', "{}"])
def test_malformed_user_is_refused_without_showing_it(key: str, value: str) -> None:
    """What is no JSON may be the password itself."""
    with pytest.raises(ConfigError, match=key) as refused:
        BrokerConfig.from_java({**ON, key: value})
    assert SECRET not in str(refused.value)
    assert refused.value.key == key


@pytest.mark.feature("A25")
def test_secrets_are_shown_nowhere(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither by ``--print-config``, nor to administrators, nor in a log line that holds the settings."""
    with caplog.at_level(logging.DEBUG):
        config = BrokerConfig.from_java({**ON, **USERS, "storePathRootDir": str(tmp_path)})
    shown = {row.key: row.value for row in config.describe()}
    assert {key: shown[key] for key in USERS} == dict.fromkeys(USERS, "******")
    told = repr((config, config.security.init_user, LiveSettings(config, "1.2.3.4").texts()))
    assert "initAuthenticationUser" in told
    assert SECRET not in told + caplog.text


def test_class_names_of_java_are_accepted(caplog: pytest.LogCaptureFixture) -> None:
    """A file of an official broker is taken as it is; a class of somebody else is said to have no effect."""
    own = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    BrokerConfig.from_java({**ON, "authenticationMetadataProvider": own, "authorizationStrategy": ""})
    assert caplog.text == ""
    BrokerConfig.from_java({"authorizationProvider": "com.example.Ldap"})
    assert "authorizationProvider=com.example.Ldap has no effect" in caplog.text


def test_white_lists_name_codes_and_calls() -> None:
    """Blanks and empty entries do not count."""
    security = SecurityConfig(authentication_whitelist=" 907, ,28", authorization_whitelist="apache.v2.Heartbeat")
    assert (security.open_to_anybody, security.open_to_users) == ({"907", "28"}, {"apache.v2.Heartbeat"})


@pytest.mark.parametrize("value", ["SEND_MESSAGE", "10;11", "-1", "\u0661"])
@pytest.mark.parametrize("key", ["authenticationWhitelist", "authorizationWhitelist"])
def test_white_list_of_something_else_is_refused(key: str, value: str) -> None:
    """A misspelt entry would open nothing, and nobody would know why."""
    with pytest.raises(ConfigError, match=key):
        BrokerConfig.from_java({**ON, key: value})


def test_access_control_of_4_x_is_refused_with_what_to_do() -> None:
    """Its file can be imported."""
    with pytest.raises(ConfigError, match="migrateAuthFromV1Enabled"):
        BrokerConfig.from_java({"aclEnable": "true"})
