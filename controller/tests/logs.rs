//! The log in JSON.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::fixture::{Fixture, in_place};

/// The keys of all objects in a value, if each object has each of its keys once.
#[derive(Default)]
struct UniqueKeys(BTreeSet<String>);

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Keys)
    }
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = UniqueKeys;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueKeys, A::Error> {
        let (mut own, mut all) = (BTreeSet::new(), BTreeSet::new());
        while let Some((key, UniqueKeys(inner))) = map.next_entry::<String, UniqueKeys>()? {
            if !own.insert(key.clone()) {
                return Err(A::Error::custom(format!("the key {key} is there twice")));
            }
            all.insert(key);
            all.extend(inner);
        }
        Ok(UniqueKeys(all))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<UniqueKeys, A::Error> {
        let mut all = BTreeSet::new();
        while let Some(UniqueKeys(inner)) = seq.next_element()? {
            all.extend(inner);
        }
        Ok(UniqueKeys(all))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys::default())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys::default())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys::default())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys::default())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys::default())
    }

    fn visit_unit<E: Error>(self) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys::default())
    }
}

#[test]
fn key_that_is_there_twice_is_noticed() {
    assert!(serde_json::from_str::<UniqueKeys>(r#"{"b": [{"a": 1, "a": 2}]}"#).is_err());
}

#[tokio::test]
async fn json_log_of_full_run_has_each_key_once() -> Result<()> {
    let mut fixture = Fixture::start_with(&["--log-format=json"]).await?;
    fixture.create(in_place("train", 1, 1)).await?;
    let pods = fixture.pods("train", 1, "0").await?;
    for epoch in ["1", "2", "3"] {
        fixture.report(&pods[0], epoch).await?;
        let reported: i32 = epoch.parse()?;
        fixture.status_once("train", "to follow", |it| it.synced_epoch == reported || it.is_finished()).await?;
    }
    fixture.controller.signal(rustix::process::Signal::TERM)?;
    fixture.controller.ended().await?;
    let log = fixture.controller.log()?;
    let (mut lines, mut all) = (0, BTreeSet::new());
    for line in log.lines() {
        let UniqueKeys(keys) = serde_json::from_str(line).with_context(|| line.to_owned())?;
        lines += 1;
        all.extend(keys);
    }
    assert!(lines > 5 && all.contains("message"), "{log}");
    assert!(log.contains("ReachedMaxRestarts") && log.contains("BarrierLifted"), "{log}");
    fixture.plane.stop().await
}
