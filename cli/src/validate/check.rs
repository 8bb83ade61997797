//! What admission would say about an object that is created, in the order in which it happens: the agent and the defaults
//! are filled in, then the rules are applied to what came of it.

use jobset_api::gates::Gates;
use jobset_api::validation::{self, Errors};
use jobset_api::{GROUP, JobSet, VERSION, defaults, injection, labels};
use serde::Serialize;
use serde_json::Value;

use super::input::{Source, documents};
use super::strict;

/// Image of the agent where none is given. That of the admission service is not known here, and is no fault of a manifest.
const ASSUMED_IMAGE: &str = "assumed.invalid/jobset-agent";

/// What admission was told.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How agents are injected. Where it names no image, one is assumed.
    pub injection: injection::Settings,
    /// Features that are on.
    pub gates: Gates,
}

/// What became of all objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdicts {
    /// One for each object, in their order.
    pub objects: Vec<Verdict>,
}

/// What became of one object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Where it came from.
    pub source: String,
    /// The how manieth object of it, from 1; 0 for all of it.
    pub document: usize,
    /// Its kind, as far as it has one.
    pub kind: String,
    /// Its name, as far as it has one.
    pub name: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Why it does not pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Refusal>,
    /// What a person should look at although it passes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What was assumed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// It passes admission.
    Admitted,
    /// It does not.
    Refused,
    /// It is of another kind.
    Skipped,
    /// It is no object.
    Unreadable,
}

/// One reason for which an object does not pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Path of the field; empty for the object as a whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Verdicts {
    /// Whether any object has come to this.
    pub fn any(&self, outcome: Outcome) -> bool {
        self.objects.iter().any(|verdict| verdict.outcome == outcome)
    }
}

/// What becomes of the objects of these sources.
pub fn check(sources: &[Source], settings: &Settings) -> Verdicts {
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
        Self {
            source: String::new(),
            document: 0,
            kind: text("/kind"),
            name: text("/metadata/name"),
            outcome,
            errors: Vec::new(),
            warnings: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn unreadable(message: String) -> Self {
        let errors = vec![Refusal { field: String::new(), message }];
        Self { errors, ..Self::of(&Value::Null, Outcome::Unreadable) }
    }
}

fn object(object: &Value, settings: &Settings) -> Verdict {
    let text = |field: &str| object.get(field).and_then(Value::as_str);
    let refused = |errors| Verdict { errors, ..Verdict::of(object, Outcome::Refused) };
    let whole = |message: String| vec![Refusal { field: String::new(), message }];
    match (text("apiVersion"), text("kind")) {
        (Some(version), Some("JobSet")) if version == format!("{GROUP}/{VERSION}") => match strict::read(object) {
            Ok(jobset) => jobset_verdict(&jobset, settings, Verdict::of(object, Outcome::Admitted)),
            Err(errors) => refused(errors),
        },
        (Some(version), Some("JobSet")) if version.split('/').next() == Some(GROUP) => {
            refused(whole(format!("apiVersion {version} is not served: write {GROUP}/{VERSION}")))
        }
        (Some(_), Some(_)) => Verdict::of(object, Outcome::Skipped),
        _ => {
            let message = "has no apiVersion and kind, as every object of Kubernetes must".to_owned();
            Verdict { errors: whole(message), ..Verdict::of(object, Outcome::Unreadable) }
        }
    }
}

fn jobset_verdict(sent: &JobSet, settings: &Settings, verdict: Verdict) -> Verdict {
    let mut jobset = sent.clone();
    jobset.spec = defaults::apply(&sent.spec);
    let errors = inject(&mut jobset, settings);
    let verdict = Verdict { notes: assumed(&jobset), ..verdict };
    let mut refusals = unnamed(&jobset);
    let validated = validation::validate_create(&jobset, settings.gates);
    for errors in [&errors, &validated] {
        refusals
            .extend(errors.iter().map(|error| Refusal { field: error.field.clone(), message: error.message.clone() }));
        if errors.omitted() > 0 {
            refusals.push(Refusal { field: String::new(), message: format!("and {} more errors", errors.omitted()) });
        }
    }
    if refusals.is_empty() {
        Verdict { warnings: validation::warnings(&jobset), ..verdict }
    } else {
        Verdict { errors: refusals, outcome: Outcome::Refused, ..verdict }
    }
}

/// Puts the agent in where it is asked for. Where it does not fit, the JobSet stays as it was, and the errors say why.
fn inject(jobset: &mut JobSet, settings: &Settings) -> Errors {
    let annotations = jobset.metadata.annotations.as_ref();
    let Some(shape) = annotations.and_then(|annotations| annotations.get(labels::INJECT_AGENT)) else {
        return Errors::default();
    };
    let mut spec = jobset.spec.clone();
    let mut injection = settings.injection.clone();
    injection.agent_image.get_or_insert_with(|| ASSUMED_IMAGE.to_owned());
    let errors = injection::inject(&mut spec, shape, &injection);
    if errors.is_empty() {
        jobset.spec = spec;
    }
    errors
}

/// A note on a JobSet whose agent has the image that is assumed.
fn assumed(jobset: &JobSet) -> Vec<String> {
    let pods = jobset.spec.replicated_jobs.iter().filter_map(|group| group.template.spec.template.spec.as_ref());
    let mut containers = pods.flat_map(|pod| pod.init_containers.iter().flatten().chain(&pod.containers));
    if !containers.any(|container| container.image.as_deref() == Some(ASSUMED_IMAGE)) {
        return Vec::new();
    }
    let note = "an image of the agent is assumed: --agent-image says which one. The admission service refuses the \
                JobSet unless it was started with that flag";
    vec![note.to_owned()]
}

/// The API server itself refuses what has no name.
fn unnamed(jobset: &JobSet) -> Vec<Refusal> {
    let metadata = &jobset.metadata;
    let named = [&metadata.name, &metadata.generate_name].into_iter().flatten().any(|name| !name.is_empty());
    if named {
        return Vec::new();
    }
    let message = "Required value: name or generateName is required".to_owned();
    vec![Refusal { field: "metadata.name".to_owned(), message }]
}
