"""What every publication passes, whatever mechanism let it out."""

import csv
import io
import json
import pickle
from dataclasses import replace

import pyarrow as pa
import pytest
from publication.fuzzing import RELEASES, releases

import dpsieve as ds
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.mechanism import from_json
from dpsieve.publication.publication import Notes, Publication


@pytest.fixture(params=RELEASES)
def made(request):
    return releases()[request.param]


def test_its_guarantee_is_what_the_last_part_of_the_certificate_says(made):
    last = made.certificate.parts[-1]
    assert last.scope == "one unit"
    assert (last.epsilon, last.delta) == (made.guarantee.epsilon, made.guarantee.delta)
    assert last.worst <= last.delta
    assert all(part.method in ("kernel", "balls", "formula") for part in made.certificate.parts)
    assert "Not covered" in str(made.certificate)


def test_it_shows_itself(made):
    assert str(made.guarantee) in repr(made) and "UNSAFE TO PUBLISH" in repr(made)
    page = made._repr_html_()
    assert page.startswith("<div>") and "UNSAFE" in page and page.count("<tr>") == min(len(made), 10) + 1


def test_what_users_of_frames_try_first_works_or_says_what_to_call(made):
    assert made.head(2).num_rows == min(len(made), 2) and made.head().column_names == made.table.column_names
    assert made.head(0).num_rows == 0
    words = rf"^a {type(made).__name__} has no \[\.\.\.\]\. Use its \.table, \.to_pandas\(\) or \.to_polars\(\)"
    with pytest.raises(InvalidType, match=words):
        made[made.table.column_names[0]]


def test_it_is_a_table_for_other_libraries(made):
    assert pa.table(made).equals(made.table)
    assert list(made.to_pandas().columns) == made.to_polars().columns == made.table.column_names


def test_its_rows_can_be_read_one_by_one_and_from_csv(made):
    rows = list(csv.DictReader(io.StringIO(made.to_csv(), newline=""), strict=True))
    assert len(rows) == len(list(made)) == len(made)
    for row, written in zip(made, rows, strict=True):
        assert written.pop("unsafe_to_publish") == "true" and list(row) == list(written) == made.table.column_names
        assert [v for v in row.values() if isinstance(v, str)] == [
            written[n] for n, v in row.items() if isinstance(v, str)
        ]


def test_it_saves_and_loads(made, tmp_path):
    again = Publication.load(made.save(tmp_path / "x"))
    assert type(again) is type(made) is type(type(made).load(tmp_path / "x"))
    assert again.table.equals(made.table) and again.notes == made.notes and again.unsafe_to_publish
    assert (again.mechanism, again.certificate) == (made.mechanism, made.certificate)


def test_a_mechanism_is_made_again_from_its_json(made):
    data = made.mechanism.to_json()
    assert json.loads(json.dumps(data)) == data
    again = from_json(data)
    assert again == made.mechanism and again.certify() == made.certificate and again.spends() == made.mechanism.spends()
    with pytest.raises(InvalidValue, match="fields"):
        from_json({**data, "tomorrow": 1})


def test_it_is_pickled(made):
    again = pickle.loads(pickle.dumps(made))
    assert again.table.equals(made.table) and again.guarantee == made.guarantee


def test_notes_are_words(made):
    with pytest.raises(ds.errors.InvalidType, match="notes"):
        replace(made, notes={"reason": "none"})
    with pytest.raises(ds.errors.InvalidType, match="reason"):
        Notes(reason=5)


def test_a_folder_of_another_kind_is_refused(made, tmp_path):
    other = releases()["plain" if made.kind == "distribution" else "distribution"]
    with pytest.raises(InvalidValue, match="another kind"):
        type(other).load(made.save(tmp_path / "x"))
