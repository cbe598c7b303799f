"""A place is reached by all who must reach it, or refused by name."""

from __future__ import annotations

import errno
import os
import traceback
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark.sql import SparkSession

from cdckit.errors import InvalidArgument
from cdckit.store import NoFileSystem, NotWritable, Store
from cdckit.store.errors import NoCredentials
from cdckit.store.locations import Location, folder_name, locate
from support.store_numbers import add, held


@pytest.mark.parametrize("name", ["a b", "50%", "[x]", "{y,z}", "*", "?", "#", "a:b", "é😀", "a+b", "a'\"b"])
def test_odd_local_folders(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    add(Store(None, place), "log", 1)
    add(Store(None, str(place)), "log", 2)
    assert held(Store(None, place), "log") == [1, 2]
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a%20b", "a\\b", "a\nb"])
def test_folders_that_deltalake_would_take_for_others(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="as deltalake misreads those"):
        Store(None, tmp_path / name)


def test_a_place_that_is_read_only_is_read_and_says_so_when_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(None, tmp_path / "store")
    add(store, "log", 1)
    # Who is root may write in every folder, but on a disk that is read-only.
    real, is_closed = os.access, lambda path: str(path).startswith(str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, *how, **on: not is_closed(path) and real(path, *how, **on))
    with pytest.raises(NotWritable, match=r"store/log: the folder is read-only for this user.*location"):
        add(store, "log", 2)
    assert held(Store(None, tmp_path / "store"), "log") == [1]

    def refuse(path: str, **_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)

    monkeypatch.setattr(os, "makedirs", refuse)
    with pytest.raises(NotWritable, match=r"Nothing can be written in .*: Read-only file system\."):
        add(Store(None, tmp_path / "new"), "log", 2)


def test_a_table_of_a_catalogue_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("main.sales.prices", "sales.prices"):
        with pytest.raises(InvalidArgument, match=rf"a folder of that name is \./{name}"):
            Store(None, name)
    assert list(tmp_path.iterdir()) == []
    assert locate("./main.sales.prices", None, None).root == f"{tmp_path}/main.sales.prices"


@pytest.mark.parametrize("location", ["", "  ", None, 7])
def test_an_empty_location_is_not_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: object
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="a folder or a URI"):
        Store(None, location)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_tilde_is_the_home_of_somebody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert locate("~/prices", None, None).root == locate(Path("~/prices"), None, None).root
    assert locate("~/prices", None, None).root == f"{tmp_path}/prices"
    with pytest.raises(InvalidArgument, match=r"a folder of that name is \./~nobody-here/prices"):
        locate("~nobody-here/prices", None, None)
    assert locate("./~nobody-here", None, None).root == f"{tmp_path}/~nobody-here"


def test_an_object_store_without_credentials_is_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(NoCredentials, match=r"s3://bucket/x needs credentials.*storage_options") as refused:
        Store(None, "s3://bucket/x", {"region": "eu-west-1"})
    assert refused.value.location == "s3://bucket/x"


def test_secrets_are_not_shown() -> None:
    found = Location("s3://bucket/x", False, {"aws_secret_access_key": "hidden"})
    assert "hidden" not in repr(found)


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://key:hidden@bucket/x", {}),
        ("https://user:hidden@host:1/x", {}),
        ("abfss://c@account.dfs.core.windows.net/x?sig=hidden", {}),
        ("dbfs:/x?token=hidden", {}),
        ("s3://bucket/x", {"aws_secret_access_key": "k", "timeout": "hidden"}),
    ],
)
def test_secrets_are_in_no_error(uri: str, options: dict[str, str]) -> None:
    with pytest.raises((InvalidArgument, NoFileSystem)) as refused:
        Store(None, uri, options)
    assert "hidden" not in "".join(traceback.format_exception(refused.value))


def test_a_file_uri_is_a_folder(tmp_path: Path) -> None:
    add(Store(None, f"file://{tmp_path}/a%20b"), "log", 1)
    assert held(Store(None, tmp_path / "a b"), "log") == [1]


def test_a_scheme_that_spark_lacks_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark from PyPI comes without the jars for S3; and no folder of that name is made."""
    monkeypatch.chdir(tmp_path)
    for uri in ("s3://bucket/x", "s3a://bucket/x"):
        with pytest.raises(NoFileSystem, match="Spark has no file system") as refused:
            Store(spark, uri, {"region": "eu-west-1"})
        assert refused.value.lacking == "Spark"
    assert list(tmp_path.iterdir()) == []


def test_a_scheme_that_deltalake_lacks_is_refused() -> None:
    for uri in ("ftp://host/x", "viewfs://host/x"):
        with pytest.raises(NoFileSystem, match=r"deltalake .* has no file system"):
            Store(None, uri)


def test_everybody_has_a_spelling_of_their_own() -> None:
    found = locate("s3a://bucket/x y/", {"region": "eu-west-1"}, None)
    assert found == Location("s3://bucket/x y", False, {"region": "eu-west-1"})
    assert found.delta("log") == "s3://bucket/x y/log"
    assert found.spark("log/a[1].parquet") == r"s3a://bucket/x y/log/a\[1\].parquet"


def test_folders_have_names_that_no_two_tables_share(tmp_path: Path) -> None:
    names = ["a/b", "a~2fb", "commits", "scratch", "_x", ".x", "", "..", "é", "x" * 300, "x" * 301, "a b"]
    assert len({folder_name(name) for name in names}) == len(names)
    store = Store(None, tmp_path)
    for number, name in enumerate([*names, "Log", "log", "LOG"]):
        add(store, name, number)
    for number, name in enumerate([*names, "Log", "log", "LOG"]):
        assert held(store, name) == [number]
    folders = [path.name.lower() for path in tmp_path.iterdir()]
    assert len(set(folders)) == len(folders) == len(names) + 4


def test_a_folder_that_somebody_makes_just_now_is_there_or_not(tmp_path: Path) -> None:
    """Who looks at a store while its first writer begins sees nothing yet: that is no error."""
    place, enough = tmp_path / "store", Event()

    def make_and_take_away() -> None:
        while not enough.is_set():
            place.mkdir()
            place.rmdir()

    with_it = Thread(target=make_and_take_away)
    with_it.start()
    try:
        location = locate(place, None, None)
        assert all(location.listed() == {} for _ in range(20_000))
    finally:
        enough.set()
        with_it.join()
