//! The regular expressions of `onJobFailureMessagePatterns`. Admission and controller compile them here, so that the
//! controller can compile every pattern that admission accepts.

mod re2;

use regex::{Regex, RegexBuilder};

use crate::FailurePolicyRule;

/// Maximum number of patterns in all rules of a JobSet. All are compiled at admission and whenever a Job fails.
pub(crate) const MAX_PATTERNS: usize = 256;
/// Maximum length of a pattern, in bytes.
const LENGTH: usize = 4096;
/// Maximum size of a compiled pattern, in bytes. A pattern with a few dozen Unicode letter classes has this size.
pub(crate) const MAX_SIZE: usize = 1 << 20;

/// The pattern cannot be compiled. The text is one line and says what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPattern {
    /// Not a regular expression.
    #[error("must be a regular expression (RE2 syntax): {0}")]
    Syntax(String),
    /// The compiled pattern would take too much memory.
    #[error("must be simpler: compiled, it would take more than {} KiB", .0 >> 10)]
    TooComplex(usize),
    /// The pattern is too long.
    #[error("must have at most 4096 bytes")]
    TooLong,
}

/// Compiles a pattern (RE2 syntax). The pattern matches anywhere in a message.
///
/// # Errors
/// [`InvalidPattern`] if the pattern is malformed, too long or too complex.
pub fn compile(pattern: &str) -> Result<Regex, InvalidPattern> {
    compile_within(pattern, MAX_SIZE)
}

/// The compiled patterns of each rule. A pattern that does not compile is `None` and matches nothing. If there are too
/// many patterns, all are `None`.
pub fn compile_all(rules: &[FailurePolicyRule]) -> Vec<Vec<Option<Regex>>> {
    let count: usize = rules.iter().map(|rule| rule.on_job_failure_message_patterns.len()).sum();
    let compile = |pattern: &String| if count > MAX_PATTERNS { None } else { compile(pattern).ok() };
    rules.iter().map(|rule| rule.on_job_failure_message_patterns.iter().map(compile).collect()).collect()
}

/// Compiles a pattern. `max_size` limits the size of the compiled pattern, in bytes.
pub(crate) fn compile_within(pattern: &str, max_size: usize) -> Result<Regex, InvalidPattern> {
    if pattern.len() > LENGTH {
        return Err(InvalidPattern::TooLong);
    }
    RegexBuilder::new(&re2::translate(pattern)).size_limit(max_size).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => InvalidPattern::TooComplex(max_size),
        // The text has several lines, which quote the pattern and point into it. The last line says what is wrong.
        error => {
            let text = error.to_string();
            let last = text.lines().next_back().unwrap_or_default();
            InvalidPattern::Syntax(last.trim_start_matches("error: ").to_owned())
        }
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::anywhere("exit code 1[0-9]+", "container main failed with exit code 137 in pod a", true)]
    #[case::anchored("^exit", "container failed, exit", false)]
    #[case::any_case("(?i)OOMKILLED", "reason OOMKilled", true)]
    #[case::class(r"pod\s\w+", "pod wörker", true)]
    #[case::quoted(r"\Qa.b[c\E+", "a.b[cc", true)]
    #[case::quoted_dot(r"\Qa.b\E", "axb", false)]
    #[case::quoted_to_the_end(r"^\Q(?x) a", "(?x) a", true)]
    #[case::quoted_backslash(r"^\Qa\b\E$", r"a\b", true)]
    #[case::octal(r"^\141\0560$", "a.0", true)]
    #[case::octal_zero(r"^a\0b$", "a\0b", true)]
    #[case::octal_in_class(r"^[\141-\143]+$", "abc", true)]
    #[case::property_of_one_letter(r"^\pN\PN$", "5a", true)]
    #[case::property_of_a_script(r"^\p{Greek}$", "α", true)]
    #[case::property_negated(r"^\p{^Greek}\P{^Greek}$", "aα", true)]
    #[case::property_in_class(r"^[\pN\p{^Greek}]$", "α", false)]
    #[case::digit_of_ascii(r"^\d$", "٣", false)]
    #[case::no_digit(r"^\D$", "٣", true)]
    #[case::word_of_ascii(r"^\w$", "ö", false)]
    #[case::space_without_vertical_tab(r"\s", "\u{b}", false)]
    #[case::space(r"^a\sb\Sc$", "a bxc", true)]
    #[case::boundary_of_ascii(r"\bb", "öb", true)]
    #[case::no_boundary_of_ascii(r"\Bb", "öb", false)]
    #[case::classes_in_class(r"^[\d\s.]+$", "1 .2", true)]
    #[case::opposite_in_class(r"^[\D]$", "1", false)]
    #[case::escaped_angle(r"^\<a\>$", "<a>", true)]
    #[case::escaped_underscore(r"^a\_b\/c\@d$", "a_b/c@d", true)]
    #[case::brace("^a{$", "a{", true)]
    #[case::brace_without_least("^a{,2}$", "a{,2}", true)]
    #[case::brace_of_boundary(r"^x\b{start}$", "x{start}", true)]
    #[case::braces_of_json(r#"^{"a": 1}$"#, r#"{"a": 1}"#, true)]
    #[case::repetition("^a{2}b{1,2}c{0,}$", "aabb", true)]
    #[case::bracket_in_class("^[[a]+$", "[a", true)]
    #[case::bracket_first("^[]a]+$", "a]", true)]
    #[case::not_bracket_first("^[^]a]$", "]", false)]
    #[case::ampersands_in_class("^[a&&b]+$", "a&b", true)]
    #[case::range_to_hyphen("^[+--]+$", "+,-", true)]
    #[case::hyphen_last("^[a~~b-]+$", "a~b-", true)]
    #[case::caret_inside("^[a^]+$", "^a", true)]
    #[case::posix("^[[:alpha:]_[:^space:]]+$", "a_1", true)]
    #[case::named("(?P<1st>a)(?P<first>b)(?<second>c)", "abc", true)]
    #[case::number("^\\x41\\x{1F600}$", "A\u{1F600}", true)]
    #[case::letters(r"^\a\f\t\n\r\v$", "\u{7}\u{c}\t\n\r\u{b}", true)]
    #[case::end_of_text("a$", "a\n", false)]
    #[case::ends(r"\Aa\z", "a", true)]
    #[case::swapped("(?U)^a*?$", "aa", true)]
    #[case::any_but_newline("^.$", "\n", false)]
    #[case::newline_in_negated_class("^[^a]$", "\n", true)]
    fn pattern_of_re2_syntax_matches_as_in_re2(#[case] pattern: &str, #[case] message: &str, #[case] matches: bool) {
        assert_eq!(compile(pattern).unwrap().is_match(message), matches);
    }

    #[rstest]
    #[case::any_byte(r"\C")]
    #[case::group_by_number(r"(a)\1")]
    #[case::no_octal_digit(r"\8")]
    #[case::letter(r"\y")]
    #[case::open_class("[a")]
    #[case::open_class_of_posix("[[:alpha:]")]
    #[case::unknown_property(r"\p{Nothing}")]
    #[case::no_property(r"\p")]
    #[case::backslash("a\\")]
    #[case::reversed("[b-a]")]
    #[case::look_behind("(?<=a)b")]
    #[case::too_much("(?P<>a)")]
    fn pattern_outside_re2_syntax_is_invalid(#[case] pattern: &str) {
        assert!(matches!(compile(pattern), Err(InvalidPattern::Syntax(_))), "{:?}", re2::translate(pattern));
    }

    #[test]
    fn patterns_above_limit_match_nothing() {
        let rule = |patterns: usize| FailurePolicyRule {
            on_job_failure_message_patterns: vec!["a".to_owned(); patterns],
            ..serde_json::from_value(serde_json::json!({ "action": "FailJobSet" })).unwrap()
        };
        let compiled = |rules: &[_]| compile_all(rules).iter().flatten().filter(|it| it.is_some()).count();
        assert_eq!(
            (compiled(&[rule(MAX_PATTERNS - 1), rule(1)]), compiled(&[rule(MAX_PATTERNS), rule(1)])),
            (MAX_PATTERNS, 0)
        );
    }

    proptest::proptest! {
        #[test]
        fn pattern_of_any_text_compiles_without_panic_and_quoted_text_matches_itself(text in ".{0,40}") {
            let _ = compile(&text);
            let quoted = compile(&format!("^\\Q{}\\E$", text.replace('\\', "/"))).unwrap();
            proptest::prop_assert!(quoted.is_match(&text.replace('\\', "/")));
        }
    }

    #[rstest]
    #[case::open("a(b", "must be a regular expression (RE2 syntax): unclosed group")]
    #[case::look_around("a(?=b)", "must be a regular expression (RE2 syntax): look-around")]
    #[case::several_lines("(?x)\n a(b", "must be a regular expression (RE2 syntax): unclosed group")]
    #[case::complex(r"(\pL{99}){99}", "must be simpler: compiled")]
    #[case::long(&"a".repeat(4097), "must have at most 4096 bytes")]
    fn pattern_error_is_one_line(#[case] pattern: &str, #[case] expected: &str) {
        let error = compile(pattern).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}
