//! Sets of completion indexes, as Kubernetes writes them.
//!
//! Every operation costs what the ranges of its sets cost, however many indexes they hold: a specification or a status may say
//! 2147483647.

use std::fmt;

/// Indexes as ranges, both ends included, in rising order. Ranges neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(i64, i64)>);

impl Ranges {
    /// Parses `0,3-5`. What is not of that form is left out.
    pub fn parse(text: &str) -> Self {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
        };
        let mut ranges: Vec<(i64, i64)> = text.split(',').filter_map(range).collect();
        ranges.sort_unstable();
        ranges.into_iter().collect()
    }

    pub fn contains(&self, index: i32) -> bool {
        let index = i64::from(index);
        let after = self.0.partition_point(|(first, _)| *first <= index);
        after > 0 && self.0[after - 1].1 >= index
    }

    /// Number of indexes of the set that are in `0..size`.
    pub fn count_below(&self, size: i64) -> i64 {
        let reached = self.0.partition_point(|(first, _)| *first < size);
        self.0[..reached].iter().map(|(first, last)| last.min(&(size - 1)) - first + 1).fold(0, i64::saturating_add)
    }

    pub fn count(&self) -> i64 {
        self.count_below(i64::MAX)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = (i64, i64)> {
        self.0.iter().copied()
    }

    pub fn all() -> Self {
        Self(vec![(0, i64::MAX)])
    }

    pub fn below(size: i64) -> Self {
        [(0, size.saturating_sub(1))].into_iter().collect()
    }

    /// The indexes in `start..start + size`, shifted so that `start` becomes 0.
    #[must_use]
    pub fn slice(&self, start: i64, size: i64) -> Self {
        let end = start.saturating_add(size);
        let from = self.0.partition_point(|(_, last)| *last < start);
        let ranges = self.0[from..].iter().take_while(|(first, _)| *first < end);
        ranges.map(|(first, last)| (first.max(&start) - start, last.min(&(end - 1)) - start)).collect()
    }

    /// The indexes that are in this set, in `other` or in both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut ranges: Vec<(i64, i64)> = self.0.iter().chain(&other.0).copied().collect();
        ranges.sort_unstable();
        ranges.into_iter().collect()
    }
}

/// Ranges in the order of their beginnings. One that is empty or begins below 0 is left out.
impl FromIterator<(i64, i64)> for Ranges {
    fn from_iter<I: IntoIterator<Item = (i64, i64)>>(ranges: I) -> Self {
        let mut merged: Vec<(i64, i64)> = Vec::new();
        for (first, last) in ranges.into_iter().filter(|(first, last)| 0 <= *first && first <= last) {
            match merged.last_mut() {
                Some((_, before)) if first <= before.saturating_add(1) => *before = last.max(*before),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }
}

/// Indexes in rising order.
impl FromIterator<i32> for Ranges {
    fn from_iter<I: IntoIterator<Item = i32>>(indexes: I) -> Self {
        indexes.into_iter().map(|index| (index.into(), index.into())).collect()
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (first, last)) in self.0.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_read_as_ranges() {
        let ranges = Ranges::parse("0,3-5,7");
        assert_eq!(ranges.count_below(5), 3, "0, 3 and 4; the others are outside of the Job's size");
        assert_eq!(ranges.count(), 5);
        let contained: Vec<i32> = (0..9).filter(|index| ranges.contains(*index)).collect();
        assert_eq!(contained, [0, 3, 4, 5, 7]);
        assert_eq!(Ranges::parse(""), Ranges::default());
        assert_eq!(Ranges::parse("x,2"), Ranges::parse("2"));
    }

    #[test]
    fn ranges_that_overlap_touch_or_run_backwards_become_a_set() {
        assert_eq!(Ranges::parse("4-9,0-5,5,10,7-6,-3").to_string(), "0-10");
        assert_eq!(Ranges::parse("0-9,2-3").count(), 10);
    }

    #[test]
    fn ranges_of_indexes_are_written_as_they_are_read() {
        let ranges: Ranges = [0, 3, 4, 5, 7].into_iter().collect();
        assert_eq!(ranges.to_string(), "0,3-5,7");
        assert_eq!(Ranges::parse(&ranges.to_string()), ranges);
        assert_eq!(ranges.slice(3, 3), Ranges::below(3));
        assert_eq!(ranges.slice(4, 4).to_string(), "0-1,3");
        assert_eq!(ranges.slice(8, 4), Ranges::default());
        assert_eq!(Ranges::below(0).to_string(), "");
        assert_eq!(ranges.union(&Ranges::parse("1-2,9")).to_string(), "0-5,7,9");
    }

    #[test]
    fn ranges_at_ends_of_integers_do_not_overflow() {
        let all = Ranges::parse(&format!("0-{}", i64::MAX));
        assert_eq!((all.count(), all.count_below(i64::MIN)), (i64::MAX, 0));
        assert!(all.contains(i32::MAX) && !all.contains(i32::MIN));
        assert_eq!(all.slice(i64::MAX, i64::MAX).count() + all.slice(i64::MIN, 1).count(), 0);
        assert_eq!(all.union(&all), all);
        assert_eq!(Ranges::below(i64::MIN), Ranges::default());
    }
}
