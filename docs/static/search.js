// Summaries of results are fetched from their pages, which browsers refuse for pages opened from disk.
"use strict";
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
