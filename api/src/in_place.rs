//! Which clusters can restart Pods in place: their API servers have to know the rules, their kubelets to follow them.

/// What a kubelet that restarts all containers of a Pod declares in the status of its node (KEP-5532). The scheduler reads
/// it, too: Pods with such rules go nowhere else.
pub const FEATURE: &str = "RestartAllContainersOnContainerExits";

/// What it takes, for people.
pub const NEEDS: &str = "to restart in place needs Kubernetes 1.36, or 1.35 with the feature gate \
                         RestartAllContainersOnContainerExits";

/// First version that does it by default.
const SINCE: (u32, u32) = (1, 36);

/// Whether a kubelet can, by `status.declaredFeatures` and `status.nodeInfo.kubeletVersion` of its node. One that does not
/// tell is trusted.
pub fn kubelet_can(declared_features: &[String], version: &str) -> bool {
    if declared_features.is_empty() {
        return !is_old(version);
    }
    declared_features.iter().any(|feature| feature == FEATURE)
}

/// Whether a version, `v1.35.2-gke.100` say, is one that does not by default. One that cannot be read is not.
pub fn is_old(version: &str) -> bool {
    minor_version(version).is_some_and(|version| version < SINCE)
}

fn minor_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim_start_matches('v').split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let digits = minor.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(minor.len());
    Some((major, minor[..digits].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("v1.34.1", true)]
    #[case("v1.35.2-gke.100", true)]
    #[case("v1.35+", true)]
    #[case("v1.36.0-rc.1", false)]
    #[case("v1.37+", false)]
    #[case("v2.0.0", false)]
    #[case("v1.", false)]
    #[case("unknown", false)]
    #[case("", false)]
    fn versions_before_1_36_are_old(#[case] version: &str, #[case] old: bool) {
        assert_eq!(is_old(version), old);
        assert_eq!(kubelet_can(&[], version), !old);
    }

    #[rstest]
    #[case(&[FEATURE], true)]
    #[case(&["Another", FEATURE], true)]
    #[case(&["Another"], false)]
    fn what_a_kubelet_declares_counts_more_than_its_version(#[case] declared: &[&str], #[case] can: bool) {
        let declared: Vec<String> = declared.iter().map(|&feature| feature.to_owned()).collect();
        assert_eq!(kubelet_can(&declared, "v1.35.2"), can);
        assert_eq!(kubelet_can(&declared, "v1.36.0"), can);
    }
}
