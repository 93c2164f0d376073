"""The decisions. Pure: no I/O, no clock (`now` is an argument), no asyncio, no logging."""
