"""Where the suite over every engine counts: a place has an engine, and its own way to load Arrow tables."""

from itertools import count as numbers

import duckdb

from dpsieve.engines import DuckDB, Postgres, Spark


class Place:
    """Where data is counted."""

    tables = 4  # how many of random rows it is asked about

    def some(self, cases):
        """Return those of the cases that it is asked about."""
        return cases


class Here(Place):
    """DuckDB, by SQL alone or by compiled loops wherever they can be used."""

    in_schema = True  # whether a column has a type that tells a list from a number
    ignores_case = True  # whether it counts units with such a collation

    def __init__(self, compiled_from):
        self.engine = DuckDB(compiled_from=compiled_from, threads=2)

    def load(self, table):
        return table

    def load_ignoring_case(self, table, name):
        self.connection = duckdb.connect()
        self.connection.register("given", table)
        others = ", ".join(f'"{c}"' for c in table.column_names if c != name)
        self.connection.execute(f'CREATE TABLE t AS SELECT {others}, "{name}" COLLATE NOCASE AS "{name}" FROM given')
        return self.connection, "t"


class Database(Place):
    """PostgreSQL over ADBC; its tables have hostile names."""

    numbers = numbers()

    in_schema = ignores_case = True

    def __init__(self, connection, collation):
        self.connection, self.collation, self.engine = connection, collation, Postgres(connection)

    def load(self, table):
        name = f'{next(self.numbers)} "x".\'; DROP TABLE given; --'
        with self.connection.cursor() as cursor:
            cursor.adbc_ingest(name, table)
        return quoted(name)

    def load_ignoring_case(self, table, name):
        given, made = self.load(table), f"collated{next(self.numbers)}"
        columns = [f'"{c}"{self.collation if c == name else ""} AS "{c}"' for c in table.column_names]
        with self.connection.cursor() as cursor:
            cursor.execute(f"CREATE VIEW {made} AS SELECT {', '.join(columns)} FROM {given}")
        return made


class OnSpark(Place):
    """Classic Spark or Connect, where every query takes a second of a core."""

    tables, in_schema, ignores_case, engine = 1, True, False, Spark()

    def __init__(self, session):
        self.session = session

    def some(self, cases):
        """Return one case for Connect, which sends the same texts to the same cluster."""
        return cases[-1:] if ".connect." in type(self.session).__module__ else cases

    def load(self, table):
        """Return the rows in three partitions, in another order."""
        names = table.column_names  # of which Spark would not tell some apart
        plain = self.session.createDataFrame(table.rename_columns([f"c{i}" for i in range(len(names))]))
        return plain.repartition(3).toDF(*names)

    def load_ignoring_case(self, table, name):
        wanted = [f"CAST({c} AS string collate UTF8_LCASE) {c}" if c == name else c for c in table.column_names]
        return self.load(table).selectExpr(*wanted)


def quoted(name):
    return '"' + name.replace('"', '""') + '"'
