"""``headgate clients``: who is connected."""

import typer

from gateway.cli import options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import of_node
from gateway.cli.output import print_rows

clients_app = typer.Typer(no_args_is_help=True, help="Connections to a running node.")


@clients_app.command("ls")
@of_node
def list_clients(client: AdminClient, *, as_json: options.AsJson = False) -> None:
    """List the connections of all protocols."""
    found = client.get("clients")["clients"]
    # What an adapter tells of a connection is its own; the protocol is always there.
    columns = list(dict.fromkeys(key for row in found for key in row)) or ["protocol"]
    print_rows(found, columns, as_json=as_json)
