//! Which clusters can restart Pods in place. The API server must know the restart rules, and the kubelet must follow them.

/// Feature that a kubelet declares in the status of its node if it can restart all containers of a Pod (KEP-5532). The
/// scheduler places Pods with such rules only on these nodes.
pub const FEATURE: &str = "RestartAllContainersOnContainerExits";

/// Text for users: what a cluster needs to restart Pods in place.
pub const NEEDS: &str = "to restart in place needs Kubernetes 1.36, or 1.35 with the feature gate \
                         RestartAllContainersOnContainerExits";

/// First version of Kubernetes that restarts Pods in place by default.
const SINCE: (u32, u32) = (1, 36);

/// Whether a kubelet can restart Pods in place, by `status.declaredFeatures` and `status.nodeInfo.kubeletVersion` of its
/// node. If both are absent or unreadable, the kubelet counts as able.
pub fn kubelet_can(declared_features: &[String], version: &str) -> bool {
    if declared_features.is_empty() {
        return !is_old(version);
    }
    declared_features.iter().any(|feature| feature == FEATURE)
}

/// Whether a version such as `v1.35.2-gke.100` is older than the first version that restarts Pods in place by default. An
/// unreadable version is not.
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
    fn version_before_1_36_is_old(#[case] version: &str, #[case] old: bool) {
        assert_eq!(is_old(version), old);
        assert_eq!(kubelet_can(&[], version), !old);
    }

    #[rstest]
    #[case(&[FEATURE], true)]
    #[case(&["Another", FEATURE], true)]
    #[case(&["Another"], false)]
    fn declared_features_count_more_than_the_version(#[case] declared: &[&str], #[case] can: bool) {
        let declared: Vec<String> = declared.iter().map(|&feature| feature.to_owned()).collect();
        assert_eq!(kubelet_can(&declared, "v1.35.2"), can);
        assert_eq!(kubelet_can(&declared, "v1.36.0"), can);
    }
}
