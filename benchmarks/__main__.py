"""``python -m benchmarks [GROUP | NAME ...] [--quick] [--runs N]``: measure.

Prints tables and keeps them as JSON. ``--gib`` and ``--minutes`` are the sizes of r2 to r6 and r8,
``--scale`` is the part of the sizes of a6, l2, m5 to m10, p1, p2 and s3 to s5. The groups
``amqp``, ``kafka``, ``mqtt``, ``sqs``, ``storage`` (in S3) and ``pipeline`` (on Spark) stand for
the figures of one part; without a name everything but the soak is measured.

``python -m benchmarks compare --before CHECKOUT`` measures two builds of Headgate in turn.

``python -m benchmarks shards`` measures k1, k6, m9, s1 and r1 with 1 and with 64 shards in turn.

``python -m benchmarks render`` makes docs/benchmarks.md from what is kept.
"""

import argparse
import os
from importlib import import_module
from pathlib import Path
from typing import Final

from benchmarks.render import render
from benchmarks.sides import Options

SCRIPTS: Final = {
    "a1": "a1_confirms",
    "a2": "a2_transient",
    "a3": "a3_fan_out",
    "a4": "a4_one_in_flight",
    "a5": "a5_rpc",
    "a6": "a6_backlog",
    "compare": "compare_builds",
    "k1": "k1_produce",
    "k2": "k2_produce_synced",
    "k3": "k3_consume",
    "k4": "k4_latency",
    "k5": "k5_idle",
    "k6": "k6_many_partitions",
    "k7": "k7_fetch_sessions",
    "l1": "l1_loop_turns",
    "l2": "l2_hostile",
    "m1": "m1_qos0",
    "m2": "m2_qos1",
    "m3": "m3_fanout",
    "m4": "m4_connections",
    "m5": "m5_idle",
    "m6": "m6_retained",
    "m7": "m7_backlog",
    "m8": "m8_reconnect",
    "m9": "m9_held",
    "m10": "m10_qos0_burst",
    "o1": "o1_cost",
    "o2": "o2_produce_s3",
    "p1": "p1_scan",
    "p2": "p2_archive",
    "r1": "r1_recovery",
    "r2": "r2_cold_reader",
    "r3": "r3_sustained",
    "r4": "r4_cold_partitions",
    "r5": "r5_compaction",
    "r6": "r6_write_amplification",
    "r7": "r7_key_index",
    "r8": "r8_quiet_memory",
    "s1": "s1_send",
    "s2": "s2_batches",
    "s3": "s3_backlog",
    "s4": "s4_timers",
    "s5": "s5_polls",
    "t1": "t1_transactions",
    "shards": "shard_counts",
    "t2": "t2_group_members",
    "t3": "t3_share",
    "profile": "profile_produce",
}
SOAK: Final = {"compare", "shards", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"}
GROUPS: Final = {
    "amqp": [name for name in SCRIPTS if name.startswith("a")],
    "kafka": [*(name for name in SCRIPTS if name.startswith("k")), "t1", "profile"],
    "mqtt": [name for name in SCRIPTS if name.startswith("m")],
    "storage": [name for name in SCRIPTS if name.startswith("o")],
    "pipeline": [name for name in SCRIPTS if name.startswith("p") and name != "profile"],
    "sqs": [name for name in SCRIPTS if name.startswith("s") and name != "shards"],
}


def main() -> None:
    """Run what was asked for, by default all but the soak."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=", ".join([*GROUPS, *SCRIPTS, "render"])
    )
    parser.add_argument(
        "--quick", action="store_true", help="half of the work (r: an eighth), 3 runs"
    )
    parser.add_argument("--runs", type=int, help="counted runs of each side (5)")
    parser.add_argument("--gib", type=float, help="size of what r2, r4, r5, r6 write")
    parser.add_argument("--minutes", type=float, help="minutes that r3 writes (10)")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="part of the sizes of a6, l2, m5.., p1.. and s3..",
    )
    parser.add_argument("--before", type=Path, help="the other checkout, for compare")
    chosen = parser.parse_args()
    wanted = chosen.names or [name for name in SCRIPTS if name not in SOAK]
    names = [one for name in wanted for one in GROUPS.get(name, [name])]
    unknown = set(names) - {*SCRIPTS, "render"}
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}")
    options = Options(
        runs=chosen.runs or (3 if chosen.quick else 5),
        quick=chosen.quick,
        gib=chosen.gib,
        minutes=chosen.minutes,
        scale=chosen.scale,
        before=chosen.before,
    )
    # Servers start as installed ones do, whose modules are compiled.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for name in names:
        if name != "render":
            import_module(f"benchmarks.{SCRIPTS[name]}").run(options).publish()
    render()


if __name__ == "__main__":
    main()
