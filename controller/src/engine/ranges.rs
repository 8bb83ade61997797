//! Sets of completion indexes, as Kubernetes writes them.

use std::fmt;

/// Indexes as ranges, both ends included, in rising order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(i32, i32)>);

impl Ranges {
    /// Parses `0,3-5`. What is not of that form is left out.
    pub fn parse(text: &str) -> Self {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
        };
        let mut ranges: Vec<(i32, i32)> = text.split(',').filter_map(range).collect();
        ranges.sort_unstable();
        Self(ranges)
    }

    /// Whether the index is in the set.
    pub fn contains(&self, index: i32) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        after > 0 && self.0[after - 1].1 >= index
    }

    /// Number of indexes of the set that are in `0..size`.
    pub fn count_below(&self, size: i32) -> i32 {
        let of_range = |(first, last): &(i32, i32)| (*last.min(&(size - 1)) - first.max(&0) + 1).max(0);
        self.0.iter().map(of_range).fold(0, i32::saturating_add)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The indexes, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = i32> {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// The indexes `0..size`.
    pub fn below(size: i32) -> Self {
        Self(if size > 0 { vec![(0, size - 1)] } else { Vec::new() })
    }

    /// The indexes in `start..start + size`, shifted so that `start` becomes 0.
    #[must_use]
    pub fn slice(&self, start: i32, size: i32) -> Self {
        let ranges = self.0.iter().map(|(first, last)| ((first - start).max(0), (last - start).min(size - 1)));
        Self(ranges.filter(|(first, last)| first <= last).collect())
    }
}

/// Indexes in rising order, each once.
impl FromIterator<i32> for Ranges {
    fn from_iter<I: IntoIterator<Item = i32>>(indexes: I) -> Self {
        let mut ranges: Vec<(i32, i32)> = Vec::new();
        for index in indexes {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == index => *last = index,
                _ => ranges.push((index, index)),
            }
        }
        Self(ranges)
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
        let contained: Vec<i32> = (0..9).filter(|index| ranges.contains(*index)).collect();
        assert_eq!(contained, [0, 3, 4, 5, 7]);
        assert_eq!(Ranges::parse(""), Ranges::default());
        assert_eq!(Ranges::parse("x,2"), Ranges::parse("2"));
    }

    #[test]
    fn ranges_of_indexes_are_written_as_they_are_read() {
        let ranges: Ranges = [0, 3, 4, 5, 7].into_iter().collect();
        assert_eq!(ranges.to_string(), "0,3-5,7");
        assert_eq!(Ranges::parse(&ranges.to_string()), ranges);
        assert_eq!(ranges.slice(3, 3), Ranges::below(3));
        assert_eq!(ranges.slice(4, 4).to_string(), "0-1,3");
        assert_eq!(Ranges::below(0).to_string(), "");
    }
}
