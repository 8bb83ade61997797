//! Checks an object as admission does at its creation: injects the agent and sets defaults, then applies the rules.

use jobset_api::gates::Gates;
use jobset_api::validation::{self, Errors};
use jobset_api::{GROUP, JobSet, VERSION, defaults, injection, labels};
use serde::Serialize;
use serde_json::Value;

use super::input::{Source, documents};
use super::strict::{self, Rejection};

/// Image of the agent if the user gives none. The plugin does not know the webhook's image.
const ASSUMED_IMAGE: &str = "assumed.invalid/jobset-agent";

#[derive(Clone, Debug, Default)]
pub struct AdmissionSettings {
    /// How agents are injected. Without an image, one is assumed.
    pub injection: injection::Settings,
    pub gates: Gates,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdicts {
    /// A verdict for each object, in order of the input.
    pub objects: Vec<Verdict>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    pub source: String,
    /// The position of the object in its source, from 1; 0 if the source cannot be read.
    pub document: usize,
    /// Its kind; empty if it has none.
    pub kind: String,
    /// Its name; empty if it has none.
    pub name: String,
    pub outcome: Outcome,
    /// Why the object does not pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Rejection>,
    /// Warnings about an object that passes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// The JobSet passes admission.
    Admitted,
    /// The JobSet does not pass. The name in reports is part of their format.
    #[serde(rename = "Refused")]
    Rejected,
    /// The object has another kind.
    Skipped,
    /// The document is no object.
    #[default]
    Unreadable,
}

impl Rejection {
    /// A reason about the object as a whole.
    fn of_object(message: String) -> Self {
        Self { field: String::new(), message }
    }
}

impl Verdicts {
    pub fn any(&self, outcome: Outcome) -> bool {
        self.objects.iter().any(|verdict| verdict.outcome == outcome)
    }
}

pub fn check(sources: &[Source], settings: &AdmissionSettings) -> Verdicts {
    let mut objects = Vec::new();
    for source in sources {
        let text = match &source.text {
            Ok(text) => text,
            Err(message) => {
                objects.push(Verdict { source: source.name.clone(), ..Verdict::unreadable(message.clone()) });
                continue;
            }
        };
        for (index, document) in documents(text).into_iter().enumerate() {
            let verdict = match document {
                Ok(object) => self::object(&object, settings),
                Err(message) => Verdict::unreadable(message),
            };
            objects.push(Verdict { source: source.name.clone(), document: index + 1, ..verdict });
        }
    }
    Verdicts { objects }
}

impl Verdict {
    fn of(object: &Value, outcome: Outcome) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { kind: text("/kind"), name: text("/metadata/name"), outcome, ..Self::default() }
    }

    fn unreadable(message: String) -> Self {
        Self { errors: vec![Rejection::of_object(message)], ..Self::default() }
    }
}

fn object(object: &Value, settings: &AdmissionSettings) -> Verdict {
    let text = |field: &str| object.get(field).and_then(Value::as_str);
    let rejected = |errors| Verdict { errors, ..Verdict::of(object, Outcome::Rejected) };
    match (text("apiVersion"), text("kind")) {
        (Some(version), Some("JobSet")) if version == format!("{GROUP}/{VERSION}") => match strict::read(object) {
            Ok(jobset) => jobset_verdict(&jobset, settings, Verdict::of(object, Outcome::Admitted)),
            Err(errors) => rejected(errors),
        },
        (Some(version), Some("JobSet")) if version.split('/').next() == Some(GROUP) => {
            let message = format!("apiVersion {version} is not served: use {GROUP}/{VERSION}");
            rejected(vec![Rejection::of_object(message)])
        }
        (Some(_), Some(_)) => Verdict::of(object, Outcome::Skipped),
        _ => {
            let message = "has no apiVersion and kind, as every object of Kubernetes must".to_owned();
            Verdict { errors: vec![Rejection::of_object(message)], ..Verdict::of(object, Outcome::Unreadable) }
        }
    }
}

fn jobset_verdict(sent: &JobSet, settings: &AdmissionSettings, verdict: Verdict) -> Verdict {
    let mut jobset = sent.clone();
    jobset.spec = defaults::apply(&sent.spec);
    let errors = inject(&mut jobset, settings);
    let verdict = Verdict { notes: assumed(&jobset), ..verdict };
    let mut rejections = Vec::new();
    let validated = validation::validate_create(&jobset, settings.gates);
    for errors in [&errors, &validated] {
        rejections.extend(
            errors.iter().map(|error| Rejection { field: error.field.clone(), message: error.message.clone() }),
        );
        if errors.omitted() > 0 {
            rejections.push(Rejection::of_object(format!("and {} more errors", errors.omitted())));
        }
    }
    if rejections.is_empty() {
        Verdict { warnings: validation::warnings(&jobset), ..verdict }
    } else {
        Verdict { errors: rejections, outcome: Outcome::Rejected, ..verdict }
    }
}

/// Injects the agent if the JobSet asks for it. After an error the JobSet is unchanged.
fn inject(jobset: &mut JobSet, settings: &AdmissionSettings) -> Errors {
    let annotations = jobset.metadata.annotations.as_ref();
    let Some(shape) = annotations.and_then(|annotations| annotations.get(labels::INJECT_AGENT)) else {
        return Errors::default();
    };
    let mut spec = jobset.spec.clone();
    let mut injection = settings.injection.of(jobset);
    injection.agent_image.get_or_insert_with(|| ASSUMED_IMAGE.to_owned());
    let errors = injection::inject(&mut spec, shape, &injection);
    if errors.is_empty() {
        jobset.spec = spec;
    }
    errors
}

/// A note if the agent has the assumed image.
fn assumed(jobset: &JobSet) -> Vec<String> {
    let pods = jobset.spec.replicated_jobs.iter().filter_map(|group| group.template.spec.template.spec.as_ref());
    let mut containers = pods.flat_map(|pod| pod.init_containers.iter().flatten().chain(&pod.containers));
    if !containers.any(|container| container.image.as_deref() == Some(ASSUMED_IMAGE)) {
        return Vec::new();
    }
    let note = "the image of the agent is assumed: the admission webhook of the cluster sets it (--agent-image sets \
                another one here)";
    vec![note.to_owned()]
}
