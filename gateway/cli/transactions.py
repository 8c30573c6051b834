"""``headgate transactions``: transactional ids of Kafka producers, and their transactions."""

from typing import Annotated

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import confirm, in_namespace
from gateway.cli.output import print_json, print_rows, say
from gateway.cli.synonyms import command_group

transactions_app = command_group("Transactions of Kafka producers on a running node.")

Id = Annotated[str, typer.Argument(metavar="ID", help="The producer's transactional id.")]


@transactions_app.command("list")
@in_namespace
def list_transactions(client: AdminClient, *, as_json: options.AsJson = False) -> None:
    """List transactional ids; one with a time under `open_ms` has an open transaction."""
    columns = ["transactional_id", "state", "producer_id", "epoch", "open_ms", "timeout_ms"]
    found = client.get("transactions")["transactions"]
    if_empty = "no transactional ids; one comes to be when its producer starts"
    print_rows(found, columns, as_json=as_json, if_empty=if_empty)


@transactions_app.command()
@in_namespace
def describe(
    client: AdminClient, transactional_id: Id, *, as_json: options.AsJson = False
) -> None:
    """Show the state of an id, and the partitions of its open transaction."""
    found = client.get("transactions", transactional_id)
    if as_json:
        print_json(found)
        return
    say(f"{found['transactional_id']}  {found['state']}  producer {found['producer_id']}")
    columns = ["topic", "partition", "first_offset"]
    print_rows(found["partitions"], columns, as_json=False, if_empty="no open transaction")


@transactions_app.command()
@in_namespace
def abort(client: AdminClient, transactional_id: Id, *, yes: options.Yes = False) -> None:
    """Abort the open transaction of an id, and fence its producer."""

    def question() -> str:
        found = client.get("transactions", transactional_id)
        return f"Abort the transaction in {found['partition_count']} partitions?"

    confirm(question, yes=yes)
    client.send("POST", "transactions", transactional_id, "abort")
    say("aborted; readers go on behind it")
