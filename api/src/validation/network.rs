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

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::super::testing::{accepts, rejects};

    #[rstest]
    #[case("net")]
    #[case("")]
    #[case(&"a".repeat(63))]
    fn subdomain_with_service_name_is_accepted(#[case] subdomain: &str) {
        accepts(&[("/spec/network", json!({ "subdomain": subdomain }))]);
    }

    #[rstest]
    #[case::dot("net.work")]
    #[case::digit("1net")]
    #[case::upper_case("Net")]
    #[case::too_long(&"a".repeat(64))]
    fn subdomain_without_service_name_is_rejected(#[case] subdomain: &str) {
        let expected = format!("spec.network.subdomain: Invalid value: \"{subdomain}\": must consist of lower-case");
        rejects(&[("/spec/network", json!({ "subdomain": subdomain }))], &expected);
    }
}
