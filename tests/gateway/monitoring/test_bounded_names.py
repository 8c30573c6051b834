"""Values by name: the first names have their own, the others share one."""

from gateway.monitoring.bounded_names import BoundedNames


def names_of(names_max: int, *patterns: str) -> BoundedNames[str, list[str]]:
    return BoundedNames(list, names_max=names_max, patterns=patterns)


def test_names_beyond_the_bound_share_one_value() -> None:
    names = names_of(2)

    for name in ("a", "b", "c", "d", "a"):
        names.get(name, name).append(name)

    assert names.named == {"a": ["a", "a"], "b": ["b"]}
    assert names.others == ["c", "d"]


def test_a_place_goes_to_the_next_new_name_and_not_to_one_that_shares() -> None:
    names = names_of(1)
    names.get("a", "a")
    shared = names.get("b", "b")

    names.forget("a")
    names.get("c", "c").append("c")

    assert names.named == {"c": ["c"]}
    assert names.get("b", "b") is shared


def test_only_names_that_match_a_pattern_have_a_value_of_their_own() -> None:
    names = names_of(10, "orders", "pay-*")

    for name in ("orders", "orders2", "pay-in", "repay-in"):
        names.get(name, name).append(name)

    assert sorted(names.named) == ["orders", "pay-in"]
    assert names.others == ["orders2", "repay-in"]
