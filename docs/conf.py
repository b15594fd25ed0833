"""How Sphinx builds the documentation."""

from importlib.metadata import version as installed_version

project = "Oncekey"
author = "The Oncekey authors"
release = version = installed_version("oncekey")

extensions = ["myst_parser"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "Oncekey"
html_show_copyright = False
