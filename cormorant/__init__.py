"""Cormorant: one gate between your apps and the sites that can ban them.

Holds the version and nothing else: anything more makes an import circle with the rooms beside it.
"""

__version__ = "0.1.0"
