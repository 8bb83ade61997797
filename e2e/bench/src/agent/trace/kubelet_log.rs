//! What a kubelet's log of verbosity 5 says about Pods. Pure.

/// The kubelet's time zone is not in its log. Every time zone differs from UTC by a multiple of a quarter of an hour.
const QUARTER: f64 = 900.0;

/// One structured line: `I1122 23:15:10.123456  4321 file.go:65] "message" key="value"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LogLine<'a> {
    /// Seconds since midnight, by the kubelet's clock.
    time_of_day: f64,
    /// The text without its values.
    pub(super) message: &'a str,
    values: &'a str,
}

impl<'a> LogLine<'a> {
    /// `None` for a line of another form.
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let (head, text) = line.split_once("] \"")?;
        let (message, values) = text.split_once('"')?;
        let mut clock = head.split_whitespace().nth(1)?.split(':').map(str::parse::<f64>);
        let (hours, minutes, seconds) = (clock.next()?.ok()?, clock.next()?.ok()?, clock.next()?.ok()?);
        Some(Self { time_of_day: (hours * 60.0 + minutes) * 60.0 + seconds, message, values })
    }

    pub(super) fn value(&self, key: &str) -> Option<&'a str> {
        let found = self.values.match_indices(key).find_map(|(at, _)| {
            let before = self.values.get(..at)?.ends_with(' ');
            let value = self.values.get(at + key.len()..)?.strip_prefix("=\"")?;
            before.then_some(value)
        })?;
        found.split('"').next()
    }

    /// Whether the line is about this Pod.
    pub(super) fn is_about(&self, pod: &PodIdentity) -> bool {
        self.value("podUID") == Some(&pod.uid) || self.value("pod") == Some(&pod.namespaced_name)
    }

    /// Seconds from `start`, which is in seconds since 1970, to this line. The line is at most seven minutes before or after it.
    pub(super) fn seconds_since(&self, start: f64) -> f64 {
        let difference = (self.time_of_day - start).rem_euclid(QUARTER);
        if difference > QUARTER / 2.0 { difference - QUARTER } else { difference }
    }
}

/// How a kubelet's log names a Pod: sometimes by its UID, sometimes by its name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodIdentity {
    /// UID of the Pod.
    pub(super) uid: String,
    /// `NAMESPACE/NAME`.
    pub(super) namespaced_name: String,
}

/// The message of a relist of all Pods.
const RELIST: &str = "GenericPLEG: Relisting";

/// The lines of a log about one Pod, and the relists of all Pods, each with its time in seconds since `start`.
pub(super) fn lines_about(log: &str, pod: &PodIdentity, start: f64) -> String {
    let lines = log.lines().filter_map(LogLine::parse);
    let of_interest = lines.filter(|line| line.message == RELIST || line.is_about(pod));
    let shown = of_interest.map(|line| format!("{:.3} {}{}\n", line.seconds_since(start), line.message, line.values));
    shown.collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const LINE: &str = r#"I1122 23:15:10.250000    4321 generic.go:199] "GenericPLEG" podUID="1-2" oldState="running" newState="exited""#;

    #[test]
    fn line_gives_its_message_and_values() {
        let line = LogLine::parse(LINE).unwrap();
        assert_eq!(line.message, "GenericPLEG");
        let values = ["podUID", "newState", "State", "pod"].map(|key| line.value(key));
        assert_eq!(values, [Some("1-2"), Some("exited"), None, None]);
        assert_eq!(LogLine::parse("Flag --node-ip has been deprecated"), None);
    }

    #[rstest]
    #[case::by_uid("1-2", "ns/other", true)]
    #[case::by_name("3-4", "ns/train-0", true)]
    #[case::other("3-4", "ns/train", false)]
    fn line_names_a_pod_by_uid_or_name(#[case] uid: &str, #[case] name: &str, #[case] expected: bool) {
        let text = r#"I1122 23:15:10.250000 4321 kubelet.go:1] "SyncPod enter" pod="ns/train-0" podUID="1-2""#;
        let pod = PodIdentity { uid: uid.into(), namespaced_name: name.into() };
        assert_eq!(LogLine::parse(text).unwrap().is_about(&pod), expected);
    }

    #[rstest]
    #[case::after(1_000_000_000.0 - 2_800.0 + 10.0 - 3.25, 3.25)]
    #[case::before(1_000_000_000.0 - 2_800.0 + 11.0, -1.0)]
    fn seconds_do_not_depend_on_the_time_zone(#[case] start: f64, #[case] expected: f64) {
        // The line is at 10 seconds past a quarter of an hour; 1,000,000,000 - 2,800 is a multiple of 900.
        let text = r#"I0909 02:30:10.000000 1 kubelet.go:1] "SyncPod enter" pod="ns/a""#;
        let seconds = LogLine::parse(text).unwrap().seconds_since(start);
        assert!((seconds - expected).abs() < 1e-6, "{seconds}");
    }

    #[test]
    fn lines_about_a_pod_have_its_lines_and_the_relists() {
        let log = r#"I0909 01:46:41.000000 1 generic.go:1] "GenericPLEG: Relisting"
I0909 01:46:41.100000 1 generic.go:1] "GenericPLEG: Relisting Pod" podUID="2"
I0909 01:46:41.250000 1 kubelet.go:1] "SyncPod enter" pod="ns/a" podUID="1"
"#;
        let pod = PodIdentity { uid: "1".into(), namespaced_name: "ns/a".into() };
        let expected = "0.500 GenericPLEG: Relisting\n0.750 SyncPod enter pod=\"ns/a\" podUID=\"1\"\n";
        assert_eq!(lines_about(log, &pod, 1_000_000_000.5), expected);
    }
}
