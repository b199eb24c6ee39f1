"""Settings of Sphinx for the site; `docs/tools/build.py` runs it."""

project = "dpsieve"
author = "the dpsieve authors"
project_copyright = "the dpsieve authors. Licence: Apache-2.0"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["tools", "static"]

smartquotes = False  # options, names and messages are copied from pages

myst_enable_extensions = ["attrs_block", "deflist"]
myst_heading_anchors = 4  # links to sections are checked

html_theme = "furo"
html_title = "dpsieve"
html_favicon = "../static/mark.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sourcelink = False
pygments_dark_style = "github-dark"
html_theme_options = {"footer_icons": []}
templates_path: list[str] = []

add_module_names = False
python_maximum_signature_line_length = 90
# Types in signatures are shown as they are written in the source; those that are public have pages of their own.
nitpick_ignore_regex = [("py:.*", ".*")]
