//! For how long an API server refuses, while something is done to the certificates: JobSets are created one after the other,
//! without being stored, and what became of them is counted.

use std::fmt::{self, Display, Formatter};
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::{MissedTickBehavior, interval};

use crate::api_server::good;
use crate::cluster::Plane;

/// Between two JobSets.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(crate) struct Refusals {
    asked: u32,
    refused: u32,
    /// When the first began that was refused, and the last one ended.
    span: Option<(Instant, Instant)>,
}

impl Refusals {
    pub(crate) async fn until<T>(plane: &Plane, done: impl Future<Output = Result<T>>) -> Result<(T, Self)> {
        let (mut done, mut counted, mut ticks) = (pin!(done), Self::default(), interval(PAUSE));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut asked = async || {
            ticks.tick().await;
            let begin = Instant::now();
            (begin, plane.dry_run(&good("asked")).await)
        };
        loop {
            let (begin, answer) = tokio::select! {
                biased;
                done = &mut done => return Ok((done?, counted)),
                answer = asked() => answer,
            };
            counted.asked += 1;
            if answer.is_err() {
                counted.refused += 1;
                let first = counted.span.map_or(begin, |(first, _)| first);
                counted.span = Some((first, Instant::now()));
            }
        }
    }
}

impl Display for Refusals {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let span = self.span.map(|(first, last)| last - first).unwrap_or_default();
        let Self { refused, asked, .. } = self;
        write!(f, "{refused} of {asked} refused, {:.2} s from the first to the last", span.as_secs_f64())
    }
}
