//! The boards that all pages share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::view::{Board, Boards, Revision};
use crate::cluster::{Cluster, Feed, FeedScope};
use crate::error::Error;
use crate::explain::{FactNeeds, Facts, explain};
use crate::mirror::{JobSetKey, Mirror, ObjectKind, WatchEvent};
use crate::status::{Epochs, PodNode};

/// Watch events within this time are shown together.
const TOGETHER: Duration = Duration::from_millis(10);
/// After an update of the boards, the next one waits for this many times as long as the update took.
const SHARE: u32 = 4;

/// What all pages show, and who looks at which page.
#[derive(Debug)]
pub struct Live {
    /// The namespace of all JobSets; none if they are of all namespaces.
    pub namespace: Option<String>,
    state: Mutex<State>,
    revision: watch::Sender<Revision>,
}

#[derive(Debug, Default)]
struct State {
    mirror: Mirror,
    boards: Boards,
    /// That no controller leads, in a sentence.
    absence: Option<String>,
    /// The open pages of each JobSet, and of the list.
    pages: BTreeMap<Page, usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Page {
    List,
    JobSet(JobSetKey),
}

/// An open page. It is closed when it is dropped.
#[derive(Debug)]
pub struct OpenPage {
    live: Arc<Live>,
    page: Page,
    revisions: watch::Receiver<Revision>,
    shown: Revision,
}

impl Live {
    /// Empty boards.
    pub fn new(namespace: Option<String>) -> Self {
        Self { namespace, state: Mutex::default(), revision: watch::Sender::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of one page leaves values that are still true.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a watch event. The pages show it after [`Self::show`].
    pub fn take(&self, event: WatchEvent) {
        self.state().mirror.apply(event);
    }

    /// Brings the boards up to date.
    pub fn show(&self) {
        self.bring_up_to_date(&mut self.state());
    }

    /// Takes in whether a controller leads.
    pub fn set_absence(&self, absence: Option<String>) {
        let mut state = self.state();
        state.absence = absence;
        self.bring_up_to_date(&mut state);
    }

    fn bring_up_to_date(&self, State { mirror, boards, absence, .. }: &mut State) {
        if boards.update(mirror, absence.as_deref(), Instant::now()) {
            self.revision.send_replace(boards.revision());
        }
    }

    fn is_complete(&self) -> bool {
        self.state().mirror.is_complete()
    }

    pub fn open(self: &Arc<Self>, page: Page) -> OpenPage {
        let mut state = self.state();
        let State { mirror, boards, pages, .. } = &mut *state;
        let count = pages.entry(page.clone()).or_default();
        *count += 1;
        if let (1, Page::JobSet(key)) = (*count, &page) {
            boards.open(key, mirror);
        }
        drop(state);
        OpenPage { live: Arc::clone(self), page, revisions: self.revision.subscribe(), shown: 0 }
    }

    /// Whether any page is open.
    pub fn is_watched(&self) -> bool {
        !self.state().pages.is_empty()
    }

    /// The JobSets of open pages.
    pub fn watched(&self) -> Vec<JobSetKey> {
        let jobset = |page: &Page| match page {
            Page::JobSet(key) => Some(key.clone()),
            Page::List => None,
        };
        self.state().pages.keys().filter_map(jobset).collect()
    }

    /// The revision in which a JobSet of an open page has changed last; none if it does not exist.
    pub fn changed(&self, key: &JobSetKey) -> Option<Revision> {
        self.state().boards.board(key).map(Board::changed)
    }

    /// What an explanation of a JobSet has to know beside its objects; none if it does not exist.
    pub fn needs(&self, key: &JobSetKey) -> Option<FactNeeds> {
        let around = Facts { now: Timestamp::now(), ..Facts::default() };
        Some(self.state().mirror.jobset(key)?.facts(around).needs())
    }

    /// Explains a JobSet, with the facts around it.
    pub fn explain(&self, key: &JobSetKey, around: Facts) {
        let mut state = self.state();
        let explanation = state.mirror.jobset(key).map(|observed| explain(observed.facts(around)));
        if explanation.is_some_and(|explanation| state.boards.explain(key, explanation)) {
            self.revision.send_replace(state.boards.revision());
        }
    }

    /// The report of `status` on one Pod, as JSON; none if it does not exist.
    pub fn pod(&self, key: &JobSetKey, name: &str) -> Option<String> {
        let state = self.state();
        let epochs = Epochs::of(&state.mirror.jobset(key)?.jobset);
        serde_json::to_string(&PodNode::of(state.mirror.pod(key, name)?, epochs)).ok()
    }
}

impl OpenPage {
    /// Waits until the page has something to show, and returns it as JSON. All changes since the last call are one update.
    pub async fn next(&mut self) -> String {
        loop {
            self.revisions.mark_unchanged();
            if let Some(text) = self.update() {
                return text;
            }
            if self.revisions.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn update(&mut self) -> Option<String> {
        let state = self.live.state();
        let since = self.shown;
        let (revision, text) = match &self.page {
            Page::List => {
                let update = state.boards.list_since(self.live.namespace.as_deref(), since)?;
                (update.revision, serde_json::to_string(&update))
            }
            Page::JobSet(key) => {
                let update = state.boards.jobset_since(key, since)?;
                (update.revision, serde_json::to_string(&update))
            }
        };
        drop(state);
        self.shown = revision;
        text.ok()
    }
}

impl Drop for OpenPage {
    fn drop(&mut self) {
        let mut state = self.live.state();
        let State { boards, pages, .. } = &mut *state;
        if let Some(count) = pages.get_mut(&self.page) {
            *count -= 1;
            if *count == 0 {
                pages.remove(&self.page);
                if let Page::JobSet(key) = &self.page {
                    boards.close(key);
                }
            }
        }
    }
}

/// Keeps the boards up to date. Returns an error if a watch fails before all objects have been listed once. Pages say later
/// failures, and the watches are retried. The Events are no condition: not every user may read them.
pub async fn feed(live: &Live, cluster: &Cluster, scope: &FeedScope) -> Error {
    let mut feed = Feed::begin(cluster, scope).and_events(cluster, scope);
    let mut due = Instant::now();
    loop {
        let mut event = feed.next().await;
        let until = due.max(Instant::now() + TOGETHER);
        // Events are taken in while the boards wait, so a burst of them is never queued.
        loop {
            match event {
                WatchEvent::Failed(kind, error, _) if kind != ObjectKind::Event && !live.is_complete() => return error,
                event => live.take(event),
            }
            match timeout_at(until, feed.next()).await {
                Ok(next) => event = next,
                Err(_) => break,
            }
        }
        let start = Instant::now();
        live.show();
        due = Instant::now() + start.elapsed() * SHARE;
    }
}
