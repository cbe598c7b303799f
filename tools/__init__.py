"""Small programs of the repository; none of them is part of the package."""
