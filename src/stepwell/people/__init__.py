"""People: who a name is, what it holds, and how acts are told to the audit trail."""

from stepwell.people.actor import OPERATOR, Actor, holds, local_operator, require, resolve
from stepwell.people.names import key_of, settled

__all__ = ["OPERATOR", "Actor", "holds", "key_of", "local_operator", "require", "resolve", "settled"]
