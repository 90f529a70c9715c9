"""How drivers and tasks reach a cluster, as options say."""

import pickle

import pytest

from rocketlet.client import Credentials, Tls
from rocketlet.common.errors import ConfigError
from rocketlet.spark.options.cluster_access import ACCESS_OPTIONS, Access, parse_access
from rocketlet.spark.options.option_values import OptionValues

SERVER = "192.0.2.1:9876"


def parse(**options: str) -> Access:
    """Return what options beside a name server say."""
    return parse_access(OptionValues({"nameserver": SERVER, **options}, ACCESS_OPTIONS, "the source"))


def test_cluster_is_asked_four_times_for_ten_seconds() -> None:
    """A second apart, by whom nobody knows, unless options say otherwise."""
    access = parse()
    assert access == Access(SERVER)
    assert (access.timeout_ms, access.retries, access.retry_interval_ms) == (10_000, 3, 1_000)
    assert (access.credentials, access.tls) == (None, None)
    assert (access.client_settings.credentials, access.client_settings.tls) == (None, None)


@pytest.mark.parametrize(("retries", "interval_ms"), [(0, 0), (1, 1), (7, 5)])
def test_calls_are_as_options_say(retries: int, interval_ms: int) -> None:
    """None of them may be sent again, and at once."""
    access = parse(timeoutMs="77", retries=str(retries), retryIntervalMs=str(interval_ms))
    assert access == Access(SERVER, timeout_ms=77, retries=retries, retry_interval_ms=interval_ms)


@pytest.mark.parametrize(("name", "value"), [("timeoutMs", "0"), ("retries", "-1"), ("retryIntervalMs", "-1")])
def test_counts_must_make_sense(name: str, value: str) -> None:
    """The error names the option."""
    with pytest.raises(ConfigError, match=name) as caught:
        parse(**{name: value})
    assert caught.value.key == name


@pytest.mark.parametrize("address", ["", "host", "host:port", "host:9876;other"])
def test_name_servers_must_be_addresses(address: str) -> None:
    """All of them."""
    with pytest.raises(ConfigError):
        parse(nameserver=address)
    with pytest.raises(ConfigError):
        parse_access(OptionValues({}, ACCESS_OPTIONS, "the source"))


@pytest.mark.parametrize(
    ("options", "credentials"),
    [
        ({"accessKey": "a", "secretKey": "s"}, Credentials("a", "s")),
        ({"accessKey": "a", "secretKey": "s", "securityToken": "t"}, Credentials("a", "s", "t")),
    ],
)
def test_keys_say_who_asks(options: dict[str, str], credentials: Credentials) -> None:
    """They travel to the tasks, and are not shown."""
    access = parse(**options)
    assert access.credentials == access.client_settings.credentials == credentials
    assert pickle.loads(pickle.dumps(access)) == access  # noqa: S301 # our own


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"accessKey": "a"}, "accessKey"),
        ({"secretKey": "s"}, "secretKey"),
        ({"securityToken": "t"}, "securityToken"),
        ({"accessKey": "a", "securityToken": "t"}, "accessKey"),
        ({"secretKey": "s", "securityToken": "t"}, "secretKey"),
    ],
)
def test_keys_belong_together(options: dict[str, str], key: str) -> None:
    """One alone is a mistake."""
    with pytest.raises(ConfigError, match=f"^{key} needs both accessKey and secretKey$") as caught:
        parse(**options)
    assert caught.value.key == key


def test_tls_verifies_unless_it_must_not() -> None:
    """The certificate, and its name only if that is wished."""
    assert parse(tls="false").tls is None
    assert parse(tls="true").tls == Tls(verifies=True, checks_host_name=False)
    access = parse(tls="true", tlsVerify="false", tlsCheckHostName="false")
    assert access.tls == access.client_settings.tls == Tls(verifies=False)
    assert parse(tls="true", tlsCheckHostName="true").tls == Tls(checks_host_name=True)


@pytest.mark.parametrize(
    "name", ["tlsTrustFile", "tlsCertificateFile", "tlsKeyFile", "tlsKeyPassword", "tlsVerify", "tlsCheckHostName"]
)
def test_options_of_tls_need_tls(name: str) -> None:
    """Who gives one of them wants it."""
    for options in ({}, {"tls": "false"}):
        with pytest.raises(ConfigError, match=f"^{name} is given, but tls is not true$") as caught:
            parse(**{name: "true"}, **options)
        assert caught.value.key == name


@pytest.mark.parametrize("name", ["tlsTrustFile", "tlsCertificateFile"])
def test_files_of_tls_are_looked_at(name: str) -> None:
    """Before a task needs them."""
    with pytest.raises(ConfigError, match=r"^tls cannot be used: /nowhere/file: "):
        parse(tls="true", **{name: "/nowhere/file"})
