//! The path of a field of an object. It is a chain of borrowed steps, so that a check of a correct object allocates
//! nothing.

use std::fmt;

/// Path of a field, such as `spec.replicatedJobs[0].name`.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    element: Element<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Element<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

const ANNOTATIONS: Path<'static> = Path { parent: None, element: Element::Field("metadata.annotations") };

impl<'a> Path<'a> {
    /// A top-level field of the object.
    pub fn root(field: &'a str) -> Self {
        Self { parent: None, element: Element::Field(field) }
    }

    pub fn annotation(key: &'a str) -> Self {
        Self { parent: Some(&ANNOTATIONS), element: Element::Key(key) }
    }

    /// A field of this object. Dots separate several steps: `template.spec.backoffLimit`.
    #[must_use]
    pub fn child(&'a self, field: &'a str) -> Self {
        Self { parent: Some(self), element: Element::Field(field) }
    }

    /// The entry of this list with this index.
    #[must_use]
    pub fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), element: Element::Index(index) }
    }

    /// The entry of this map with this key.
    #[must_use]
    pub fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), element: Element::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match (self.parent, self.element) {
            (None, Element::Field(field)) => f.write_str(field),
            (Some(_), Element::Field(field)) => write!(f, ".{field}"),
            (_, Element::Index(index)) => write!(f, "[{index}]"),
            (_, Element::Key(key)) => write!(f, "[{}]", key.escape_debug()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_display_matches_kubernetes() {
        let spec = Path::root("spec");
        let jobs = spec.child("replicatedJobs");
        let job = jobs.index(3);
        assert_eq!(
            job.child("template.spec").child("backoffLimit").to_string(),
            "spec.replicatedJobs[3].template.spec.backoffLimit"
        );
        assert_eq!(Path::annotation("example.com/a").to_string(), "metadata.annotations[example.com/a]");
        assert_eq!(Path::annotation("a\nb").to_string(), r"metadata.annotations[a\nb]");
    }
}
