"""``headgate clients``: the open connections."""

from gateway.cli import options
from gateway.cli.admin_client import AdminClient
from gateway.cli.node_commands import of_node
from gateway.cli.output import print_rows
from gateway.cli.synonyms import command_group

clients_app = command_group("Connections to a running node.")


@clients_app.command("ls")
@of_node
def list_clients(client: AdminClient, *, as_json: options.AsJson = False) -> None:
    """List the connections of all protocols."""
    found = client.get("clients")["clients"]
    # What an adapter tells of a connection is its own; the protocol is always there.
    columns = list(dict.fromkeys(key for row in found for key in row)) or ["protocol"]
    print_rows(found, columns, as_json=as_json, if_empty="no clients are connected")
