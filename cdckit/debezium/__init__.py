"""
The Debezium door: change events of databases, and the streams of the prototype of 2014.

A record that cannot be used has one of the catalogue's codes (`EventFault`).
"""

from cdckit.debezium.event_faults import EventFault

__all__ = ["EventFault"]
