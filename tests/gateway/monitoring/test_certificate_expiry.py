"""End of a certificate's validity: the oracle is the library that made the certificate."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.certificate_expiry import expiry_unix_s
from tests.support.certificates import common_name

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def written(folder: Path, end: datetime, *, name: str = "localhost") -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(common_name(name))
        .issuer_name(common_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW)
        .not_valid_after(end)
        .sign(key, hashes.SHA256())
    )
    path = folder / "cert.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize(
    "end",
    [
        datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),  # UTCTime, two digits of the year
        datetime(2050, 1, 1, 0, 0, 1, tzinfo=UTC),  # GeneralizedTime
        NOW + timedelta(days=14, seconds=7),
    ],
    ids=str,
)
def test_the_end_of_the_validity_is_read(tmp_path: Path, end: datetime) -> None:
    assert expiry_unix_s(written(tmp_path, end)) == int(end.timestamp())


def test_a_long_issuer_is_skipped(tmp_path: Path) -> None:
    end = NOW + timedelta(days=1)
    path = written(tmp_path, end, name="n" * 64)
    assert expiry_unix_s(path) == int(end.timestamp())


def test_the_first_certificate_of_a_chain_counts(tmp_path: Path) -> None:
    own = written(tmp_path, NOW + timedelta(days=1)).read_text()
    path = written(tmp_path, NOW + timedelta(days=99))
    path.write_text(f"Bag Attributes\n{own}{path.read_text()}")
    assert expiry_unix_s(path) == int((NOW + timedelta(days=1)).timestamp())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no certificate",
        "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    ],
)
def test_what_is_no_certificate_has_no_end(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cert.pem"
    path.write_text(text)
    assert expiry_unix_s(path) is None
    assert expiry_unix_s(tmp_path / "missing.pem") is None
