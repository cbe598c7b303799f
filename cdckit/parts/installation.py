"""What is installed: the version of cdckit, and the packages that its extras bring."""

from __future__ import annotations

from importlib import import_module, metadata

from cdckit.errors import MissingExtra


def own_version() -> str:
    """
    The number of the installed cdckit, which pyproject.toml has and its metadata repeat.

    `0+not.installed` where there is no metadata: in a checkout that is only on the path, or in a zip
    that Spark sent to a worker.  It is before every other number for whatever compares versions.
    """
    try:
        return metadata.version("cdckit")
    except metadata.PackageNotFoundError:
        return "0+not.installed"


def require_package(package: str, *, extra: str, part: str) -> None:
    """
    Raise unless *package*, which the extra *extra* brings, can be imported.

    Args:
        package: The name under which it is imported.
        extra: As pyproject.toml has it.
        part: What of cdckit needs it, as the user wrote it.

    Raises:
        MissingExtra: It is not installed.  One that is there and broken raises what it raises itself.

    >>> require_package("a_package_that_nobody_has", extra="notebooks", part="cdckit.notebook.pictures")
    Traceback (most recent call last):
    ...
    cdckit.errors.MissingExtra: cdckit.notebook.pictures needs a_package_that_nobody_has, which the extra ...
    """
    try:
        import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingExtra(part, package, extra) from error
