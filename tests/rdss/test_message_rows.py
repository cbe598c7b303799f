"""A message as a row: what a column has room for, and what it has none for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cdckit.rdss.message_rows import SLICED_MESSAGE, read_message, read_tenant
from cdckit.rdss.reading import RULES
from support.rdss_messages import as_bytes, changed, message

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("tenant", "column"),
    [
        (7, 7),
        (-(1 << 63), -(1 << 63)),
        ((1 << 63) - 1, (1 << 63) - 1),
        (1 << 63, None),
        (-(1 << 63) - 1, None),
        (7.0, 7),
        (1e30, None),
    ],
)
def test_a_tenant_is_there_if_it_has_64_bits(tenant: float, column: int | None) -> None:
    """Also where the message is refused; its bytes have every tenant."""
    tenants = changed("/messageHeader/tenantJiscID", tenant)
    for changes in ([tenants], [tenants, changed("/messageHeader/version", "3.0.0")]):
        value = as_bytes(message("create", *changes))
        values = read_message(value, NOON, now=None, rules=RULES)
        row = dict(zip(SLICED_MESSAGE.names, values, strict=True))
        if isinstance(tenant, int) or len(changes) == 1:
            assert row["tenant_jisc_id"] == column
        assert read_tenant(value) == tenant
