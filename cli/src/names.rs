//! Names on the command line. An invalid name is a usage error, before any request.

use jobset_api::{GROUP, VERSION};

/// Maximum length of a DNS subdomain and of a DNS label (RFC 1123), in characters.
const SUBDOMAIN_LENGTH: usize = 253;
const LABEL_LENGTH: usize = 63;

/// The name of a JobSet. As for `kubectl`, the kind may come first: `jobset/NAME`.
///
/// # Errors
/// If the kind is another one, or the name is not a DNS subdomain.
pub fn jobset(text: &str) -> Result<String, String> {
    let name = match text.split_once('/') {
        Some((kind, name)) if is_kind(kind) => name,
        Some(_) => return Err("is of another kind: use NAME or jobset/NAME".to_owned()),
        None => text,
    };
    if name.len() <= SUBDOMAIN_LENGTH && name.split('.').all(is_dns_text) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "the name of a JobSet is a DNS subdomain: lower-case letters, digits, '-' and '.', with a letter or digit at \
         both ends of each part, and at most {SUBDOMAIN_LENGTH} characters"
    ))
}

/// The name of a namespace.
///
/// # Errors
/// If the name is not a DNS label.
pub fn namespace(text: &str) -> Result<String, String> {
    if text.len() <= LABEL_LENGTH && is_dns_text(text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "the name of a namespace is a DNS label: lower-case letters, digits and '-', with a letter or digit at both \
         ends, and at most {LABEL_LENGTH} characters"
    ))
}

/// Whether `kubectl` accepts this word for JobSets: in any letter case, alone, with the group, or with version and group.
fn is_kind(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let (kind, rest) = text.split_once('.').map_or((text.as_str(), None), |(kind, rest)| (kind, Some(rest)));
    let is_ours = |rest: &str| rest == GROUP || rest.strip_prefix(VERSION).is_some_and(|it| it == format!(".{GROUP}"));
    matches!(kind, "jobset" | "jobsets") && rest.is_none_or(is_ours)
}

/// Whether the text has only lower-case letters, digits and, not at its ends, hyphens.
fn is_dns_text(text: &str) -> bool {
    let outer = |end: char| end.is_ascii_lowercase() || end.is_ascii_digit();
    text.starts_with(outer) && text.ends_with(outer) && text.chars().all(|inner| outer(inner) || inner == '-')
}
