"""Users as administrators make, change and remove them."""

import pytest

from rocketlet.broker.security.users import MAX_NAME_CHARACTERS, MAX_USERS, User, UserTable
from rocketlet.broker.settings.refusal import Refusal
from rocketlet.common.access import UserInfo, UserStatus, UserType
from rocketlet.common.settings import NOT_SHOWN

NEW, ROOT_WORD, ALICE_WORD, SPACED, SPACE, BLANK = "x-word", "rootpw", "alicepw", " new ", " ", "\t "
ROOT = User(name="root", password=ROOT_WORD, type=UserType.SUPER)
ALICE = User(name="alice", password=ALICE_WORD)
TABLE = UserTable([ROOT, ALICE])
ONLY_SUPER = "The super user can only be update by super user"


def changed(found: UserTable | Refusal, name: str) -> User | None:
    """Return a user of a changed table."""
    assert isinstance(found, UserTable), found
    return found.find(name)


@pytest.mark.feature("A10")
@pytest.mark.parametrize(
    ("info", "kind", "status"),
    [
        (UserInfo(password=NEW), UserType.NORMAL, UserStatus.ENABLE),
        (UserInfo(password=NEW, user_type="super"), UserType.SUPER, UserStatus.ENABLE),
        (UserInfo(password=NEW, user_type="Nonsense"), UserType.NORMAL, UserStatus.ENABLE),
        (UserInfo(password=NEW, user_status="DISABLE"), UserType.NORMAL, UserStatus.DISABLE),
        (UserInfo(password=NEW, user_status="off"), UserType.NORMAL, UserStatus.ENABLE),
    ],
)
def test_words_of_a_new_user(info: UserInfo, kind: UserType, status: UserStatus) -> None:
    """Words are read in any case; one that nobody knows stands for the default."""
    user = changed(TABLE.create("carl", info, by_super=True), "carl")
    assert user == User(name="carl", password=NEW, type=kind, status=status)


@pytest.mark.feature("A10", "A16", "A25")
@pytest.mark.parametrize(
    ("name", "info", "by_super", "code", "remark"),
    [
        ("", UserInfo(password=NEW), True, 29, "The username is blank"),
        (" ", UserInfo(password=NEW), True, 16, "username can not be blank"),
        ("carl", UserInfo(), True, 16, "password can not be blank"),
        ("carl", UserInfo(password=BLANK), True, 16, "password can not be blank"),
        ("alice", UserInfo(password=NEW), True, 16, "The user is existed"),
        (
            "carl",
            UserInfo(password=NEW, user_type="Super"),
            False,
            1,
            "The super user can only be create by super user",
        ),
        (
            "carl",
            UserInfo(password=NOT_SHOWN),
            True,
            16,
            "the password is ******, which brokers show in place of one: say the real one",
        ),
        (
            "c" * (MAX_NAME_CHARACTERS + 1),
            UserInfo(password=NEW),
            True,
            16,
            f"the username has {MAX_NAME_CHARACTERS + 1} characters, the limit is {MAX_NAME_CHARACTERS}",
        ),
    ],
)
def test_users_that_cannot_be_made(name: str, info: UserInfo, by_super: bool, code: int, remark: str) -> None:
    """Upstream's words, and two of ours: for a name that is too long, and for the mask of a password."""
    assert TABLE.create(name, info, by_super=by_super) == Refusal(code, remark)


@pytest.mark.feature("A10")
@pytest.mark.parametrize(
    ("info", "wanted"),
    [
        (UserInfo(), ALICE),
        (UserInfo(password=SPACE, user_type="", user_status=""), ALICE),
        (UserInfo(user_type="Nonsense", user_status="Nonsense"), ALICE),
        (UserInfo(password=NOT_SHOWN), ALICE),
        (UserInfo(password=SPACED), User(name="alice", password=SPACED)),
        (UserInfo(user_status="disable"), User(name="alice", password=ALICE_WORD, status=UserStatus.DISABLE)),
        (UserInfo(user_type="SUPER"), User(name="alice", password=ALICE_WORD, type=UserType.SUPER)),
    ],
)
def test_what_is_not_said_stays(info: UserInfo, wanted: User) -> None:
    """Blank texts, unknown words and the mask of a password change nothing."""
    assert changed(TABLE.update("alice", info, by_super=True), "alice") == wanted


@pytest.mark.feature("A10", "A16")
def test_users_that_cannot_be_changed() -> None:
    """Only a super user touches one, or makes one of another user."""
    to_super = UserInfo(user_type="Super")
    assert TABLE.update("ghost", UserInfo(), by_super=True) == Refusal(16, "The user is not exist")
    assert TABLE.update("", UserInfo(), by_super=True) == Refusal(29, "The username is blank")
    for blank in (" ", "\t"):
        refusal = Refusal(16, "username can not be blank")
        assert TABLE.update(blank, UserInfo(), by_super=True) == TABLE.delete(blank, by_super=True) == refusal
    assert TABLE.update("alice", to_super, by_super=False) == Refusal(1, ONLY_SUPER)
    assert TABLE.update("root", UserInfo(user_status="disable"), by_super=False) == Refusal(16, ONLY_SUPER)
    assert TABLE.delete("root", by_super=False) == Refusal(16, ONLY_SUPER)
    assert changed(TABLE.delete("root", by_super=True), "root") is None
    assert changed(TABLE.delete("alice", by_super=False), "alice") is None
    assert changed(TABLE.delete("ghost", by_super=False), "alice") == ALICE


@pytest.mark.feature("A10")
def test_users_are_told_in_the_order_of_their_names() -> None:
    """A filter is a part of the name; a blank one chooses all."""
    names = [[user.name for user in TABLE.list(part)] for part in ("", " ", "o", "zzz", "A")]
    assert names == [["alice", "root"], ["alice", "root"], ["root"], [], []]


@pytest.mark.feature("A25")
def test_passwords_are_shown_nowhere() -> None:
    """Neither a user nor what is told of one shows a password in its text, and a masked user has none."""
    told = ALICE.describe(shows_password=False)
    assert told.password == NOT_SHOWN
    for text in (repr(ALICE), repr(TABLE), repr(ALICE.describe(shows_password=True)), str(ALICE)):
        assert "alicepw" not in text


def test_file_holds_what_the_table_does() -> None:
    """Users read back are the same ones."""
    assert UserTable.of(TABLE.content()).list() == TABLE.list()


@pytest.mark.parametrize(
    "info",
    [
        UserInfo(user_type="Super", user_status="enable"),
        UserInfo(password=NEW, user_status="enable"),
        UserInfo(password=NEW, user_type="Super", user_status="on"),
    ],
)
def test_file_that_nobody_wrote_so_is_refused(info: UserInfo) -> None:
    """A user with a word missing or unknown in the file is no user, and the text does not show the password."""
    with pytest.raises(ValueError, match="user 'alice' needs a password") as caught:
        UserTable.of({"alice": info})
    assert NEW not in str(caught.value)


def test_users_are_bounded() -> None:
    """One more than the limit is refused."""
    full = UserTable(User(name=f"u{number}", password=NEW) for number in range(MAX_USERS))
    refusal = full.create("more", UserInfo(password=NEW), by_super=True)
    assert refusal == Refusal(16, f"there are {MAX_USERS} users, which is the limit")
