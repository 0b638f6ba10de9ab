"""Small pure things that many rooms need: errors, addresses, peers, health, sanitizing, printing.

Nothing here imports another room.
"""
