//! The figures of the admission service, and their table beside what they must be at most. Pure.

use serde::Serialize;

use crate::report::{Report, Table, megabytes};

/// Most CPU time of one review, in milliseconds.
const CPU_MS: f64 = 0.35;
/// Most CPU time of one review of a Pod whose JobSet avoids nodes, in milliseconds.
const POD_CPU_MS: f64 = 0.2;
/// Longest time within which 99 of 100 reviews must be answered, in milliseconds.
const P99_MS: f64 = 2.0;
/// Longest time until a review beside heavy ones of another namespace is answered, in milliseconds.
const BESIDE_MS: f64 = 500.0;
/// Most resident memory, in MB.
const RSS_MB: f64 = 24.0;

#[derive(Clone, Debug, Serialize)]
pub(super) struct WebhookFigures {
    pub(super) mutate: ReviewFigures,
    pub(super) validate: ReviewFigures,
    pub(super) pod: ReviewFigures,
    /// Peak of the service's resident memory (`VmHWM`), from its start to the end of these loads.
    pub(super) peak_rss_kib: u64,
    pub(super) beside_heavy: BesideFigures,
    /// The JobSet as its user sends it.
    pub(super) jobset_bytes: usize,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ReviewFigures {
    /// CPU time of the service for one review, in user and in kernel mode, sent one after the other on each connection.
    pub(super) cpu_ms_per_review: f64,
    /// Reviews answered in a second, sent so.
    pub(super) reviews_per_second: f64,
    /// The AdmissionReview, with the JobSet as the API server has it: managedFields are in it.
    pub(super) review_bytes: usize,
    /// Percentiles 50, 99 and 100 of the latency at 500 per second.
    pub(super) p50_ms_at_500: f64,
    pub(super) p99_ms_at_500: f64,
    pub(super) max_ms_at_500: f64,
    /// CPU time of one review at that rate: the service wakes up for nearly each of them.
    pub(super) cpu_ms_per_review_at_500: f64,
    /// CPUs that other processes used at that rate.
    pub(super) others_cpu_share_at_500: f64,
}

/// Validations one after the other beside 200 heavy ones of another namespace, which are sent again as soon as they are answered.
#[derive(Clone, Debug, Serialize)]
pub(super) struct BesideFigures {
    pub(super) reviews: usize,
    /// Percentiles 50, 99 and 100 of the latency.
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
}

/// One line for each figure that has a target, and some that explain them.
pub(super) fn summary(report: &Report<WebhookFigures>) -> String {
    let WebhookFigures { mutate, validate, pod, peak_rss_kib, beside_heavy, jobset_bytes } = &report.figures;
    let mut table = Table::new(&["review of a JobSet of 42 kB", "measured", "target"]);
    for (name, figures, cpu) in [("mutate", mutate, CPU_MS), ("validate", validate, CPU_MS), ("Pod", pod, POD_CPU_MS)] {
        let mut figure =
            |what: &str, value, target, unit| table.figure(&format!("{name}: {what}"), value, target, unit);
        figure("CPU of a review", figures.cpu_ms_per_review, Some(cpu), "ms");
        figure("most per second", figures.reviews_per_second, None, "");
        figure("CPU of a review at 500 per second", figures.cpu_ms_per_review_at_500, None, "ms");
        figure("p50 at 500 per second", figures.p50_ms_at_500, None, "ms");
        figure("p99 at 500 per second", figures.p99_ms_at_500, Some(P99_MS), "ms");
        figure("longest", figures.max_ms_at_500, None, "ms");
    }
    table.figure("validate beside heavy reviews: p50", beside_heavy.p50_ms, None, "ms");
    table.figure("validate beside heavy reviews: longest", beside_heavy.max_ms, Some(BESIDE_MS), "ms");
    table.figure("resident memory, peak", megabytes(*peak_rss_kib), Some(RSS_MB), "MB");
    format!(
        "{table}The JobSet has {jobset_bytes} bytes as its user sends it, its reviews have {} (mutate) and {} (validate), that of the Pod {}. \
         The service's build is {}. Of {} CPUs, other processes used up to {:.2}.",
        mutate.review_bytes,
        validate.review_bytes,
        pod.review_bytes,
        report.build,
        report.cpus,
        mutate.others_cpu_share_at_500.max(validate.others_cpu_share_at_500),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::tests::lines;

    #[test]
    fn result_has_its_keys_summary_names_missed_targets() {
        let figures = |cpu, p99| ReviewFigures {
            cpu_ms_per_review: cpu,
            reviews_per_second: 2000.0,
            review_bytes: 70_000,
            p50_ms_at_500: 0.5,
            p99_ms_at_500: p99,
            max_ms_at_500: 9.0,
            cpu_ms_per_review_at_500: cpu,
            others_cpu_share_at_500: 0.25,
        };
        let (mutate, validate, pod) = (figures(0.3, 6.0), figures(0.36, 1.0), figures(0.21, 1.0));
        let beside_heavy = BesideFigures { reviews: 100, p50_ms: 9.0, p99_ms: 90.0, max_ms: 600.0 };
        let figures =
            WebhookFigures { mutate, validate, pod, peak_rss_kib: 20_000, beside_heavy, jobset_bytes: 41_900 };
        let report = Report { figures, build: "dev", cpus: 2 };
        let json = serde_json::to_value(&report).unwrap();
        for (pointer, expected) in [
            ("/mutate/cpu_ms_per_review", json!(0.3)),
            ("/mutate/p99_ms_at_500", json!(6.0)),
            ("/validate/cpu_ms_per_review", json!(0.36)),
            ("/pod/cpu_ms_per_review", json!(0.21)),
            ("/peak_rss_kib", json!(20_000)),
            ("/beside_heavy/max_ms", json!(600.0)),
            ("/build", json!("dev")),
        ] {
            assert_eq!(json.pointer(pointer), Some(&expected), "{pointer}");
        }
        let table = summary(&report);
        for line in [
            "mutate: CPU of a review 0.3 ms 0.35 ms met",
            "mutate: p99 at 500 per second 6 ms 2 ms MISSED",
            "validate: CPU of a review 0.36 ms 0.35 ms MISSED",
            "validate: most per second 2000",
            "Pod: CPU of a review 0.21 ms 0.2 ms MISSED",
            "validate beside heavy reviews: longest 600 ms 500 ms MISSED",
            "resident memory, peak 20.48 MB 24 MB met",
        ] {
            assert!(lines(&table).iter().any(|it| it == line), "no line {line:?} in\n{table}");
        }
        assert!(table.contains("other processes used up to 0.25"), "{table}");
    }
}
