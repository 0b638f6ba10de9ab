"""Small modules that many packages use: errors, network addresses, connections, health, safe printing, files.

They import no other package of aptui.
"""
