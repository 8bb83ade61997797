//! What is refused to JobSets. No watch shows it: whoever makes the requests says so.

use jobset_api::conditions;

use super::{Key, Store};

impl Store {
    /// Keeps what is refused to the JobSet at present, each with its reason, in a stable order. Whether the rules have to
    /// look again: they name what is refused in a condition, which may be there from another life of the controller.
    pub fn set_refused(&mut self, key: &Key, refused: Vec<String>) -> bool {
        let Some(jobset) = self.jobset(key) else { return false };
        let conditions = jobset.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let concerns_rules = !refused.is_empty() || conditions::is_true(conditions, conditions::CHILD_REFUSED);
        let changed = self.refused(key) != Some(&refused);
        if changed {
            self.refused.insert(key.clone(), refused);
        }
        changed && concerns_rules
    }

    /// What is refused to the JobSet; `None` while nothing was requested for it that could have been refused.
    pub fn refused(&self, key: &Key) -> Option<&[String]> {
        self.refused.get(key).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jobset_api::{JobSet, JobSetStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::store::{Change, WatchEvent};

    fn key() -> Key {
        Key { namespace: "ml".to_owned(), name: "train".to_owned() }
    }

    fn store(condition: Option<bool>) -> Store {
        let mut status = JobSetStatus::default();
        if let Some(condition) = condition {
            let now = Time(Timestamp::UNIX_EPOCH);
            conditions::set(&mut status.conditions, conditions::CHILD_REFUSED, condition, "Refused", "", &now);
        }
        let jobset = JobSet { status: Some(status), ..JobSet::default() };
        let mut store = Store::default();
        store.see(WatchEvent::JobSet(Change::Put { object: key(), owner: Some(key()), view: Arc::new(jobset) }));
        store
    }

    #[test]
    fn the_rules_look_again_when_something_else_is_refused() {
        let mut store = store(None);
        let refused = |what: &str| vec![what.to_owned()];
        assert_eq!(store.refused(&key()), None);
        let changes =
            [vec![], refused("a"), refused("a"), refused("b")].map(|refused| store.set_refused(&key(), refused));
        assert_eq!(changes, [false, true, false, true]);
        assert_eq!(store.refused(&key()), Some(refused("b").as_slice()));
    }

    #[test]
    fn a_condition_of_another_life_is_looked_at_once_nothing_is_refused() {
        for (condition, wanted) in [(None, false), (Some(false), false), (Some(true), true)] {
            let mut store = store(condition);
            assert_eq!([(); 2].map(|()| store.set_refused(&key(), vec![])), [wanted, false], "{condition:?}");
        }
    }

    #[test]
    fn it_is_forgotten_with_the_jobset() {
        let mut store = store(None);
        store.set_refused(&key(), vec!["a".to_owned()]);
        store.see(WatchEvent::JobSet(Change::Gone(key(), 1)));
        assert!(!store.set_refused(&key(), vec!["b".to_owned()]));
        assert!(store.refused.is_empty());
    }
}
