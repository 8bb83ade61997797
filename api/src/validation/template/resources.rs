//! What the API server refuses in the resources of a container, by `validateResourceRequirements` of
//! `pkg/apis/core/validation/validation.go` of Kubernetes 1.36.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::field::{Errors, Path};
use crate::quantity::nanos;
use crate::syntax;

/// Resources of a container that Kubernetes itself knows, besides huge pages.
const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const HUGE_PAGES: &str = "hugepages-";
/// Resources with this in their name belong to Kubernetes, too.
const NATIVE: &str = "kubernetes.io/";
const NAME: &str =
    "must be cpu, memory, ephemeral-storage, hugepages-<size>, or a name with a domain, such as nvidia.com/gpu";
/// A thousandth, to which Kubernetes rounds up, in billionths.
const MILLI: i128 = 1_000_000;

/// Rejects amounts that Kubernetes does not accept. A text that is no quantity is left to the schema.
pub(super) fn check(resources: &ResourceRequirements, path: &Path<'_>, errors: &mut Errors) {
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    for (name, amount) in resources.limits.iter().flatten() {
        check_one(name, amount, &limits.key(name), errors);
    }
    for (name, amount) in resources.requests.iter().flatten() {
        let path = requests.key(name);
        check_one(name, amount, &path, errors);
        let limit = resources.limits.as_ref().and_then(|limits| limits.get(name));
        check_limit(name, amount, limit, &path, &limits, errors);
    }
}

fn check_one(name: &str, amount: &Quantity, path: &Path<'_>, errors: &mut Errors) {
    let is_known = if name.contains('/') { syntax::is_label_key(name) } else { is_standard(name) };
    if !is_known {
        errors.invalid(path, name, NAME);
    }
    let text = amount.0.as_str();
    if text.starts_with('-') {
        if nanos(text).is_some_and(|number| number < 0) {
            errors.invalid(path, text, "must not be negative");
        }
    } else if is_extended(name) && !text.bytes().all(|byte| byte.is_ascii_digit()) && !is_whole(text) {
        errors.invalid(path, text, "must be a whole number, as of every resource with a domain");
    }
}

/// Whether Kubernetes reads a whole number. It rounds up to thousandths.
fn is_whole(text: &str) -> bool {
    nanos(text).is_none_or(|number| (number / MILLI + i128::from(number % MILLI != 0)) % 1000 == 0)
}

/// A request above the limit; for resources that are not overcommitted, one that differs from the limit.
fn check_limit(
    name: &str,
    request: &Quantity,
    limit: Option<&Quantity>,
    path: &Path<'_>,
    limits: &Path<'_>,
    errors: &mut Errors,
) {
    let is_overcommitted = !name.starts_with(HUGE_PAGES) && (!name.contains('/') || name.contains(NATIVE));
    let Some(limit) = limit else {
        if !is_overcommitted {
            let required = format_args!("must be set beside the request, and equal to it: {name} is not overcommitted");
            errors.required(&limits.key(name), required);
        }
        return;
    };
    if request == limit {
        return;
    }
    let (Some(requested), Some(most)) = (nanos(&request.0), nanos(&limit.0)) else { return };
    if requested > most {
        errors.invalid(path, &request.0, "must be at most the limit");
    } else if requested < most && !is_overcommitted {
        errors.invalid(path, &request.0, format_args!("must equal the limit: {name} is not overcommitted"));
    }
}

fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || name.starts_with(HUGE_PAGES)
}

/// Whether the resource belongs to a device plugin or the like.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains(NATIVE) && !name.starts_with("requests.")
}
