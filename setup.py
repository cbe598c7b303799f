"""
The README as a package page shows it; all else about the package is in pyproject.toml.

A package page stands alone: what the README links to by a path in the repository leads nowhere there.
So the page names these files, and shows no pictures of the repository.
"""

import re
from pathlib import Path

from setuptools import setup

_ELSEWHERE = r"(?!https?://|#)"
PICTURE = re.compile(rf"^!\[[^]]*\]\({_ELSEWHERE}[^)]*\)\n+", re.MULTILINE)
LINK = re.compile(rf"\[[^]]*\]\({_ELSEWHERE}([^)]*)\)")


def package_page(readme: str) -> str:
    """The text without pictures of the repository, and with the path of a file in place of a link to it."""
    return LINK.sub(r"`\1`", PICTURE.sub("", readme))


setup(
    long_description=package_page(Path(__file__).with_name("README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
