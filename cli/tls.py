"""``rocketlet tls``: certificates for laptops and tests."""

import os
from collections.abc import Iterable, Sequence
from typing import Final, TypedDict, Unpack

import click

from ..common.errors import ConfigError

_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


class _CaFlags(TypedDict):
    directory: str
    hosts: Sequence[str]
    days: int


@click.group(short_help="Make certificates for tests.")
def tls() -> None:
    """Make certificates for laptops and tests."""


@tls.command("make-test-ca")
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Name or address of the servers, beside localhost and the loopback addresses; repeatable.",
)
@click.option("--days", type=click.IntRange(1, 36_500), default=365, show_default=True, help="How long they hold.")
def make_test_ca(**flags: Unpack[_CaFlags]) -> None:
    """Make a test authority, and certificates for servers and clients.

    All files are new, and only their owner may read them. Nobody should trust the authority elsewhere.
    """
    from ..remoting.tls.certificates import make_test_authority, write_private

    directory = os.path.abspath(os.path.expanduser(flags["directory"]))
    made = make_test_authority([*dict.fromkeys((*_HOSTS, *flags["hosts"]))], flags["days"])
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        _refuse_others(directory, made)
        for name, content in made.items():
            write_private(os.path.join(directory, name), content)
    except OSError as error:
        raise ConfigError(f"{error.filename or directory} cannot be written: {error.strerror}", key="DIR") from error
    click.echo(_explain(directory))


def _refuse_others(directory: str, names: Iterable[str]) -> None:
    for name in names:
        path = os.path.join(directory, name)
        if os.path.lexists(path):
            raise ConfigError(f"{path} is there already, and nothing is overwritten: name another directory", key="DIR")


def _explain(directory: str) -> str:
    """Say what is to be put where."""
    from ..remoting.tls.certificates import CA_FILE, CLIENT_FILE, CLIENT_KEY_FILE, SERVER_FILE, SERVER_KEY_FILE

    ca, server, server_key = (os.path.join(directory, name) for name in (CA_FILE, SERVER_FILE, SERVER_KEY_FILE))
    client, client_key = (os.path.join(directory, name) for name in (CLIENT_FILE, CLIENT_KEY_FILE))
    return f"""\
# servers, in the file of -c
tls.server.mode=enforcing
tls.server.certPath={server}
tls.server.keyPath={server_key}
tls.client.trustCertPath={ca}
# and to ask clients for certificates
tls.server.need.client.auth=require
tls.server.trustCertPath={ca}
tls.client.certPath={client}
tls.client.keyPath={client_key}
# the verbs
--tls --tls-trust {ca} --tls-cert {client} --tls-key {client_key}"""
