//! Sets of completion indexes, as Kubernetes writes them.

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
}
