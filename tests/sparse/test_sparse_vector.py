"""Private sparse vectors as users meet them: made, asked, saved, and refused."""

import hashlib
import itertools
import json
import math
import pickle
from dataclasses import replace
from functools import cache, partial
from typing import get_args

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers.statistical import binomial_band

import dpsieve as ds
from dpsieve.errors import BudgetExceeded, CorruptRelease, DpsieveError, InvalidValue
from dpsieve.papers.thesis.alp_decoders import DECODERS, decode_vector
from dpsieve.papers.thesis.vector_variants import ThesisRequest, preview_vector, private_vector
from dpsieve.privacy import Composition
from dpsieve.privacy.mechanism import Composed, Use
from dpsieve.sparse.choice import Variant
from dpsieve.sparse.grid_noise import PrivateSparsity
from dpsieve.sparse.vector import VectorNotes
from dpsieve.testing import insecure_source

ONE_USER = {"unit": "one user"}
COUNTS = {"neighbours": "one_entry", "dimension": 2**40, "epsilon": 1.0}
INDICES = np.arange(2000) * 99_991 + 5
VALUES = np.minimum(60, 1 + 4000 // (np.arange(2000) + 20))


def make(indices, values, **options):
    """Return a vector of any variant: those for comparison come from the thesis."""
    own = options.get("variant") in ThesisRequest.variants
    return (private_vector if own else ds.SparseVector.private)(indices, values, **options)


def private(**options):
    return make(INDICES, VALUES, **{**COUNTS, "sparsity": 2000, **options})


def every_kind():
    """One small vector of each variant, with and without what can be added to it: its name, and its options."""
    for near, delta in itertools.product(("one_entry", "l1"), (0.0, 1e-4)):
        budget = {"neighbours": near, "delta": delta}
        yield f"auto, {near}, {delta}", partial(private, max_value=60, **budget)
        yield f"all bought, {near}, {delta}", partial(private, sparsity=None, **budget)
        yield (
            f"dense, {near}, {delta}",
            partial(make, [1], [5], **{**COUNTS, **budget, "dimension": 9}),
        )
        listed = (near == "l1") == (delta > 0)  # each variant with it and without, at both neighbours and both deltas
        for variant in ("alp", "multiplicative", "max_projection"):
            options = {"max_value": 60, "variant": variant, "threshold": listed, **budget}
            yield f"{variant}, {near}, {delta}, {listed}", partial(private, **options)
        yield f"cormode, {near}, {delta}", partial(private, variant="cormode", **budget)
    for signed in (False, True):
        yield f"histogram, {signed}", partial(private, variant="histogram", max_value=60, signed=signed, epsilon=2.0)
        yield f"retrieval, {signed}", partial(private, variant="retrieval", delta=1e-6, signed=signed, bits=30)
        yield f"korolova, {signed}", partial(private, variant="korolova", delta=1e-6, signed=signed)


KINDS = dict(every_kind())


@cache
def made(name):
    return KINDS[name](source=insecure_source(7))  # a source of its own: what was made before does not matter


@pytest.fixture(params=KINDS)
def vector(request):
    return made(request.param)


def test_entries_are_found_again(vector):
    """More than half of the entries of 60, of which nine in ten should be within the exact bound of errors."""
    if len(vector.notes.reason) and "few indices" in vector.notes.reason:
        assert vector.get(range(9)).shape == (9,)
        return
    largest = VALUES == 60
    errors = np.abs(vector.get(INDICES[largest]) - 60)
    assert np.median(errors) <= vector.errors(60.0).bound(0.9)
    assert np.isfinite(vector.get(np.arange(1000))).all()


def test_the_promise_is_kept_by_the_sum_of_the_parts(vector):
    assert vector.guarantee.epsilon <= 2.0 and vector.certificate.worst <= vector.guarantee.delta
    spent = Composition(vector.mechanism.spends())
    assert spent.delta(vector.guarantee.epsilon) <= max(vector.guarantee.delta * (1 + 1e-6), 1e-12)


def test_bytes_and_folders_say_all(vector, tmp_path):
    data, asked = vector.to_bytes(), [*INDICES[:50].tolist(), 1, 2] if vector.notes.dimension > 9 else [1, 2]
    for again in (ds.SparseVector.from_bytes(data), ds.SparseVector.load(vector.save(tmp_path / "x"))):
        assert (again.get(asked) == vector.get(asked)).all() and again.to_bytes() == data
        assert again.guarantee == vector.guarantee and again.unsafe_to_publish == vector.unsafe_to_publish
    assert len(data) <= 1.2 * vector.bits / 8 + 4096


@pytest.mark.parametrize("variant", ["retrieval", "histogram", "alp", "multiplicative", "max_projection"])
def test_what_is_stored_has_a_public_size(variant):
    """As many words for no entries at all as for many."""
    options = {**COUNTS, "variant": variant, "sparsity": 2000, "max_value": 60, "delta": 1e-6, "bits": 30}
    options |= {} if variant == "retrieval" else {"threshold": False}
    few, many = (make(v, v, **options) for v in (np.empty(0, np.int64), np.arange(9)))
    assert few.cells.num_rows == many.cells.num_rows and few.mechanism == many.mechanism


@pytest.mark.parametrize("variant", [*get_args(Variant)[1:-1], "multiplicative"])
def test_too_many_and_too_large_entries_do_not_raise(variant):
    """That would tell. Answers get worse instead."""
    values = np.full(2000, 2**53 + 1)
    options = {"variant": variant, "sparsity": 100, "max_value": 20, "delta": 1e-6, "signed": variant == "alp"}
    made = make(INDICES, values, **{**COUNTS, **options})
    assert np.abs(made.get(INDICES)).max() <= 40  # the highest level may lie above max_value


def test_nothing_of_the_input_travels_with_the_output():
    """Not in a pickle, not in a buffer behind an empty column, not in a type that only data decides."""
    secrets = [f"secret {i:03}" for i in range(300)]  # none is a part of another, which may be listed, as delta allows
    for variant, delta in (("retrieval", 1e-6), ("histogram", 0.0), ("max_projection", 0.0), ("korolova", 1e-6)):
        options = {**COUNTS, "dimension": "text", "sparsity": 300, "max_value": 9, "delta": delta, "variant": variant}
        made = make(secrets, np.ones(300, int), **options)
        data = pickle.dumps(made) + pickle.dumps(made.table) + made.to_bytes()
        assert sum(secret.encode() in data for secret in secrets) <= len(made)
        if not len(made):
            assert made.table.get_total_buffer_size() <= 16
    for kind, one in (("integers", 5), ("bytes", b"a"), ("text", "a"), (2**40, 5)):
        options = {**COUNTS, "dimension": kind, "sparsity": 3, "max_value": 9, "delta": 1e-6}
        for variant in ("retrieval", "korolova"):
            schemas = [
                make(keys, [1] * len(keys), **options, variant=variant).table.schema
                for keys in ([], [one], pa.nulls(0))
            ]
            assert schemas[0] == schemas[1] == schemas[2]


def test_keys_of_every_kind():
    words = [f"word {i}" for i in range(500)] + ["", "Grüße", "\0", "a" * 5000]
    for kind, keys in (("text", words), ("bytes", [w.encode() for w in words]), ("integers", list(range(-250, 254)))):
        options = {**COUNTS, "dimension": kind, "delta": 1e-9, "epsilon": 8.0, "sparsity": len(keys), "max_value": 90}
        made = make(keys, np.full(len(keys), 77), **options)
        errors = made.errors(77.0)  # a few keys may be far off, each with this chance
        far = errors.masses[np.abs(errors.values) > 2].sum()
        assert far < 1e-3 and (np.abs(made.get(keys) - 77) > 2).sum() <= binomial_band(len(keys), far)[1]
        listed = make(keys, np.full(len(keys), 77), **{**options, "variant": "korolova"})
        again = ds.SparseVector.from_bytes(listed.to_bytes())
        assert again.table.equals(listed.table) and len(listed) == len(keys)
        assert np.abs(again.get(keys[::-1]) - 77).mean() < 1 and again.get(keys[:0]).tolist() == []


def test_any_python_keys():
    """Equal keys are the same key, as in a dict, and others differ, whatever they look like."""
    keys = [
        "a",
        b"a",
        ("a",),
        ("a", 1),
        ("a", "1"),
        (("a",), 1),
        None,
        0.5,
        "0.5",
        7,
        "7",
        (),
        frozenset({1, 2}),
        "",
        b"",
        (None,),
    ]
    options = {**COUNTS, "dimension": "any", "epsilon": 20.0, "delta": 1e-9, "sparsity": 20, "max_value": 90}
    options["source"] = insecure_source(1)
    made = make(keys, np.arange(len(keys)) + 20, **options)
    again = ds.SparseVector.from_bytes(made.to_bytes())
    assert again.get(keys).tolist() == pytest.approx((np.arange(len(keys)) + 20).tolist(), abs=3)
    assert (
        made.get([7, 7.0, np.int64(7), np.float32(0.5), frozenset({2, 1})]) == made.get([7, 7, 7, 0.5, keys[12]])
    ).all()
    assert made.get([True, 1.0])[0] == made.get([1])[0]
    pure = make(keys, np.full(len(keys), 9), **{**options, "delta": 0.0})
    assert np.abs(pure.get(keys) - 9).mean() < 3
    for bad in ([[1]], [math.nan], [object()], "a", 5, [("a", [])]):
        with pytest.raises(DpsieveError, match="indices"):
            made.get(bad)
    for other in ({"variant": "korolova"}, {"variant": "histogram", "threshold": True}):
        with pytest.raises(InvalidValue):
            make(keys, np.full(len(keys), 9), **{**options, **other})
    with pytest.raises(InvalidValue, match="more than once"):
        make([1, True], [5, 6], **options)


@pytest.mark.parametrize("form", [list, tuple, pa.array, pd.Series, pl.Series, iter, lambda v: dict.fromkeys(v).keys()])
def test_columns_of_every_library(form):
    options = {**COUNTS, "epsilon": 8.0, "delta": 1e-9, "sparsity": 5, "max_value": 90, "source": insecure_source(1)}
    made = make(form([3, 5]), form([50, 60]), **options)
    assert made.get(form([5, 3])).tolist() == pytest.approx([60, 50], abs=4)


@pytest.mark.parametrize("kind", ["i1", "u1", "i4", "u8", "f2", "f4", "f8"])
def test_numbers_of_every_kind(kind):
    options = {**COUNTS, "epsilon": 8.0, "delta": 1e-9, "sparsity": 5, "max_value": 90, "source": insecure_source(1)}
    made = make(np.array([3, 5], "u8"), np.array([50, 60], kind), **options)
    assert made.get([5, 3]).tolist() == pytest.approx([60, 50], abs=4)


def test_whole_numbers_beyond_what_floats_hold_change_by_one():
    """2^53 + 1 is no float: next to each other they must not become two apart. All above 2^53 count as 2^53."""
    options = {**COUNTS, "epsilon": 50.0, "sparsity": 5, "variant": "cormode"}
    got = [make([3], [2**40 - 1 + i], **options).get([3])[0] for i in range(3)]
    assert got == [2**40 - 1, 2**40, 2**40]
    make([3, 4], np.array([2**64 - 1, 1], np.uint64), **options)


def test_fractions_of_counts_are_dropped_and_negative_values_count_as_zero():
    options = {**COUNTS, "epsilon": 50.0, "sparsity": 5, "variant": "korolova", "delta": 1e-3}
    made = make([1, 2, 3, 4], [9.99, -50.0, 0.5, 0.0], **options)
    assert made.get([1, 2, 3, 4]).tolist() == [9, 0, 0, 0]
    signed = make([1, 2], [9, -50], signed=True, **options)
    assert signed.get([1, 2]).tolist() == [9, -50]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"indices": [1, 1]}, "indices"), ({"indices": [1]}, "values"), ({"indices": [-1, 2]}, "indices"),
        ({"indices": [1, 2**40]}, "not below"), ({"indices": [1, 2**64]}, "not below"),
        ({"indices": [1.0, 2.0]}, "indices"), ({"indices": [1, None]}, "indices"),
        ({"values": [1, math.nan]}, "values"), ({"values": [1, math.inf]}, "values"),
        ({"values": ["a", "b"]}, "values"), ({"values": [[1, 2]]}, "values"), ({"values": [True, False]}, "values"),
        ({"values": [None, 1]}, "values"),
        ({"indices": {1, 2}}, "order"), ({"values": {3, 4}}, "order"), ({"values": [[1], [2, 3]]}, "values"),
        ({"values": np.ma.array([1, 2], mask=[0, 1])}, "masked"),
        ({"indices": np.ma.array([1, 2], mask=[0, 1])}, "masked"),
        ({"variant": "retrieval", "delta": 0.1, "bits": 9}, "bits"),
        ({"neighbours": "l2"}, "neighbours"), ({"neighbours": None}, "neighbours"), ({"dimension": 0}, "dimension"),
        ({"dimension": "words"}, "dimension"), ({"dimension": 2**64 + 1}, "dimension"), ({"epsilon": 0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"), ({"delta": 1.0}, "delta"), ({"delta": -1}, "delta"),
        ({"variant": "magic"}, "variant"), ({"variant": "korolova"}, "delta"), ({"variant": "retrieval"}, "delta"),
        ({"variant": "retrieval", "neighbours": "l1", "delta": 0.1}, "one_entry"),
        ({"variant": "histogram", "neighbours": "l1"}, "one_entry"), ({"variant": "dense"}, "dimension"),
        ({"signed": 1}, "signed"), ({"alpha": 0}, "alpha"),
        ({"variant": "dense", "alpha": 2.0}, "alpha"), ({"sparsity": 0}, "sparsity"), ({"sparsity": 1.5}, "sparsity"),
        ({"max_value": 0}, "max_value"), ({"max_value": math.inf}, "max_value"), ({"total": -3}, "total"),
        ({"bits": 0}, "bits"), ({"threshold": "yes"}, "threshold"), ({"threshold": False}, "max_value"),
        ({"variant": "cormode", "threshold": True}, "threshold"), ({"unit": " "}, "unit"), ({"note": "x"}, "note"),
        ({"ledger": 5}, "ledger"), ({"source": 5}, "source"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(change, named):
    asked = {"indices": [1, 2], "values": [3, 4], **COUNTS, "sparsity": 5, **change}
    with pytest.raises(DpsieveError, match=named):
        make(asked.pop("indices"), asked.pop("values"), **asked)


@pytest.mark.parametrize("variant", ThesisRequest.variants)
def test_variants_of_the_thesis_are_named_and_elsewhere(variant):
    with pytest.raises(InvalidValue, match=r"papers\.thesis\.private_vector") as caught:
        ds.SparseVector.private([1], [5], **COUNTS, variant=variant)
    assert caught.value.argument == "variant"


def test_false_entries_of_texts_cannot_be_drawn():
    for options in ({"variant": "cormode"}, {"threshold": True, "max_value": 9}, {"variant": "histogram"}):
        with pytest.raises(InvalidValue, match=r"dimension|delta"):
            make(["a"], [1], **{**COUNTS, "dimension": "text", "sparsity": 3, **options})
    made = make(["a"], [1], **{**COUNTS, "dimension": "text", "sparsity": 3, "max_value": 9})
    assert made.get(["a", "b"]).shape == (2,)
    with pytest.raises(DpsieveError, match="indices"):
        made.get([1])


def test_a_ledger_is_charged_first_and_with_the_curve_of_the_noise(tmp_path):
    with ds.Ledger(tmp_path / "x", epsilon=3.0, delta=1e-6, unit="user") as book:
        private(variant="max_projection", max_value=60, ledger=book, note="maxima", **ONE_USER)
        assert "DiscreteLaplace" in str(book.history())
        private(sparsity=None, delta=1e-8, ledger=book, **ONE_USER)
        with pytest.raises(DpsieveError, match="values"):
            make([1], [math.nan], ledger=book, **COUNTS, **ONE_USER, sparsity=5)
        assert len(book.history()) == 2
        with pytest.raises(BudgetExceeded):
            private(epsilon=2.0, max_value=60, ledger=book, **ONE_USER)
        assert len(book.history()) == 2


def test_a_bought_size_is_part_of_the_promise():
    made = private(sparsity=None, delta=1e-6)
    parts = [use.mechanism for use in made.mechanism.uses]
    assert [part.name for part in parts] == ["private_sparsity", "retrieval"]
    assert sum(part.guarantee.epsilon for part in parts) <= 1.0 and parts[1].sparsity > 2000
    assert sum(part.guarantee.delta for part in parts) <= 1e-6 * (1 + 1e-12)


def test_indices_of_all_64_bits():
    """Also where they are listed, or listed falsely, and saved."""
    high = [2**64 - 1, 2**63, 5]
    options = {**COUNTS, "dimension": 2**64, "variant": "korolova", "delta": 1e-6}
    for form in (list, tuple, partial(np.array, dtype=np.uint64), partial(pa.array, type=pa.uint64()), pl.Series):
        made = make(form(high), [900, 800, 700], **options)
        again = ds.SparseVector.from_bytes(made.to_bytes())
        assert np.abs(again.get(form(high)) - [900, 800, 700]).max() < 60
    for seed in range(8):
        private(dimension=2**64, variant="cormode", source=insecure_source(seed)).to_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"delta": 1e-8, "bits": 1}, {"max_value": 2.0**41, "variant": "max_projection"}, {"delta": 1e-30},
        {"variant": "alp", "max_value": 60, "bits": 20_000}, {"variant": "alp", "max_value": 60, "alpha": 1e-6},
        {"unit": "x" * 20_000},
    ],
)  # fmt: skip
def test_what_cannot_be_is_not_charged(change, tmp_path):
    """Also where the size is bought, so that the vector is not known before."""
    with ds.Ledger(tmp_path / "x", epsilon=3.0, delta=1e-6, unit="user") as book:
        with pytest.raises(DpsieveError):
            private(sparsity=None, ledger=book, **{**ONE_USER, **change})
        assert not book.history()


def test_one_huge_value_does_not_blow_up_what_is_bought():
    """It counts up to `max_value`, or up to where entries are listed."""
    for most in (None, 60):
        sizes = [
            make([1, 2], [big, 3.0], **{**COUNTS, "neighbours": "l1"}, max_value=most).bits for big in (50.0, 1e12)
        ]
        assert sizes[1] < 2 * sizes[0] + 2**16


def test_values_above_the_bound_count_as_the_bound_in_every_variant():
    for variant in ("dense", "cormode", "korolova", "retrieval", "histogram", "max_projection"):
        options = {**COUNTS, "epsilon": 40.0, "dimension": 1000, "variant": variant, "max_value": 60, "sparsity": 3}
        made = make([1, 2], [4000, 2**70], **{**options, "delta": 1e-9, "source": insecure_source(1)})
        assert np.abs(made.get([1, 2]) - 60).max() <= 2


def test_small_budgets_have_an_answer():
    for epsilon in (1e-3, 0.01):
        made = private(delta=1e-8, epsilon=epsilon)
        assert np.isfinite(made.get(INDICES)).all()


def test_only_vectors_are_read_as_vectors():
    """A record with a good digest, of another mechanism or dimension, is refused, before anything is computed."""
    dense = make([1], [5], **{**COUNTS, "dimension": 9}, source=insecure_source(1))
    for notes in (VectorNotes("", "", 10), VectorNotes("", "", "text")):
        with pytest.raises(InvalidValue, match=r"dimension|columns"):
            replace(dense, notes=notes).check()
    simple, bought = ds.channels.simple(1.0, 1e-3), PrivateSparsity(0.1, 1e-3)
    embedding = dense.mechanism
    for other in (
        simple, bought, Composed(2.0, 0.0, (Use(embedding), Use(embedding))), Composed(3.0, 0.0, (Use(embedding, 3),)),
        Composed(1.5, 0.0, (Use(embedding), Use(bought))),
    ):  # fmt: skip
        with pytest.raises(InvalidValue, match="mechanism"):
            replace(dense, mechanism=other)
    data = dense.to_bytes()
    start, size = 46, int.from_bytes(data[22:30], "little")  # name, format, and the sizes of record, list and cells
    for head in ("5", "null", '"a"', "[]", "{}", '{"notes": [true, false, 3]}', "NaN"):
        whole = data[:22] + len(head).to_bytes(8, "little") + data[30:start] + head.encode() + data[start + size : -32]
        with pytest.raises(CorruptRelease):
            ds.SparseVector.from_bytes(whole + hashlib.sha256(whole).digest())
    assert json.loads(data[start : start + size])["kind"] == "sparse_vector"


def test_damaged_bytes_are_refused():
    """Cut off anywhere, or with any byte changed, with a digest that fits or not."""
    vector = private(variant="korolova", delta=1e-3, source=insecure_source(1))
    data = vector.to_bytes()
    for cut in (0, 1, 23, 24, 40, len(data) // 2, len(data) - 33, len(data) - 1):
        with pytest.raises(CorruptRelease):
            ds.SparseVector.from_bytes(data[:cut])
    for at in range(0, len(data) - 32, max(1, len(data) // 150)):
        changed = bytearray(data[:-32])
        changed[at] ^= 0x11
        with pytest.raises(CorruptRelease):
            ds.SparseVector.from_bytes(bytes(changed) + data[-32:])
        try:
            again = ds.SparseVector.from_bytes(bytes(changed) + hashlib.sha256(changed).digest())
        except CorruptRelease:
            continue
        again.check()  # another value or index that the mechanism can publish
    with pytest.raises(DpsieveError, match="bytes"):
        ds.SparseVector.from_bytes("text")


STORED = {
    "retrieval": ({"bits": 30}, "abfcd807192edd15"), "alp": ({"alpha": 3.0, "threshold": False}, "9db1379a9d2e9c6d"),
    "histogram": ({"alpha": 2, "threshold": False}, "805c7b3fd26ec6e2"),
    "multiplicative": ({"alpha": 5.0}, "d2c0bef7c5ec7157"),
    "max_projection": ({"threshold": False}, "0c105e9818210823"), "dense": ({"dimension": 2**20}, "5cd8750e1072b550"),
    "cormode": ({}, "c65e58e6e6a6bc0d"), "korolova": ({}, "3a517692a8d35931"),
}  # fmt: skip


@pytest.mark.parametrize("variant", STORED)
def test_the_stored_form_is_the_same_everywhere(variant):
    """A fixed source gives these bytes on every machine and in later versions, and they are read alike."""
    more, expected = STORED[variant]
    options = {**COUNTS, "delta": 1e-6, "max_value": 60, "sparsity": 500, "source": insecure_source(3), **more}
    indices = INDICES[:500] % 2**20
    vector = make(indices, VALUES[:500], variant=variant, **options)
    answers = np.append(vector.get(indices), vector.get(np.arange(500))).astype("<f8")
    whole = vector.words.astype("<u8").tobytes() + vector.table.column(1).to_numpy().astype("<f8").tobytes()
    assert hashlib.sha256(whole + answers.tobytes()).hexdigest()[:16] == expected


def test_the_bytes_of_a_retrieval_table_have_not_changed():
    vector = private(delta=1e-6, max_value=60, source=insecure_source(3))
    digest = hashlib.sha256(np.ascontiguousarray(vector.words).astype("<u8").tobytes()).hexdigest()
    assert digest[:16] == "fbb1b7e038d63ee5"


@pytest.mark.parametrize("neighbours", ["one_entry", "l1"])
@pytest.mark.parametrize(("epsilon", "signed"), [(0.3, False), (1.0, False), (3.0, False), (1.0, True)])
def test_auto_is_near_the_best_variant_for_values_of_any_size(neighbours, epsilon, signed):
    """No bound on values: also for those far below where entries are listed by name."""
    asked = {**COUNTS, "neighbours": neighbours, "epsilon": epsilon, "sparsity": 2000, "signed": signed}
    names = ("auto", "max_projection", "histogram" if neighbours == "one_entry" else "alp")
    tried = [make(INDICES, VALUES, **asked, variant=name) for name in names]
    means = [np.mean([one.expected_error(size / epsilon) for size in (0, 3, 6, 20, 1000)]) for one in tried]
    assert means[0] <= 1.15 * min(means)


def test_it_says_what_it_is():
    made = private(delta=1e-6, max_value=60)
    assert "retrieval" in repr(made) and "one entry" in repr(made) and "UNSAFE" not in repr(made)
    assert "UNSAFE" in repr(private(delta=1e-6, max_value=60, source=insecure_source(3)))


def test_the_decoders_of_the_thesis_read_vectors():
    made = private(variant="histogram", max_value=60)
    for answers in (made.get(INDICES), *(decode_vector(made, INDICES, decoder) for decoder in DECODERS)):
        assert np.abs(answers - VALUES).mean() < 6
    listed = private(variant="histogram", max_value=60, threshold=True)
    shown = listed.table["index"].to_numpy() if len(listed) else []
    assert (decode_vector(listed, shown) == listed.get(shown)).all()
    with pytest.raises(DpsieveError, match="levels"):
        decode_vector(private(delta=1e-6, max_value=60), [1])


@pytest.mark.parametrize(
    "how",
    [{"delta": 1e-6, "sparsity": 300}, {"neighbours": "l1", "variant": "alp", "max_value": 50.0, "sparsity": 300},
     {"variant": "max_projection", "max_value": 40, "sparsity": 300, "signed": True},
     {"variant": "dense", "dimension": 500},
     {"dimension": 2**20, "threshold": True, "sparsity": 300, "variant": "histogram"}],
    ids=str,
)  # fmt: skip
def test_a_preview_is_what_is_made(how):
    """The same errors, guarantee, reason and size as of the vector, which the budget was spent on."""
    how = {"neighbours": "one_entry", "dimension": 2**30, "epsilon": 1.0} | how
    seen = ds.SparseVector.preview(**how)
    made = ds.SparseVector.private([3, 77, 421], [5, 300, 2], **how)
    assert seen.guarantee == made.guarantee and seen.reason == made.notes.reason and seen.reason in str(seen)
    for value in (0.0, 5.0, 300.0):
        assert seen.expected_error(value) == pytest.approx(made.expected_error(value), rel=1e-12)
        assert seen.error_bound(0.99, value) == made.error_bound(0.99, value)
    assert seen.bits_per_entry * seen.entries + 128 * len(made) == made.bits
    assert (seen.listed_from is None) == all(use.mechanism.name != "entry_list" for use in made.mechanism.uses)


def test_previews_of_variants_for_comparison():
    how = {"neighbours": "one_entry", "dimension": 10**6, "epsilon": 1.0, "delta": 1e-6}
    for variant in ("cormode", "korolova", "multiplicative"):
        seen = preview_vector(**how, variant=variant)
        made = private_vector([3], [500], **how, variant=variant)
        assert seen.expected_error(500) == pytest.approx(made.expected_error(500), rel=0.05)
        assert seen.listed_from is not None and seen.guarantee.epsilon == 1.0
    with pytest.raises(DpsieveError, match="variant"):
        ds.SparseVector.preview(**how, variant="cormode")
