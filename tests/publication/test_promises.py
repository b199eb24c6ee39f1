"""A release never promises more than its mechanism keeps, and has no other numbers than its tokens tell."""

import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from publication.fuzzing import KEYS, Saved, several_keys

import dpsieve as ds
from dpsieve.channels import release_sample
from dpsieve.codec import encode
from dpsieve.errors import CorruptRelease, DpsieveError, InvalidType, InvalidValue, NotCertified
from dpsieve.noise.known_keys import known_keys
from dpsieve.privacy.mechanism import Composed, Use, remaining
from dpsieve.testing import insecure_source


def made():
    return ds.channels.simple(1.0, 1e-3).release(KEYS, [500] * 4, source=insecure_source(1))


def test_a_guarantee_is_never_typed_in():
    release = made()
    assert release.guarantee == release.certificate.guarantee == release.mechanism.guarantee
    with pytest.raises(TypeError):
        replace(release, guarantee=ds.Guarantee(0.01, 1e-15))


@pytest.mark.parametrize("epsilon, delta, times", [(0.999, 1e-3, 1), (1.0, 0.999e-3, 1), (1.0, 1e-3, 2)])
def test_a_composition_that_breaks_its_promise_is_refused_at_once(epsilon, delta, times):
    release = made()
    with pytest.raises(NotCertified, match="composed"):
        replace(release, mechanism=Composed(epsilon, delta, (Use(release.mechanism, times),)))


def table_of_baskets():
    rows = [(u, f"k{k}") for u in range(400) for k in range(3)]
    return pa.table({"user": [u for u, _ in rows], "item": [k for _, k in rows]})


@pytest.mark.parametrize(
    "options, uses",
    [
        ({"method": "simple"}, [("simple", 3)]),
        ({"method": "simple", "max_rows_per_key": 2}, [("rows_of_units", 3)]),
        ({"method": "gaussian"}, None),
        ({"known_keys": ["k0", "k1"]}, None),
        ({"method": "simple", "sample_size": 3}, [("private_total", 1), ("simple", 3)]),
    ],
)
def test_a_release_of_a_table_tells_how_its_budget_is_used(tmp_path, options, uses):
    release = ds.release(
        table_of_baskets(),
        key="item",
        privacy_unit="user",
        max_keys_per_unit=3,
        report_coverage=False,
        epsilon=1.3,
        delta=1e-3,
        **options,
    )
    assert (release.guarantee.epsilon, release.guarantee.delta, release.guarantee.unit) == (1.3, 1e-3, "one user")
    assert release.certificate.parts[-1].scope == "one unit"
    again = ds.Release.load(release.save(tmp_path / "x"))
    assert (again.mechanism, again.guarantee, again.certificate) == (
        release.mechanism, release.guarantee, release.certificate
    )  # fmt: skip
    if uses is None:
        assert not isinstance(release.mechanism, Composed)
    else:
        assert [(use.mechanism.name, use.times) for use in release.mechanism.uses] == uses
        assert "one key" in {part.scope for part in release.certificate.parts}
        more = [*release.mechanism.uses[:-1], Use(release.mechanism.last, 4)]
        with pytest.raises(NotCertified):
            replace(release.mechanism, uses=tuple(more)).certify()


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.0, 1.1, 3.0, 4.9])
def test_a_sample_of_a_chosen_size_pays_for_the_size(epsilon):
    release = release_sample(KEYS, [500] * 4, 3, epsilon=epsilon, delta=1e-3, method="priority")
    total, rest = release.mechanism.uses
    assert total.mechanism.guarantee.epsilon == 0.05 * epsilon and rest.times == 1
    assert release.guarantee.epsilon == epsilon
    with pytest.raises(NotCertified):
        replace(release.mechanism, epsilon=0.97 * epsilon).certify()


def test_two_parts_are_never_more_than_the_whole():
    from fractions import Fraction

    for epsilon in np.random.default_rng(1).uniform(0.01, 10, 300).tolist():
        rest = remaining(epsilon, 0.05 * epsilon)
        assert Fraction(rest) + Fraction(0.05 * epsilon) <= Fraction(epsilon) and rest > 0.94 * epsilon


def test_a_composition_is_checked_when_it_is_made():
    plain = ds.channels.simple(1.0, 1e-3)
    with pytest.raises(NotCertified, match="composed"):
        Composed(0.001, 0.0, (Use(plain),))
    with pytest.raises(InvalidType):
        Use(Composed(1.0, 1e-3, (Use(plain),)))
    wrong = ((5, InvalidType), ((), InvalidValue), ((Use(plain),) * 17, InvalidValue))
    for uses, error in wrong:
        with pytest.raises(error):
            Composed(20.0, 0.5, uses)


def test_keys_only_of_a_public_list_is_refused(tmp_path):
    saved = Saved(ds.channels.simple(1.0, 1e-3).release(KEYS, [500] * 4, keys_only=True), tmp_path / "x")
    other = known_keys(0.001)
    changed(saved, mechanism=other.to_json(), certificate=other.certify().to_json())


def test_tables_of_several_mechanisms_are_not_all_made(tmp_path):
    saved = Saved(known_keys(1.0).release(["tea"], [10]), tmp_path / "x")
    slow = [encode(Use(ds.channels.simple(1 + i, 1e-6, ds.ppswor(1e-5)))) for i in range(3)]
    uses = [*slow, {"kind": "use", "times": 1, "mechanism": saved.record["mechanism"]}]
    certificate = saved.record["certificate"]
    guarantee = {**certificate["guarantee"], "epsilon": 500.0, "delta": 0.5}
    start = time.perf_counter()
    changed(
        saved,
        mechanism={"kind": "composed", "epsilon": 500.0, "delta": 0.5, "uses": uses},
        certificate={**certificate, "guarantee": guarantee},
    )
    assert time.perf_counter() - start < 10


def test_mechanisms_for_different_units_do_not_compose():
    one, other = ds.channels.simple(1.0, 1e-3), ds.channels.simple(1.0, 1e-3, unit="one planet")
    with pytest.raises(InvalidValue, match="different"):
        Composed(2.0, 2e-3, (Use(one), Use(other)))


def changed(saved, **record):
    saved.write({**saved.record, **record})
    with pytest.raises(CorruptRelease):
        saved.load(saved.folder)


def test_a_false_record_is_refused_although_its_seal_fits(tmp_path):
    saved = Saved(made(), tmp_path / "x")
    saved.write()
    assert len(saved.load(saved.folder)) == 4
    certificate, mechanism = saved.record["certificate"], saved.record["mechanism"]
    guarantee = certificate["guarantee"]
    changed(saved, certificate={**certificate, "guarantee": {**guarantee, "epsilon": 0.01, "delta": 1e-15}})
    changed(saved, certificate={**certificate, "guarantee": {**guarantee, "unit": "one planet"}})
    changed(saved, certificate={**certificate, "parts": []})
    changed(saved, mechanism={**mechanism, "epsilon": 1})
    changed(saved, mechanism={**mechanism, "unit": "one planet"})
    changed(saved, extra=1)
    for keys in (3, 5, True, 4.0, "4", None, 10**400, -4):
        changed(saved, keys=keys)


def test_a_false_number_of_keys_is_refused(tmp_path):
    saved = Saved(several_keys(method="simple"), tmp_path / "x")
    mechanism, uses = saved.record["mechanism"], saved.record["mechanism"]["uses"]
    assert uses[0]["times"] == 3
    changed(saved, mechanism={**mechanism, "uses": [{**uses[0], "times": 4}]})
    changed(saved, mechanism={**mechanism, "uses": [{**uses[0], "times": True}]})
    changed(saved, mechanism={**mechanism, "uses": [*uses, *uses]})
    changed(saved, mechanism={**mechanism, "uses": []})
    changed(saved, mechanism={**mechanism, "uses": [{"kind": "use", "times": 1, "mechanism": mechanism}]})
    changed(saved, mechanism={**mechanism, "delta": 1e-4})


def test_a_distribution_promises_what_its_plan_keeps(tmp_path):
    answers = ds.federated.Quantiles(0.0, 1.0, epsilon=2.0, delta=1e-3, branching=2, depth=2, protocol="cohorts")
    saved = Saved(answers.run(np.linspace(0, 1, 4000)), tmp_path / "x")
    saved.write()
    assert saved.load(saved.folder).guarantee.epsilon == 2.0
    certificate = saved.record["certificate"]
    changed(saved, certificate={**certificate, "guarantee": {**certificate["guarantee"], "epsilon": 0.01}})
    changed(saved, notes={**saved.record["notes"], "confidence": 2})


def edited(table, name, row, value):
    values = table.column(name).to_pylist()
    values[row] = value
    return table.set_column(table.column_names.index(name), name, pa.array(values, table.column(name).type))


FALSE_TABLES = {
    "a count below zero": lambda t: edited(t, "count", 1, -5),
    "another count": lambda t: edited(t, "count", 1, t["count"][1].as_py() + 1),
    "low above high": lambda t: edited(t, "low", 0, t["high"][0].as_py() + 1),
    "another weight": lambda t: edited(t, "weight", 2, t["weight"][2].as_py() + 1),
    "another token": lambda t: edited(t, "token", 2, t["token"][2].as_py() * 2),
    "a token without end": lambda t: edited(t, "token", 2, 2**63 - 1),
    "tokens as floats": lambda t: t.set_column(t.column_names.index("token"), "token", t["token"].cast(pa.float64())),
    "a null key": lambda t: edited(t, "key", 1, None),
    "a key twice": lambda t: edited(t, "key", 1, t["key"][0].as_py()),
    "keys out of order": lambda t: t.take([1, 0, 2, 3]),
    "a column more": lambda t: t.append_column("more", t["count"]),
    "a column less": lambda t: t.drop_columns(["high"]),
    "tokens alone missing": lambda t: t.drop_columns(["token"]),
    "columns in another order": lambda t: t.select(["count", "key", "low", "high", "weight", "token"]),
    "another type": lambda t: t.set_column(1, "count", t["count"].cast(pa.int32())),
}


@pytest.mark.parametrize("change", FALSE_TABLES.values(), ids=FALSE_TABLES)
def test_a_false_table_is_refused_although_its_digest_fits(tmp_path, change):
    saved = Saved(made(), tmp_path / "x")
    saved.write(tables={"release": change(saved.tables["release"])})
    with pytest.raises(CorruptRelease):
        saved.load(saved.folder)


@pytest.mark.parametrize("change", [FALSE_TABLES["another count"], FALSE_TABLES["keys out of order"]])
def test_a_false_table_is_not_saved(tmp_path, change):
    release = made()
    table = change(release.table.append_column("token", pa.array(release.tokens))).drop_columns(["token"])
    with pytest.raises(DpsieveError, match="table"):
        replace(release, table=table).save(tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "release, token",
    [
        (lambda: ds.channels.optimal(1.0, 1e-3).release(["a"], [500]), 0),
        (lambda: ds.channels.simple(1.0, 1e-3).release(["a"], [500]), 3 * 10**12),
        (lambda: ds.channels.simple(1.0, 0.1, ds.sampling.custom([0.0] * 300 + [1.0])).release(["a"], [500]), 2),
        (lambda: ds.channels.sample_threshold(0.3, 12).release(["a"], [500]), 11),
        (lambda: known_keys(1.0).release(["a"], [500]), 500.0),
    ],
    ids=["nothing", "too large", "below the sample", "below the threshold", "not an integer"],
)
def test_a_token_that_cannot_be_drawn_is_refused(release, token):
    honest = release()
    honest.check()
    with pytest.raises(DpsieveError, match="tokens"):
        replace(honest, tokens=np.array([token])).check()


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_gaussian_channels_load_as_they_were_saved(tmp_path, rows):
    for number, epsilon in enumerate((0.3, 1.0)):
        release = ds.channels.gaussian(epsilon, 1e-5, 3, rows).release(["a"], [5000])
        again = ds.Release.load(release.save(tmp_path / str(number)))
        assert again.mechanism.to_json() == release.mechanism.to_json()


def test_a_share_that_nobody_paid_for_is_refused(tmp_path):
    """Notes may tell what bounding kept only where the mechanism has a part that told it."""
    saved = Saved(several_keys(), tmp_path / "x")
    kept = {"share": 0.99, "low": 0.9, "high": 1.0, "most": 1000, "key": "a key"}
    changed(saved, notes={**saved.record["notes"], "kept": kept})


FORGED = [
    "at most 1 key, once each",
    "at most 3 keys, 2 rows each",
    "at most 4 keys, once each",
    "at most 30 keys, once each",
    "at most 3 keys, once each, whatever they hold",
    "at most 3 keys",
    "one value",
    "one string",
    "nothing at all",
    "at most 0 keys, once each",
    "at most 99999999999999999999 keys, once each",
]


@pytest.mark.parametrize(
    "options",
    [
        {"method": "simple"},
        {"method": "gaussian"},
        {},
        {"known_keys": ["k0", "k1"]},
        {"goal": "counts"},
    ],
    ids=str,
)
def test_notes_state_the_contribution_of_the_mechanism(tmp_path, options):
    """What a unit adds is a number of the mechanism: other words are refused, when saved and in a forged folder."""
    asked = {"key": "item", "privacy_unit": "user", "max_keys_per_unit": 3, "epsilon": 1.3, "delta": 1e-3}
    release = ds.release(table_of_baskets(), **asked, **options)
    saved = Saved(release, tmp_path / "published")
    assert ds.Release.load(saved.folder).notes == release.notes and "at most 3 " in release.notes.contribution
    for words in FORGED:
        with pytest.raises(InvalidValue):
            replace(release, notes=replace(release.notes, contribution=words)).save(tmp_path / "other")
        saved.write({**saved.record, "notes": {**saved.record["notes"], "contribution": words}})
        with pytest.raises(CorruptRelease):
            ds.Release.load(saved.folder)
    replace(release, notes=replace(release.notes, contribution="")).save(tmp_path / "silent")


def test_rows_and_chosen_bounds_are_part_of_the_contribution(tmp_path):
    asked = {"key": "item", "privacy_unit": "user", "epsilon": 1.3, "delta": 1e-3}
    rows = ds.release(table_of_baskets(), max_keys_per_unit=2, max_rows_per_key=5, **asked)
    assert "2 keys, 5 rows each" in rows.notes.contribution and rows.save(tmp_path / "rows")
    for wrong in (rows.notes.contribution.replace("5", "4"), "at most 2 keys, once each"):
        with pytest.raises(InvalidValue, match="contribution"):
            replace(rows, notes=replace(rows.notes, contribution=wrong)).check()
    chosen, words = ds.release(table_of_baskets(), **asked), "a bound chosen with differential privacy"
    assert f", {words}" in chosen.notes.contribution and chosen.save(tmp_path / "chosen")
    earlier = chosen.notes.contribution.replace(words, "chosen privately")  # as earlier versions wrote it
    assert replace(chosen, notes=replace(chosen.notes, contribution=earlier)).save(tmp_path / "earlier")
    keys = ds.discover(table_of_baskets(), **asked)
    assert keys.notes.contribution == str(keys.mechanism.contribution) and keys.save(tmp_path / "keys")
