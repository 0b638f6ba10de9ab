"""O3DE's Editor, launchers and devices connect through O3DE's own asset processor protocol. Experimental: see `O3DE.md`.

**Transport.** TCP. A frame is three numbers of 32 bits, little-endian: type, size of the payload, serial; then the payload. The
type is the CRC-32 of the message's name in lower case. The client chooses a request's serial; the answer has the same type, and the
serial with bit 31 set. Serial 0 is a message that is not answered, 0x0fffffff a negotiation. A request that is not served has an
empty answer, because clients wait for answers without a limit.

**Payload.** One object in the binary form of ObjectStream (`binary_stream`): the message's class with its version, its base class
as the element `BaseClass1`, its fields. `o3de_messages` lists all messages with their type ids.

**Negotiation.** The client sends a `NegotiationMessage` first: version 7 of the protocol, its name (EDITOR, GAME …), and {0:
process id, 1: platforms, separated by commas, 2: branch token, 3: project}. The server answers with its own, named ASSETPROCESSOR,
and closes the connection if the version, the branch token or the project differs (case does not matter), or if the process is its
own. The branch token is the CRC-32 of the engine's path, in lower case and with `_` for each separator. A project without an engine
returns the client's token.

**Who answers.** A process of its own (`connection_process`, kept running by `connection_supervisor`) beside an engine that stays
up, so that no client can slow the engine down. The engine's process holds the listening socket: clients of a process that is
restarted wait in its queue. `o3de_server` has the sockets: frames, limits, negotiation, sessions. `asset_notifications` makes
messages of the engine's notices, in the order in which they became true, after a bulk message with all products of the client's
platforms. `o3de_answers` answers questions from the asset database, by the same queries as the gateway, and passes orders to the
engine. `virtual_files` serves files below the cache, the project's user folder and its log folder, by descriptors; nothing else can
be reached.

**Limits.** Other machines, and programs of other users of this one, need an entry in the list of allowed addresses. Only programs
of this machine's user move and delete sources, one at a time. A client that has not negotiated after
five seconds, sends part of a frame, a frame above 16 MiB or a damaged message, or does not read, is disconnected.
"""
