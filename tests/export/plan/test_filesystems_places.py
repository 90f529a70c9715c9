"""Places and small files, local ones and behind URLs, are named and treated alike."""

import os
import pathlib
from collections.abc import Iterator, Sequence

import fsspec
import pyarrow.fs as pafs
import pytest

from rocketlet.common.errors import ConfigError, StoreError
from rocketlet.export.plan.filesystems import (
    Folder,
    FolderEntry,
    Storage,
    expand_places,
    has_place,
    is_pattern,
    is_url,
    list_names,
    list_place,
    local_path,
    read_place,
    split_places,
)

HERE = Storage()


@pytest.fixture(params=["local", "file", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[str]:
    """Yield an empty directory: a path, a file: URL and one of a file system that only fsspec knows."""
    memory = fsspec.filesystem("memory")
    memory.makedirs("/places", exist_ok=True)
    yield {"local": str(tmp_path), "file": f"file://{tmp_path}", "memory": "memory://places"}[request.param]
    memory.rm("/places", recursive=True)


@pytest.mark.parametrize(
    ("place", "is_remote", "path"),
    [
        ("/a/b", False, "/a/b"),
        ("a/b", False, "a/b"),
        ("file:/a/b", False, "/a/b"),
        ("file:///a/b", False, "/a/b"),
        ("s3://a/b", True, "s3://a/b"),
        ("memory://a", True, "memory://a"),
        ("fsspec+s3://a", True, "fsspec+s3://a"),
        ("/a,file:///b", False, "/a,file:///b"),
        ("://a", False, "://a"),
    ],
)
def test_local_places_and_urls(place: str, is_remote: bool, path: str) -> None:
    """A file: URL is a path."""
    assert is_url(place) == is_remote
    assert local_path(place) == path


def test_local_place_is_an_absolute_path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the process that uses it stands."""
    monkeypatch.chdir(tmp_path)
    system, path = HERE.resolve("a/../b")
    assert isinstance(system, pafs.LocalFileSystem)
    assert path == str(tmp_path / "b")
    assert HERE.resolve(f"file:{tmp_path}/c")[1] == str(tmp_path / "c")


@pytest.mark.parametrize(("place", "found"), [("a*", True), ("a?", True), ("a[b]", True), ("a]", False), ("", False)])
def test_patterns_have_signs(place: str, found: bool) -> None:
    """Any of them makes one."""
    assert is_pattern(place) == found


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("s3://bucket/store/x", "bucket/store/x"),
        ("s3a://bucket/store", "bucket/store"),
        ("abfs://container@account.dfs.core.windows.net/store", "container/store"),
        ("s3://bucket", "bucket/"),
    ],
)
def test_path_of_a_bucket_has_no_scheme(place: str, path: str) -> None:
    """Nor has it the account."""
    options = '{"account_name": "a"}' if place.startswith("abfs") else '{"region": "us-east-1", "anonymous": true}'
    system, found = Storage(options).resolve(place)
    assert system.type_name == ("abfs" if place.startswith("abfs") else "s3")
    assert found == path


@pytest.mark.parametrize("scheme", ["gs", "gcs"])
def test_file_system_without_options_finds_its_own(scheme: str) -> None:
    """What its URL does not say is found where pyarrow looks for it."""
    system, path = HERE.resolve(f"{scheme}://anonymous@bucket/a/b")
    assert (system.type_name, path) == ("gcs", "bucket/a/b")


def test_fsspec_is_asked_by_name() -> None:
    """Though pyarrow may know a file system of that scheme."""
    system, path = Storage("{}").resolve("fsspec+memory://a/b")
    assert path == "/a/b"
    assert "memory" in system.type_name


def test_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of what the import says."""
    monkeypatch.setitem(__import__("sys").modules, "paramiko", None)
    with pytest.raises(ConfigError, match="store sftp://host/a needs the package") as caught:
        HERE.resolve("sftp://host/a")
    assert caught.value.key == "path"


def test_entries_have_sizes_if_they_are_files(root: str) -> None:
    """All of a directory, whatever they are."""
    Folder(root).write("a", b"12345")
    Folder(f"{root}/below").write("b", b"")
    assert sorted(list_place(local_path(root), HERE)) == [FolderEntry("a", True, 5), FolderEntry("below", False, 0)]
    assert list_place(f"{local_path(root)}/below", HERE) == [FolderEntry("b", True, 0)]
    assert [has_place(f"{local_path(root)}/{name}", HERE) for name in ("a", "below", "c")] == [True, True, False]
    assert read_place(f"{root}/a", HERE) == b"12345"
    with pytest.raises(FileNotFoundError):
        list_place(f"{local_path(root)}/nothing", HERE)


def test_file_that_is_deleted_while_it_is_listed_is_none(tmp_path: pathlib.Path) -> None:
    """As is a link that leads nowhere."""
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    assert list_place(str(tmp_path), HERE) == [FolderEntry("gone", False, 0)]


def test_names_are_in_order(tmp_path: pathlib.Path) -> None:
    """And none where there is no directory."""
    for name in ("b", "c", "a"):
        (tmp_path / name).touch()
    assert list_names(str(tmp_path)) == ["a", "b", "c"]
    assert list_names(str(tmp_path / "a")) == list_names(str(tmp_path / "x")) == []


def test_small_files_are_written_and_read(root: str) -> None:
    """The directory is made with the first of them, and appears in full."""
    folder = Folder(f"{root}/one/two")
    assert not folder.exists()
    folder.write("b", b"old")
    folder.write("b", b"new")
    folder.write("a", b"")
    Folder(f"{root}/one/two/three").write("c", b"")
    assert folder.exists()
    assert Folder(f"{root}/one/two/").names() == folder.names() == ["a", "b"]
    assert folder.read("b") == Folder(f"{root}/one/two/").read("b") == b"new"
    assert [folder.has(name) for name in ("a", "x")] == [True, False]
    assert not Folder(f"{root}/one/two/a").exists()
    folder.remove("a")
    folder.remove("a")
    assert folder.names() == ["b"]


def test_what_cannot_be_read_or_written_is_one_sentence(root: str) -> None:
    """With the place in it."""
    with pytest.raises(ConfigError, match=f"{local_path(root)}/nothing/a cannot be read: "):
        Folder(f"{root}/nothing").read("a")
    with pytest.raises(ConfigError, match="nothing cannot be read: "):
        Folder(f"{root}/nothing").names()


def test_failed_write_leaves_nothing(tmp_path: pathlib.Path) -> None:
    """Neither the file nor its forerunner."""
    (tmp_path / "a" / "below").mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"{tmp_path}/a cannot be written: Is a directory"):
        Folder(str(tmp_path)).write("a", b"x")
    assert os.listdir(tmp_path) == ["a"]
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/a cannot be written: (Not a directory|File exists)"):
        Folder(str(tmp_path / "file")).write("a", b"x")


@pytest.mark.parametrize(
    ("path", "folder", "name"),
    [
        ("a/b", "a", "b"),
        ("b", ".", "b"),
        ("/b", "/", "b"),
        ("/a/b", "/a", "b"),
        ("memory://a/b", "memory://a", "b"),
    ],
)
def test_file_has_a_folder_and_a_name(path: str, folder: str, name: str) -> None:
    """A bare name is here, one behind a slash at the root."""
    assert Folder.of_file(path) == (Folder(folder), name)
    storage = Storage('{"a": 1}')
    assert Folder.of_file(path, storage) == (Folder(folder, storage), name)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{}/a", ["{}/a"]),
        ("{}/a,{}/b", ["{}/a", "{}/b"]),
        ("{}/a , {}/b , ,", ["{}/a", "{}/b"]),
        ("{}/c,d", ["{}/c,d"]),
        ("{}/c,?", ["{}/c,?"]),
        ("{}/x,?", ["{}/x", "?"]),
    ],
)
def test_list_of_places(root: str, text: str, parts: Sequence[str]) -> None:
    """Commas stand between them, unless there is a place with such a name, or a pattern that fits one."""
    if root.startswith("file:") and "c," in text:
        return  # patterns of file: URLs are looked for by their paths
    for name in ("a", "b", "c,d"):
        Folder(root).write(name, b"")
    expected = [
        part.format(root) if "," in part or "," not in text else part.format(local_path(root)) for part in parts
    ]
    assert split_places(text.format(root, root), HERE) == expected


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a*", ["a1", "a2"]),
        ("a?/s", ["a1/s"]),
        ("*/s", ["a1/s", "b/s"]),
        ("a2", ["a2"]),
        ("nothing", ["nothing"]),
        ("[ab]/s*", ["b/s"]),
    ],
)
def test_patterns_name_what_fits(root: str, pattern: str, names: Sequence[str]) -> None:
    """In order, in any part of the path; a place without signs is itself, there or not."""
    for name in ("a2/x", "b/s", "a1/s"):
        Folder(f"{root}/{os.path.dirname(name)}").write(os.path.basename(name), b"")
    assert expand_places([f"{root}/{pattern}"], HERE) == [f"{local_path(root)}/{name}" for name in names]


def test_pattern_that_nothing_fits_is_an_error(root: str) -> None:
    """Of places, the rest is not looked at."""
    Folder(root).write("a", b"")
    for pattern in ("x*", "*/y", "x*/y*"):
        with pytest.raises(ConfigError, match="no store matches") as caught:
            expand_places([f"{root}/a", f"{root}/{pattern}"], HERE)
        assert caught.value.key == "path"


def test_options_are_not_shown() -> None:
    """They may hold passwords."""
    assert "secret" not in repr(Storage('{"secret_key": "secret"}'))


def test_store_that_cannot_be_listed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """That names the place."""
    memory: object = fsspec.filesystem("memory")

    def fail(*_: object, **__: object) -> object:
        raise PermissionError("no")

    monkeypatch.setattr(type(memory), "info", fail)
    with pytest.raises(StoreError, match="memory://places/a cannot be read: "):
        has_place("memory://places/a", HERE)
    with pytest.raises(ConfigError, match="memory://places/a cannot be read: "):
        Folder("memory://places").has("a")
