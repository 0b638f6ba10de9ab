"""The pool of workers: starts, limits and replaces worker processes, and sends orders to them.

`aptui.worker` is the code that runs in the worker processes.
"""
