"""Reserved data rates."""

import asyncio

import pytest

import braidfs

#: A rate that any disk keeps.
SMALL = braidfs.Rate(100_000, seconds=60)


def test_a_file_is_open_under_its_own_reservation(client, place):
    name = f"{place}/cam"
    with client.open(name, "w", reserve=SMALL) as file:
        rows = [row for row in client.reservations() if row.name == name]
        assert [(row.direction, row.rate, row.streams) for row in rows] == [("write", 100_000, 1)]
        file.write(b"x" * 1000)
        account = file.lateness()
        assert account.bytes == 1000 and account.periods >= 1
        assert (account.paused_periods, account.worst_pause) == (0, 0.0)
    assert name not in [row.name for row in client.reservations()]
    with client.open(name, reserve=SMALL._replace(survive=0)) as file:
        assert file.read() == b"x" * 1000
        assert file.lateness().bytes == 1000
    with client.open(name) as file:
        assert file.lateness() is None


def test_a_rate_that_cannot_be_kept_is_refused_with_offers(client, place):
    huge = braidfs.Rate(10**13, seconds=60)
    with pytest.raises(braidfs.NotAdmitted) as refused:
        client.open(f"{place}/fast", "w", reserve=huge)
    error = refused.value
    assert isinstance(error, OSError) and error.filename == f"{place}/fast" and error.resource
    assert not client.exists(f"{place}/fast")
    offer = next(offer for offer in error.offers if not offer.begins)
    assert offer.rate > 0 and (offer.shape is None) == (offer.unit_bytes is None)
    offered = huge._replace(rate=offer.rate, survive=offer.survive)
    assert client.reserve(f"{place}/fast", offered, "write", dry_run=True).number == 0


def test_reservations_are_made_and_ended(client, place):
    made = client.reserve(place, SMALL, "write")
    assert made.number and made.drives and made.lateness_bound > 0 and made.risk is None
    row = next(row for row in client.reservations() if row.number == made.number)
    assert (row.paused_periods, row.worst_pause) == (0, 0.0)
    with pytest.raises(FileExistsError):
        client.reserve(place, SMALL, "write")
    client.end_reservation(made.number)
    assert made.number not in [row.number for row in client.reservations()]
    with pytest.raises(ValueError):
        client.reserve(place, SMALL, "both")
    for wrong in (SMALL._replace(rate=0), SMALL._replace(seconds=-1), SMALL._replace(streams=0)):
        with pytest.raises(OSError):
            client.reserve(place, wrong, "write")


def test_asyncio_reserves_too(cluster, place):
    async def main():
        client = braidfs.AsyncClient(cluster)
        async with client.open(f"{place}/f", "w", reserve=SMALL) as file:
            await file.write(b"hello")
            assert file.lateness().bytes == 5
        made = await client.reserve(place, SMALL, "write", dry_run=True)
        assert made.number == 0 and made.number not in [row.number for row in await client.reservations()]

    asyncio.run(main())
