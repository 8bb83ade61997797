//! Names on the command line. An invalid name is a usage error, before any request.

use jobset_api::{GROUP, VERSION, is_dns1123_label, is_dns1123_subdomain};

/// The name of a JobSet. As for `kubectl`, the kind may come first: `jobset/NAME`.
pub fn jobset(text: &str) -> Result<String, String> {
    let name = match text.split_once('/') {
        Some((kind, name)) if is_kind(kind) => name,
        Some(_) => return Err("is of another kind: use NAME or jobset/NAME".to_owned()),
        None => text,
    };
    if is_dns1123_subdomain(name) {
        return Ok(name.to_owned());
    }
    let text = "the name of a JobSet is a DNS subdomain: lower-case letters, digits, '-' and '.', with a letter or digit \
                at both ends of each part, and at most 253 characters";
    Err(text.to_owned())
}

/// The name of a Pod. As for `kubectl`, the kind may come first: `pod/NAME`.
pub fn pod(text: &str) -> Result<String, String> {
    let name =
        text.split_once('/').filter(|(kind, _)| matches!(*kind, "pod" | "pods" | "po")).map_or(text, |(_, it)| it);
    if is_dns1123_subdomain(name) {
        Ok(name.to_owned())
    } else {
        Err("is no name of a Pod: use NAME or pod/NAME".to_owned())
    }
}

pub fn namespace(text: &str) -> Result<String, String> {
    if is_dns1123_label(text) {
        return Ok(text.to_owned());
    }
    let text = "the name of a namespace is a DNS label: lower-case letters, digits and '-', with a letter or digit at both \
                ends, and at most 63 characters";
    Err(text.to_owned())
}

/// Whether `kubectl` accepts this word for JobSets: in any letter case, alone, with the group, or with version and group.
fn is_kind(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let (kind, rest) = text.split_once('.').map_or((text.as_str(), None), |(kind, rest)| (kind, Some(rest)));
    let is_ours = |rest: &str| rest == GROUP || rest.strip_prefix(VERSION).is_some_and(|it| it == format!(".{GROUP}"));
    matches!(kind, "jobset" | "jobsets") && rest.is_none_or(is_ours)
}
