"""Documents in SQL: functions of a connection in a transaction.

They run in the worker thread of ``gateway.metadata.sql``, which begins and commits.
"""

from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select

from gateway.metadata.schema import DOCUMENTS
from gateway.metadata.store import DocumentRow


def load_documents(
    connection: Connection, names: Collection[str] | None = None
) -> list[DocumentRow]:
    """Return all documents, or those of these names, by kind, namespace and name."""
    ordered = select(DOCUMENTS).order_by(
        DOCUMENTS.c.kind, DOCUMENTS.c.namespace, DOCUMENTS.c.name
    )
    if names is not None:
        ordered = ordered.where(DOCUMENTS.c.name.in_(names))
    return [
        DocumentRow(row.kind, row.namespace, row.name, row.value)
        for row in connection.execute(ordered)
    ]


def put_document(connection: Connection, document: DocumentRow) -> None:
    """Insert or replace a document."""
    delete_document(connection, document.kind, document.namespace, document.name)
    connection.execute(insert(DOCUMENTS).values(document._asdict()))


def delete_document(connection: Connection, kind: str, namespace: str, name: str) -> bool:
    """Remove a document and say whether there was one."""
    gone = delete(DOCUMENTS).where(_is(kind, namespace, name))
    return connection.execute(gone).rowcount > 0


def _is(kind: str, namespace: str, name: str) -> ColumnElement[bool]:
    return and_(
        DOCUMENTS.c.kind == kind,
        DOCUMENTS.c.namespace == namespace,
        DOCUMENTS.c.name == name,
    )
