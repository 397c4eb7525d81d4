//! How long to wait before trying again.
//! Not here: clocks and random numbers; the caller brings both.

use std::time::Duration;

/// Doubles from `first` with each failure in a row up to `most`, then spreads by up to a fifth either way.
///
/// `spread` is a number from 0 to 1 that the caller drew; `failures` counts from 1.
pub fn delay(first: Duration, most: Duration, failures: u32, spread: f64) -> Duration {
    let doubled = first.saturating_mul(1_u32 << failures.saturating_sub(1).min(20));
    doubled
        .min(most)
        .mul_f64(0.8 + 0.4 * spread.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_stays_below_the_limit_and_spreads() {
        let at = |failures, spread| {
            delay(
                Duration::from_secs(1),
                Duration::from_secs(60),
                failures,
                spread,
            )
        };
        assert_eq!(at(1, 0.5), Duration::from_secs(1));
        assert_eq!(at(3, 0.5), Duration::from_secs(4));
        assert_eq!(at(40, 0.5), Duration::from_secs(60));
        assert_eq!(at(1, 0.0), Duration::from_millis(800));
        assert!(at(u32::MAX, 1.0) <= Duration::from_secs(72));
    }
}
