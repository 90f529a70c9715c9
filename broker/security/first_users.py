"""Users that a start makes: those of the settings, and those of ``plain_acl.yml`` (spec security.md §4, §6.4).

Nobody is made anew whose name is there already, whatever has become of them since: administrators have the last word.
"""

import logging
from functools import partial

from ...common.access import UserType
from ...common.errors import ConfigError
from ...store.files.files import OS_FILES, Files
from ..settings.config import BrokerConfig
from ..settings.security import INIT_USER_KEY, INNER_CREDENTIALS_KEY, SecurityConfig
from .storage import InThread, SecurityStore, load_security
from .tables import SecurityTables
from .users import User

_log = logging.getLogger(__name__)


async def open_security(config: BrokerConfig, in_thread: InThread, files: Files = OS_FILES) -> SecurityStore:
    """Return users and policies of a store, with those that a start makes.

    Raises:
        ConfigError: a file cannot be read, used or written.
    """
    store, wanted = await load_security(config.store.root, in_thread, files), config.security
    try:
        await store.change(partial(_add_of_settings, config=wanted))
        if wanted.imports_plain_acl:
            from .plain_acl import add_accounts, find_files, read_accounts  # of use once, and by few

            accounts = await in_thread(lambda: read_accounts(find_files(wanted.plain_acl_file)))
            await store.change(partial(add_accounts, accounts=accounts))
    except OSError as error:
        raise ConfigError(f"users cannot be written to {error.filename or config.store.root}: {error}") from error
    return store


def _add_of_settings(tables: SecurityTables, config: SecurityConfig) -> SecurityTables:
    users = tables.users
    for key, login in ((INIT_USER_KEY, config.init_user), (INNER_CREDENTIALS_KEY, config.inner_user)):
        if login is not None and users.find(login.name) is None:
            users = users.put(User(name=login.name, password=login.password, type=UserType.SUPER))
            _log.info("made super user %s, whom setting %s names", login.name, key)
    return tables._replace(users=users)
