"""Jobs: from a request and a table to a publication."""
