"""`azlmbr.bus`: sending requests. Here each request has only one receiver, so all of O3DE's ways of sending are equal.

Tests: `tests/features/o3de/scripts/test_azlmbr_stand_in.py`.
"""

Broadcast = 0
Event = 1
QueueBroadcast = 2
QueueEvent = 3
