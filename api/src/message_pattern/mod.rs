//! The regular expressions of `onJobFailureMessagePatterns`. Admission and controller compile them here, with the same limits,
//! so that the controller can compile every pattern that admission accepts.
//!
//! The limits bound the time and the memory that the patterns of one JobSet take. A pattern is a list of states that is
//! simulated without capture groups: they would take a slot for each group in each state, 260 MB for 4 kB of `()`.

mod re2;

use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{Compiler, Config, WhichCaptures};
use regex_automata::util::syntax;

use crate::FailurePolicyRule;

/// Maximum number of patterns in all rules of a JobSet.
pub const MAX_PATTERNS: usize = 256;
/// Maximum length of a pattern, in bytes.
const MAX_LENGTH: usize = 4 << 10;
/// Maximum length of all patterns of a JobSet together, in bytes.
const MAX_TOTAL_LENGTH: usize = 16 << 10;
/// Maximum size of all compiled patterns of a JobSet together, in bytes. An ordinary pattern takes 1 to 5 KiB, and each Unicode
/// class in it 5 to 20 KiB more.
const MAX_TOTAL_SIZE: usize = 512 << 10;
/// Maximum number of large classes in all patterns of a JobSet. The parser takes some 10 µs for each.
const MAX_LARGE_CLASSES: usize = 128;
/// The same for patterns that ignore case: the parser takes up to some milliseconds for each.
const MAX_LARGE_CLASSES_OF_ANY_CASE: usize = 4;
/// Length of the beginning of a message that patterns are compared with, in bytes. Messages of Kubernetes have a few hundred.
const MESSAGE_LENGTH: usize = 1 << 10;

/// The pattern cannot be compiled. The text is one line and says what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPattern {
    #[error("must be a regular expression (RE2 syntax): {0}")]
    Syntax(String),
    #[error("must have at most {MAX_LENGTH} bytes")]
    TooLong,
    #[error("must be shorter: all patterns of a JobSet together must have at most {MAX_TOTAL_LENGTH} bytes")]
    TooLongTogether,
    #[error(
        "must have fewer classes such as \\pL, \\W in brackets, or ranges of thousands of letters: at most \
         {MAX_LARGE_CLASSES} in all patterns of a JobSet, and {MAX_LARGE_CLASSES_OF_ANY_CASE} in those with (?i)"
    )]
    TooManyClasses,
    #[error(
        "must be simpler: compiled, all patterns of a JobSet together must take at most {} KiB; this one and those after it \
         do not fit", MAX_TOTAL_SIZE >> 10
    )]
    TooComplex,
    /// An earlier pattern is [`Self::TooComplex`], so this one is not compiled.
    #[error("comes after a pattern that is too complex")]
    NotTried,
}

/// The compiled patterns of a failure policy.
#[derive(Clone, Debug, Default)]
pub struct MessagePatterns {
    /// The patterns of each rule. If there are too many in all rules together, none.
    rules: Vec<Vec<Result<PikeVM, InvalidPattern>>>,
    count: usize,
}

impl MessagePatterns {
    /// Compiles the patterns (RE2 syntax) of all rules, in their order, as far as the limits allow.
    pub fn compile(rules: &[FailurePolicyRule]) -> Self {
        let count = rules.iter().map(|rule| rule.on_job_failure_message_patterns.len()).sum();
        if count > MAX_PATTERNS {
            return Self { rules: Vec::new(), count };
        }
        let mut compiler = PatternCompiler::default();
        let of_rule = |rule: &FailurePolicyRule| {
            rule.on_job_failure_message_patterns.iter().map(|pattern| compiler.compile(pattern)).collect()
        };
        Self { rules: rules.iter().map(of_rule).collect(), count }
    }

    /// Whether a pattern of the rule with this index matches anywhere in the message. A pattern that does not compile matches
    /// nothing.
    pub fn any_matches(&self, rule: usize, message: &str) -> bool {
        let message = &message[..message.floor_char_boundary(MESSAGE_LENGTH)];
        let patterns = self.rules.get(rule).into_iter().flatten().flatten();
        let mut patterns = patterns.map(|pattern| pattern.is_match(&mut pattern.create_cache(), message));
        patterns.any(|matches| matches)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of the patterns, if there are too many to compile any.
    pub(crate) fn too_many(&self) -> Option<usize> {
        (self.count > MAX_PATTERNS).then_some(self.count)
    }

    /// What is wrong with the patterns: the index of the rule, that of the pattern, and the error.
    pub(crate) fn errors(&self) -> impl Iterator<Item = (usize, usize, &InvalidPattern)> {
        self.rules.iter().enumerate().flat_map(|(rule, patterns)| {
            let patterns = patterns.iter().enumerate();
            patterns.filter_map(move |(index, pattern)| Some((rule, index, pattern.as_ref().err()?)))
        })
    }
}

/// Compiles the patterns of one JobSet, with what the limits have left for the next one.
struct PatternCompiler {
    compiler: Compiler,
    length: usize,
    size: usize,
    large_classes: usize,
    large_classes_of_any_case: usize,
    is_full: bool,
}

impl Default for PatternCompiler {
    fn default() -> Self {
        Self {
            compiler: Compiler::new(),
            length: MAX_TOTAL_LENGTH,
            size: MAX_TOTAL_SIZE,
            large_classes: MAX_LARGE_CLASSES,
            large_classes_of_any_case: MAX_LARGE_CLASSES_OF_ANY_CASE,
            is_full: false,
        }
    }
}

impl PatternCompiler {
    fn compile(&mut self, pattern: &str) -> Result<PikeVM, InvalidPattern> {
        if self.is_full {
            return Err(InvalidPattern::NotTried);
        }
        if pattern.len() > MAX_LENGTH {
            return Err(InvalidPattern::TooLong);
        }
        self.length = self.length.checked_sub(pattern.len()).ok_or(InvalidPattern::TooLongTogether)?;
        let translated = re2::translate(pattern);
        let classes =
            if translated.ignores_case { &mut self.large_classes_of_any_case } else { &mut self.large_classes };
        *classes = classes.checked_sub(translated.large_classes).ok_or(InvalidPattern::TooManyClasses)?;
        let parsed = syntax::parse(&translated.text).map_err(|error| {
            // The text has several lines, which quote the pattern and point into it. The last line says what is wrong.
            let text = error.to_string();
            let last = text.lines().next_back().unwrap_or_default();
            InvalidPattern::Syntax(last.trim_start_matches("error: ").to_owned())
        })?;
        let config = Config::new().which_captures(WhichCaptures::None).nfa_size_limit(Some(self.size));
        let compiled = self.compiler.configure(config).build_from_hir(&parsed);
        let compiled = compiled.ok().and_then(|states| PikeVM::new_from_nfa(states).ok());
        let Some(compiled) = compiled else {
            // Each further attempt could take as long as this one.
            self.is_full = true;
            return Err(InvalidPattern::TooComplex);
        };
        self.size = self.size.saturating_sub(compiled.get_nfa().memory_usage());
        Ok(compiled)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn rules(patterns: &[&[&str]]) -> Vec<FailurePolicyRule> {
        let rule = |patterns: &&[&str]| {
            serde_json::from_value(json!({ "action": "FailJobSet", "onJobFailureMessagePatterns": patterns })).unwrap()
        };
        patterns.iter().map(rule).collect()
    }

    fn compile(pattern: &str) -> Result<PikeVM, InvalidPattern> {
        PatternCompiler::default().compile(pattern)
    }

    fn is_match(pattern: &str, message: &str) -> bool {
        let patterns = MessagePatterns::compile(&rules(&[&[pattern]]));
        assert_eq!(patterns.errors().next(), None);
        patterns.any_matches(0, message)
    }

    /// The errors of these patterns of one rule.
    fn errors(patterns: &[&str]) -> Vec<(usize, InvalidPattern)> {
        let compiled = MessagePatterns::compile(&rules(&[patterns]));
        compiled.errors().map(|(_, index, error)| (index, error.clone())).collect()
    }

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
        assert_eq!(is_match(pattern, message), matches);
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
        let matching = |first: usize| {
            let patterns = MessagePatterns::compile(&rules(&[&vec!["a"; first], &["a"]]));
            (patterns.any_matches(1, "a"), patterns.too_many())
        };
        assert_eq!(matching(MAX_PATTERNS - 1), (true, None));
        assert_eq!(matching(MAX_PATTERNS), (false, Some(MAX_PATTERNS + 1)));
    }

    #[test]
    fn rule_matches_its_own_patterns_only() {
        let patterns = MessagePatterns::compile(&rules(&[&["a", "("], &[], &["b"]]));
        let matching = |message: &str| [0, 1, 2, 3].map(|rule| patterns.any_matches(rule, message));
        assert_eq!((matching("xa"), matching("xb")), ([true, false, false, false], [false, false, true, false]));
    }

    #[rstest]
    #[case::ordinary(vec![r"^Pod \S+ failed with exit code (1[0-9]+|2)$"; 256])]
    #[case::any_case(vec![r"(?i)nccl (error|timeout|watchdog).*rank [0-9]+"; 200])]
    #[case::letters(vec![r"^Fehler: \pL+ in"; 30])]
    #[case::cyrillic(vec![r"(?i)ошибка [а-яё]+"; 50])]
    #[case::letters_of_any_case(vec![r"(?i)^fehler: \pL+ in"; 4])]
    fn dozens_of_realistic_patterns_compile(#[case] patterns: Vec<&str>) {
        assert_eq!(errors(&patterns), []);
    }

    // Each of these takes more than 100 ms, or 10 MB, without the limits.
    #[rstest]
    #[case::classes(&r"\pL".repeat(1365), InvalidPattern::TooManyClasses)]
    #[case::classes_that_are_not_compiled(&format!("({}){{0}}", r"\pL".repeat(1363)), InvalidPattern::TooManyClasses)]
    #[case::classes_of_any_case(&format!("(?i){}", r"\pL".repeat(5)), InvalidPattern::TooManyClasses)]
    #[case::flag_of_a_group(&format!("a(?s-i:b)(?Uis){}", r"\p{Greek}".repeat(5)), InvalidPattern::TooManyClasses)]
    #[case::all_but_some(r"(?i)[\D][\S][\W][[:^alpha:]][\D]", InvalidPattern::TooManyClasses)]
    #[case::codes(r"(?i)[\x{1}-\x{FFFFF}][\1-\x{FFFFF}][a-\x{FFFFF}][\pL][\D]", InvalidPattern::TooManyClasses)]
    #[case::large_ranges(&format!("(?i){}", "[\u{400}-\u{7ff}]".repeat(5)), InvalidPattern::TooManyClasses)]
    #[case::states(r"(\pL{99}){99}", InvalidPattern::TooComplex)]
    #[case::long(&"a".repeat(4097), InvalidPattern::TooLong)]
    fn heavy_pattern_is_rejected_before_it_is_compiled(#[case] pattern: &str, #[case] expected: InvalidPattern) {
        assert_eq!(compile(pattern).err(), Some(expected));
    }

    #[test]
    fn patterns_share_limits_of_length_and_size() {
        let long = "a".repeat(4096);
        let patterns = [&*long, &long, &long, "b", &long, "c"];
        assert_eq!(errors(&patterns), [(4, InvalidPattern::TooLongTogether)]);
        // Each takes 300 KiB. What comes after the one that does not fit is not tried: it could take as long.
        let states = r"\pL{20}";
        let found = errors(&[states, "a", states, "b", states]);
        let expected = [InvalidPattern::TooComplex, InvalidPattern::NotTried, InvalidPattern::NotTried];
        assert_eq!(found, (2..).zip(expected).collect::<Vec<_>>());
    }

    #[test]
    fn groups_take_no_memory_in_a_match() {
        let groups = compile(&"()".repeat(2048)).unwrap();
        let mut cache = groups.create_cache();
        assert!(groups.is_match(&mut cache, "a"));
        assert!(cache.memory_usage() < 1 << 10, "{}", cache.memory_usage());
    }

    #[test]
    fn pattern_is_compared_with_beginning_of_long_message() {
        let message = |length: usize| format!("{}b", "ü".repeat(length / 2));
        assert!(is_match("b", &message(MESSAGE_LENGTH - 2)));
        assert!(!is_match("b", &message(MESSAGE_LENGTH)));
    }

    proptest::proptest! {
        #[test]
        fn pattern_of_any_text_never_panics_and_quoted_matches_itself(text in ".{0,40}") {
            let _ = compile(&text);
            let text = text.replace('\\', "/");
            let quoted = format!("^\\Q{text}\\E$");
            proptest::prop_assert!(is_match(&quoted, &text));
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
