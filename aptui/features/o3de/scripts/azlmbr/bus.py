"""`azlmbr.bus`: sends requests. Here a request has only one receiver, so O3DE's ways of sending have the same effect.

Tests: `tests/features/o3de/scripts/test_azlmbr_stand_in.py`.
"""

Broadcast = 0
Event = 1
QueueBroadcast = 2
QueueEvent = 3
