//! The slow requests of all works. They hold no place, so they are bounded here.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use jobset_store::Key;

use crate::refusals::Request;

/// Time after which a request without an answer is slow. It then leaves its work, which ends without it.
///
/// An API server answers nearly all requests sooner. What takes longer is behind a webhook, or hangs.
pub const SLOW: Duration = Duration::from_secs(1);
/// Most slow requests at once. An API server carries out 200 changes at once by default, those of all its clients.
pub const SLOW_REQUESTS: usize = 96;
/// Slow requests of one namespace with which it begins no bulk work.
const NAMESPACE_SLOW_REQUESTS: usize = SLOW_REQUESTS / 2;
/// Slow requests with which no request is sent again that was slow and failed.
const PROBED_SLOW_REQUESTS: usize = SLOW_REQUESTS / 3 * 2;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    Action(Request),
    Status,
}

/// Names a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    pub work: u64,
    pub part: Part,
}

/// The slow requests of all works, the oldest first.
#[derive(Debug, Default)]
pub(super) struct SlowRequests {
    requests: Vec<(RequestId, Key)>,
    cut: Vec<RequestId>,
}

impl SlowRequests {
    /// The request is slow. If there are too many, one is cut short.
    pub(super) fn add(&mut self, id: RequestId, key: &Key) {
        self.requests.push((id, key.clone()));
        if self.len() > SLOW_REQUESTS {
            self.cut(self.dispensable());
        }
    }

    pub(super) fn remove(&mut self, id: &RequestId) {
        self.requests.retain(|(other, _)| other != id);
    }

    /// Nobody needs the answer to this request.
    pub(super) fn give_up(&mut self, id: &RequestId) {
        if let Some(place) = self.requests.iter().position(|(other, _)| other == id) {
            self.cut(place);
        }
    }

    /// The JobSet is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        while let Some(place) = self.requests.iter().position(|(_, other)| other == key) {
            self.cut(place);
        }
    }

    /// The requests to cut short since the last call.
    pub(super) fn take_cut(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.cut)
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn of_namespace(&self, namespace: &str) -> usize {
        self.requests.iter().filter(|(_, key)| key.namespace == namespace).count()
    }

    /// Whether a namespace has so many that bulk work would only add to them.
    pub(super) fn hold_up_bulk(&self, namespace: &str) -> bool {
        self.of_namespace(namespace) >= NAMESPACE_SLOW_REQUESTS
    }

    /// Whether a request may be sent again that was slow and failed.
    pub(super) fn leave_room_for_probe(&self) -> bool {
        self.len() < PROBED_SLOW_REQUESTS
    }

    fn cut(&mut self, place: usize) {
        let (id, _) = self.requests.remove(place);
        self.cut.push(id);
    }

    /// The place of the request that is cut short: of the namespace that has most of them, the newest one, because the others are
    /// nearer to their answers. Of namespaces with as many, it is that with the oldest request.
    fn dispensable(&self) -> usize {
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (place, (_, key)) in self.requests.iter().enumerate() {
            places.entry(&key.namespace).or_default().push(place);
        }
        let most = places.into_values().max_by_key(|places| (places.len(), Reverse(places[0])));
        most.and_then(|places| places.last().copied()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(requests: &[(&str, usize)]) -> SlowRequests {
        let mut slow = SlowRequests::default();
        let mut work = 0;
        for (namespace, count) in requests {
            for _ in 0..*count {
                work += 1;
                let key = Key { namespace: (*namespace).to_owned(), name: work.to_string() };
                slow.add(RequestId { work, part: Part::Status }, &key);
            }
        }
        slow
    }

    fn cut(slow: &mut SlowRequests) -> Vec<u64> {
        slow.take_cut().iter().map(|id| id.work).collect()
    }

    #[test]
    fn request_beyond_limit_cuts_newest_of_largest_namespace() {
        let mut slow = slow(&[("few", 6), ("most", 60), ("few", 30), ("new", 2)]);
        assert_eq!(cut(&mut slow), [66, 65]);
        assert_eq!(["few", "most", "new"].map(|namespace| slow.of_namespace(namespace)), [36, 58, 2]);
    }

    #[test]
    fn add_beyond_the_limit_of_many_namespaces_cuts_the_oldest() {
        let names: Vec<String> = (0..SLOW_REQUESTS + 2).map(|index| index.to_string()).collect();
        let mut slow = slow(&names.iter().map(|name| (name.as_str(), 1)).collect::<Vec<_>>());
        assert_eq!(cut(&mut slow), [1, 2]);
    }

    #[test]
    fn forget_jobset_cuts_its_requests_short() {
        let mut slow = slow(&[("a", 3)]);
        slow.forget(&Key { namespace: "a".to_owned(), name: "2".to_owned() });
        assert_eq!((cut(&mut slow), slow.of_namespace("a")), (vec![2], 2));
    }
}
