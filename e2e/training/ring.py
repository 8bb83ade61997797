"""The workers in a ring: each sends to the next one and receives from the previous one, over TCP.

The order in which numbers are added depends on the place in the ring alone, so the same gradients give the same sum, to the
last bit.
"""

import select
import socket
import struct
import time

import numpy as np

# What each end of a connection says first: the kind of connection, its epoch and its rank.
HELLO = struct.Struct("!8sqq")
KIND = b"ring/1\0\0"
LENGTH = struct.Struct("!Q")

# Seconds that all workers may take to start.
START_LIMIT = 300
# Seconds that a worker may take to answer. A worker that has ended is noticed at once, one whose node has failed after this time.
ANSWER_LIMIT = 60
# Seconds that a connection may take to say who it is.
HELLO_LIMIT = 5
# Seconds between two attempts to connect.
PAUSE = 0.05


class RingBroken(Exception):
    """The ring cannot go on. The text says which worker is missing."""


class Ring:
    """The two connections of one worker."""

    def __init__(self, rank, workers, following, preceding):
        self.rank, self.workers = rank, workers
        self.following, self.preceding = following, preceding
        for connection in (following, preceding):
            connection.setblocking(False)

    def all_reduce(self, vector):
        """Replaces the vector by the sum of the vectors of all workers, part by part."""
        parts = np.array_split(vector, self.workers)
        for turn in range(self.workers - 1):
            received = self.exchange(parts[(self.rank - turn) % self.workers].tobytes())
            parts[(self.rank - turn - 1) % self.workers] += np.frombuffer(received)
        for turn in range(self.workers - 1):
            received = self.exchange(parts[(self.rank - turn + 1) % self.workers].tobytes())
            parts[(self.rank - turn) % self.workers][:] = np.frombuffer(received)

    def all_gather(self, message):
        """The messages of all workers, by rank."""
        messages = [message] * self.workers
        for turn in range(1, self.workers):
            message = self.exchange(message)
            messages[(self.rank - turn) % self.workers] = message
        return messages

    def broadcast(self, message):
        """Gives all workers the message of the one that has it. The others call this with an empty message."""
        for _ in range(self.workers - 1):
            received = self.exchange(message)
            message = message or received
        return message

    def exchange(self, message):
        """Sends a message to the next worker and receives one from the previous worker, both at once: if all sent first, full
        buffers would stop all of them."""
        outgoing = memoryview(LENGTH.pack(len(message)) + message)
        incoming, expected = bytearray(), LENGTH.size
        while outgoing or len(incoming) < expected:
            reads = [self.preceding] if len(incoming) < expected else []
            writes = [self.following] if outgoing else []
            readable, writable, _ = select.select(reads, writes, [], ANSWER_LIMIT)
            if readable:
                incoming += self._receive(expected - len(incoming))
                if len(incoming) == expected == LENGTH.size:
                    expected += LENGTH.unpack(incoming)[0]
            if writable:
                outgoing = outgoing[self._send(outgoing) :]
            if not readable and not writable:
                silent = self.rank - 1 if reads else self.rank + 1
                raise RingBroken(f"worker {silent % self.workers} did not answer within {ANSWER_LIMIT} s")
        return bytes(incoming[LENGTH.size :])

    def _receive(self, most):
        try:
            received = self.preceding.recv(most)
        except ConnectionError:
            received = b""
        if not received:
            raise RingBroken(f"worker {(self.rank - 1) % self.workers} closed its connection")
        return received

    def _send(self, message):
        try:
            return self.following.send(message)
        except ConnectionError:
            raise RingBroken(f"worker {(self.rank + 1) % self.workers} closed its connection") from None


def join(rank, workers, address, epoch, refused):
    """Connects this worker with its neighbours of the same epoch.

    `address` gives host and port of a rank. `refused` is told of each connection from elsewhere.
    """
    deadline = time.monotonic() + START_LIMIT
    with socket.create_server(("", address(rank)[1]), backlog=16) as listener:
        following = _connect(address, (rank + 1) % workers, deadline)
        following.sendall(HELLO.pack(KIND, epoch, rank))
        preceding = _accept(listener, (epoch, (rank - 1) % workers), deadline, refused)
        preceding.sendall(HELLO.pack(KIND, epoch, rank))
    answer = _hello(following, max(1, deadline - time.monotonic()))
    if answer is None:
        raise RingBroken(f"worker {(rank + 1) % workers} closed its connection")
    if answer != (epoch, (rank + 1) % workers):
        raise RingBroken(f"{_name(answer)} answered in place of worker {(rank + 1) % workers} of epoch {epoch}")
    return Ring(rank, workers, following, preceding)


def _connect(address, rank, deadline):
    """Tries until the worker listens, and its name resolves."""
    while True:
        try:
            connection = socket.create_connection(address(rank), timeout=HELLO_LIMIT)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError as error:
            if time.monotonic() > deadline:
                raise RingBroken(f"worker {rank} did not listen within {START_LIMIT} s: {error}") from None
            time.sleep(PAUSE)


def _accept(listener, expected, deadline, refused):
    """The connection of the expected worker. A connection of an older epoch is closed."""
    while True:
        listener.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            raise RingBroken(f"worker {expected[1]} did not connect within {START_LIMIT} s") from None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello = _hello(connection, HELLO_LIMIT)
        if hello == expected:
            return connection
        refused(_name(hello))
        connection.close()


def _hello(connection, limit):
    """Epoch and rank of the worker at the other end, or nothing if it is no worker."""
    connection.settimeout(limit)
    received = b""
    try:
        while len(received) < HELLO.size:
            more = connection.recv(HELLO.size - len(received))
            if not more:
                return None
            received += more
    except OSError:
        return None
    kind, epoch, rank = HELLO.unpack(received)
    return (epoch, rank) if kind == KIND else None


def _name(hello):
    return f"worker {hello[1]} of epoch {hello[0]}" if hello else "no worker"
