//! What a reconciliation and an event of a Pod cost: `make bench-micro`.

#![allow(missing_docs, reason = "criterion's macros make public functions without documentation")]
#![allow(clippy::expect_used, reason = "what is measured is of the schema, or nothing is measured")]

mod world;

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use jobset_store::View;
use jobset_store::pods::StreamReport;

use world::{World, view};

/// A reconciliation of a JobSet in which all is well, with 25 Pods in each Job; of 5,000 replicatedJobs; of 1,000 Jobs on 3,000
/// nodes with outdated kubelets; of 30 Jobs that restart, with half of their Pods at the barrier for 20 s; and of a JobSet that
/// creates the first of its 20,000 Jobs.
fn plan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan/jobs");
    for jobs in [1, 20, 200] {
        let world = World::new(jobs, 25);
        group.bench_function(BenchmarkId::from_parameter(jobs), |bencher| bencher.iter(|| black_box(world.plan())));
    }
    group.finish();
    let world = World::of_groups(5_000, 1, 1);
    criterion.bench_function("plan/replicated-jobs/5000", |bencher| bencher.iter(|| black_box(world.plan())));
    let mut world = World::new(1_000, 3);
    world.outdate_nodes();
    criterion.bench_function("plan/outdated-nodes/3000", |bencher| bencher.iter(|| black_box(world.plan())));
    let mut group = criterion.benchmark_group("plan/barrier/pods");
    for pods in [1_500, 15_000] {
        let mut world = World::new(30, pods / 30);
        world.wait_at_barrier();
        group.bench_function(BenchmarkId::from_parameter(pods), |bencher| bencher.iter(|| black_box(world.plan())));
    }
    group.finish();
    let world = World::without_jobs(20_000);
    criterion.bench_function("plan/missing-jobs/20000", |bencher| bencher.iter(|| black_box(world.plan())));
}

/// An agent reports the next epoch, and then this one again: each time a Pod changes its place in the histogram.
fn see(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("see/pods");
    for pods in [100, 1_000, 15_000] {
        let mut world = World::new(pods / 100, 100);
        let reports = ["2", "1"].map(|epoch| {
            let report = |pod: &serde_json::Value| {
                let mut pod = pod.clone();
                pod["metadata"]["annotations"]["jobset.sigs.k8s.io/epoch"] = epoch.into();
                (pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(), view(&pod.to_string()))
            };
            world.pods.iter().map(report).collect::<Vec<_>>()
        });
        // Every Pod once, then every Pod once more.
        let mut order = (0..2 * pods).cycle();
        group.bench_function(BenchmarkId::from_parameter(pods), |bencher| {
            let event = || {
                let next = order.next().unwrap_or_default();
                let (name, view) = &reports[next / pods][next % pods];
                (name.clone(), view.clone())
            };
            bencher.iter_batched(
                event,
                |(name, view)| {
                    let event = world.event(&name, View::Pod(view));
                    black_box(world.store.apply(event))
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// An agent reports the next epoch over the stream, and then an event of its Pod shows the annotation with the epoch before.
fn report(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("report/pods");
    for pods in [100, 1_000, 15_000] {
        let mut world = World::new(pods / 100, 100);
        let views: Vec<_> = world.pods.iter().map(|pod| view(&pod.to_string())).collect();
        let key = world.key.clone();
        let mut order = (0..pods).cycle();
        group.bench_function(BenchmarkId::from_parameter(pods), |bencher| {
            let next = || {
                let view = views[order.next().unwrap_or_default()].clone();
                let (pod, pod_uid) = (view.name.clone(), view.uid.clone());
                (StreamReport { pod, pod_uid, epoch: 2, exit: None, started: None, progress: None }, view)
            };
            bencher.iter_batched(
                next,
                |(report, view)| {
                    let name = report.pod.clone();
                    world.store.apply_report(&key, report);
                    let event = world.event(&name, View::Pod(view));
                    black_box(world.store.apply(event))
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// A Pod of some 6 kB from the wire to what the store keeps.
fn read(criterion: &mut Criterion) {
    let text = World::new(1, 1).pods[0].to_string();
    criterion.bench_function(&format!("read/{}-bytes", text.len()), |bencher| bencher.iter(|| view(black_box(&text))));
}

criterion_group!(rules, plan, see, report, read);
criterion_main!(rules);
