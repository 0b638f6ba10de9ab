"""`azlmbr.bus`: how a request is sent. There is one receiver here, so all ways are one.

Tests: `tests/features/o3de/scripts/test_azlmbr_stand_in.py`.
"""

Broadcast = 0
Event = 1
QueueBroadcast = 2
QueueEvent = 3
