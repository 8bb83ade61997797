//! Jobs that the API server refuses: many cost no more than one, and the JobSet says why it is idle for as long as it is.

use anyhow::Result;
use jobset_api::conditions::CHILD_REFUSED;
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::{Fixture, LIMIT, Space};
use crate::jobsets::{group, jobset, with};

/// Jobs of each JobSet here.
const JOBS: usize = 40;
/// Requests that the controller has under way at once for one JobSet.
const AT_ONCE: f64 = 32.0;

#[tokio::test]
async fn rejected_template_costs_one_request_and_one_event() -> Result<()> {
    let fixture = Fixture::start().await?;
    let no_containers = json!({"template": {"spec": {"template": {"spec": {"containers": []}}}}});
    fixture.create(jobset("train", &[with(group("w", JOBS, 1), &no_containers)])).await?;
    let condition = fixture.condition("train", CHILD_REFUSED, "True").await?;
    let message = &condition.message;
    assert_eq!(condition.reason, "Refused");
    assert!(message.starts_with("cannot create Job default/train-w-0: "), "{message}");
    assert!(message.contains("spec.template.spec.containers: Required value"), "{message}");

    let refused = r#"jobset_api_requests_total{code="422",resource="jobs",verb="create"}"#;
    let asked = || async { Ok::<f64, anyhow::Error>(fixture.controller.metric(refused).await?.unwrap_or_default()) };
    let (first, written) = (asked().await?, fixture.jobsets().get("train").await?.resource_version());
    assert!(first <= AT_ONCE + 1.0, "{first}");
    // After one second, and two, and four.
    let often = wait::until_met(LIMIT, "three more requests", || async {
        let now = asked().await?;
        Ok(if now >= first + 3.0 { Check::Met(now) } else { Check::Unmet(now.to_string()) })
    });
    let often = often.await?;
    assert!(often <= first + 4.0, "{first}, then {often}");
    assert_eq!(fixture.warnings().await?, [format!("JobCreationFailed: {message}")]);
    wait::until(LIMIT, "the refusals in one series", || async {
        let events = fixture.events().await?;
        let counts = events.into_iter().filter_map(|event| event.series).map(|series| series.count);
        Ok(counts.eq([4]).then_some(()))
    })
    .await?;
    assert_eq!(fixture.jobsets().get("train").await?.resource_version(), written, "nothing new was to be said");
    Ok(())
}

/// Lets there be so many Jobs in the namespace, and no more.
pub(crate) async fn allow_jobs(space: &Space, count: usize) -> Result<()> {
    let quotas: Api<ResourceQuota> = Api::default_namespaced(space.client.clone());
    let hard = json!({"count/jobs.batch": count.to_string()});
    let quota: Value = json!({"metadata": {"name": "few"}, "spec": {"hard": hard}});
    if quotas.get_opt("few").await?.is_some() {
        quotas.patch("few", &PatchParams::default(), &Patch::Merge(quota)).await?;
    } else {
        quotas.create(&PostParams::default(), &serde_json::from_value(quota)?).await?;
    }
    // Before its use is counted, another reason is given.
    wait::until(LIMIT, "the quota to be counted", || async {
        let quota = quotas.get("few").await?;
        let counted = quota.status.and_then(|status| status.hard) == quota.spec.and_then(|spec| spec.hard);
        Ok(counted.then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_quota_is_named_until_it_is_raised() -> Result<()> {
    let space = Space::new("quota").await?;
    allow_jobs(&space, 3).await?;
    space.create(jobset("train", &[group("w", JOBS, 1)])).await?;
    let message = space.condition("train", CHILD_REFUSED, "True").await?.message;
    assert!(message.starts_with("cannot create Job quota/train-w-"), "{message}");
    assert!(message.contains("exceeded quota: few"), "{message}");
    space.counts("train", "w", [3, 0, 0, 0, 0]).await?;

    allow_jobs(&space, JOBS).await?;
    wait::until_met(LIMIT, "all Jobs", || async {
        let found = space.jobs().list(&ListParams::default()).await?.items.len();
        Ok(if found == JOBS { Check::Met(()) } else { Check::Unmet(found.to_string()) })
    })
    .await?;
    let cleared = space.condition("train", CHILD_REFUSED, "False").await?;
    assert_eq!(
        (cleared.reason.as_str(), cleared.message.as_str()),
        ("Accepted", "no request of the JobSet is refused now")
    );
    assert_eq!(space.warnings().await?.len(), 1, "{:?}", space.warnings().await?);
    Ok(())
}
