"""`azlmbr.bus`: sending requests. There is only one receiver here, so all ways of sending are equal.

Tests: `tests/features/o3de/scripts/test_azlmbr_stand_in.py`.
"""

Broadcast = 0
Event = 1
QueueBroadcast = 2
QueueEvent = 3
