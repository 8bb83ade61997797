//! Properties of the injection that hold for every Pod.

use proptest::prelude::*;
use serde_json::Value;

use super::{pods, settings, with_pod};
use crate::agent::{Agent, BARRIER_PORT, is_told};
use crate::entries;
use crate::injection::{Settings, StallSettings, inject};

/// Whether the result still has everything that was sent, with lists in their order. Empty values may be set.
fn keeps(sent: &Value, now: &Value) -> bool {
    match (sent, now) {
        (sent, now) if sent == now => true,
        (Value::Object(sent), Value::Object(now)) => {
            sent.iter().all(|(key, sent)| now.get(key).is_some_and(|now| keeps(sent, now)))
        }
        (Value::Array(sent), Value::Array(now)) if sent.iter().all(Value::is_string) => now.ends_with(sent),
        (Value::Array(sent), Value::Array(now)) => entries::places(sent, now)
            .is_some_and(|places| places.iter().zip(sent).all(|(place, sent)| keeps(sent, &now[*place]))),
        _ => false,
    }
}

/// A Pod whose containers have unique names: Kubernetes rejects others, and the injection identifies containers by name.
fn valid_pod() -> impl Strategy<Value = Value> {
    pods::pod().prop_filter("two containers have one name", |pod| {
        let lists = ["initContainers", "containers"].iter().filter_map(|list| pod[list].as_array());
        let mut names: Vec<&str> = lists.flatten().filter_map(|container| container["name"].as_str()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        names.len() == count
    })
}

/// Settings with and without relays and stalls.
fn any_settings() -> impl Strategy<Value = Settings> {
    let relay = proptest::option::of(Just("relay.example:9443".to_owned()));
    let stalls = proptest::option::of(Just(StallSettings::any()));
    (relay, stalls).prop_map(|(relay, stalls)| Settings { relay, stalls, ..settings() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn injection_twice_changes_nothing(sent in valid_pod(), shape in "Sidecar|Supervisor", settings in any_settings()) {
        let mut spec = with_pod(&sent);
        let errors = inject(&mut spec, &shape, &settings);
        let once = spec.clone();
        prop_assert_eq!(inject(&mut spec, &shape, &settings), errors);
        prop_assert_eq!(spec, once);
    }

    #[test]
    fn injection_keeps_sent_fields(sent in pods::pod(), shape in "Sidecar|Supervisor", settings in any_settings()) {
        let mut spec = with_pod(&sent);
        // Serialized from the types: empty lists are kept, nulls are omitted.
        let sent = super::pod(&spec);
        let errors = inject(&mut spec, &shape, &settings);
        let now = super::pod(&spec);
        prop_assert!(keeps(&sent, &now), "{sent:#}\n{now:#}");
        prop_assert!(errors.is_empty() || sent == now, "a rejected Pod does not change");
    }

    #[test]
    fn injection_gives_agent_unique_port(sent in pods::pod(), shape in "Sidecar|Supervisor") {
        let mut spec = with_pod(&sent);
        let before = spec.clone();
        let errors = inject(&mut spec, &shape, &settings());
        if !errors.is_empty() || spec == before {
            return Ok(());
        }
        let pod = spec.replicated_jobs[0].template.spec.template.spec.as_ref().unwrap();
        let agents = Agent::all_of(pod);
        let Some(agent) = agents.first().map(Agent::container).filter(|container| is_told(container)) else {
            // The user's own rules are wrong, which validation reports, or two containers have the agent's name, which
            // Kubernetes refuses.
            return Ok(());
        };
        let variable = agent.env.iter().flatten().find(|it| it.name == BARRIER_PORT).unwrap();
        let port: i32 = variable.value.as_ref().unwrap().parse().unwrap();
        let containers = pod.containers.iter().chain(pod.init_containers.iter().flatten());
        let declared = containers.flat_map(|it| it.ports.iter().flatten().map(move |port| (&it.name, port)));
        let tcp = declared.filter(|(_, it)| it.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"));
        let users: Vec<_> = tcp.filter(|(_, it)| it.container_port == port || it.host_port == Some(port)).collect();
        prop_assert!(users.iter().all(|(name, _)| **name == agent.name) && !users.is_empty(), "{users:?}");
    }
}
