"""A certificate for localhost, made for one test."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Return the files of a self-signed certificate (an authority of its own) and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = common_name("localhost")
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    builder = begun(key, name, issuer=name, is_authority=True)
    certificate = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    files = folder / "cert.pem", folder / "key.pem"
    return write_pair(files, certificate.sign(key, hashes.SHA256()), key)


def common_name(text: str) -> x509.Name:
    """Return a name that is this common name and nothing else."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def begun(
    key: ec.EllipticCurvePrivateKey, name: x509.Name, *, issuer: x509.Name, is_authority: bool
) -> x509.CertificateBuilder:
    """Return a certificate to be signed that is good from yesterday to tomorrow."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )


def write_pair(
    files: tuple[Path, Path], certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> tuple[Path, Path]:
    """Write a certificate and its key; return ``files``."""
    file, key_file = files
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files
