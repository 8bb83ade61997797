//! Sets the condition ChildRefused while the API server refuses a child of the JobSet, or a Job that the rules leave alone has the name
//! of one. Events expire after an hour, but the JobSet may wait longer.
//!
//! The rule comes before the rules that break, so that the condition is also correct for JobSets that end or are skipped.
//! It adds no Event, because the shell creates one for each refused request.

use jobset_api::{conditions, event};

use crate::reconciliation::Reconciliation;
use crate::{orphans, restart};

/// Maximum length of the condition message, in bytes.
const LONGEST: usize = 2048;

pub(super) fn set_condition(reconciliation: &mut Reconciliation<'_>) {
    let refused = reconciliation.observed.entry.refused.as_deref();
    let mut in_the_way = Vec::new();
    if reconciliation.status.terminal_state.is_empty() {
        in_the_way = [orphans::with_our_names(reconciliation), restart::without_attempts(reconciliation)].concat();
    }
    match refused.unwrap_or_default().iter().chain(&in_the_way).collect::<Vec<_>>()[..] {
        [first, ref others @ ..] => {
            let message = message(first, others.len());
            reconciliation.set_condition(conditions::CHILD_REFUSED, event::REFUSED, &message);
        }
        // After a start of the controller, the condition stays until the first request shows whether it still holds.
        [] if refused.is_none() => {}
        [] => {
            reconciliation.clear_condition(
                conditions::CHILD_REFUSED,
                "Accepted",
                "no request of the JobSet is refused now",
            );
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
    fn message_too_long_is_cut_before_number_of_others() {
        assert_eq!((message("no", 0), message("no", 2)), ("no".to_owned(), "no; and 2 more".to_owned()));
        let cut = message(&"\u{e9}".repeat(LONGEST), 12);
        assert!(cut.len() <= LONGEST && cut.ends_with("\u{e9}; and 12 more"), "{}", cut.len());
    }
}
