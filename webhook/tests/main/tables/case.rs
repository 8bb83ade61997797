//! A case of a table: a JobSet, what is done with it, and what the API server is to say.
//!
//! Three tags write what would be long: `!text [a, 64]` is a text of 64 times `a`, `!list [x, 50]` a list of 50 times
//! `x`, and `!range [1, 255]` the list of the numbers from 1 to 255.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use serde_yaml_ng::value::TaggedValue;
use serde_yaml_ng::{Mapping, Value as Yaml};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    /// What is special, in words.
    case: String,
    /// The JobSet that is changed: a file of `bases`.
    #[serde(default = "plain")]
    base: String,
    /// The changes: JSON pointers, and what is to be there. Null removes.
    #[serde(default)]
    with: Mapping,
    /// The JobSet is stored before there is admission.
    #[serde(default)]
    before_admission: bool,
    /// Status that it gets from its controller.
    status: Option<Yaml>,
    /// Changes of the JobSet once it is stored, as `with`. Without them, the case is about its creation.
    update: Option<Mapping>,
    warnings: Option<Vec<String>>,
    /// The webhook refuses it for these reasons, each `field: beginning of the message`.
    causes: Option<Vec<String>>,
    /// The API server itself refuses it by the CRD, before the webhook is asked; as `causes`.
    schema: Option<Vec<String>>,
}

fn plain() -> String {
    "plain".to_owned()
}

/// A case, ready to be tried.
pub(super) struct Case {
    pub(super) name: String,
    /// The JobSet to create.
    pub(super) jobset: Value,
    pub(super) before_admission: bool,
    pub(super) status: Option<Value>,
    pub(super) update: Option<Changes>,
    pub(super) expected: Verdict,
}

/// JSON pointers, and what is to be there.
pub(super) struct Changes(Vec<(String, Value)>);

/// What is said about a JobSet.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Admitted(Vec<String>),
    /// The webhook refuses it.
    Denied(Vec<String>),
    /// The API server refuses it by itself.
    Malformed(Vec<String>),
}

impl Verdict {
    /// Whether the verdict is as expected: as many entries, each with the beginning that was expected.
    pub(super) fn is(&self, expected: &Self) -> bool {
        let begin = |found: &[String], expected: &[String]| {
            found.len() == expected.len() && found.iter().zip(expected).all(|(it, begin)| it.starts_with(begin))
        };
        match (self, expected) {
            (Self::Admitted(found), Self::Admitted(expected))
            | (Self::Denied(found), Self::Denied(expected))
            | (Self::Malformed(found), Self::Malformed(expected)) => begin(found, expected),
            _ => false,
        }
    }
}

/// The cases of a table. A JobSet that the case does not name is named after the table, so that each has its own.
pub(super) fn read(table: &str, text: &str, bases: &HashMap<String, Value>) -> Result<Vec<Case>> {
    let written: Vec<Written> = serde_yaml_ng::from_str(text)?;
    let case = |(index, it): (usize, Written)| {
        let what = it.case.clone();
        it.read(table, index, bases).with_context(|| format!("case {what:?}"))
    };
    written.into_iter().enumerate().map(case).collect()
}

impl Written {
    fn read(self, table: &str, index: usize, bases: &HashMap<String, Value>) -> Result<Case> {
        let base = bases.get(&self.base).with_context(|| format!("there is no base {:?}", self.base))?;
        let mut jobset = base.clone();
        if self.update.is_some() {
            jobset["metadata"]["name"] = format!("{}-{index}", table.replace(['/', '_'], "-")).into();
        }
        Changes::read(self.with)?.apply(&mut jobset)?;
        let expected = match (self.warnings, self.causes, self.schema) {
            (warnings, None, None) => Verdict::Admitted(warnings.unwrap_or_default()),
            (None, Some(causes), None) => Verdict::Denied(causes),
            (None, None, Some(causes)) => Verdict::Malformed(causes),
            _ => bail!("it can be admitted, or refused by one"),
        };
        let update = self.update.map(Changes::read).transpose()?;
        if update.is_none() && (self.before_admission || self.status.is_some()) {
            bail!("it has a past, and no update");
        }
        let status = self.status.map(json).transpose()?;
        Ok(Case { name: self.case, jobset, before_admission: self.before_admission, status, update, expected })
    }
}

impl Changes {
    fn read(written: Mapping) -> Result<Self> {
        let change = |(pointer, value): (Yaml, Yaml)| match pointer {
            Yaml::String(pointer) => Ok((pointer, json(value)?)),
            other => bail!("{other:?} is no JSON pointer"),
        };
        Ok(Self(written.into_iter().map(change).collect::<Result<_>>()?))
    }

    pub(super) fn apply(&self, object: &mut Value) -> Result<()> {
        for (pointer, value) in &self.0 {
            let (parent, field) =
                pointer.rsplit_once('/').with_context(|| format!("{pointer:?} is no JSON pointer"))?;
            let parent = object.pointer_mut(parent).with_context(|| format!("there is no {parent}"))?;
            match (parent, value) {
                (Value::Object(parent), Value::Null) => drop(parent.remove(field)),
                (Value::Object(parent), value) => drop(parent.insert(field.to_owned(), value.clone())),
                (Value::Array(parent), value) => {
                    *parent.get_mut(field.parse::<usize>()?).with_context(|| format!("there is no {pointer}"))? =
                        value.clone();
                }
                (_, _) => bail!("{pointer} is in no object"),
            }
        }
        Ok(())
    }
}

/// The value as JSON, with the tags of this file written out.
pub(super) fn json(value: Yaml) -> Result<Value> {
    Ok(match value {
        Yaml::Sequence(list) => list.into_iter().map(json).collect::<Result<_>>()?,
        Yaml::Mapping(map) => {
            let entry = |(key, value)| Ok((serde_yaml_ng::from_value(key)?, json(value)?));
            Value::Object(map.into_iter().map(entry).collect::<Result<_>>()?)
        }
        Yaml::Tagged(tagged) => written_out(*tagged)?,
        plain => serde_json::to_value(plain)?,
    })
}

fn written_out(TaggedValue { tag, value }: TaggedValue) -> Result<Value> {
    let (first, count): (Yaml, usize) = serde_yaml_ng::from_value(value)?;
    Ok(match (tag.to_string().as_str(), json(first)?) {
        ("!text", Value::String(text)) => text.repeat(count).into(),
        ("!list", entry) => vec![entry; count].into(),
        ("!range", Value::Number(first)) => {
            (first.as_u64().context("not a number")?..=u64::try_from(count)?).collect::<Vec<_>>().into()
        }
        (tag, value) => bail!("no such tag: {tag} {value}"),
    })
}
