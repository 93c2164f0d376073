"""Pure: no I/O, no clock, no asyncio, no logging; `now` is always an argument."""
