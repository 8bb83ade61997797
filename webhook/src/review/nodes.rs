//! Reviews of Pods that keep away from the nodes that their JobSet avoids.

use jobset_program::log_limit;
use k8s_openapi::jiff::Timestamp;
use tracing::{debug, warn};

use super::{Asked, Decoded, Malformed, Reading, Review, decode};
use crate::nodes::known::Found;
use crate::nodes::{self, JobSetKey, PlacedPod};
use crate::wire::AdmissionRequest;

/// What comes of a review of the webhook that keeps Pods away from nodes.
pub(crate) enum KeepAway {
    Reviewed(Box<Review>),
    /// What the JobSet says has to be found out first: see [`finish`].
    Asks(JobSetKey),
}

/// Answers a review, if what its JobSet says is `known`. A Pod that cannot be read is let through, as by [`super::mutate`].
pub(crate) fn begin(
    body: &[u8],
    reading: Reading,
    known: impl Fn(&JobSetKey) -> Option<Found>,
) -> Result<KeepAway, Malformed> {
    let request = match decode::<PlacedPod>(body, reading)? {
        Decoded::Readable(request) => request,
        Decoded::Unreadable { asked, .. } => return Ok(KeepAway::Reviewed(Box::new(Review::allow(asked)))),
    };
    let Some(key) = nodes::jobset(&request) else {
        return Ok(KeepAway::Reviewed(Box::new(Review::allow(Asked::by(&request)))));
    };
    Ok(match known(&key) {
        Some(found) => KeepAway::Reviewed(Box::new(reviewed(&request, &key, found))),
        None => KeepAway::Asks(key),
    })
}

/// Answers a review of a Pod whose JobSet was asked for. The Pod is read again, as by [`super::follow`].
pub(crate) fn finish(body: &[u8], key: &JobSetKey, found: Found) -> Result<Review, Malformed> {
    Ok(match decode::<PlacedPod>(body, Reading::Quick)? {
        Decoded::Readable(request) => reviewed(&request, key, found),
        Decoded::Unreadable { asked, .. } => Review::allow(asked),
    })
}

fn reviewed(request: &AdmissionRequest<PlacedPod>, key: &JobSetKey, found: Found) -> Review {
    let (asked, Some(pod)) = (Asked::by(request), request.object()) else {
        return Review::allow(Asked::by(request));
    };
    let jobset = match found {
        Ok(jobset) => jobset,
        Err(error) => {
            let (namespace, name) = (&*key.namespace, &*key.name);
            if let Some(suppressed) = log_limit::permit(namespace) {
                warn!(jobset = name, namespace, %error, suppressed, "cannot read the JobSet of a Pod, which may go to any node");
            }
            let warning = format!("the Pod may go to a node that its JobSet avoids: reading JobSet {name}: {error}");
            return Review::undecided(asked, log_limit::beginning(&warning).to_owned());
        }
    };
    let Some(avoidance) = jobset.and_then(|jobset| jobset.avoidance(pod.jobset_uid(), Timestamp::now())) else {
        return Review::allow(asked);
    };
    let Some(after) = pod.keep_away(&avoidance) else { return Review::allow(asked) };
    debug!(jobset = &*key.name, namespace = &*key.namespace, nodes = ?avoidance.nodes, "kept away");
    Review::change(asked, pod, &after)
}
