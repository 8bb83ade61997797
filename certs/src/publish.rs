//! Writes the caBundles where they differ from what they should be, and not without end against somebody else.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::bundle::{self, Configuration, Found, LiveBundle};
use crate::handover::Live;
use crate::issuer::Outcome;
use crate::policy::is_issued_before;
use crate::x509;

/// Patches tried in one call; each one that is lost was won by another writer of the same object.
const ATTEMPTS: u32 = 5;
/// First pause before a bundle that somebody else has changed is written again. It doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// After so long without such a write, the next pause is the first again.
const QUIET: Duration = Duration::from_mins(10);

/// The pauses before writes that undo what somebody else has written.
#[derive(Debug, Default)]
struct WriteBackoff {
    last: Option<(Instant, Duration)>,
}

impl WriteBackoff {
    /// How long to wait before the next such write.
    fn wait(&self, now: Instant) -> Duration {
        self.last.map_or(Duration::ZERO, |(at, pause)| pause.saturating_sub(now.duration_since(at)))
    }

    fn wrote(&mut self, now: Instant) {
        let again = self.last.filter(|(at, _)| now.duration_since(*at) < QUIET);
        self.last = Some((now, again.map_or(FIRST_PAUSE, |(_, pause)| (pause * 2).min(LONGEST_PAUSE))));
    }
}

/// One configuration, and what this program has written into it.
#[derive(Debug)]
struct Target {
    configuration: Configuration,
    /// By the webhooks' names.
    written: Vec<(String, Vec<u8>)>,
    backoff: WriteBackoff,
}

/// Writes caBundles.
pub(crate) struct Publisher {
    client: Client,
    targets: Vec<Target>,
}

/// The caBundles of all configurations that could be read.
#[derive(Default)]
pub(crate) struct Published {
    /// As they were found.
    pub(crate) found: Vec<LiveBundle>,
    pub(crate) live: Live,
}

impl Publisher {
    pub(crate) fn new(client: Client, configurations: &[Configuration]) -> Self {
        let target = |it: &Configuration| Target {
            configuration: it.clone(),
            written: Vec::new(),
            backoff: WriteBackoff::default(),
        };
        Self { client, targets: configurations.iter().map(target).collect() }
    }

    /// Brings all bundles to what is wanted, given what they hold. One that cannot be written does not keep the others from
    /// being written. A CA that was issued before `distrusted` is taken out without a pause.
    pub(crate) async fn publish(
        &mut self,
        outcome: &mut Outcome,
        distrusted: Option<Timestamp>,
        wanted: impl Fn(Vec<CertificateDer<'static>>) -> Vec<CertificateDer<'static>>,
    ) -> Published {
        let mut published = Published::default();
        for target in &mut self.targets {
            match bundle::read(&self.client, &target.configuration).await {
                Ok(found) => {
                    published.found.extend(found.bundles.iter().cloned());
                    let found = target.bring(&self.client, outcome, found, distrusted, &wanted).await;
                    published.live.bundles.extend(found.bundles);
                }
                Err(error) => {
                    published.live.lacks(&error);
                    outcome.fails(error);
                }
            }
        }
        published
    }
}

impl Target {
    /// Whether somebody else has changed a bundle since it was written here.
    fn is_undone(&self, found: &LiveBundle) -> bool {
        let written = self.written.iter().find(|(webhook, _)| *webhook == found.webhook);
        written.is_some_and(|(_, pem)| x509::certificates(pem) != x509::certificates(&found.pem))
    }

    /// The configuration as it is afterwards.
    async fn bring(
        &mut self,
        client: &Client,
        outcome: &mut Outcome,
        mut found: Found,
        distrusted: Option<Timestamp>,
        wanted: impl Fn(Vec<CertificateDer<'static>>) -> Vec<CertificateDer<'static>>,
    ) -> Found {
        for attempt in 1.. {
            let mut changes = Vec::new();
            for bundle in &found.bundles {
                let holds = x509::certificates(&bundle.pem);
                let wanted = wanted(holds.clone());
                // In any order: it does not matter, and is no reason to write.
                if holds.len() != wanted.len() || !wanted.iter().all(|it| holds.contains(it)) {
                    changes.push((bundle.webhook.clone(), x509::bundle(&wanted)));
                }
            }
            if changes.is_empty() {
                break;
            }
            let undone = found.bundles.iter().any(|it| self.is_undone(it));
            let is_urgent = found.bundles.iter().any(|it| trusts_distrusted(it, distrusted));
            let (now, configuration) = (Instant::now(), &self.configuration);
            let wait = self.backoff.wait(now);
            if undone && !is_urgent && !wait.is_zero() {
                outcome.wait = outcome.wait.min(wait);
                break;
            }
            match bundle::write(client, configuration, &found, &changes).await {
                Ok(patched) => {
                    if undone {
                        self.backoff.wrote(now);
                        let writers = named(&found.writers);
                        warn!(%configuration, writers, "wrote caBundle again, because somebody else had changed it");
                    } else {
                        info!(%configuration, webhooks = changes.len(), "wrote caBundle");
                    }
                    self.written.retain(|(webhook, _)| changes.iter().all(|(changed, _)| changed != webhook));
                    self.written.extend(changes);
                    found = patched;
                    break;
                }
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => {
                    match bundle::read(client, configuration).await {
                        Ok(again) => found = again,
                        Err(error) => {
                            outcome.fails(error);
                            break;
                        }
                    }
                }
                Err(error) => {
                    outcome.fails(error);
                    break;
                }
            }
        }
        if self.backoff.last.is_some_and(|(at, _)| at.elapsed() < QUIET) {
            let writers = named(&found.writers);
            outcome.remark = Some(format!("the caBundle of {} is also written by {writers}", self.configuration));
        }
        found
    }
}

/// Whether a bundle holds a CA that was issued before that time.
fn trusts_distrusted(found: &LiveBundle, before: Option<Timestamp>) -> bool {
    let certificates = x509::certificates(&found.pem);
    let mut validities = certificates.iter().filter_map(x509::properties).map(|it| it.validity);
    validities.any(|validity| is_issued_before(validity, before))
}

fn named(writers: &BTreeSet<String>) -> String {
    if writers.is_empty() {
        return "somebody who does not say who it is".to_owned();
    }
    writers.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::{Lifetimes, issue};

    #[test]
    fn pauses_double_to_a_minute_and_start_over_after_quiet() {
        let (mut backoff, mut now) = (WriteBackoff::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let wait = backoff.wait(now);
            pauses.push(wait.as_secs());
            now += wait;
            backoff.wrote(now);
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60]);
        now += QUIET;
        assert_eq!(backoff.wait(now), Duration::ZERO);
        backoff.wrote(now);
        assert_eq!(backoff.wait(now), FIRST_PAUSE);
    }
    #[test]
    fn bundle_is_undone_by_any_other_that_somebody_writes() {
        let pem = || issue::authority(Timestamp::now(), &Lifetimes::default()).unwrap().certificate.into_bytes();
        let (ours, theirs, theirs_again) = (pem(), pem(), pem());
        let configuration = Configuration::Mutating("jobset".to_owned());
        let written = [ours.clone(), theirs].concat();
        let target = Target {
            configuration: configuration.clone(),
            written: vec![("a".to_owned(), written.clone())],
            backoff: WriteBackoff::default(),
        };
        let undone = |webhook: &str, pem: &[u8]| {
            let (configuration, webhook) = (configuration.clone(), webhook.to_owned());
            target.is_undone(&LiveBundle { configuration, webhook, pem: pem.to_owned() })
        };
        assert!(!undone("a", &written), "as it was written");
        assert!(undone("a", b""), "emptied");
        assert!(undone("a", &ours), "shortened");
        assert!(undone("a", &theirs_again), "another CA each time");
        assert!(!undone("b", &theirs_again), "never written");
        let stolen = LiveBundle { configuration: configuration.clone(), webhook: "a".to_owned(), pem: theirs_again };
        let later = Timestamp::now() + SignedDuration::from_hours(1);
        assert!(trusts_distrusted(&stolen, Some(later)) && !trusts_distrusted(&stolen, None));
    }
}
