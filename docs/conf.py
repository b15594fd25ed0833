"""How Sphinx builds the documentation."""

from importlib.metadata import version as installed_version

project = "Oncekey"
author = "The Oncekey authors"
release = version = installed_version("oncekey")

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "Oncekey"
html_show_copyright = False

# Nothing is fetched while building, so names of other packages stay unlinked.
nitpick_ignore_regex = [("py:.*", r"(?!oncekey\b).*")]
