"""How options become settings."""

import pathlib
import sys

import click
import pytest

from rocketlet.cli import settings
from rocketlet.common.errors import ConfigError


def parse(*arguments: str) -> dict[str, object]:
    """Parse arguments with the shared options, as a command would."""
    found: dict[str, object] = {}

    @click.command
    @settings.with_options(settings.HOST, settings.BROKER_PORT, settings.ADVERTISE, settings.SET)
    def command(**values: object) -> None:
        found.update(values)

    command.main(arguments, standalone_mode=False)
    return found


def test_flag_beats_set_beats_file(tmp_path: pathlib.Path):
    """A flag wins over `--set`, `--set` over the file; what nobody names is left out."""
    file = tmp_path / "broker.conf"
    file.write_text("listenPort=1\nbrokerName=file\nregionId=file\n")
    given = settings.gather_settings(
        {"listenPort": 3, "bindAddress": None}, {"listenPort": "2", "brokerName": "set"}, str(file)
    )
    assert given == {"listenPort": "3", "brokerName": "set", "regionId": "file"}


def test_file_is_utf8_or_latin1(tmp_path: pathlib.Path):
    """The file is read as UTF-8, and as Latin-1, which Java writes, when it is not."""
    file = tmp_path / "broker.conf"
    file.write_bytes("brokerName=größe".encode())
    assert settings.read_settings(str(file)) == {"brokerName": "größe"}
    file.write_bytes("brokerName=größe".encode("latin-1"))
    assert settings.read_settings(str(file)) == {"brokerName": "größe"}


def test_unreadable_file_is_named(tmp_path: pathlib.Path):
    """A file that cannot be read is an error that names it."""
    with pytest.raises(ConfigError, match=r"-c .*missing\.conf cannot be read: No such file") as caught:
        settings.read_settings(str(tmp_path / "missing.conf"))
    assert caught.value.key == "-c"
    (tmp_path / "bad.conf").write_text("brokerName=\\u12\n")
    with pytest.raises(ConfigError, match=r"-c .*bad\.conf cannot be read: "):
        settings.read_settings(str(tmp_path / "bad.conf"))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("mq.example", ("mq.example", 0)),
        ("mq.example:7000", ("mq.example", 7000)),
        ("fd00::2", ("fd00::2", 0)),
        ("[fd00::2]", ("fd00::2", 0)),
        ("[fd00::2]:7000", ("fd00::2", 7000)),
    ],
)
def test_advertised_address_is_parsed(text: str, address: tuple[str, int]):
    """`--advertise` takes a host, or a host and a port; IPv6 with a port stands in brackets."""
    assert parse("--advertise", text)["advertise"] == settings.Address(*address)


@pytest.mark.parametrize("text", ["", ":1", "host:", "host:0", "host:65536", "host:x", "[::1", "[::1]7", "[::1]:x"])
def test_bad_advertised_address_is_refused(text: str):
    """What is no address is refused with its text."""
    with pytest.raises(click.BadParameter, match="is not HOST or HOST:PORT"):
        parse("--advertise", text)


def test_pairs_are_collected():
    """`--set` may come often; spaces around key and value do not count, and a value may hold an equals sign."""
    assert parse("--set", "a = 1", "--set", "b=x=y", "--set", "a=1", "--set", "c=")["pairs"] == {
        "a": "1",
        "b": "x=y",
        "c": "",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "a"], "'a' is not key=value"),
        (["--set", "=1"], "'=1' is not key=value"),
        (["--set", "a=1", "--set", "a=2"], "a is both '1' and '2'"),
    ],
)
def test_bad_pairs_are_refused(arguments: list[str], message: str):
    """A pair without a key or an equals sign is refused, and so is one key with two values."""
    with pytest.raises(click.BadParameter, match=message):
        parse(*arguments)


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_bad_port_is_refused(port: str):
    """A port lies between 0 and 65535."""
    with pytest.raises(click.BadParameter) as caught:
        parse("--broker-port", port)
    assert caught.value.format_message().startswith("Invalid value for '--broker-port': ")


def test_store_cannot_be_ephemeral_and_named():
    """`--ephemeral` contradicts a store that is named on the command line, by flag or by `--set`."""
    with pytest.raises(click.UsageError, match="--ephemeral and --store contradict each other"):
        settings.check_store_options(store="x", is_ephemeral=True, pairs={})
    with pytest.raises(click.UsageError, match="--ephemeral and --set storePathRootDir contradict each other"):
        settings.check_store_options(store=None, is_ephemeral=True, pairs={"storePathRootDir": "x"})
    settings.check_store_options(store=None, is_ephemeral=True, pairs={})


def test_default_store_is_in_the_data_directory(monkeypatch: pytest.MonkeyPatch):
    """The store is in the directory that the platform keeps for a user's data."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert settings.data_path("store") == "/data/rocketlet/store"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert settings.data_path("store") == "/home/ann/.local/share/rocketlet/store"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert settings.data_path("store") == "/home/ann/Library/Application Support/rocketlet/store"


def test_settings_are_listed_in_columns():
    """`--print-config` lines up key, value and default, and ends with the meaning."""
    text = settings.format_settings([("listenPort", "0", "10911", "port to listen at"), ("a", "b", "c", "d")])
    assert text.splitlines() == [
        "key         value  default  meaning",
        "listenPort  0      10911    port to listen at",
        "a           b      c        d",
    ]
