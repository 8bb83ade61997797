//! The names of the product's images.

use anyhow::{Result, ensure};

/// Where the images of the product are, and in which version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Host, and perhaps path.
    pub registry: String,
    /// Tag of all of them.
    pub tag: String,
}

impl Default for Repository {
    /// That of images which are loaded into nodes without a registry.
    fn default() -> Self {
        Self { registry: "localhost".to_owned(), tag: "dev".to_owned() }
    }
}

impl Repository {
    /// That of images which are loaded into nodes, with a tag of their own.
    pub fn local(tag: &str) -> Result<Self> {
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let is_tag =
            tag.starts_with(is_word) && tag.len() <= 128 && tag.chars().all(|it| is_word(it) || ".-".contains(it));
        ensure!(
            is_tag,
            "{tag:?} is no tag of an image: letters, digits, `_`, `.` and `-`, at most 128, and neither `.` nor `-` first"
        );
        Ok(Self { tag: tag.to_owned(), ..Self::default() })
    }

    pub fn name(&self, program: &str) -> String {
        format!("{}/{program}:{}", self.registry, self.tag)
    }

    /// Manifests in which the images are these.
    pub fn in_place_of_local(&self, manifests: &str) -> String {
        ["jobset-controller", "jobset-webhook", "jobset-certs", "jobset-relay", "jobset-agent"]
            .iter()
            .fold(manifests.to_owned(), |text, program| {
                text.replace(&Self::default().name(program), &self.name(program))
            })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn tag_is_that_of_each_image() {
        let names = Repository::local("0.2.0-rc.1").unwrap();
        assert_eq!(names.name("jobset-agent"), "localhost/jobset-agent:0.2.0-rc.1");
    }

    #[rstest]
    #[case::none("")]
    #[case::path("a/b")]
    #[case::dot(".a")]
    #[case::long(&"a".repeat(129))]
    fn what_is_no_tag_is_rejected(#[case] tag: &str) {
        assert!(Repository::local(tag).unwrap_err().to_string().contains("no tag of an image"));
    }
}
