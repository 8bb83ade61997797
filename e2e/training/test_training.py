"""Tests of the example without a cluster: `python -m unittest`, with the packages of requirements.txt."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import model
import ring
import train
from checkpoint import Checkpoints, State, WrongCheckpoint

HERE = os.path.dirname(os.path.abspath(__file__))
WORKERS = 4
STEPS = 60
# Seconds that workers on one machine may take.
LIMIT = 60


class Group:
    """Workers on this machine. Each has a folder of its own."""

    def __init__(self, folder):
        self.folder, self.epoch = folder, 0
        self.environment = {}

    def run(self, kill=None, steps=STEPS, order=range(WORKERS)):
        """Runs all workers in the next epoch and returns how each ended. `kill` is a rank and the step at which it is killed."""
        self.epoch += 1
        # Ports of other programs and of earlier epochs are not used.
        ports = random.randrange(1100, 3000)
        processes = {rank: self.start(rank, ports, steps) for rank in order}
        if kill:
            self.wait_for(*kill)
            processes[kill[0]].send_signal(signal.SIGKILL)
        ends = [processes[rank].communicate(timeout=LIMIT)[1] for rank in range(WORKERS)]
        return [processes[rank].returncode for rank in range(WORKERS)], ends

    def start(self, rank, ports, steps):
        environment = {
            "WORKERS": str(WORKERS),
            "JOB_COMPLETION_INDEX": str(rank),
            "JOBSET_EPOCH": str(self.epoch),
            "PEER": f"127.0.0.1:{ports}{{rank}}",
            "CHECKPOINT_DIR": self.path(rank),
            "CHECKPOINT_EVERY": "10",
            "STEPS": str(steps),
            "JOBSET_PROGRESS_FILE": self.path(f"progress-{rank}"),
            **self.environment,
        }
        command = [sys.executable, os.path.join(HERE, "train.py")]
        # What a worker prints in these few steps fits into its pipe.
        return subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def progress(self, rank):
        """What the worker tells its agent."""
        try:
            with open(self.path(f"progress-{rank}")) as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""

    def path(self, rank):
        return os.path.join(self.folder, str(rank))

    def lines(self, rank):
        try:
            with open(os.path.join(self.path(rank), f"log-{rank}.jsonl")) as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def wait_for(self, rank, step):
        deadline = time.monotonic() + LIMIT
        while not any(line.get("step", 0) >= step and line["epoch"] == self.epoch for line in self.lines(rank)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"worker {rank} does not reach step {step}")
            time.sleep(0.001)

    def curve(self, rank):
        """All losses of each step."""
        losses = {}
        for line in self.lines(rank):
            if "loss" in line:
                losses.setdefault(line["step"], set()).add(line["loss"])
        return losses

    def events(self, rank, kind):
        return [line for line in self.lines(rank) if line.get("event") == kind]


class GroupTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def group(self, name):
        return Group(os.path.join(self.folder, name))

    def assert_finished(self, run):
        codes, ends = run
        self.assertEqual(codes, [0] * WORKERS, ends)

    def test_worker_killed_others_end_and_curve_stays_the_same(self):
        undisturbed, killed = self.group("undisturbed"), self.group("killed")
        self.assert_finished(undisturbed.run())
        codes, ends = killed.run(kill=(2, 34))
        self.assertEqual(codes, [1, 1, -signal.SIGKILL, 1])
        self.assertEqual(ends[3], "epoch 1: worker 2 closed its connection\n")
        self.assert_finished(killed.run())
        saved = [line["step"] for rank in range(WORKERS) for line in killed.events(rank, "checkpoint") if line["epoch"] == 1]
        for rank in range(WORKERS):
            [resumed] = killed.events(rank, "resume")
            self.assertEqual(resumed["step"], max(saved))
            self.assertEqual(killed.curve(rank), undisturbed.curve(0))
            self.assertEqual(killed.events(rank, "end")[0]["sha256"], undisturbed.events(0, "end")[0]["sha256"])

    def test_checkpoint_lost_or_damaged_is_taken_from_another_worker(self):
        group, longer = self.group("lost"), self.group("longer")
        self.assert_finished(group.run(steps=40))
        for name in os.listdir(group.path(1)):
            if name.startswith("worker-"):
                os.remove(os.path.join(group.path(1), name))
        damaged = os.path.join(group.path(3), "worker-3-step-000000040")
        with open(damaged, "r+b") as file:
            file.truncate(1000)
        self.assert_finished(group.run())
        sources = [group.events(rank, "resume")[0] for rank in range(WORKERS)]
        self.assertEqual([line["step"] for line in sources], [40] * WORKERS)
        self.assertEqual([line["source"] for line in sources], ["own", "worker 0", "own", "worker 0"])
        self.assertEqual([line["path"] for line in group.events(3, "damaged")], [damaged])
        self.assert_finished(longer.run())
        self.assertEqual(group.curve(1), longer.curve(1))

    def test_checkpoint_of_another_training_ends_all(self):
        group = self.group("other")
        checkpoints = Checkpoints(group.path(0), 0, {"workers": 3})
        checkpoints.save(State(10, np.ones(4), np.ones(4)))
        process = group.start(0, 1234, STEPS)
        self.assertIn("Remove the file, or choose another CHECKPOINT_DIR", process.communicate(timeout=LIMIT)[1])
        self.assertEqual(process.returncode, train.WRONG_SETTING)


class HangTest(unittest.TestCase):
    """A worker that hangs: what all workers have told by then."""

    def told(self, kind, steps=STEPS):
        """The last line of each worker, once those that wait have waited."""
        with tempfile.TemporaryDirectory() as folder:
            group, lines = Group(folder), {}
            group.epoch = 1
            group.environment = {"HANG": f"{kind}:2:34"}
            ports = random.randrange(1100, 3000)
            processes = [group.start(rank, ports, steps) for rank in range(WORKERS)]
            try:
                deadline = time.monotonic() + LIMIT
                while time.monotonic() < deadline:
                    lines = {rank: group.progress(rank) for rank in range(WORKERS)}
                    if kind == "disk" and lines[2].startswith("step=40 phase=checkpoint"):
                        break
                    if kind != "disk" and lines[2] == "step=33" and list(lines.values()).count("step=33 in=all_reduce") == WORKERS - 1:
                        break
                    time.sleep(0.001)
                return lines
            finally:
                for process in processes:
                    process.kill()
                    process.communicate()

    def test_worker_that_hangs_is_the_one_that_is_elsewhere(self):
        for kind in ("stop", "deadlock", "peer", "loop"):
            lines = self.told(kind)
            waiting = {rank: "step=33 in=all_reduce" for rank in (0, 1, 3)}
            self.assertEqual(lines, {2: "step=33", **waiting}, kind)

    def test_each_epoch_has_its_own_hang(self):
        hangs = [train.Hang.parse("loop:2:34,,peer:1:50", rank, epoch) for rank in (1, 2) for epoch in range(5)]
        self.assertEqual([hang.kind for hang in hangs], ["", "", "", "peer", "", "loop", "loop", "", "", ""])

    def test_disk_hangs_in_checkpoint(self):
        self.assertEqual(self.told("disk")[2], "step=40 phase=checkpoint limit=600")


class RingTest(unittest.TestCase):
    def test_connection_of_older_epoch_is_refused(self):
        refused = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            expected = (5, 1)
            ends = []
            for kind, epoch, rank in [(ring.KIND, 4, 1), (ring.KIND, 5, 2), (b"nothing\0", 5, 1), (ring.KIND, *expected)]:
                ends.append(socket.create_connection(listener.getsockname()))
                ends[-1].sendall(ring.HELLO.pack(kind, epoch, rank))
            ring._accept(listener, expected, time.monotonic() + LIMIT, refused.append).close()
            for end in ends:
                end.close()
        self.assertEqual(refused, ["worker 1 of epoch 4", "worker 2 of epoch 5", "no worker"])


class ModelTest(unittest.TestCase):
    def test_gradient_is_that_of_small_differences(self):
        network = model.Network((5, 4))
        parameters = network.initial(model.random(3))
        inputs, targets = model.examples(model.random(4), 20)
        _, gradient = network.loss_and_gradient(parameters, inputs, targets)
        for at in range(network.size):
            step = np.zeros(network.size)
            step[at] = 1e-6
            by_difference = network.loss(parameters + step, inputs, targets) - network.loss(parameters - step, inputs, targets)
            self.assertAlmostEqual(gradient[at], by_difference / 2e-6, places=6)


class CheckpointTest(unittest.TestCase):
    def test_checkpoints_are_the_newest_whole_two(self):
        with tempfile.TemporaryDirectory() as folder:
            checkpoints, damaged = Checkpoints(folder, 7, {"seed": 1}), []
            for step in (5, 10, 100):
                checkpoints.save(State(step, np.full(3, float(step)), np.zeros(3)))
            # What a worker leaves that is killed while it writes.
            with open(os.path.join(folder, "worker-7-step-000000105.part"), "wb") as file:
                file.write(b"{")
            self.assertEqual(checkpoints.newest(damaged.append).step, 100)
            newest = os.path.join(folder, "worker-7-step-000000100")
            with open(newest, "r+b") as file:
                file.seek(-1, os.SEEK_END)
                file.write(b"\1")
            self.assertEqual(checkpoints.newest(damaged.append).parameters.tolist(), [10.0] * 3)
            self.assertEqual(damaged, [newest])
            with self.assertRaisesRegex(WrongCheckpoint, "belongs to the training"):
                Checkpoints(folder, 7, {"seed": 2}).newest(damaged.append)


class SettingsTest(unittest.TestCase):
    def test_wrong_variable_is_named(self):
        right = {"WORKERS": "4", "JOB_COMPLETION_INDEX": "3", "PEER": "t-w-0-{rank}.t:9000"}
        self.assertEqual(train.Settings(right).address(2), ("t-w-0-2.t", 9000))
        for name, value in [("WORKERS", "1"), ("WORKERS", "3"), ("JOB_COMPLETION_INDEX", "x"), ("PEER", "t"), ("STEPS", "0"), ("HANG", "stop:2")]:
            with self.assertRaisesRegex(train.WrongSetting, f"^{name} is "):
                train.Settings({**right, name: value})


if __name__ == "__main__":
    unittest.main()
