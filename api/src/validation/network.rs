//! The headless Service.

use super::subject::Subject;
use crate::field::{Errors, Path};
use crate::syntax;

/// Rejects a subdomain that is not a valid name of a Service.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    if let Some(subdomain) = subject.spec.given_subdomain().filter(|it| !syntax::is_dns1035_label(it)) {
        let required = format_args!("{}: it is the name of a Service", syntax::DNS_1035_LABEL);
        errors.invalid(&spec.child("network.subdomain"), subdomain, required);
    }
}

/// Rejects a subdomain that is not a valid subdomain of a Pod, unless DNS host names are disabled.
pub(super) fn check_pods(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let subdomain = subject.spec.given_subdomain().filter(|it| !syntax::is_dns1123_label(it));
    if let Some(subdomain) = subdomain.filter(|_| subject.spec.dns_hostnames_enabled()) {
        let required = format_args!("{}: it is the subdomain of the Pods", syntax::DNS_1123_LABEL);
        errors.invalid(&spec.child("network.subdomain"), subdomain, required);
    }
}
