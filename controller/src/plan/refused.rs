//! Names what is refused to the JobSet for as long as it is: Events are gone after an hour, and the JobSet still waits.
//!
//! Before the rules that break: one that runs, ends or is left alone is told the truth, too. There is no note, because
//! whoever was refused has given one.

use jobset_api::conditions;

use super::pass::Pass;

/// Longest message of the condition, in bytes.
const LONGEST: usize = 2048;

pub(super) fn name(pass: &mut Pass<'_>) {
    match pass.seen.refused() {
        // What an earlier life of the controller has said stands, until this one has tried.
        None => {}
        Some([]) => {
            pass.clear_condition(conditions::CHILD_REFUSED, "Accepted", "nothing is refused any more");
        }
        Some([first, others @ ..]) => {
            pass.set_condition(conditions::CHILD_REFUSED, true, "Refused", &message(first, others.len()));
        }
    }
}

fn message(first: &str, others: usize) -> String {
    let more = if others == 0 { String::new() } else { format!("; and {others} more") };
    let end = first.floor_char_boundary(LONGEST - more.len());
    format!("{}{more}", &first[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_before_what_is_said_of_the_others() {
        assert_eq!((message("no", 0), message("no", 2)), ("no".to_owned(), "no; and 2 more".to_owned()));
        let cut = message(&"\u{e9}".repeat(LONGEST), 12);
        assert!(cut.len() <= LONGEST && cut.ends_with("\u{e9}; and 12 more"), "{}", cut.len());
    }
}
