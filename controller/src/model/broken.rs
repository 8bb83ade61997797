//! Rules broken on purpose, around the real ones: each property has to notice when what it is about is not so.

use jobset_api::JobSetStatus;

use super::state::ModelStatus;
use crate::engine::pods::{JobPods, ObservedEpochs, PodView};

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelMutation {
    /// The barrier is lifted one report early.
    LiftedOneReportEarly,
    /// A supervisor goes on to the next epoch while its worker still runs.
    ReportsBeforeItsWorkerHasEnded,
    /// Whatever an agent reports, its worker is taken to be in that epoch.
    LonelyAgentsAreBelieved,
    /// A report that got lost is not repeated.
    ReportsOnce,
    /// A worker that is not seen running is taken for one that has failed.
    LateStatusesAreFailures,
    /// A restart that is under way is counted with every pass.
    CountedWithEveryPass,
    /// One more restart is allowed than there may be.
    BudgetOffByOne,
    /// An advance that the controller causes is counted.
    FreeEpochForgotten,
    /// Who was told to restart is not remembered.
    ToldForgotten,
    /// A report is taken to be too high by the epochs that the controller has seen, which may be old.
    ConfirmedByPodsAlone,
}

/// The budget that the rules are told.
pub(super) fn max_restarts(broken: Option<ModelMutation>, max_restarts: i32) -> i32 {
    max_restarts + i32::from(broken == Some(ModelMutation::BudgetOffByOne))
}

/// What the memory of Pods is told of the JobSet.
pub(super) fn edit_epochs(broken: Option<ModelMutation>, epochs: ObservedEpochs) -> ObservedEpochs {
    match broken {
        Some(ModelMutation::ToldForgotten) => ObservedEpochs { deprecated: 0, ..epochs },
        _ => epochs,
    }
}

/// What it is told of a Pod.
pub(super) fn edit_view(broken: Option<ModelMutation>, view: PodView) -> PodView {
    match broken {
        Some(ModelMutation::LonelyAgentsAreBelieved) => PodView { workers: 0, ..view },
        _ => view,
    }
}

/// What becomes of a pass.
pub(super) fn edit_plan(
    broken: Option<ModelMutation>,
    before: ModelStatus,
    pods: &JobPods,
    slots: usize,
    status: &mut JobSetStatus,
) {
    let ModelStatus { synced, deprecated, .. } = before;
    let reported = |epoch: i32| pods.reports().get(&epoch).copied().unwrap_or(0);
    match broken {
        Some(ModelMutation::LiftedOneReportEarly) if reported(synced + 1) + 1 == slots => {
            (status.synced_epoch, status.deprecated_epoch) = (synced + 1, synced);
        }
        Some(ModelMutation::LateStatusesAreFailures)
            if synced > 0
                && deprecated < synced
                && pods.running_in(synced) < reported(synced)
                && status.deprecated_epoch < synced =>
        {
            status.deprecated_epoch = synced;
            status.group_restarts += 1;
            status.restarts_count_towards_max += 1;
        }
        Some(ModelMutation::CountedWithEveryPass) if synced > 0 && deprecated == synced => {
            status.restarts_count_towards_max += 1;
            status.group_restarts += 1;
        }
        Some(ModelMutation::FreeEpochForgotten) if status.free_epoch == synced + 1 && deprecated < synced => {
            status.free_epoch = 0;
            status.group_restarts += 1;
            status.restarts_count_towards_max += 1;
        }
        _ => {}
    }
}
