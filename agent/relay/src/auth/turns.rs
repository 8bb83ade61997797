//! Turns of what costs the API server a request: a token whose key is unknown needs no signature to cost one.
//!
//! Each network holds a part of the places at most. Where all are taken, the oldest of the network that holds most makes room, so that
//! nobody who fills them keeps the agents of other addresses out.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jobset_program::server::party::Party;
use jobset_program::server::places::{Rank, Size};
use jobset_program::server::pool::{Place, Pool};
use jobset_stream::rate::TokenBucket;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::Rejection;
use crate::limits::{KEY_QUEUE, REVIEW_QUEUE, REVIEW_RATE, REVIEW_TIME};

/// One network holds at most this part of the places.
const PART: usize = 4;

pub(super) struct Places(Arc<Pool<()>>);

impl Places {
    /// Of those whose key is unknown, while the keys are read again.
    pub(super) fn of_strangers() -> Self {
        Self::new(KEY_QUEUE)
    }

    fn new(total: usize) -> Self {
        // Those of its own network keep their places until their time is over, so that they are served in their order.
        let size = Size { total, of_network: total / PART, age_for_own: REVIEW_TIME, age_for_others: Duration::ZERO };
        Self(Pool::new(size))
    }

    fn enter(&self, address: IpAddr) -> Result<Place<()>, Rejection> {
        self.0.enter(&Party::of(address), 1, ()).map_err(|_| Rejection::Busy)
    }

    /// Waits for `result` in a place.
    ///
    /// # Errors
    /// [`Rejection::Busy`] if there is no place, or another network has taken it.
    pub(super) async fn hold<T>(&self, address: IpAddr, result: impl Future<Output = T>) -> Result<T, Rejection> {
        let place = self.enter(address)?;
        tokio::select! {
            result = result => Ok(result),
            _ = place.lost() => Err(Rejection::Busy),
        }
    }
}

/// Token reviews: so many in a second, in the order of those who wait.
pub(super) struct Reviews {
    places: Places,
    /// Whoever holds it has the next turn.
    rate: Mutex<TokenBucket>,
}

impl Reviews {
    pub(super) fn new() -> Self {
        let rate = Mutex::new(TokenBucket::full(REVIEW_RATE, Instant::now()));
        Self { places: Places::new(REVIEW_QUEUE), rate }
    }

    /// Begins `review` when its turn comes.
    ///
    /// # Errors
    /// That of the review, or [`Rejection::Busy`] if it cannot begin or end in time.
    pub(super) async fn review<T>(
        &self,
        address: IpAddr,
        review: impl Future<Output = Result<T, Rejection>>,
    ) -> Result<T, Rejection> {
        let place = self.places.enter(address)?;
        let in_turn = async {
            self.turn().await;
            place.rank(Rank::Served);
            review.await
        };
        tokio::select! {
            result = timeout(REVIEW_TIME, in_turn) => result.unwrap_or(Err(Rejection::Busy)),
            _ = place.lost() => Err(Rejection::Busy),
        }
    }

    /// Takes a turn. Whoever leaves before has taken none.
    async fn turn(&self) {
        let mut rate = self.rate.lock().await;
        while !rate.take(REVIEW_RATE, REVIEW_RATE, Instant::now()) {
            sleep(Duration::from_secs_f64(1.0 / REVIEW_RATE)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;

    use futures::future::{join_all, ready};

    use super::*;

    fn address(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    /// So many of one network have a new token as soon as one was reviewed, for ever.
    async fn greedy(reviews: &Reviews, number: u8, tokens: usize) {
        let one = async || {
            loop {
                if reviews.review(address(number), ready(Ok(()))).await.is_err() {
                    sleep(Duration::from_secs(1)).await;
                }
            }
        };
        join_all((0..tokens).map(|_| one())).await;
    }

    #[tokio::test(start_paused = true)]
    async fn greedy_networks_keep_no_review_of_another_out() {
        let reviews = Reviews::new();
        let attack = join_all((1..=8).map(|number| greedy(&reviews, number, REVIEW_QUEUE / 2)));
        let agents = async {
            sleep(Duration::from_secs(10)).await;
            for _ in 0..5 {
                assert_eq!(reviews.review(address(99), ready(Ok(7))).await, Ok(7));
            }
        };
        tokio::select! {
            _ = attack => {}
            () = agents => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_of_one_network_are_served_in_order() {
        let (reviews, began) = (Reviews::new(), Instant::now());
        let served = Cell::new(0);
        let (at_once, waiting) = (10, REVIEW_QUEUE / PART);
        let count = async |number| {
            let result = reviews.review(address(1), async { Ok(served.replace(served.get() + 1)) }).await;
            (number, result)
        };
        let results = join_all((0..=at_once + waiting).map(count)).await;
        let (last, others) = results.split_last().unwrap();
        assert!(others.iter().all(|(number, served)| *served == Ok(*number)), "{others:?}");
        assert_eq!(last.1, Err(Rejection::Busy), "one more than a network may have");
        assert!((1_500..2_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn review_that_never_ends_gives_its_place_back() {
        let reviews = Reviews::new();
        let endless =
            (0..REVIEW_QUEUE / PART).map(|_| reviews.review(address(1), std::future::pending::<Result<(), _>>()));
        assert!(join_all(endless).await.iter().all(|it| *it == Err(Rejection::Busy)));
        assert_eq!(reviews.review(address(1), ready(Ok(()))).await, Ok(()));
    }
}
