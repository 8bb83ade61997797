//! A panic on demand, for the test of what a panic costs. It exists only in builds with debug assertions, which the shipped
//! profile has not, and only where the environment asks for it.

use std::env;
use std::sync::LazyLock;

use jobset_api::JobSet;
use kube::ResourceExt as _;

/// Variable that names the annotation of JobSets that cause a panic.
const VARIABLE: &str = "JOBSET_TEST_PANIC_ANNOTATION";

static ANNOTATION: LazyLock<Option<String>> = LazyLock::new(|| env::var(VARIABLE).ok());

/// Panics if the JobSet has the annotation.
pub(super) fn reach(jobset: &JobSet) {
    let asks = |annotation: &String| jobset.annotations().contains_key(annotation);
    assert!(!ANNOTATION.as_ref().is_some_and(asks), "the failpoint of tests was reached");
}
