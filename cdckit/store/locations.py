"""
Where a store lies: one place, as deltalake, Spark and the workers each spell it.

Workers write through the file system of `deltalake` itself, so that one set of *storage options* serves
both; a local folder is written as files.  Spark reads through Hadoop's file systems, which take their
settings from the session.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow.fs as pafs
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSystem, LocalFileSystem, PyFileSystem
from pyspark.sql import SparkSession

from cdckit.errors import InvalidArgument
from cdckit.store.errors import NoCredentials, NoFileSystem, NotWritable

COMMITS, SCRATCH = "commits", "scratch"
"""Folders of a store that no table has."""

_MOST_BYTES = 120
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # two letters at least: one is a drive of Windows
_TABLE = re.compile(r"\w+(\.\w+){1,2}")
_MISREAD = re.compile(r"[\x00-\x1f\\]|%[0-9A-Fa-f]{2}")
_WITH_SECRETS = re.compile(r"(//[^/@]*:)[^/]*(?=@)|\?.*")
_PATTERN = re.compile(r"([\[\]{}*?\\])")
_NO_CREDENTIALS = re.compile("credential|token request|metadata/identity|computeMetadata")
"""In what deltalake says where nobody gave it credentials, and none are in the environment."""
_FOR_DELTA = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}
_FOR_SPARK = {"s3": "s3a", "s3n": "s3a", "az": "abfss"}


@dataclass(frozen=True)
class Location:
    """
    A folder or a URI, and the options that deltalake needs to reach it.

    Pickles small: tasks carry it.

    Args:
        root: The absolute path of a local folder, or the URI as deltalake spells it, without a last slash.
        local: Whether it is a folder of this machine.
        options: What deltalake calls storage options.
    """

    root: str
    local: bool
    options: dict[str, str] = field(default_factory=dict, repr=False)  # there are secrets among them

    def delta(self, folder: str) -> str:
        """A table's folder for deltalake."""
        return f"{self.root}/{folder}"

    def spark(self, path: str) -> str:
        """A path below the location for Spark, which takes it for a pattern."""
        if self.local:
            return _PATTERN.sub(r"\\\1", f"{self.root}/{path}")
        scheme, address = self.root.split("://", 1)
        return _PATTERN.sub(r"\\\1", f"{_FOR_SPARK.get(scheme, scheme)}://{address}/{path}")

    def file_system(self) -> FileSystem:
        """The file system in which paths below the location are read and written; see `path`."""
        if self.local:
            return LocalFileSystem()
        return PyFileSystem(DeltaStorageHandler(self.root, self.options or None))

    def path(self, path: str = "") -> str:
        """A path below the location as `file_system` takes it."""
        if self.local:
            return f"{self.root}/{path}" if path else self.root
        return path

    def listed(self, folder: str = "", *, recursive: bool = False) -> dict[str, pafs.FileInfo]:
        """
        List what lies directly in a folder, by its name; nothing if it is not there.

        With *recursive* all files below it, by their paths in it.
        """
        start = self.path(folder)
        try:
            # Of one folder without leave for it: PyArrow finds it missing, and asks a second time whether it
            # really is.  One that somebody makes between the two is an error.  Those below it may go.
            chosen = pafs.FileSelector(start, recursive=recursive, allow_not_found=recursive)
            listed = self.file_system().get_file_info(chosen)
        except FileNotFoundError:
            return {}
        except OSError as error:
            if _NO_CREDENTIALS.search(str(error)) is None:
                raise
            raise NoCredentials(self.root) from error
        return {
            entry.path.removeprefix(f"{start}/"): entry for entry in listed if entry.is_file or not recursive
        }

    def info(self, path: str) -> pafs.FileInfo:
        """The size of a file in bytes, and when its storage wrote it; both null without such a file."""
        return self.file_system().get_file_info(self.path(path))

    def make_folder(self, folder: str) -> None:
        """Make a local folder in which files are to be written; others have none."""
        if not self.local:
            return
        path = f"{self.root}/{folder}"
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            raise NotWritable(path, str(error.strerror)) from error
        if not os.access(path, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise NotWritable(path, "the folder is read-only for this user")

    def has_log(self, folder: str) -> bool:
        """Tell whether a Delta table's log lies in a folder."""
        log = f"{folder}/_delta_log"
        if not self.local:
            return bool(self.listed(log))
        # The folder is there before the first commit is, and stays if its writer dies between the two.
        try:
            with os.scandir(self.path(log)) as entries:
                return any(entry.name.endswith((".json", ".parquet")) for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def fault_of(self, path: str, error: Exception) -> str:
        """
        Say what is wrong with a file that could not be read; raises what its storage says, where that is why.

        PyArrow raises errors of one kind for a broken page and for a storage that does not answer, so the
        bytes are asked for once more: where they all come, it is the file.
        """
        try:
            with self.file_system().open_input_file(self.path(path)) as file:
                while file.read(1 << 20):
                    pass
        except FileNotFoundError:
            return "the file is not there"
        return f"the file cannot be read ({error})"

    def delete(self, path: str) -> None:
        """Delete one file; one that is gone already is none."""
        with suppress(FileNotFoundError):
            self.file_system().delete_file(self.path(path))


def locate(location: str | Path, options: dict[str, str] | None, spark: SparkSession | None) -> Location:
    """
    The location that *location* names.

    Raises `NoFileSystem` for a scheme that somebody lacks, `InvalidArgument` for a path that deltalake
    misreads, for an empty one, for the home of nobody, and for `catalog.schema.table`.  `~` is one's home.

    Nothing is read, made or written there.

    >>> locate("relative/folder", None, None).local
    True
    >>> locate("s3a://bucket/x/", {"region": "eu-west-1"}, None).root
    's3://bucket/x'
    """
    if not isinstance(location, str | Path) or not (text := str(location)).strip():
        raise InvalidArgument("Store", "location", "a folder or a URI", location)
    named = None if isinstance(location, Path) else _SCHEME.match(text)
    if isinstance(location, str) and _TABLE.fullmatch(text):
        needed = "a folder or a URI, and no table of a catalogue: a folder of that name is ./" + text
        raise InvalidArgument("Store", "location", needed, text)
    if named is None:
        home = os.path.expanduser(text)
        if home.startswith("~"):
            needed = (
                f"a folder, or one in the home of a user that there is: a folder of that name is ./{text}"
            )
            raise InvalidArgument("Store", "location", needed, text)
        return _local(Path(os.path.abspath(home)), options)
    scheme = named[1].lower()
    if scheme == "file":
        return _local(Path(unquote(urlsplit(text).path)), options)
    path = text[named.end() :]
    if _WITH_SECRETS.search(path):
        shown = _WITH_SECRETS.sub(lambda match: f"{match[1] or '?'}…", text)
        needed = "a URI without password and query: such things are told by *storage_options*"
        raise InvalidArgument("Store", "location", needed, shown)
    root = f"{_FOR_DELTA.get(scheme, scheme)}:{path}".rstrip("/")
    if not path.startswith("//"):
        raise NoFileSystem(text, scheme, "deltalake", "a URI begins with a scheme and two slashes.")
    _require_delta(text, scheme, Location(root, False, dict(options or {})))
    if spark is not None:
        _require_spark(text, _FOR_SPARK.get(scheme, scheme), spark)
    return Location(root, False, dict(options or {}))


def _local(folder: Path, options: dict[str, str] | None) -> Location:
    path = folder.as_posix().rstrip("/")
    if _MISREAD.search(path):
        needed = "a path without backslash, control character, or % before two hexadecimal digits"
        raise InvalidArgument("Store", "location", f"{needed}, as deltalake misreads those", path)
    return Location(path, True, dict(options or {}))


def _require_delta(text: str, scheme: str, location: Location) -> None:
    try:
        DeltaStorageHandler(location.root, location.options or None)
    except Exception as error:
        # deltalake raises errors of several kinds here, and none says which scheme it was.
        reason = str(error).strip().rstrip(".")
        for secret in filter(None, location.options.values()):
            reason = reason.replace(secret, "…")
        raise NoFileSystem(text, scheme, "deltalake (and with it the workers)", f"{reason}.") from None


def _require_spark(text: str, scheme: str, spark: SparkSession) -> None:
    try:
        context = spark.sparkContext
        jvm: Any = context._jvm
        hadoop = context._jsc.hadoopConfiguration()
    except Exception:
        return  # Through Spark Connect nobody can ask: a scheme that it lacks fails with the first job.
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, hadoop)
    except Exception as error:
        reason = str(getattr(error, "java_exception", error)).splitlines()[0].rstrip(".")
        raise NoFileSystem(text, scheme, "Spark", f"{reason}. Its jars must be on the class path.") from error


def folder_name(table: str) -> str:
    """
    The name of the folder of a table: its own where it can be, else with ~ and two digits for odd bytes.

    >>> folder_name("history.Flight"), folder_name("a/b ~"), folder_name("_x"), folder_name("commits")
    ('history.Flight', 'a~2Fb~20~7E', '~5fx', '~63ommits')
    """
    text = quote(table, safe="", errors="surrogatepass").replace("~", "%7E").replace("%", "~")
    # Spark looks past names that begin with a point or an underscore.
    if not text or text[0] in "_." or text.lower() in (COMMITS, SCRATCH):
        text = f"~{text[:1].encode().hex()}{text[1:]}"
    if len(text) > _MOST_BYTES:
        text = f"{text[:_MOST_BYTES]}~{hashlib.sha256(table.encode()).hexdigest()[:12]}"
    return text
