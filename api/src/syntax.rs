//! Kubernetes' syntax of names, paths and reasons, and the error text for each.

/// Maximum number of characters of a DNS label, of the name of a Job or Pod, and of the value of a label.
pub(crate) const LABEL_LENGTH: usize = 63;
/// Maximum number of characters of a DNS name.
const SUBDOMAIN_LENGTH: usize = 253;

/// Maximum number of characters of the name of a rule.
const RULE_NAME_LENGTH: usize = 128;

/// Describes [`is_dns1123_label`].
pub(crate) const DNS_1123_LABEL: &str = "must consist of lower-case letters, digits and '-', begin and end with a \
                                         letter or digit, and have at most 63 characters";
/// Describes [`is_dns1035_label`].
pub(crate) const DNS_1035_LABEL: &str = "must consist of lower-case letters, digits and '-', begin with a letter, end \
                                         with a letter or digit, and have at most 63 characters";
/// Describes [`is_condition_reason`].
pub(crate) const CONDITION_REASON: &str = "must consist of letters, digits, '_', ',' and ':', begin with a letter, \
                                           and end with a letter, digit or '_'";

/// Describes [`is_label_key`].
pub(crate) const LABEL_KEY: &str = "must be a name of at most 63 letters, digits, '-', '_' and '.', which begins and ends with a letter \
                                    or digit, with an optional domain and '/' before it";
/// Describes [`is_label_value`].
pub(crate) const LABEL_VALUE: &str = "must consist of letters, digits, '-', '_' and '.', begin and end with a letter or digit, and have \
                                      at most 63 characters";
/// Describes [`is_port_name`].
pub(crate) const PORT_NAME: &str = "must consist of lower-case letters, digits and single hyphens, have a letter, begin and end with a \
                                    letter or digit, and have at most 15 characters";

/// A label of a DNS name (RFC 1123), such as the name of a volume.
pub fn is_dns1123_label(text: &str) -> bool {
    text.len() <= LABEL_LENGTH && is_dns_text(text)
}

/// A label of a DNS name that begins with a letter (RFC 1035), such as the name of a Service.
pub(crate) fn is_dns1035_label(text: &str) -> bool {
    is_dns1123_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase())
}

/// A DNS name (RFC 1123).
pub fn is_dns1123_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_LENGTH && text.split('.').all(is_dns_text)
}

/// Reason of a condition, and name of a rule of the failure policy. Does not check the length.
pub(crate) fn is_condition_reason(text: &str) -> bool {
    let letter = |first: char| first.is_ascii_alphabetic();
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b',' | b':');
    let last = |last: char| last.is_ascii_alphanumeric() || last == '_';
    text.starts_with(letter) && text.bytes().all(inner) && text.ends_with(last)
}

/// Name of a rule of the failure policy, which becomes part of a condition's reason.
pub(crate) fn is_rule_name(text: &str) -> bool {
    is_condition_reason(text) && text.len() <= RULE_NAME_LENGTH
}

/// Path of a URL (RFC 3986).
pub(crate) fn is_http_path(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte))
}

/// Key of a label: a name, with an optional DNS name and a slash before it.
pub fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.rsplit_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_dns1123_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Value of a label, which may be empty.
pub(crate) fn is_label_value(text: &str) -> bool {
    let outer = |end: char| end.is_ascii_alphanumeric();
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.is_empty()
        || text.len() <= LABEL_LENGTH && text.starts_with(outer) && text.ends_with(outer) && text.bytes().all(inner)
}

/// Name of a port of a container (RFC 6335).
pub(crate) fn is_port_name(text: &str) -> bool {
    text.len() <= 15 && is_dns_text(text) && !text.contains("--") && text.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// Lower-case letters, digits and hyphens. The first and the last character are not hyphens.
fn is_dns_text(text: &str) -> bool {
    let outer = |end: char| end.is_ascii_lowercase() || end.is_ascii_digit();
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.starts_with(outer) && text.ends_with(outer) && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::letters("workers", true, true, true)]
    #[case::one_letter("a", true, true, true)]
    #[case::hyphen_inside("a--b", true, true, true)]
    #[case::digit_first("0a", true, false, true)]
    #[case::as_long_as_may_be(&"a".repeat(63), true, true, true)]
    #[case::too_long(&"a".repeat(64), false, false, true)]
    #[case::empty("", false, false, false)]
    #[case::upper_case("Workers", false, false, false)]
    #[case::hyphen_last("a-", false, false, false)]
    #[case::hyphen_first("-a", false, false, false)]
    #[case::other_script("wörker", false, false, false)]
    #[case::dot("a.b", false, false, true)]
    #[case::dot_last("a.", false, false, false)]
    #[case::much_too_long(&"a".repeat(254), false, false, false)]
    fn dns_name_syntax_matches_kubernetes(
        #[case] text: &str,
        #[case] label: bool,
        #[case] label_1035: bool,
        #[case] subdomain: bool,
    ) {
        assert_eq!(
            (is_dns1123_label(text), is_dns1035_label(text), is_dns1123_subdomain(text)),
            (label, label_1035, subdomain)
        );
    }

    #[rstest]
    #[case("PodFailurePolicy", true)]
    #[case("a", true)]
    #[case("a_", true)]
    #[case("a:b,c_1", true)]
    #[case("", false)]
    #[case("1a", false)]
    #[case("_a", false)]
    #[case("a:", false)]
    #[case("a b", false)]
    #[case("a-b", false)]
    fn condition_reason_syntax_matches_kubernetes(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(is_condition_reason(text), valid);
    }

    #[rstest]
    #[case("rack", true)]
    #[case("example.com/Rack_1.a", true)]
    #[case("", false)]
    #[case("bad key!", false)]
    #[case("a/b/c", false)]
    #[case("/rack", false)]
    #[case("example.com/", false)]
    #[case("example.com/-rack", false)]
    fn label_key_syntax_matches_kubernetes(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(is_label_key(text), valid);
    }

    #[rstest]
    #[case("", true, false)]
    #[case("a", true, true)]
    #[case("http-8080", true, true)]
    #[case("A_1.b", true, false)]
    #[case("8080", true, false)]
    #[case("a--b", true, false)]
    #[case("-a", false, false)]
    #[case("a b", false, false)]
    #[case("abcdefghijklmnop", true, false)]
    #[case(&"a".repeat(64), false, false)]
    fn label_value_and_port_name_syntax_match_kubernetes(#[case] text: &str, #[case] value: bool, #[case] port: bool) {
        assert_eq!((is_label_value(text), is_port_name(text)), (value, port));
    }

    #[rstest]
    #[case("foo/bar~1", true)]
    #[case("", false)]
    #[case("a b", false)]
    #[case("a#b", false)]
    fn http_path_syntax_matches_kubernetes(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(is_http_path(text), valid);
    }
}
