"""The order of blocks: sequences, graphs, cycles, and steps that leave the flow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stepwell.definition.graph import cycles, order_block, sorted_order, upstream
from stepwell.definition.step import Step


def block(*steps: tuple) -> list[Step]:
    """Steps as (id, depends_on, on_error)."""
    return [
        Step.model_validate({"id": name, "type": "x", "depends_on": deps, "on_error": rules})
        for name, deps, rules in ((*step, None, None)[:3] for step in steps)
    ]


def test_a_block_without_depends_on_is_a_sequence():
    order = order_block(block(("a",), ("b",), ("c",)))
    assert order.sequence
    assert order.deps == ((), (0,), (1,))
    assert order.dependents == ((1,), (2,), ())


def test_one_depends_on_makes_a_graph_in_which_absent_means_none():
    order = order_block(block(("a",), ("b", ["a", "a"]), ("c",)))
    assert not order.sequence
    assert order.deps == ((), (0,), ())


def test_an_empty_depends_on_makes_a_graph_too():
    assert order_block(block(("a", []), ("b",))).deps == ((), ())


def test_what_is_kept_for_fallback_leaves_the_order():
    fallback = {"strategy": "fallback", "step": "f"}
    order = order_block(block(("a", None, fallback), ("f",), ("b",)))
    assert order.in_flow == (True, False, True)
    assert order.deps == ((), (), (0,))
    order = order_block(block(("a", [], fallback), ("f", []), ("b", ["a", "f"])))
    assert order.deps == ((), (), (0,))


def test_cycles_are_found_each_once():
    order = order_block(block(("a", ["c"]), ("b", ["a"]), ("c", ["b"]), ("d", ["d"]), ("e", ["a"]), ("f", [])))
    assert [sorted(cycle) for cycle in cycles(order)] == [[0, 1, 2], [3]]


graphs = st.integers(1, 12).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, size - 1), max_size=4), min_size=size, max_size=size)
)


@given(graphs)
def test_an_order_respects_every_dependency_or_there_is_a_cycle(edges):
    order = order_block(block(*((f"s{index}", [f"s{dep}" for dep in deps]) for index, deps in enumerate(edges))))
    done = sorted_order(order.deps, order.dependents)
    place = {index: position for position, index in enumerate(done)}
    assert all(place[dep] < place[index] for index in done for dep in order.deps[index])
    found = cycles(order)
    assert bool(found) == (len(done) < len(edges))
    for cycle in found:
        for index, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert following in order.deps[index]


@given(graphs)
def test_upstream_is_everything_that_is_reached_backwards(edges):
    acyclic = [[dep for dep in deps if dep < index] for index, deps in enumerate(edges)]
    order = order_block(block(*((f"s{index}", [f"s{dep}" for dep in deps]) for index, deps in enumerate(acyclic))))
    masks = upstream(order)
    for index in range(len(edges)):
        reached, waiting = set(), [*order.deps[index]]
        while waiting:
            found = waiting.pop()
            reached.add(found)
            waiting += order.deps[found]
        assert {other for other in range(len(edges)) if masks[index] >> other & 1} == reached


def test_a_chain_of_ten_thousand_steps_needs_no_recursion():
    order = order_block(block(("s0", []), *((f"s{index}", [f"s{index - 1}"]) for index in range(1, 10_000))))
    assert len(sorted_order(order.deps, order.dependents)) == 10_000
    assert cycles(order) == []
    looped = order_block(block(*((f"s{index}", [f"s{(index + 1) % 10_000}"]) for index in range(10_000))))
    assert len(cycles(looped)[0]) == 10_000
