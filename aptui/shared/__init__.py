"""Small modules that many packages need: errors, addresses, peers, health, sanitizing, printing.

They import no other package of aptui.
"""
