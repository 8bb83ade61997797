//! The suites, and whose they are.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use crate::clients::{kueue, trainer};
use crate::go_jobset;

/// A test suite of another project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// The Go JobSet's `test/integration/controller`: an API server without a Job controller; the cases write the statuses of Jobs.
    Controller,
    /// The Go JobSet's `test/integration/webhook`: an API server that asks the admission service.
    Webhook,
    /// The Go JobSet's `test/e2e`: a cluster with kubelets on which the product is installed.
    E2e,
    /// Kueue's `test/e2e/singlecluster/extended`, the cases of JobSets and TrainJobs: the same with Kueue and Trainer.
    Kueue,
    /// Kueue's `test/e2e/tas/extended`, the same cases: Pods are placed by topology on eight nodes.
    KueueTopology,
    /// Kueue's `test/e2e/multikueue/extended`, the same cases: queued in one cluster, run in one of two others.
    #[value(name = "multikueue")]
    MultiKueue,
    /// Trainer's `test/integration/controller`: its controllers apply JobSets, and the cases write the statuses of these.
    TrainerController,
    /// Trainer's `test/integration/webhooks`: what its admission says of TrainJobs and runtimes.
    TrainerWebhooks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Project {
    /// The Go JobSet.
    JobSet,
    Kueue,
    Trainer,
}

impl Suite {
    pub const ALL: [Self; 8] = [
        Self::Webhook,
        Self::Controller,
        Self::E2e,
        Self::Kueue,
        Self::KueueTopology,
        Self::MultiKueue,
        Self::TrainerController,
        Self::TrainerWebhooks,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Webhook => "webhook",
            Self::E2e => "e2e",
            Self::Kueue => "kueue",
            Self::KueueTopology => "kueue-topology",
            Self::MultiKueue => "multikueue",
            Self::TrainerController => "trainer-controller",
            Self::TrainerWebhooks => "trainer-webhooks",
        }
    }

    /// Whether the Go JobSet can be judged by it: Trainer's run no controller of JobSets.
    pub fn judges_go(self) -> bool {
        self.project() != Project::Trainer
    }

    pub(super) fn project(self) -> Project {
        match self {
            Self::Controller | Self::Webhook | Self::E2e => Project::JobSet,
            Self::Kueue | Self::KueueTopology | Self::MultiKueue => Project::Kueue,
            Self::TrainerController | Self::TrainerWebhooks => Project::Trainer,
        }
    }

    pub fn version(self) -> &'static str {
        match self.project() {
            Project::JobSet => go_jobset::VERSION,
            Project::Kueue => kueue::VERSION,
            Project::Trainer => trainer::VERSION,
        }
    }

    /// Its package in the Go module of its project.
    pub(super) fn package(self) -> &'static str {
        match self {
            Self::Controller | Self::TrainerController => "test/integration/controller",
            Self::Webhook => "test/integration/webhook",
            Self::E2e => "test/e2e",
            Self::Kueue => "test/e2e/singlecluster/extended",
            Self::KueueTopology => "test/e2e/tas/extended",
            Self::MultiKueue => "test/e2e/multikueue/extended",
            Self::TrainerWebhooks => "test/integration/webhooks",
        }
    }

    /// Which of its cases touch JobSets, by Ginkgo's labels; the others need operators that have nothing to do with them.
    pub(super) fn labels(self) -> Option<&'static str> {
        match self.project() {
            Project::JobSet | Project::Trainer => None,
            Project::Kueue => Some("feature:jobset || feature:trainjob"),
        }
    }
}

impl Project {
    /// Its name in folders.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::JobSet => "jobset",
            Self::Kueue => "kueue",
            Self::Trainer => "trainer",
        }
    }

    pub(super) fn module(self) -> Result<PathBuf> {
        match self {
            Self::JobSet => go_jobset::module(),
            Self::Kueue => kueue::module(),
            Self::Trainer => trainer::module(),
        }
    }

    /// Its suites that run in a cluster, as they are.
    pub(super) fn in_clusters(self) -> &'static [Suite] {
        match self {
            Self::JobSet => &[Suite::E2e],
            Self::Kueue => &[Suite::Kueue, Suite::KueueTopology, Suite::MultiKueue],
            Self::Trainer => &[],
        }
    }

    /// Its suites that run beside our programs on an API server of their own.
    pub(super) fn beside_ours(self) -> &'static [Suite] {
        match self {
            Self::JobSet => &[Suite::Webhook, Suite::Controller],
            Self::Kueue => &[],
            Self::Trainer => &[Suite::TrainerController, Suite::TrainerWebhooks],
        }
    }
}
