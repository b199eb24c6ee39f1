"""The one SQL text that bounds and aggregates, its columns, and the same text in other dialects."""
