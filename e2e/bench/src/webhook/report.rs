//! The figures of the admission service, and their table beside what they must be at most. Pure.

use serde::Serialize;

use crate::report::{Report, Table, megabytes};

/// Most CPU time of one review, in milliseconds.
const CPU_MS: f64 = 0.35;
/// Longest time within which 99 of 100 reviews must be answered, in milliseconds.
const P99_MS: f64 = 5.0;
/// Most resident memory, in MB.
const RSS_MB: f64 = 24.0;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct WebhookFigures {
    pub(super) mutate: ReviewFigures,
    pub(super) validate: ReviewFigures,
    /// Peak of the service's resident memory (`VmHWM`), from its start to the end of these loads.
    pub(super) peak_rss_kib: u64,
    /// The JobSet as its user sends it.
    pub(super) jobset_bytes: usize,
    /// The same for a JobSet that restarts in place.
    pub(super) in_place: InPlaceFigures,
    /// Reviews from which the CPU time of one was found, of each kind.
    pub(super) reviews: usize,
    /// How long 500 reviews per second were sent, of each kind.
    pub(super) paced_seconds: f64,
    /// Connections to the service.
    pub(super) connections: usize,
}

/// Reviews of one webhook.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ReviewFigures {
    #[serde(flatten)]
    pub(super) costs: ReviewCosts,
    /// Percentiles 50, 99 and 100 of the latency at 500 per second.
    pub(super) p50_ms_at_500: f64,
    pub(super) p99_ms_at_500: f64,
    pub(super) max_ms_at_500: f64,
    /// CPU time of one review at that rate: the service wakes up for nearly each of them.
    pub(super) cpu_ms_per_review_at_500: f64,
    /// CPUs that other processes used meanwhile.
    pub(super) others_cpu_share_at_500: f64,
}

/// Costs of the reviews of one webhook, sent one after the other on each connection.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ReviewCosts {
    /// CPU time of the service for one review, in user and in kernel mode.
    pub(super) cpu_ms_per_review: f64,
    /// Reviews answered in a second.
    pub(super) reviews_per_second: f64,
    /// The AdmissionReview, with the JobSet as the API server has it: managedFields are in it.
    pub(super) review_bytes: usize,
    /// The answer.
    pub(super) answer_bytes: usize,
    /// CPUs that other processes used meanwhile.
    pub(super) others_cpu_share: f64,
}

/// Reviews of a JobSet that restarts in place.
#[derive(Clone, Debug, Serialize)]
pub(super) struct InPlaceFigures {
    pub(super) mutate: ReviewCosts,
    pub(super) validate: ReviewCosts,
    /// Peak of the service's resident memory to the end.
    pub(super) peak_rss_kib: u64,
    /// The JobSet as its user sends it.
    pub(super) jobset_bytes: usize,
}

/// One line for each figure that has a target, and some that explain them.
pub(super) fn summary(report: &Report<WebhookFigures>) -> String {
    let WebhookFigures { mutate, validate, in_place, .. } = &report.figures;
    let mut table = Table::new(&["review of a JobSet of 42 kB", "measured", "target"]);
    for (name, figures) in [("mutate", mutate), ("validate", validate)] {
        table.figure(&format!("{name}: CPU of a review"), figures.costs.cpu_ms_per_review, Some(CPU_MS), "ms");
        table.figure(&format!("{name}: most per second"), figures.costs.reviews_per_second, None, "");
        table.figure(
            &format!("{name}: CPU of a review at 500 per second"),
            figures.cpu_ms_per_review_at_500,
            None,
            "ms",
        );
        table.figure(&format!("{name}: p50 at 500 per second"), figures.p50_ms_at_500, None, "ms");
        table.figure(&format!("{name}: p99 at 500 per second"), figures.p99_ms_at_500, Some(P99_MS), "ms");
        table.figure(&format!("{name}: longest"), figures.max_ms_at_500, None, "ms");
    }
    table.figure("resident memory, peak", megabytes(report.figures.peak_rss_kib), Some(RSS_MB), "MB");
    for (name, costs) in [("mutate", &in_place.mutate), ("validate", &in_place.validate)] {
        table.figure(&format!("{name} in place: CPU of a review"), costs.cpu_ms_per_review, Some(CPU_MS), "ms");
    }
    let others = [mutate, validate].map(|figures| figures.costs.others_cpu_share.max(figures.others_cpu_share_at_500));
    format!(
        "{table}The JobSet has {} bytes as its user sends it (in place: {}), its reviews have {} (mutate) and {} (validate). \
         The service's build is {}. Of {} CPUs, other processes used up to {:.2}.",
        report.figures.jobset_bytes,
        in_place.jobset_bytes,
        mutate.costs.review_bytes,
        validate.costs.review_bytes,
        report.build,
        report.cpus,
        others[0].max(others[1]),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::tests::lines;

    fn report() -> Report<WebhookFigures> {
        let costs = |cpu_ms_per_review| ReviewCosts {
            cpu_ms_per_review,
            reviews_per_second: 2000.0,
            review_bytes: 70_000,
            answer_bytes: 100,
            others_cpu_share: 0.1,
        };
        let figures = |cpu, p99| ReviewFigures {
            costs: costs(cpu),
            p50_ms_at_500: 0.5,
            p99_ms_at_500: p99,
            max_ms_at_500: 9.0,
            cpu_ms_per_review_at_500: cpu,
            others_cpu_share_at_500: 0.25,
        };
        let (mutate, validate) = (costs(0.3), costs(0.3));
        let figures = WebhookFigures {
            mutate: figures(0.3, 6.0),
            validate: figures(0.36, 1.0),
            peak_rss_kib: 20_000,
            jobset_bytes: 41_900,
            in_place: InPlaceFigures { mutate, validate, peak_rss_kib: 21_000, jobset_bytes: 41_800 },
            reviews: 5000,
            paced_seconds: 20.0,
            connections: 3,
        };
        Report { figures, build: "dev", cpus: 2 }
    }

    #[test]
    fn result_has_the_keys_that_others_read() {
        let json = serde_json::to_value(report()).unwrap();
        let figure = |pointer: &str| json.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(figure("/mutate/cpu_ms_per_review"), json!(0.3));
        assert_eq!(figure("/mutate/p99_ms_at_500"), json!(6.0));
        assert_eq!(figure("/validate/cpu_ms_per_review"), json!(0.36));
        assert_eq!(figure("/validate/p99_ms_at_500"), json!(1.0));
        assert_eq!((figure("/peak_rss_kib"), figure("/build")), (json!(20_000), json!("dev")));
    }

    #[test]
    fn summary_says_which_targets_are_met_and_missed() {
        let table = summary(&report());
        for line in [
            "mutate: CPU of a review 0.3 ms 0.35 ms met",
            "mutate: p99 at 500 per second 6 ms 5 ms MISSED",
            "validate: CPU of a review 0.36 ms 0.35 ms MISSED",
            "validate: most per second 2000",
            "resident memory, peak 20.48 MB 24 MB met",
        ] {
            assert!(lines(&table).iter().any(|it| it == line), "no line {line:?} in\n{table}");
        }
        assert!(table.contains("other processes used up to 0.25"), "{table}");
    }
}
