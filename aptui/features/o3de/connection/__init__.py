"""O3DE's Editor, launchers and devices connect through O3DE's own asset processor protocol. Experimental: see `O3DE.md`.

**Transport.** TCP. A frame is three numbers of 32 bits, little-endian: type, size of the payload, serial; then the payload. The
type is the CRC-32 of the message's name in lower case. The client chooses a request's serial; the answer has the same type, and the
serial with bit 31 set. A message with serial 0 is not answered; serial 0x0fffffff is a negotiation. A request that is not served
gets an empty answer, because clients wait for answers without a limit.

**Payload.** One object in the binary form of ObjectStream (`binary_stream`): the message's class with its version, its base class
as the element `BaseClass1`, and its fields. `o3de_messages` lists all messages with their type ids.

**Negotiation.** The client sends a `NegotiationMessage` first. It has version 7 of the protocol, the client's name (EDITOR, GAME …)
and a map: {0: process id, 1: platforms ("linux,pc"), 2: branch token, 3: project}. The server answers with a message of the same
class, named ASSETPROCESSOR. It closes the connection if the version, the branch token or the project differs (case does not
matter), or if the client has the server's process id. The branch token is the CRC-32 of the engine's path, in lower case and with
`_` for each separator. For a project without an engine, the server returns the client's token.

**Processes.** A separate process (`connection_process`) serves the clients, so that no client can slow the engine down. After the
negotiation it sends a bulk message with all products of the client's platforms, and then a message for each notice of the engine,
in the order of the notices. `connection_supervisor` keeps the process running beside an engine that stays up. The engine's process
holds the listening socket, so new clients wait in the socket's queue while the server restarts. `o3de_server` handles the sockets:
frames, limits, negotiation, sessions. `o3de_answers` answers questions from the asset database, by the same queries as the gateway,
and passes orders to the engine. `virtual_files` serves only files below the cache, the project's user folder and its log folder.

**Limits.** Other machines, and programs of other users of this machine, need an entry in the allowed list. Only
programs of the engine's user on this machine can move and delete sources, one at a time. A client is disconnected if it has not
negotiated after five seconds, if it sends an incomplete frame, a frame above 16 MiB or a damaged message, or if it does not read
its messages.
"""
