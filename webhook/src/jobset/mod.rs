//! What admission decides about a JobSet. Pure: a request comes in, an object or errors go out.

pub mod defaults;
pub mod in_place;

use jobset_api::JobSet;
use kube::core::admission::{AdmissionRequest, Operation};

use crate::field::{Errors, Path};

/// The JobSet with its defaults, or `None` where nothing is to be defaulted.
///
/// Fields are defaulted on CREATE alone: a later release that defaults one more field must not change objects that
/// exist, least of all in fields that are immutable.
pub fn mutate(request: &AdmissionRequest<JobSet>) -> Option<JobSet> {
    let jobset = reviewed(request).filter(|_| request.operation == Operation::Create)?;
    let defaulted = JobSet { spec: defaults::apply(&jobset.spec), ..jobset.clone() };
    (defaulted != *jobset).then_some(defaulted)
}

/// Everything that is wrong with the JobSet of the request.
///
/// A specification that an update leaves as it was passes, whatever is in it: rules are added over time, and an object
/// that was admitted without them can still be labelled, and lose its finalizers.
pub fn validate(request: &AdmissionRequest<JobSet>) -> Errors {
    let mut errors = Errors::default();
    let Some(jobset) = reviewed(request) else { return errors };
    let unchanged = request.old_object.as_ref().is_some_and(|old| old.spec == jobset.spec);
    if request.operation == Operation::Update && unchanged {
        return errors;
    }
    let spec = Path::root("spec");
    in_place::validate(&jobset.spec, &spec, &mut errors);
    errors
}

/// The JobSet that rules look at, if any: not in deletions and in what concerns its status only, and not when it is
/// being deleted, so that nothing ever keeps one from going away.
fn reviewed(request: &AdmissionRequest<JobSet>) -> Option<&JobSet> {
    let writes = matches!(request.operation, Operation::Create | Operation::Update);
    let whole = request.sub_resource.as_deref().unwrap_or_default().is_empty();
    let jobset = request.object.as_ref().filter(|_| writes && whole)?;
    jobset.metadata.deletion_timestamp.is_none().then_some(jobset)
}
