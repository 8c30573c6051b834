"""Certificates of clients, signed by the authority that ``make_certificate`` made."""

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.certificates import begun, common_name, write_pair


def make_client_certificate(
    authority: tuple[Path, Path], name: str, *alternatives: x509.GeneralName
) -> tuple[Path, Path]:
    """Return the files of a certificate with the common name ``name`` and of its key.

    ``authority`` is the certificate and the key that sign; the files are put beside them.
    """
    authority_file, authority_key_file = authority
    issuer = x509.load_pem_x509_certificate(authority_file.read_bytes())
    signing_key = serialization.load_pem_private_key(authority_key_file.read_bytes(), None)
    assert isinstance(signing_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = begun(key, common_name(name), issuer=issuer.subject, is_authority=False)
    if alternatives:
        names = x509.SubjectAlternativeName(alternatives)
        builder = builder.add_extension(names, critical=False)
    certificate = builder.sign(signing_key, hashes.SHA256())
    files = authority_file.with_name(f"{name}.pem"), authority_file.with_name(f"{name}.key.pem")
    return write_pair(files, certificate, key)
