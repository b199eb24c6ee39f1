"""User values as Arrow columns.

Two rules hold in this room. No value decides a type: the type of a column follows from the schema, the dtype or the
kind of value that all of its values share, as otherwise a value that is not released could show in the type of those
that are. And errors quote no value: what other libraries say about values is not passed on, not even as the context of
an exception.
"""
