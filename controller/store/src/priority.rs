//! What the rules read of PriorityClasses: the priority that a Pod gets.

use std::collections::BTreeMap;

use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt;

/// Priority of a Pod without a class, where no class is the global default.
const WITHOUT_CLASS: i32 = 0;

/// The PriorityClasses of the cluster, each reduced to its number. A new listing makes a new value, which replaces this
/// one when it is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityClasses(BTreeMap<String, Class>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    value: i32,
    global_default: bool,
}

impl PriorityClasses {
    pub fn apply(&mut self, class: &PriorityClass) {
        let class_value =
            Class { value: class.value.unwrap_or(0), global_default: class.global_default.unwrap_or(false) };
        self.0.insert(class.name_any(), class_value);
    }

    pub fn delete(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Priority that admission of Kubernetes gives to a Pod with this `priorityClassName`. Without one (absent or
    /// empty), that of the global default, the lowest where a race left several, or 0. `None` if there is no class of
    /// that name: such a Pod is refused.
    pub fn priority(&self, class: Option<&str>) -> Option<i32> {
        if let Some(name) = class.filter(|name| !name.is_empty()) {
            return self.0.get(name).map(|class| class.value);
        }
        let defaults = self.0.values().filter(|class| class.global_default);
        Some(defaults.map(|class| class.value).min().unwrap_or(WITHOUT_CLASS))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn class(name: &str, value: i32, global_default: bool) -> PriorityClass {
        let class = json!({"metadata": {"name": name}, "value": value, "globalDefault": global_default});
        serde_json::from_value(class).unwrap()
    }

    fn classes(all: &[(&str, i32, bool)]) -> PriorityClasses {
        let mut classes = PriorityClasses::default();
        for (name, value, global_default) in all {
            classes.apply(&class(name, *value, *global_default));
        }
        classes
    }

    #[rstest]
    #[case::nothing_is_known(&[], None, Some(0))]
    #[case::no_class_is_the_default(&[("high", 7, false)], None, Some(0))]
    #[case::the_default(&[("high", 7, false), ("low", -5, true)], None, Some(-5))]
    #[case::the_lowest_of_two_defaults(&[("a", 9, true), ("b", 3, true), ("c", 1, false)], None, Some(3))]
    #[case::an_empty_name_is_none(&[("low", -5, true)], Some(""), Some(-5))]
    #[case::by_name(&[("high", 7, false), ("low", -5, true)], Some("high"), Some(7))]
    #[case::unknown(&[("low", -5, true)], Some("high"), None)]
    fn a_pod_gets_the_priority_of_its_class(
        #[case] all: &[(&str, i32, bool)],
        #[case] name: Option<&str>,
        #[case] wanted: Option<i32>,
    ) {
        assert_eq!(classes(all).priority(name), wanted);
    }

    #[test]
    fn class_changed_or_deleted_has_its_present_priority() {
        let mut classes = classes(&[("high", 7, true)]);
        classes.apply(&class("high", 8, false));
        assert_eq!((classes.priority(Some("high")), classes.priority(None)), (Some(8), Some(0)));
        classes.delete("high");
        assert_eq!(classes.priority(Some("high")), None);
    }
}
