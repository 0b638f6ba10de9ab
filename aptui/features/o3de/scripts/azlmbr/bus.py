"""`azlmbr.bus`: O3DE's four ways of sending a request. Here they have the same effect, because a request has only one receiver.

Tests: `tests/features/o3de/scripts/test_azlmbr_stand_in.py`.
"""

Broadcast = 0
Event = 1
QueueBroadcast = 2
QueueEvent = 3
