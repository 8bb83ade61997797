//! JobSets that others make or suspend: the real managers of Kueue and Trainer, beyond what their own suites try.

mod kueue;
mod queue;
mod trainer;
