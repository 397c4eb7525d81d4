//! Ages in the format of kubectl's AGE column.

/// Returns the text for a number of seconds.
pub(crate) fn format(seconds: i64) -> String {
    let minute = 60;
    let hour = 60 * minute;
    let day = 24 * hour;
    let year = 365 * day;
    let pair = |big: i64, big_unit: &str, small: i64, small_unit: &str| {
        let rest = seconds % big / small;
        if rest == 0 {
            format!("{}{big_unit}", seconds / big)
        } else {
            format!("{}{big_unit}{rest}{small_unit}", seconds / big)
        }
    };
    match seconds {
        ..0 => "0s".to_owned(),
        s if s < 2 * minute => format!("{s}s"),
        s if s < 10 * minute => pair(minute, "m", 1, "s"),
        s if s < 3 * hour => format!("{}m", s / minute),
        s if s < 8 * hour => pair(hour, "h", minute, "m"),
        s if s < 2 * day => format!("{}h", s / hour),
        s if s < 8 * day => pair(day, "d", hour, "h"),
        s if s < 2 * year => format!("{}d", s / day),
        s if s < 8 * year => pair(year, "y", day, "d"),
        s => format!("{}y", s / year),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_like_kubectl() {
        for (seconds, text) in [
            (-5, "0s"),
            (119, "119s"),
            (125, "2m5s"),
            (600, "10m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (47 * 3600, "47h"),
            (49 * 3600, "2d1h"),
            (9 * 86400, "9d"),
        ] {
            assert_eq!(format(seconds), text);
        }
    }
}
