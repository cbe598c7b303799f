"""The files that come with cdckit."""

from __future__ import annotations

from glob import glob
from pathlib import Path

from cdckit.errors import InvalidArgument
from cdckit.parts.argument_forms import takes
from cdckit.parts.near_names import nearest_name

_PACKAGE = Path(__file__).parents[1]
# In a checkout they lie beside the package; a wheel carries them within it (see pyproject.toml).
_SAMPLES = (_PACKAGE / "data" / "samples", _PACKAGE.parent / "data" / "samples")
_EXPECTATIONS = (_PACKAGE / "data" / "expectations", _PACKAGE.parent / "expectations")


@takes()
def samples(name: str = "") -> str:
    """
    The path of sample files that come with cdckit, wherever it is installed.

    Args:
        name: A file, folder or pattern under the folder of the samples; without it that folder.  What
            the files are, and what of them is real, is said in `README.md` there.

    Returns:
        A path that Spark and Python can read.

    Raises:
        InvalidArgument: There is no such file (the names in braces are not looked up).

    >>> samples("replicate/*.parquet").endswith("data/samples/replicate/*.parquet")
    True
    """
    return _path_below(_SAMPLES, name)


@takes()
def expectations(name: str = "") -> str:
    """
    The path of the Great Expectations suites that come with cdckit, or of one of them.

    Args:
        name: A file, such as `history.json` (what every history promises) or `messages.json` (the
            messages of a hub and their statuses); without it their folder.

    Returns:
        A path.  `cdckit.check` takes a suite by its name.  Great Expectations,
        which reads the same files, comes with the extra `quality` (`pip install 'cdckit[quality]'`).

    Raises:
        InvalidArgument: There is no such file.

    >>> expectations("history.json").endswith("expectations/history.json")
    True
    """
    return _path_below(_EXPECTATIONS, name)


def _path_below(folders: tuple[Path, ...], name: str) -> str:
    folder = next((folder for folder in folders if folder.is_dir()), folders[0])
    # Python knows no names in braces, which Spark does.
    outside = Path(name).is_absolute() or ".." in Path(name).parts
    if name and (outside or not glob(name.split("{")[0] + "*" * ("{" in name), root_dir=folder)):
        paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
        close = nearest_name(name, paths)
        top = [path for path in paths if "/" not in path]
        remedy = f"There are {', '.join(top)}." if close is None else f"Is it {close!r}?"
        raise InvalidArgument(None, "name", f"a file below {folder.name}", name, remedy=remedy)
    return f"{folder.as_posix()}/{name}" if name else folder.as_posix()
