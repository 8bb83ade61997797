//! A metric whose series are made for each scrape, from what there is then: there are none to be forgotten.

use prometheus::core::Desc;
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
    /// A gauge with these labels, and no series yet.
    pub fn gauge(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self { kind: MetricType::GAUGE, name, help, labels, series: Vec::new() }
    }

    /// A counter with these labels, and no series yet.
    pub fn counter(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self { kind: MetricType::COUNTER, ..Self::gauge(name, help, labels) }
    }

    /// Adds a series, with the values of its labels in their order.
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

    /// What a registry wants to know of it beforehand.
    ///
    /// # Errors
    /// If Prometheus does not allow the name, or that of a label.
    pub fn desc(&self) -> prometheus::Result<Desc> {
        let labels = self.labels.iter().map(|&label| label.to_owned()).collect();
        Desc::new(self.name.to_owned(), self.help.to_owned(), labels, std::collections::HashMap::new())
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
