"""A node on its own."""

from gateway.placement import Node, Placement, SingleNode


def test_a_single_node_owns_every_slot_at_its_incarnation() -> None:
    placement: Placement = SingleNode(7, node_id=3, cluster_id="abc", host="here")

    assert all(placement.owns(slot) for slot in range(1024))
    assert {placement.leader_epoch(slot) for slot in range(1024)} == {7}
    assert placement.nodes() == (Node(3, "here"),)
    assert (placement.node_id, placement.cluster_id) == (3, "abc")
