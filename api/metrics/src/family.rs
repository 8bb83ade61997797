//! A metric whose series are computed at each scrape. No series can outlive its object.

use prometheus::Registry;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// A metric with the series of one scrape.
#[derive(Debug)]
pub struct Family {
    kind: MetricType,
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    series: Vec<Metric>,
}

impl Family {
    /// A gauge with these labels and without series.
    pub fn gauge(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self { kind: MetricType::GAUGE, name, help, labels, series: Vec::new() }
    }

    /// A counter with these labels and without series.
    pub fn counter(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self { kind: MetricType::COUNTER, ..Self::gauge(name, help, labels) }
    }

    /// Adds a series. `values` are the values of the labels, in the order of the labels.
    pub fn add(&mut self, values: &[&str], value: f64) {
        let pair = |(name, value): (&&str, &&str)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        };
        let mut series = Metric::from_label(self.labels.iter().zip(values).map(pair).collect());
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            series.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            series.set_gauge(gauge);
        }
        self.series.push(series);
    }

    /// The description for a registry.
    fn desc(&self) -> prometheus::Result<Desc> {
        let labels = self.labels.iter().map(|&label| label.to_owned()).collect();
        Desc::new(self.name.to_owned(), self.help.to_owned(), labels, std::collections::HashMap::new())
    }
}

/// Registers the families that this function makes at each scrape: the same ones always, with any series.
pub fn register_families(
    registry: &Registry,
    families: impl Fn() -> Vec<Family> + Send + Sync + 'static,
) -> prometheus::Result<()> {
    let descs = families().iter().map(Family::desc).collect::<prometheus::Result<_>>()?;
    registry.register(Box::new(FamilyCollector { descs, families }))
}

struct FamilyCollector<F> {
    descs: Vec<Desc>,
    families: F,
}

impl<F: Fn() -> Vec<Family> + Send + Sync> Collector for FamilyCollector<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        (self.families)().into_iter().map(Into::into).collect()
    }
}

impl From<Family> for MetricFamily {
    fn from(family: Family) -> Self {
        let mut of_scrape = Self::default();
        of_scrape.set_name(family.name.to_owned());
        of_scrape.set_help(family.help.to_owned());
        of_scrape.set_field_type(family.kind);
        of_scrape.set_metric(family.series);
        of_scrape
    }
}
