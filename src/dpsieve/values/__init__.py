"""User values as Arrow columns.

Two rules hold in this package. No value decides a type: the type of a column follows from the schema, the dtype or the
kind of value that all of its values share. Otherwise a value that is not released could show in the type of those that
are. And errors quote no value: messages of other libraries about values are not passed on, not even as the context of
an exception.
"""
