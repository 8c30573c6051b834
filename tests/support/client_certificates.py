"""Certificates of clients, signed by the authority that ``make_certificate`` made."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make_client_certificate(authority: tuple[Path, Path], name: str) -> tuple[Path, Path]:
    """Return the files of a certificate with the common name ``name`` and of its key.

    ``authority`` is the certificate and the key that sign; the files are put beside them.
    """
    authority_file, authority_key_file = authority
    issuer = x509.load_pem_x509_certificate(authority_file.read_bytes())
    signing_key = serialization.load_pem_private_key(authority_key_file.read_bytes(), None)
    assert isinstance(signing_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(signing_key, hashes.SHA256())
    )
    cert_file = authority_file.with_name(f"{name}.pem")
    key_file = authority_file.with_name(f"{name}.key.pem")
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_file, key_file
