"""Data-parallel training on CPUs that can be killed at any moment: each worker has its part of the data, and all workers make
each step together. The loss curve does not depend on how often they were restarted.
"""

import os

# One thread: with several, the order of additions within a matrix product could depend on the number of cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import json
import signal
import sys
import tempfile
import threading
import time

import numpy as np

import model
import ring
from checkpoint import Checkpoints, State, WrongCheckpoint

HIDDEN = (64, 64)
EXAMPLES = 4096
BATCH = 256
RATE = 0.02
MOMENTUM = 0.9

# Seconds that a worker waits before it fails because another one is gone. Kubernetes has times in whole seconds: so the other one
# is reported as the first that failed.
DEFERENCE = 1

FAILED = 1
WRONG_SETTING = 2
TERMINATED = 128 + signal.SIGTERM
TERMINATION_LOG = "/dev/termination-log"


class WrongSetting(Exception):
    """A variable of the environment has a value that cannot be used."""


class Settings:
    """What the manifest says, and what Kubernetes and the agent add."""

    def __init__(self, environment):
        def number(name, least, default=""):
            value = environment.get(name) or default
            if not value.isdecimal() or int(value) < least:
                raise WrongSetting(f"{name} is {value!r}: it must be a number of at least {least}")
            return int(value)

        self.rank = number("JOB_COMPLETION_INDEX", 0)
        self.workers = number("WORKERS", 2)
        # The agent sets the epoch, which rises by one with each restart in place.
        self.epoch = number("JOBSET_EPOCH", 0, "0")
        self.steps = number("STEPS", 1, "1000")
        self.every = number("CHECKPOINT_EVERY", 1, "25")
        # The time of a step of a larger network, which this one waits for.
        self.pause = number("STEP_MILLISECONDS", 0, "0") / 1000
        self.seed = number("SEED", 0, "1")
        self.peer = environment.get("PEER", "")
        self.folder = environment.get("CHECKPOINT_DIR", "/checkpoints")
        # The manifest asks for it by an annotation: what the worker tells its agent of its progress.
        self.progress_file = environment.get("JOBSET_PROGRESS_FILE", "")
        self.checkpoint_limit = number("CHECKPOINT_LIMIT", 1, "600")
        self.hang = Hang.parse(environment.get("HANG", ""), self.rank, self.epoch)
        self.log_folder = environment.get("LOG_DIR", self.folder)
        if self.rank >= self.workers:
            raise WrongSetting(f"WORKERS is {self.workers}, but this worker is number {self.rank}: set it to completions")
        self.address(0)

    def address(self, rank):
        """Host and port of a worker."""
        host, _, port = self.peer.replace("{rank}", str(rank)).rpartition(":")
        if not host or not port.isdecimal():
            raise WrongSetting(f"PEER is {self.peer!r}: it must be HOST:PORT, with {{rank}} for the number of a worker")
        return host, int(port)

    def training(self):
        """What a checkpoint belongs to."""
        sizes = {"hidden": HIDDEN, "examples": EXAMPLES, "batch": BATCH, "rate": RATE, "momentum": MOMENTUM}
        return json.loads(json.dumps({"workers": self.workers, "seed": self.seed, **sizes}))


class Hang:
    """What the worker does on demand at a step, to see who notices."""

    KINDS = ("stop", "deadlock", "disk", "peer", "loop")

    def __init__(self, kind="", step=0):
        self.kind, self.step = kind, step

    @staticmethod
    def parse(text, rank, epoch):
        """`KIND:RANK:STEP`, that of the first epoch, of the second, and so on, between commas. In an epoch without one, nobody hangs."""
        hangs = [Hang._of_rank(entry, rank) if entry else Hang() for entry in text.split(",")]
        return dict(enumerate(hangs, 1)).get(max(epoch, 1), Hang())

    @staticmethod
    def _of_rank(entry, rank):
        kind, *numbers = entry.split(":")
        if kind not in Hang.KINDS or len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
            raise WrongSetting(f"HANG is {entry!r}: it must be KIND:RANK:STEP, where KIND is one of {', '.join(Hang.KINDS)}")
        return Hang(kind, int(numbers[1])) if int(numbers[0]) == rank else Hang()

    def at(self, step, in_checkpoint=False):
        """Hangs, if it is time. A disk hangs while a checkpoint is written."""
        if not self.kind or step < self.step or (self.kind == "disk") != in_checkpoint:
            return
        if self.kind == "stop":
            # The first process of a container, as that of a sidecar's worker, cannot stop itself: the kernel ignores it.
            os.kill(os.getpid(), signal.SIGSTOP)
            self.kind = ""
        elif self.kind == "deadlock":
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        elif self.kind == "disk":
            # Nobody ever reads from the pipe.
            pipe = os.path.join(tempfile.mkdtemp(), "disk")
            os.mkfifo(pipe)
            open(pipe, "wb")
        elif self.kind == "peer":
            # Its connections stay, and nothing comes over them, as when its node is gone.
            while True:
                time.sleep(3600)
        while self.kind == "loop":
            pass


class Progress:
    """What the worker tells its agent: one line, which replaces the last one."""

    def __init__(self, path):
        self.path = path

    def tell(self, line):
        """Writes the line, if there is an agent that looks."""
        if self.path:
            with open(self.path, "w") as file:
                file.write(line + "\n")


class Log:
    """Lines of JSON, for people on standard output, and in a file that outlives restarts."""

    def __init__(self, settings):
        self.epoch = settings.epoch
        os.makedirs(settings.log_folder, exist_ok=True)
        self.file = open(os.path.join(settings.log_folder, f"log-{settings.rank}.jsonl"), "ab+", buffering=0)
        # A worker that was killed may have left a part of a line.
        if self.file.tell() and os.pread(self.file.fileno(), 1, self.file.tell() - 1) != b"\n":
            self.file.write(b"\n")

    def write(self, **fields):
        """Writes one line. A float has all digits that it takes to read the same float again."""
        line = json.dumps({**fields, "epoch": self.epoch, "time": round(time.time(), 3)})
        self.file.write(line.encode() + b"\n")
        print(line, flush=True)


def newest_of_all(own, links, training, log):
    """The newest checkpoint that any worker has. A worker that lacks it, perhaps because its Pod is new, gets it from another."""
    said = [own.step, own.digest()] if own else [0, ""]
    states = [json.loads(state) for state in links.all_gather(json.dumps(said).encode())]
    newest = max(states)
    if newest[0] == 0:
        log.write(event="start", step=0)
        return None
    owners = [rank for rank, state in enumerate(states) if state[0] == newest[0]]
    if any(states[rank] != newest for rank in owners):
        raise WrongCheckpoint(f"workers {owners} have different checkpoints of step {newest[0]}: remove them")
    if len(owners) < links.workers:
        content = links.broadcast(own.to_bytes(training) if links.rank == owners[0] else b"")
        own = own if links.rank in owners else State.from_bytes(content, training)
    log.write(event="resume", step=own.step, source="own" if links.rank in owners else f"worker {owners[0]}")
    return own


def train(settings, log):
    """Trains until the last step."""
    network, training = model.Network(HIDDEN), settings.training()
    progress, hang = Progress(settings.progress_file), settings.hang
    progress.tell("phase=init")
    checkpoints = Checkpoints(settings.folder, settings.rank, training)
    own = checkpoints.newest(lambda path: log.write(event="damaged", path=path))
    place = (settings.rank, settings.workers, settings.address, settings.epoch)
    links = ring.join(*place, refused=lambda who: log.write(event="refused", connection=who))
    inputs, targets = model.examples(model.random(settings.seed, settings.rank), EXAMPLES)
    state = newest_of_all(own, links, training, log)
    if not state:
        first = network.initial(model.random(settings.seed))
        state = State(0, first, 0 * first)
    while state.step < settings.steps:
        time.sleep(settings.pause)
        state.step += 1
        # The batch depends on the number of the step: a step that is repeated sees the same examples.
        batch = model.random(settings.seed, settings.rank, state.step).integers(0, EXAMPLES, BATCH)
        loss, gradient = network.loss_and_gradient(state.parameters, inputs[batch], targets[batch])
        sums = np.append(gradient, loss)
        hang.at(state.step)
        progress.tell(f"step={state.step - 1} in=all_reduce")
        links.all_reduce(sums)
        sums /= settings.workers
        state.velocity = MOMENTUM * state.velocity - RATE * sums[:-1]
        state.parameters = state.parameters + state.velocity
        log.write(step=state.step, loss=float(sums[-1]))
        progress.tell(f"step={state.step}")
        if state.step % settings.every == 0:
            progress.tell(f"step={state.step} phase=checkpoint limit={settings.checkpoint_limit}")
            hang.at(state.step, in_checkpoint=True)
            checkpoints.save(state)
            progress.tell(f"step={state.step} checkpoint={state.step}")
            log.write(event="checkpoint", step=state.step)
    # Nobody leaves before all have finished: a worker that has succeeded cannot restart in place.
    links.all_gather(b"finished")
    unseen = model.examples(model.random(settings.seed, settings.workers), EXAMPLES)
    log.write(event="end", step=state.step, sha256=state.digest(), unseen_loss=network.loss(state.parameters, *unseen))


def fail(message, code):
    """Ends with a message, which Kubernetes shows in the status of the Pod and of the JobSet."""
    print(message, file=sys.stderr, flush=True)
    if os.path.exists(TERMINATION_LOG):
        with open(TERMINATION_LOG, "w") as file:
            file.write(message)
    sys.exit(code)


def terminated(signal_number, frame):
    """Ends at once. Without this, the first process of a container would ignore the signal."""
    sys.exit(TERMINATED)


def main():
    signal.signal(signal.SIGTERM, terminated)
    log = None
    try:
        settings = Settings(os.environ)
        log = Log(settings)
        train(settings, log)
    except (WrongSetting, WrongCheckpoint) as wrong:
        fail(str(wrong), WRONG_SETTING)
    except ring.RingBroken as broken:
        log.write(event="failed", message=str(broken))
        time.sleep(DEFERENCE)
        fail(f"epoch {settings.epoch}: {broken}", FAILED)


if __name__ == "__main__":
    main()
